//! Rules of resources, scopes, profiles and samples.

use std::collections::HashMap;

use super::references::{text, References};
use super::{CheckSettings, Findings};
use crate::wire::otlp as wire;
use crate::wire::otlp::any_value::Value;
use spanprof_profile::encode::otlp::MAX_SAMPLES_PER_PROFILE;

const HOUR_NS: u64 = 3_600_000_000_000;
const CLOCK_TOLERANCE_NS: u64 = 1_000_000_000;
const TEN_MINUTES_NS: u64 = 600_000_000_000;
/// Pyroscope's default limit, resource and sample attributes together.
const MAX_LABELS: usize = 30;
/// Default limit of gRPC receivers.
const MAX_REQUEST_BYTES: usize = 4 << 20;

pub(super) fn check(
    request: &wire::ProfilesData,
    dictionary: &wire::ProfilesDictionary,
    settings: &CheckSettings,
    used: &mut References,
    findings: &mut Findings,
) {
    let length = prost::Message::encoded_len(request);
    if length >= MAX_REQUEST_BYTES {
        findings.warn("", "request-size", || {
            format!("The request has {length} bytes; gRPC receivers reject 4 MiB and more, so split it.")
        });
    }
    if request.resource_profiles.iter().all(|resource| resource.scope_profiles.iter().all(|s| s.profiles.is_empty())) {
        findings.error("resource_profiles", "no-profiles", || "The request contains no profile.".to_owned());
    }
    let mut windows = Vec::new();
    for (nth, resource) in request.resource_profiles.iter().enumerate() {
        let at = format!("resource_profiles[{nth}]");
        let labels = check_resource(resource, dictionary, &at, used, findings);
        for (nth, scope) in resource.scope_profiles.iter().enumerate() {
            let at = format!("{at}.scope_profiles[{nth}]");
            match &scope.scope {
                None => findings.warn(format!("{at}.scope"), "no-scope", || {
                    "The scope is missing; Parca requires it for the names of metrics.".to_owned()
                }),
                Some(named) if named.name.is_empty() => findings.warn(format!("{at}.scope.name"), "scope-name", || {
                    "The scope has no name; Parca uses it for the names of metrics.".to_owned()
                }),
                Some(named) => {
                    key_values(&named.attributes, dictionary, &format!("{at}.scope.attributes"), used, findings);
                }
            }
            for (nth, profile) in scope.profiles.iter().enumerate() {
                let at = format!("{at}.profiles[{nth}]");
                check_profile(profile, dictionary, settings, labels, &at, used, findings);
                windows.push((profile.profile_id.clone(), at));
            }
        }
    }
    let mut ids: HashMap<Vec<u8>, String> = HashMap::new();
    for (id, at) in windows.into_iter().filter(|(id, _)| id.iter().any(|byte| *byte != 0)) {
        match ids.get(&id) {
            Some(first) => findings.error(format!("{at}.profile_id"), "profile-id-twice", || {
                format!("The id equals that of {first}; ids must be unique.")
            }),
            None => drop(ids.insert(id, at)),
        }
    }
}

/// Returns the number of labels that receivers create from the resource.
fn check_resource(
    resource: &wire::ResourceProfiles,
    dictionary: &wire::ProfilesDictionary,
    at: &str,
    used: &mut References,
    findings: &mut Findings,
) -> usize {
    let Some(described) = &resource.resource else {
        findings.warn(format!("{at}.resource"), "no-resource", || {
            "The resource is missing; Parca rejects the profile, others store it under an unknown service.".to_owned()
        });
        return 0;
    };
    let (path, at) = (at, format!("{at}.resource.attributes"));
    let keys = key_values(&described.attributes, dictionary, &at, used, findings);
    if keys.contains(&"telemetry.sdk.name") && !keys.contains(&"telemetry.sdk.language") {
        findings.warn(&at, "sdk-language", || "telemetry.sdk.name requires telemetry.sdk.language.".to_owned());
    }
    let pid = described.attributes.iter().find(|attribute| attribute.key == "process.pid");
    let is_number = |value: &Value| match value {
        Value::IntValue(_) | Value::StringValueStrindex(_) => true,
        // Of this profiler and others: Pyroscope and Parca lose the integers of resources.
        Value::StringValue(text) => text.parse::<u32>().is_ok(),
        _ => false,
    };
    if pid.is_some_and(|pid| !pid.value.as_ref().and_then(|value| value.value.as_ref()).is_some_and(is_number)) {
        findings.warn(&at, "pid", || "process.pid must be an integer.".to_owned());
    }
    if resource.schema_url.is_empty() {
        findings.warn(format!("{path}.schema_url"), "schema-url", || {
            "There is no schema_url; receivers do not know the version of the attributes' names.".to_owned()
        });
    }
    if !keys.contains(&"service.name") {
        findings.warn(at, "service-name", || {
            "There is no service.name; receivers store the profile under an unknown service.".to_owned()
        });
    }
    keys.len()
}

