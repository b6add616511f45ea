//! Completes a profile that arrived by one of Pyroscope's protocols: pprof and folded stacks lack the service, the labels and
//! often the time, which the request states beside them. Pure; the current time is an argument. Called by `pyroscope_http`.

use std::hash::{DefaultHasher, Hash, Hasher};

use spanprof_profile::encode::pyroscope::label_name;
use spanprof_profile::kinds::{self, ProfileKind};
use spanprof_profile::{Attribute, Profile, ProfilesData, ValueType};

const SERVICE: &str = "service.name";
/// Pyroscope's form of [`SERVICE`], whose label names have no dots.
const SERVICE_LABEL: &str = "service_name";
/// Labels of one series; an agent sends about ten.
const MAX_LABELS: usize = 64;
/// Rate of folded stacks without one.
const DEFAULT_RATE_HZ: u32 = 100;
/// Kinds whose types agents append to the name of the service when they send folded stacks.
const SUFFIXES: [&ProfileKind; 4] = [&kinds::CPU, &kinds::WALL, &kinds::ALLOCATIONS, &kinds::IN_USE];

/// The labels of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PushedSeries {
    /// "" when the request names none.
    service: String,
    /// Labels other than the service, without Pyroscope's own.
    labels: Vec<(String, String)>,
    /// Whether the values are waits for mutexes, which Go's profiles of blocked goroutines have too.
    pub is_mutex: bool,
}

/// Time of a profile that states none, in Unix nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatedTime {
    pub from: Option<u64>,
    pub until: Option<u64>,
    pub now: u64,
}

