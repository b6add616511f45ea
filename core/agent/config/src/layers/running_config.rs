//! The configuration of a running profiler: the values of the start, the changes since, and a burst. The last writer of a key
//! wins. Immutable; a change returns the next state. Not here: the effect of a change (`profiler`).

use std::collections::BTreeMap;

use crate::error::Error;
use crate::keys::nested::flattened;
use crate::keys::table::Config;
use crate::types::choices::ConfigSource;
use crate::types::value::{ConfigType, ConfigValue};

/// Values that apply until a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// Monotonic time of its end.
    pub until_ns: u64,
    pub values: Vec<(String, ConfigValue)>,
}

/// The configuration of a run, by origin: start, changes, burst.
#[derive(Clone, Debug)]
pub struct RunningConfig {
    /// As loaded at start.
    start: Config,
    /// With the changes since, without the burst.
    lasting: Config,
    burst: Option<Burst>,
}

impl RunningConfig {
    pub fn new(start: Config, burst: Option<Burst>) -> Self {
        Self { lasting: start.clone(), start, burst }
    }

    /// The values of the start.
    pub fn start(&self) -> &Config {
        &self.start
    }

    /// The values without the burst.
    pub fn lasting(&self) -> &Config {
        &self.lasting
    }

    pub fn burst(&self) -> Option<&Burst> {
        self.burst.as_ref()
    }

    /// Monotonic time of the next change that needs no writer: the end of the burst; 0 for none.
    pub fn next_change_ns(&self) -> u64 {
        self.burst.as_ref().map_or(0, |burst| burst.until_ns.max(1))
    }

    /// The values in effect.
    pub fn effective(&self) -> Config {
        let Some(burst) = &self.burst else { return self.lasting.clone() };
        // The values were valid at the beginning of the burst; other keys may have changed since.
        self.lasting.patched(&burst.values, &ConfigSource::Burst).unwrap_or_else(|_| self.lasting.clone())
    }

    /// With keys changed by `source`, which replace those of a burst.
    ///
    /// # Errors
    /// When a key cannot change while running, or its value is invalid.
    pub fn changed(&self, changes: &[(String, ConfigValue)], source: &ConfigSource) -> Result<Self, Error> {
        let lasting = self.lasting.patched(changes, source)?;
        let (changes, _) = flattened(changes.to_vec());
        Ok(self.without_burst_of(changes.iter().map(|(key, _)| key.as_str()), lasting))
    }

    /// Without the values that the configuration file set: those of the start, or the defaults.
    pub fn without_file_values(&self, keys: &[String]) -> Self {
        let mut lasting = self.lasting.clone();
        let of_file = |config: &Config, key: &str| matches!(config.sources.get(key), Some(ConfigSource::File(_)));
        let keys: Vec<_> = keys.iter().filter(|key| of_file(&self.lasting, key)).collect();
        for key in &keys {
            if of_file(&self.start, key) {
                lasting.reset(key);
            } else {
                lasting.reset_to(key, &self.start);
            }
        }
        if keys.iter().any(|key| key.starts_with("tail_")) {
            lasting.reset_implied_retention();
        }
        self.without_burst_of(keys.into_iter().map(String::as_str), lasting)
    }

    /// The value of a map in the file with the entries that other sources set: an entry of the previous file that is missing in
    /// the new one is removed.
    pub fn merged_with_file(&self, key: &str, before: Option<&ConfigValue>, after: &ConfigValue) -> ConfigValue {
        let (before, Some(after_map)) =
            (before.and_then(BTreeMap::from_value).unwrap_or_default(), BTreeMap::from_value(after))
        else {
            return after.clone();
        };
        if key != "tags" {
            return after.clone();
        }
        let mut merged = self.lasting.tags.clone();
        merged.retain(|name, value| before.get(name) != Some(value));
        merged.extend(after_map);
        ConfigValue::Map(merged.into_iter().map(|(name, value)| (name, ConfigValue::Text(value))).collect())
    }

    /// With a burst instead of the current one, which ends no earlier than that.
    pub fn with_burst(&self, burst: Burst) -> Self {
        let until_ns = self.burst.as_ref().map_or(0, |current| current.until_ns).max(burst.until_ns);
        Self { burst: Some(Burst { until_ns, ..burst }), ..self.clone() }
    }

    /// Without a burst whose time is over.
    pub fn at(&self, now_ns: u64) -> Self {
        Self { burst: self.burst.clone().filter(|burst| burst.until_ns > now_ns), ..self.clone() }
    }

    /// Without the burst.
    pub fn without_burst(&self) -> Self {
        Self { burst: None, ..self.clone() }
    }