/// Checks attributes with inline or referenced keys; returns the keys.
fn key_values<'d>(
    attributes: &'d [wire::KeyValue],
    dictionary: &'d wire::ProfilesDictionary,
    at: &str,
    used: &mut References,
    findings: &mut Findings,
) -> Vec<&'d str> {
    let mut keys: Vec<&str> = Vec::with_capacity(attributes.len());
    for (nth, attribute) in attributes.iter().enumerate() {
        let mut referenced = attribute.key_strindex != 0;
        if referenced {
            used.strings.mark(attribute.key_strindex, || format!("{at}[{nth}].key_strindex"), findings);
        }
        if let Some(Value::StringValueStrindex(index)) = attribute.value.as_ref().and_then(|value| value.value.as_ref())
        {
            referenced = true;
            used.strings.mark(*index, || format!("{at}[{nth}].value.string_value_strindex"), findings);
        }
        if referenced {
            findings.warn(format!("{at}[{nth}]"), "references", || {
                "Key or value is a reference into the string table; Pyroscope, Parca and older Collectors drop such \
                 attributes. Write key and value inline."
                    .to_owned()
            });
        }
        if referenced && !attribute.key.is_empty() && attribute.key_strindex != 0 {
            findings.error(format!("{at}[{nth}].key"), "key-both", || {
                "Both a key and a reference to a key are set; only one is allowed.".to_owned()
            });
        }
        let key = if attribute.key_strindex != 0 { text(dictionary, attribute.key_strindex) } else { &attribute.key };
        if key.is_empty() {
            findings.error(format!("{at}[{nth}].key"), "key-empty", || "The attribute has no key.".to_owned());
        } else if keys.contains(&key) {
            findings.error(format!("{at}[{nth}]"), "attribute-key", || {
                format!("The attribute key {key:?} occurs more than once; keys must be unique.")
            });
        }
        // Beyond any real resource; bounds the linear search for duplicates.
        if keys.len() < 1000 {
            keys.push(key);
        }
    }
    keys
}

fn check_profile(
    profile: &wire::Profile,
    dictionary: &wire::ProfilesDictionary,
    settings: &CheckSettings,
    resource_labels: usize,
    at: &str,
    used: &mut References,
    findings: &mut Findings,
) {
    check_types(profile, dictionary, at, used, findings);
    check_window(profile, settings, at, findings);
    match profile.profile_id.len() {
        0 | 16 => {}
        length => findings
            .error(format!("{at}.profile_id"), "profile-id", || format!("The id has {length} bytes; it must have 16.")),
    }
    if profile.original_payload_format.is_empty() != profile.original_payload.is_empty() {
        findings.error(format!("{at}.original_payload"), "payload", || {
            "Payload and payload format must be set together.".to_owned()
        });
    }
    used.mark_attributes(&profile.attribute_indices, dictionary, || format!("{at}.attribute_indices"), findings);
    match profile.samples.len() {
        0 => findings.warn(format!("{at}.samples"), "no-samples", || {
            "The profile has no samples; Parca rejects it, others store nothing.".to_owned()
        }),
        count if count > MAX_SAMPLES_PER_PROFILE => findings.warn(format!("{at}.samples"), "samples", || {
            format!("{count} samples; Pyroscope accepts {MAX_SAMPLES_PER_PROFILE} per profile, so split it.")
        }),
        _ => {}
    }
    let mut identities: HashMap<(i32, Vec<i32>, i32, Vec<u64>), usize> = HashMap::new();
    for (nth, sample) in profile.samples.iter().enumerate() {
        let path = |field: &str| format!("{at}.samples[{nth}]{field}");
        used.stacks.mark(sample.stack_index, || path(".stack_index"), findings);
        used.links.mark(sample.link_index, || path(".link_index"), findings);
        used.mark_attributes(&sample.attribute_indices, dictionary, || path(".attribute_indices"), findings);
        check_shape(profile, sample, path, findings);
        // Receivers also create labels from the trace and span of the link.
        let labels = resource_labels + sample.attribute_indices.len() + if sample.link_index != 0 { 2 } else { 0 };
        if labels > MAX_LABELS {
            findings.warn(path(".attribute_indices"), "labels", || {
                format!("{labels} labels including those of the resource; Pyroscope accepts {MAX_LABELS}.")
            });
        }
        let mut attributes = sample.attribute_indices.clone();
        attributes.sort_unstable();
        // Samples that are not aggregated differ in their times.
        let times = sample.timestamps_unix_nano.clone();
        let first = *identities.entry((sample.stack_index, attributes, sample.link_index, times)).or_insert(nth);
        if first != nth {
            findings.warn(path(""), "identity", || {
                format!("Stack, attributes and link equal those of sample {first}; merge the values into one sample.")
            });
        }
    }
}

