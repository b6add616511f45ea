//! Requests of Pyroscope's own protocol, `push.v1.PushRequest` (grafana/pyroscope, api/push/v1/push.proto): one series per group
//! of profile types, each with a gzipped pprof profile. Unlike OTLP, it can express the type names that Pyroscope's dashboards
//! use, such as `memory:alloc_space:bytes:space:bytes`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::message_writer::MessageWriter;
use super::otlp::{EncodedRequest, MAX_SAMPLES_PER_PROFILE};
use super::{gzip, pprof};
use crate::*;

/// Encodes into requests whose profiles have at most `max_bytes` each before compression, and at most
/// [`MAX_SAMPLES_PER_PROFILE`] samples. Lossless; a profile of one sample is not split further.
pub fn encode(data: ProfilesData, max_bytes: usize) -> Vec<EncodedRequest> {
    let mut requests =
        RequestWriter { max_bytes, requests: Vec::new(), open: MessageWriter::default(), raw: 0, samples: 0 };
    let ProfilesData { dictionary, resources } = data;
    for mut resource in resources {
        let mut groups: BTreeMap<String, Vec<Profile>> = BTreeMap::new();
        for mut profile in std::mem::take(&mut resource.profiles) {
            let names = kinds::of_type(profile.type_name()).and_then(|kind| kind.pyroscope.as_ref());
            let series = match names {
                Some(names) => names.series.to_owned(),
                None => label_name(profile.type_name()).into_owned(),
            };
            if let Some((kind, unit)) = names.and_then(|names| names.sample_type) {
                profile.sample_type = ValueType::new(kind, unit);
            }
            if let Some((kind, unit)) = names.and_then(|names| names.period_type) {
                profile.period_type = ValueType::new(kind, unit);
            }
            groups.entry(series).or_default().push(profile);
        }
        let mut part = ProfilesData { dictionary: dictionary.clone(), resources: vec![resource] };
        for (series, profiles) in groups {
            part.resources[0].profiles = profiles;
            requests.add(&series, &part);
        }
    }
    requests.close();
    requests.requests
}

struct RequestWriter {
    max_bytes: usize,
    requests: Vec<EncodedRequest>,
    open: MessageWriter,
    /// Bytes before compression, and samples, of the profiles in `open`.
    raw: usize,
    samples: usize,
}

impl RequestWriter {
    fn add(&mut self, series: &str, data: &ProfilesData) {
        let samples = data.sample_count();
        if samples == 0 {
            return;
        }
        let raw = pprof::encode_with_label_names(data, &sample_label_name);
        if samples > 1 && (raw.len() > self.max_bytes || samples > MAX_SAMPLES_PER_PROFILE) {
            drop(raw);
            for half in halves(data) {
                self.add(series, &half);
            }
            return;
        }
        if self.raw > 0 && self.raw + raw.len() > self.max_bytes {
            self.close();
        }
        self.raw += raw.len();
        self.samples += samples;
        let labels = series_labels(series, &data.resources[0].resource);
        self.open.message(1, |out| {
            for (name, value) in &labels {
                out.message(1, |out| {
                    out.bytes(1, name.as_bytes());
                    out.bytes(2, value.as_bytes());
                });
            }
            out.message(2, |out| out.bytes(1, &gzip(&raw)));
        });
    }

    fn close(&mut self) {
        if self.raw > 0 {
            let body = std::mem::take(&mut self.open).into_bytes();
            self.requests.push(EncodedRequest { body, samples: std::mem::take(&mut self.samples) });
            self.raw = 0;
        }
    }
}

/// The first and the second half of the samples, in the order of the profiles.
fn halves(data: &ProfilesData) -> [ProfilesData; 2] {
    let mut first = data.clone();
    let mut second = data.clone();
    let mut left = data.sample_count() / 2;
    let profiles = |data: &mut ProfilesData| std::mem::take(&mut data.resources[0].profiles);
    let (mut heads, mut tails) = (profiles(&mut first), profiles(&mut second));
    for (head, tail) in heads.iter_mut().zip(&mut tails) {
        let kept = left.min(head.samples.len());
        head.samples.truncate(kept);
        tail.samples.drain(..kept);
        left -= kept;
    }
    first.resources[0].profiles = heads;
    second.resources[0].profiles = tails;
    [first, second]
}

/// The labels of a series, sorted by name: its type, and the resource. Pyroscope requires `service_name`.
fn series_labels(series: &str, resource: &[Attribute]) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for attribute in resource {
        let (name, value) = (label_name(&attribute.key).into_owned(), attribute.value.as_ref().to_string());
        if !value.is_empty() {
            labels.entry(name).or_insert(value);
        }
    }
    labels.insert("__name__".to_owned(), series.to_owned());
    // Allocations and waits are those of the window. Without it, Pyroscope takes them for totals since the start and subtracts the
    // previous profile (pkg/model/labels.go, 1.0 to 2.x).
    labels.insert("__delta__".to_owned(), "false".to_owned());
    labels
}

/// The name of a label of samples; `None` for the service, which is a label of the series.
fn sample_label_name(key: &str) -> Option<Cow<'_, str>> {
    (!matches!(key, "service.name" | pprof::names::LOCAL_ROOT)).then(|| label_name(key))
}

/// A name that every version of Pyroscope accepts: letters, digits (not first) and `_`.
pub fn label_name(key: &str) -> Cow<'_, str> {
    let is_valid = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let starts_with_digit = key.starts_with(|first: char| first.is_ascii_digit());
    if !starts_with_digit && key.chars().all(is_valid) {
        return Cow::Borrowed(key);
    }
    let valid = key.chars().map(|character| if is_valid(character) { character } else { '_' });
    Cow::Owned(starts_with_digit.then_some('_').into_iter().chain(valid).collect())
}