    fn without_burst_of<'a>(&self, keys: impl Iterator<Item = &'a str>, lasting: Config) -> Self {
        let keys: Vec<_> = keys.collect();
        let burst = self.burst.clone().map(|mut burst| {
            burst.values.retain(|(key, _)| !keys.contains(&key.as_str()));
            burst
        });
        Self { start: self.start.clone(), lasting, burst: burst.filter(|burst| !burst.values.is_empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, value: impl Into<ConfigValue>) -> Vec<(String, ConfigValue)> {
        vec![(key.to_owned(), value.into())]
    }

    fn burst(until_ns: u64, rate: i64) -> Burst {
        Burst { until_ns, values: change("sample_rate", ConfigValue::Int(rate)) }
    }

    fn file() -> ConfigSource {
        ConfigSource::File("f".to_owned())
    }

    #[test]
    fn the_last_writer_of_a_key_wins_and_is_its_source() {
        let running = RunningConfig::new(Config::default(), None);
        let running = running.changed(&change("sample_rate", ConfigValue::Int(50)), &ConfigSource::Update).unwrap();
        let running = running.changed(&change("sample_rate", ConfigValue::Int(60)), &file()).unwrap();
        let running = running.changed(&change("sample_rate", ConfigValue::Int(70)), &ConfigSource::Endpoint).unwrap();
        let config = running.effective();
        assert_eq!((config.sample_rate, &config.sources["sample_rate"]), (70, &ConfigSource::Endpoint));
        assert!(running.changed(&change("sample_rate", ConfigValue::Int(0)), &ConfigSource::Update).is_err());
    }

    #[test]
    fn a_burst_survives_changes_of_other_keys_and_ends_with_their_values() {
        let running = RunningConfig::new(Config::default(), None).with_burst(burst(100, 1000));
        let running = running.changed(&change("wall", ConfigValue::Bool(true)), &ConfigSource::Update).unwrap();
        assert_eq!((running.effective().sample_rate, running.effective().wall), (1000, true));
        assert_eq!(running.effective().sources["sample_rate"], ConfigSource::Burst);
        assert_eq!(running.at(99).effective().sample_rate, 1000);
        let ended = running.at(100).effective();
        assert_eq!((ended.sample_rate, ended.wall), (100, true));
    }

    #[test]
    fn a_later_change_of_the_same_key_replaces_that_of_a_burst() {
        let running = RunningConfig::new(Config::default(), None).with_burst(burst(100, 1000));
        let running = running.changed(&change("sample_rate", ConfigValue::Int(20)), &ConfigSource::Endpoint).unwrap();
        assert_eq!((running.effective().sample_rate, running.burst()), (20, None));
    }

    #[test]
    fn a_repeated_burst_extends_the_current_one_and_never_shortens_it() {
        let running = RunningConfig::new(Config::default(), None).with_burst(burst(100, 500));
        let longer = running.with_burst(burst(300, 1000));
        assert_eq!((longer.burst().unwrap().until_ns, longer.effective().sample_rate), (300, 1000));
        assert_eq!(longer.with_burst(burst(200, 700)).burst().unwrap().until_ns, 300);
    }

    #[test]
    fn a_key_removed_from_the_file_returns_to_the_value_of_the_other_sources() {
        let mut start =
            Config { sample_rate: 40, upload_interval: std::time::Duration::from_secs(30), ..Config::default() };
        start.sources.insert("sample_rate", ConfigSource::Code);
        start.sources.insert("upload_interval", file());
        let running = RunningConfig::new(start, None);
        let running = running.changed(&change("sample_rate", ConfigValue::Int(60)), &file()).unwrap();
        let removed = ["sample_rate", "upload_interval", "wall"].map(str::to_owned);
        let config = running.without_file_values(&removed).effective();
        assert_eq!((config.sample_rate, &config.sources["sample_rate"]), (40, &ConfigSource::Code));
        assert_eq!((config.upload_interval.as_secs(), config.sources.get("upload_interval")), (10, None));
    }

    #[test]
    fn a_condition_turns_on_tail_retention_until_the_file_loses_it() {
        use crate::types::retention::SampleRetention;
        let running = RunningConfig::new(Config::default(), None);
        let running = running.changed(&change("tail_duration", "1s"), &file()).unwrap();
        let retention = |running: &RunningConfig| {
            let entries = running.effective().entries();
            entries.into_iter().find(|(name, _, _)| *name == "retention").map(|(_, text, source)| (text, source))
        };
        assert_eq!(retention(&running), Some(("tail".to_owned(), file())));
        let running = running.without_file_values(&["tail_duration".to_owned()]);
        assert_eq!(retention(&running), Some(("all".to_owned(), ConfigSource::Default)));
        let start = Config { retention: SampleRetention::Tail, ..Config::default() };
        let running = RunningConfig::new(start, None).changed(&change("sample_rate", 50), &file()).unwrap();
        let running = running.without_file_values(&["sample_rate".to_owned()]);
        assert_eq!(running.effective().retention, SampleRetention::Tail);
    }

    #[test]
    fn tags_of_the_file_are_added_to_those_of_other_sources() {
        let map = |text: &str| ConfigValue::from(text);
        let tags = [("team", "a"), ("zone", "old")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let running = RunningConfig::new(Config { tags: tags.into(), ..Config::default() }, None);
        let merged = running.merged_with_file("tags", Some(&map("zone=old")), &map("rack=7"));
        let merged = BTreeMap::from_value(&merged).unwrap();
        assert_eq!(
            merged.into_iter().collect::<Vec<_>>(),
            [("rack".into(), "7".into()), ("team".into(), "a".into())] as [(String, String); 2]
        );
    }
}