fn check_types(
    profile: &wire::Profile,
    dictionary: &wire::ProfilesDictionary,
    at: &str,
    used: &mut References,
    findings: &mut Findings,
) {
    for (field, value_type) in [("sample_type", &profile.sample_type), ("period_type", &profile.period_type)] {
        let Some(value_type) = value_type else { continue };
        used.strings.mark(value_type.type_strindex, || format!("{at}.{field}.type_strindex"), findings);
        used.strings.mark(value_type.unit_strindex, || format!("{at}.{field}.unit_strindex"), findings);
        let kind = text(dictionary, value_type.type_strindex);
        if kind.contains('-') {
            findings.warn(format!("{at}.{field}"), "dash", || {
                format!("The type {kind:?} contains \"-\"; Pyroscope rejects it, so write \"_\".")
            });
        }
    }
    let named = |value_type: &Option<wire::ValueType>| match value_type {
        Some(value_type) => !text(dictionary, value_type.type_strindex).is_empty(),
        None => false,
    };
    if !named(&profile.sample_type) {
        findings.error(format!("{at}.sample_type"), "sample-type", || {
            "The sample type is missing; the values have no meaning without it.".to_owned()
        });
    }
    let off_cpu = profile.sample_type.is_some_and(|sample_type| {
        (text(dictionary, sample_type.type_strindex), text(dictionary, sample_type.unit_strindex))
            == ("off_cpu", "nanoseconds")
    });
    if (!named(&profile.period_type) || profile.period == 0) && !off_cpu {
        findings.warn(format!("{at}.period"), "period", || {
            "Period or period type is missing; Pyroscope rejects the profile (\"invalid metric name\").".to_owned()
        });
    }
    if profile.period < 0 {
        findings.error(format!("{at}.period"), "period-negative", || "The period is negative.".to_owned());
    }
}

fn check_window(profile: &wire::Profile, settings: &CheckSettings, at: &str, findings: &mut Findings) {
    let start = profile.time_unix_nano;
    if start == 0 {
        findings.warn(format!("{at}.time_unix_nano"), "time", || {
            "The window's start is missing; Pyroscope uses the time of arrival.".to_owned()
        });
    }
    if profile.duration_nano == 0 {
        findings.warn(format!("{at}.duration_nano"), "duration", || {
            "The window has no duration; Pyroscope assumes 10 seconds.".to_owned()
        });
    }
    let Some(end) = start.checked_add(profile.duration_nano) else {
        return findings
            .error(format!("{at}.duration_nano"), "window", || "The end of the window exceeds 64 bits.".to_owned());
    };
    if let Some(now) = settings.now_unix_nano.filter(|_| start != 0) {
        if start.saturating_add(HOUR_NS) < now {
            findings.warn(format!("{at}.time_unix_nano"), "too-old", || {
                format!(
                    "The window began {} minutes ago; Pyroscope rejects more than 60.",
                    (now - start) / 60_000_000_000
                )
            });
        }
        if start > now.saturating_add(TEN_MINUTES_NS) {
            findings.warn(format!("{at}.time_unix_nano"), "too-new", || {
                format!(
                    "The window begins in {} minutes; Pyroscope rejects more than 10.",
                    (start - now) / 60_000_000_000
                )
            });
        }
    }
    let range = start..end;
    // The clocks of samples and window may differ slightly.
    let near = start.saturating_sub(CLOCK_TOLERANCE_NS)..=end.saturating_add(CLOCK_TOLERANCE_NS);
    for (nth, sample) in profile.samples.iter().enumerate() {
        if let Some(outside) = sample.timestamps_unix_nano.iter().find(|time| start != 0 && !range.contains(time)) {
            let (path, is_near) = (format!("{at}.samples[{nth}].timestamps_unix_nano"), near.contains(outside));
            let sentence = || format!("The timestamp {outside} is outside the window, {start} to {end}.");
            if is_near {
                findings.warn(path, "timestamp-near", sentence)
            } else {
                findings.error(path, "timestamp", sentence)
            }
        }
    }
}

fn check_shape(profile: &wire::Profile, sample: &wire::Sample, path: impl Fn(&str) -> String, findings: &mut Findings) {
    let (values, times) = (sample.values.len(), sample.timestamps_unix_nano.len());
    match (values, times) {
        (0, 0) => findings.error(path(""), "shape-empty", || "There are neither values nor timestamps.".to_owned()),
        (1, 0) | (0, _) => {}
        (_, 0) => findings.error(path(".values"), "shape-values", || {
            format!("{values} values without timestamps; there must be one.")
        }),
        (_, _) if values != times => findings.error(path(".values"), "shape-pairs", || {
            format!("{values} values for {times} timestamps; the numbers must be equal.")
        }),
        (1, 1) => {}
        (_, _) => findings.warn(path(".values"), "shape-timed", || {
            "Several values with timestamps; Pyroscope rejects the profile. Send the sum, or only timestamps."
                .to_owned()
        }),
    }
    if values == 1 && times == 0 && sample.values[0] == 0 {
        findings.warn(path(".values"), "zero", || "The value is 0; receivers drop the sample.".to_owned());
    }
    let shapes = |sample: &wire::Sample| (sample.values.is_empty(), sample.timestamps_unix_nano.is_empty());
    if profile.samples.first().is_some_and(|first| shapes(first) != shapes(sample)) {
        findings.warn(path(""), "shape-mixed", || {
            "Samples of one profile should all have the same shape: values, timestamps, or both.".to_owned()
        });
    }
}