impl PushedSeries {
    /// Parses `checkout{region=eu,pod=a-1}`, the parameter `name` of `/ingest`.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let (service, labels) = match name.split_once('{') {
            None => (name, ""),
            Some((service, rest)) => {
                let labels = rest.trim_end().strip_suffix('}');
                (service, labels.ok_or_else(|| format!("name: expected SERVICE{{KEY=VALUE,…}}, got {name:.100?}"))?)
            }
        };
        let mut series = PushedSeries { service: service.trim().to_owned(), ..Self::default() };
        for label in labels.split(',').filter(|label| !label.trim().is_empty()) {
            let (key, value) = label
                .split_once('=')
                .ok_or_else(|| format!("name: expected KEY=VALUE between the braces, got {label:.100?}"))?;
            series.add_label(key.trim(), value.trim().trim_matches('"'))?;
        }
        Ok(series)
    }

    /// The labels of a push request.
    pub fn from_labels(labels: &[(String, String)]) -> Result<Self, String> {
        let mut series = Self::default();
        labels.iter().try_for_each(|(key, value)| series.add_label(key, value))?;
        Ok(series)
    }

    fn add_label(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            SERVICE | SERVICE_LABEL => value.clone_into(&mut self.service),
            "__name__" => self.is_mutex = value == "mutex",
            _ if key.starts_with("__") || value.is_empty() => {}
            _ if self.labels.len() == MAX_LABELS => {
                return Err(format!("expected at most {MAX_LABELS} labels of a profile, got more"));
            }
            _ => self.labels.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// The type of folded stacks, which do not state one: taken from the suffix of the service name, else from `units`. Removes
    /// the suffix.
    /// `rate_hz` is the number of samples per second.
    pub fn take_folded_type(&mut self, units: &str, rate_hz: Option<u32>) -> Result<Profile, String> {
        let of_name = self.service.rsplit_once('.').and_then(|(service, suffix)| {
            let found = SUFFIXES.iter().flat_map(|kind| kind.types).find(|of_kind| of_kind.name == suffix)?;
            Some((service.to_owned(), (found.name, found.unit)))
        });
        let (kind, unit) = match (of_name, units) {
            (Some((service, of_name)), _) => {
                self.service = service;
                of_name
            }
            (None, "" | "samples") => ("cpu", "nanoseconds"),
            (None, "objects") => ("alloc_objects", "count"),
            (None, "bytes") => ("alloc_space", "bytes"),
            (None, "lock_samples") => ("contentions", "count"),
            (None, "lock_nanoseconds") => ("delay", "nanoseconds"),
            (None, other) => {
                let expected = "samples, objects, bytes, lock_samples or lock_nanoseconds";
                return Err(format!("units: expected {expected}, got {other:.40?}"));
            }
        };
        let value_type = ValueType::new(kind, unit);
        if !matches!(kind, "cpu" | "wall") {
            return Ok(Profile { sample_type: value_type, ..Profile::default() });
        }
        let period = 1_000_000_000 / i64::from(rate_hz.unwrap_or(DEFAULT_RATE_HZ).max(1));
        let sample_type = ValueType::new("samples", "count");
        Ok(Profile { sample_type, period_type: value_type, period, ..Profile::default() })
    }

    /// Adds service, labels and time to the profiles of `bytes`, and an id by which a repeated request is recognized.
    pub fn complete(&self, data: &mut ProfilesData, bytes: &[u8], time: StatedTime) -> Result<(), String> {
        let profile_id = self.digest(bytes, time);
        for resource in &mut data.resources {
            // The profiles of spanprof state their own, under the names of OpenTelemetry.
            let is_complete = !resource.service_name().is_empty();
            let attributes = &mut resource.resource;
            if !self.service.is_empty() {
                attributes.retain(|attribute| attribute.key != SERVICE);
                attributes.push(Attribute::string(SERVICE, &self.service));
            } else if !is_complete {
                return Err("the profile names no service: send it with name=SERVICE".to_owned());
            }
            for (key, value) in &self.labels {
                if attributes.iter().all(|stated| label_name(&stated.key) != label_name(key)) {
                    attributes.push(Attribute::string(key, value));
                }
            }
            for profile in &mut resource.profiles {
                profile.profile_id = profile_id;
                time.complete(profile);
                // Go's mutex profile has the stacks of lock holders, the block profile the stacks of waiting goroutines. Both
                // report the same waiting time, so they must not be added up.
                let is_wait = kinds::LOCK.has(&profile.sample_type.kind);
                if self.is_mutex && is_wait && !is_complete {
                    profile.sample_type.kind.insert_str(0, "mutex_");
                }
            }
        }
        Ok(())
    }

    fn digest(&self, bytes: &[u8], time: StatedTime) -> [u8; 16] {
        let half = |number: u8| {
            let mut hasher = DefaultHasher::new();
            (number, bytes, &self.service, &self.labels, time.from, time.until).hash(&mut hasher);
            hasher.finish()
        };
        (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
    }
}

impl StatedTime {
    /// The profile's own time is more precise than that of the request.
    fn complete(&self, profile: &mut Profile) {
        let has_start = profile.time_unix_nano != 0;
        if has_start && (profile.duration_nano != 0 || (self.from, self.until) == (None, None)) {
            return;
        }
        let until = self.until.unwrap_or(self.now);
        profile.time_unix_nano = self.from.unwrap_or(until).min(until);
        profile.duration_nano = until - profile.time_unix_nano;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{ResourceProfiles, Sample};

    fn data(profile: Profile, resource: &[(&str, &str)]) -> ProfilesData {
        let profile = Profile { samples: vec![Sample { values: vec![1], ..Sample::default() }], ..profile };
        let resource = resource.iter().map(|(key, value)| Attribute::string(*key, *value)).collect();
        let resource = ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() };
        ProfilesData { resources: vec![resource], ..ProfilesData::default() }
    }

    fn time(from: u64, until: u64) -> StatedTime {
        StatedTime { from: Some(from), until: Some(until), now: 100 }
    }

    #[test]
    fn a_name_has_a_service_and_labels() {
        let series = PushedSeries::from_name("shop.web{region=eu, pod=\"a-1\",__session_id__=7,}").unwrap();
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            (series.service.as_str(), &series.labels[..]),
            ("shop.web", &[label("region", "eu"), label("pod", "a-1")][..])
        );
        assert_eq!(PushedSeries::from_name("shop").unwrap(), PushedSeries::from_name("shop{}").unwrap());
        assert!(PushedSeries::from_name("shop{region=eu").unwrap_err().contains("SERVICE{KEY=VALUE"));
        assert!(PushedSeries::from_name("shop{region}").unwrap_err().contains("got \"region\""));
        let many: String = (0..65).map(|number| format!("label{number}=1,")).collect();
        assert!(PushedSeries::from_name(&format!("shop{{{many}}}")).unwrap_err().contains("at most 64 labels"));
    }

    #[test]
    fn the_service_of_the_request_wins_and_other_labels_of_the_profile_stay() {
        let series = PushedSeries::from_name("shop{host_name=b,region=eu}").unwrap();
        let mut data = data(Profile::default(), &[("service.name", "old"), ("host.name", "a")]);
        series.complete(&mut data, b"", time(1, 2)).unwrap();
        let resource = &data.resources[0].resource;
        let expected = [("host.name", "a"), ("service.name", "shop"), ("region", "eu")];
        assert_eq!(resource[..], expected.map(|(key, value)| Attribute::string(key, value)));
    }

    #[test]
    fn a_profile_without_a_service_is_an_error() {
        let unnamed = PushedSeries::default();
        let error = unnamed.complete(&mut data(Profile::default(), &[]), b"", time(1, 2)).unwrap_err();
        assert!(error.contains("name=SERVICE"), "{error}");
        unnamed.complete(&mut data(Profile::default(), &[("service.name", "own")]), b"", time(1, 2)).unwrap();
    }

    #[test]
    fn the_time_of_the_request_is_used_where_the_profile_has_none() {
        let completed = |time_unix_nano, duration_nano, time: StatedTime| {
            let mut profile = Profile { time_unix_nano, duration_nano, ..Profile::default() };
            time.complete(&mut profile);
            (profile.time_unix_nano, profile.duration_nano)
        };
        let unstated = StatedTime { now: 100, ..StatedTime::default() };
        assert_eq!(completed(5, 2, time(10, 20)), (5, 2));
        assert_eq!(completed(0, 0, time(10, 20)), (10, 10));
        assert_eq!(completed(15, 0, time(10, 20)), (10, 10));
        assert_eq!(completed(5, 0, unstated), (5, 0));
        assert_eq!(completed(0, 0, unstated), (100, 0));
        assert_eq!(completed(0, 0, time(30, 20)), (20, 0));
    }

    #[test]
    fn folded_stacks_have_the_type_of_the_name_or_of_the_units() {
        let typed = |name: &str, units: &str, rate| {
            let mut series = PushedSeries::from_name(name).unwrap();
            let profile = series.take_folded_type(units, rate).unwrap();
            (series.service.clone(), profile.type_name().to_owned(), profile.unit().to_owned(), profile.period)
        };
        let expected =
            |service: &str, kind: &str, unit: &str, period| (service.into(), kind.into(), unit.into(), period);
        assert_eq!(typed("a.b.cpu", "", None), expected("a.b", "cpu", "nanoseconds", 10_000_000));
        assert_eq!(typed("a.wall", "samples", Some(50)), expected("a", "wall", "nanoseconds", 20_000_000));
        assert_eq!(typed("a.b", "samples", Some(0)), expected("a.b", "cpu", "nanoseconds", 1_000_000_000));
        assert_eq!(typed("a", "bytes", None), expected("a", "alloc_space", "bytes", 0));
        assert_eq!(typed("a.inuse_space", "objects", None), expected("a", "inuse_space", "bytes", 0));
        assert!(PushedSeries::default().take_folded_type("hours", None).unwrap_err().contains("lock_samples"));
    }

    #[test]
    fn only_go_s_mutexes_are_renamed() {
        let kind = |metric: &str, resource: &[(&str, &str)]| {
            let labels = [("__name__", metric), ("service_name", "a")].map(|(key, value)| (key.into(), value.into()));
            let mut data =
                data(Profile { sample_type: ValueType::new("delay", "nanoseconds"), ..Profile::default() }, resource);
            PushedSeries::from_labels(&labels).unwrap().complete(&mut data, b"", time(1, 2)).unwrap();
            data.resources[0].profiles[0].sample_type.kind.clone()
        };
        assert_eq!(kind("mutex", &[]), "mutex_delay");
        assert_eq!(kind("block", &[]), "delay");
        assert_eq!(kind("mutex", &[("service.name", "a")]), "delay", "a profile of spanprof");
    }
}
