//! Loads the layers into one `Config`, with the source of every value. Not here: variables of other projects
//! (`environment`), conflicts between values (`check`).

use std::collections::BTreeMap;

use super::environment::{self, process_environment, Environment};
use super::file;
use crate::error::{Error, ErrorKind};
use crate::keys::binding_options::BindingOption;
use crate::keys::nearest::nearest_key;
use crate::keys::nested::{flattened, nearest_nested};
use crate::keys::table::{Config, ConfigBuilder, InvalidSetting, KEYS};
use crate::types::choices::ConfigSource;
use crate::types::redaction::RedactionRules;
use crate::types::value::{ConfigType, ConfigValue, Setting};

/// Keys to change while running; only live keys are accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigPatch(pub Vec<(String, ConfigValue)>);

/// Whether an invalid value of this source is an error. In variables and files it is a warning: the environment of a program
/// never stops it.
fn is_strict(source: &ConfigSource) -> bool {
    *source == ConfigSource::Code
}

impl Config {
    /// Loads all layers. `code` are the arguments of the program, in order; `environment` are the variables of the process.
    ///
    /// # Errors
    /// When a value in `code` is invalid. An invalid value of a variable or a file is ignored with a warning.
    pub fn load(code: &[(String, ConfigValue)], environment: &Environment) -> Result<Config, Error> {
        Config::load_with_options(code, environment, &[])
    }

    /// As [`Config::load`], with settings of the binding itself; [`Config::option`] returns their values.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_with_options(
        code: &[(String, ConfigValue)],
        environment: &Environment,
        options: &'static [BindingOption],
    ) -> Result<Config, Error> {
        Config::layered(code, environment, options)?.finish()
    }

    /// The value of a setting of the binding, as text; empty for a name that the binding did not declare.
    pub fn option(&self, name: &str) -> &str {
        let default = || self.options.iter().find(|option| option.name == name).map_or("", |option| option.default);
        self.option_values.get(name).map_or_else(default, String::as_str)
    }

    /// Whether the environment has a kill switch: the process is not profiled, and nothing can enable the profiler while it
    /// runs. Unlike `enabled=false`, which prepares the profiler without samples.
    pub fn is_disabled(&self) -> bool {
        self.disabled_by.is_some()
    }

    /// Merges the layers and validates each value separately.
    fn layered(
        code: &[(String, ConfigValue)],
        environment: &Environment,
        options: &'static [BindingOption],
    ) -> Result<Config, Error> {
        let mut config = Config { options, ..Config::default() };
        let from_environment = environment::settings(environment, options, &mut config.warnings);
        let mut settings = config.file_settings(code, environment)?;
        settings.extend(from_environment);
        let code = in_code(code, &ConfigSource::Code)?;
        settings.extend(code.into_iter().map(|(key, value)| Setting { key, value, source: ConfigSource::Code }));
        let mut ignored = Vec::new();
        for setting in &settings {
            if let Err(problem) = config.apply(setting) {
                if is_strict(&setting.source) {
                    return Err(problem);
                }
                if setting.key == "redaction_rules" {
                    config.add_redaction_rules(RedactionRules::without_invalid(&setting.value));
                }
                ignored.push((&setting.key, problem));
            }
        }
        for (key, problem) in ignored {
            let effective = match key.as_str() {
                "redaction_rules" => config.redaction_rules.fallback_text(),
                _ => config.effective_value_text(key),
            };
            config.warnings.push(format!("{}; {effective}", problem.message));
        }
        config.disabled_by = environment::kill_switch(environment);
        config.proxy = environment::proxies(environment);
        Ok(config)
    }

    /// The settings of the configuration file. A missing or invalid file is a warning if its name comes from a variable.
    fn file_settings(
        &mut self,
        code: &[(String, ConfigValue)],
        environment: &Environment,
    ) -> Result<Vec<Setting>, Error> {
        if let Some(path) = last_text(code, "config_file").filter(|path| !path.is_empty()) {
            return file::settings(&path, &mut self.warnings);
        }
        let by_variable = environment.get("SPANPROF_CONFIG_FILE").filter(|path| !path.trim().is_empty());
        let Some(path) = by_variable else { return Ok(Vec::new()) };
        let mut warnings = Vec::new();
        let settings = file::settings(path, &mut warnings);
        self.warnings.append(&mut warnings);
        Ok(settings.unwrap_or_else(|error| {
            let mut warning = format!("{} (environment SPANPROF_CONFIG_FILE); it is ignored", error.message);
            if std::fs::read_to_string(path).is_ok_and(|text| text.contains("redaction")) {
                self.add_redaction_rules(RedactionRules::everything());
                warning = format!("{warning}; {}", self.redaction_rules.fallback_text());
            }
            self.warnings.push(warning);
            Vec::new()
        }))
    }

    /// The end of a warning about an invalid value: the effective value.
    pub(crate) fn effective_value_text(&self, key: &str) -> String {
        if self.options.iter().any(|option| option.name == key) {
            let source = if self.option_values.contains_key(key) { "" } else { " (default)" };
            return format!("using {}{source}", self.option(key));
        }
        let secret = KEYS.iter().any(|row| row.name == key && row.secret);
        let entry = self.entries().into_iter().find(|(name, _, _)| *name == key && !secret);
        match entry {
            Some((_, value, source)) if !value.is_empty() => format!("using {value} ({source})"),
            _ => "the value is ignored".to_owned(),
        }
    }

    /// Starts a configuration in code; [`ConfigBuilder::load`] loads the lower layers.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }

    /// The configuration with keys of a running profiler changed by `source`. Warnings are those of the change.
    #[doc(hidden)]
    pub fn patched(&self, changes: &[(String, ConfigValue)], source: &ConfigSource) -> Result<Config, Error> {
        let mut config = self.clone();
        config.warnings.clear();
        for (key, value) in &in_code(changes, source)? {
            if !self.can_change(key) {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!("{key} cannot change while the profiler runs"),
                    format!("call stop(), then start() with the new {key}"),
                ));
            }
            config.apply_without_merge(&Setting { key: key.clone(), value: value.clone(), source: source.clone() })?;
        }
        config.complete();
        config.check()?;
        Ok(config)
    }

    /// Whether a key may change while the profiler runs. True for unknown keys, which are a warning.
    #[doc(hidden)]
    pub fn can_change(&self, key: &str) -> bool {
        let is_option = self.options.iter().any(|option| option.name == key);
        !is_option && KEYS.iter().find(|row| row.name == key).is_none_or(|row| row.live)
    }

    /// Applies one value; an invalid value leaves the configuration unchanged. An unknown key is a warning.
    fn apply(&mut self, setting: &Setting) -> Result<(), Error> {
        match self.merged_with(setting) {
            Some(value) => {
                self.apply_without_merge(&Setting { value, key: setting.key.clone(), source: setting.source.clone() })
            }
            None => self.apply_without_merge(setting),
        }
    }

    /// As [`Config::apply`]; maps replace the value of the lower layers.
    fn apply_without_merge(&mut self, setting: &Setting) -> Result<(), Error> {
        if setting.value == ConfigValue::Null {
            return Ok(());
        }
        let lower_rules = (setting.key == "redaction_rules").then(|| self.redaction_rules.clone());
        match self.set(&setting.key, &setting.value) {
            Ok(()) => {
                if let Some(lower) = lower_rules {
                    self.redaction_rules = lower.and(std::mem::take(&mut self.redaction_rules));
                }
                if let Some(key) = KEYS.iter().find(|key| key.name == setting.key) {
                    self.sources.insert(key.name, setting.source.clone());
                }
                Ok(())
            }
            Err(InvalidSetting::UnknownKey) => {
                let nearest =
                    nearest_nested(&setting.key).or_else(|| nearest_key(&setting.key, self.options).map(str::to_owned));
                let hint = nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                self.warnings.push(format!("unknown key `{}` ({}) is ignored{hint}", setting.key, setting.source));
                Ok(())
            }
            Err(InvalidSetting::WrongType(key, inside)) => {
                let shown = if key.secret { "something else".to_owned() } else { setting.value.shown() };
                let problem = inside.map_or_else(
                    || format!("must be {}, got {shown}", key.expected()),
                    |inside| format!("cannot be used: {inside}"),
                );
                let message = format!("{} ({}) {problem}", key.name, setting.source);
                Err(Error::new(ErrorKind::InvalidConfig, message, key.hint()))
            }
            Err(InvalidSetting::OutOfBounds(key)) => {
                Err(key.out_of_bounds(&setting.value.shown(), &format!(" ({})", setting.source)))
            }
            Err(InvalidSetting::Option(option)) => {
                let (name, expected, shown) = (option.name, option.values.expected(), setting.value.shown());
                let message = format!("{name} ({}) must be {expected}, got {shown}", setting.source);
                let hint = format!("{name} (default {}): {}", option.default, option.doc);
                Err(Error::new(ErrorKind::InvalidConfig, message, hint))
            }
            Err(InvalidSetting::Unusable(problem)) => {
                Err(problem.into_error(&format!("{} ({})", setting.key, setting.source)))
            }
        }
    }
}

impl Config {
    /// Adds rules to those of the lower layers: no layer removes a rule of another one.
    fn add_redaction_rules(&mut self, rules: RedactionRules) {
        self.redaction_rules = std::mem::take(&mut self.redaction_rules).and(rules);
    }

    /// Merges attributes and labels of several layers by key, as OpenTelemetry does with resources; the higher layer wins.
    /// `service.name` among the attributes sets `service_name`. `None` for other keys.
    fn merged_with(&mut self, setting: &Setting) -> Option<ConfigValue> {
        let lower = match setting.key.as_str() {
            "resource_attributes" => self.resource_attributes.clone(),
            "tags" => self.tags.clone(),
            _ => return None,
        };
        let mut upper = BTreeMap::from_value(&setting.value)?;
        if setting.key == "resource_attributes" {
            if let Some(name) = upper.remove("service.name") {
                self.service_name = name;
                self.sources.insert("service_name", setting.source.clone());
            }
        }
        let mut merged = lower;
        merged.extend(upper);
        Some(ConfigValue::Map(merged.into_iter().map(|(key, value)| (key, ConfigValue::Text(value))).collect()))
    }
}

/// Settings in code with flat keys.
///
/// # Errors
/// When a key is set in both spellings.
fn in_code(pairs: &[(String, ConfigValue)], source: &ConfigSource) -> Result<Vec<(String, ConfigValue)>, Error> {
    let (pairs, conflicts) = flattened(pairs.to_vec());
    match conflicts.first() {
        None => Ok(pairs),
        Some(conflict) => {
            let message = format!("{conflict} ({source})");
            Err(Error::new(ErrorKind::InvalidConfig, message, "remove one of them"))
        }
    }
}

fn last_text(pairs: &[(String, ConfigValue)], key: &str) -> Option<String> {
    pairs.iter().rev().find(|(name, _)| name == key).and_then(|(_, value)| match value {
        ConfigValue::Text(text) => Some(text.clone()),
        _ => None,
    })
}

impl ConfigBuilder {
    /// Loads the lower layers: the environment of the process and its configuration file.
    pub fn load(self) -> Result<Config, Error> {
        self.load_with(&process_environment())
    }

    /// Loads the lower layers, with `environment` instead of the variables of the process.
    pub fn load_with(self, environment: &Environment) -> Result<Config, Error> {
        let mut in_code = Config::default();
        for (_, assignment) in &self.assignments {
            assignment(&mut in_code);
        }
        let file = in_code.config_file.map(|path| ("config_file".to_owned(), ConfigValue::Text(path)));
        let mut config = Config::layered(&file.into_iter().collect::<Vec<_>>(), environment, &[])?;
        for (key, assignment) in &self.assignments {
            let lower_rules = config.redaction_rules.clone();
            assignment(&mut config);
            if *key == "redaction_rules" {
                config.redaction_rules = lower_rules.and(std::mem::take(&mut config.redaction_rules));
            }
            config.sources.insert(key, ConfigSource::Code);
        }
        config.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::shape::Shape;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_file_is_the_lowest_layer_above_the_defaults() {
        let path = std::env::temp_dir().join(format!("spanprof-config-{}.yaml", std::process::id()));
        std::fs::write(&path, "sample_rate: 19\nupload_interval: 30\nservice_name: from-file\ntypo_rate: 1\n").unwrap();
        let path = path.to_string_lossy().into_owned();
        let variables = environment(&[("SPANPROF_CONFIG_FILE", &path), ("PYROSCOPE_APPLICATION_NAME", "fire")]);
        let config = Config::load(&[("upload_interval".to_owned(), ConfigValue::Int(15))], &variables).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((config.sample_rate, config.upload_interval.as_secs()), (19, 15));
        assert_eq!(config.service_name, "fire");
        assert_eq!(config.sources["sample_rate"], ConfigSource::File(path.clone()));
        assert_eq!(config.warnings, [format!("unknown key `typo_rate` (file {path}) is ignored")]);
    }

    #[test]
    fn the_builder_is_the_code_layer_and_is_validated() {
        let variables = environment(&[("SPANPROF_SAMPLE_RATE", "50"), ("OTEL_SERVICE_NAME", "theirs")]);
        let config = Config::builder().sample_rate(250u32).load_with(&variables).unwrap();
        assert_eq!((config.sample_rate, config.service_name.as_str()), (250, "theirs"));
        assert_eq!(config.sources["sample_rate"], ConfigSource::Code);
        let error = Config::builder().sample_rate(0u32).load_with(&variables).unwrap_err();
        assert_eq!(error.message, "sample_rate must lie between 1 and 10000 Hz, got 0");
    }

    #[test]
    fn profiles_all_turns_on_each_profile_that_no_layer_switched_off() {
        let variables = environment(&[("SPANPROF_PROFILES", "all"), ("SPANPROF_WALL", "false")]);
        let config = Config::builder().lock(false).load_with(&variables).unwrap();
        assert_eq!((config.cpu, config.wall, config.gc, config.heap), (true, false, true, true));
        assert_eq!((config.lock, config.off_cpu, config.threads), (false, true, true));
        assert_eq!(config.sources["heap"], ConfigSource::Environment("SPANPROF_PROFILES".to_owned()));
        let without_signals = environment(&[("SPANPROF_PROFILES", "all"), ("SPANPROF_SIGNALS", "false")]);
        assert!(ConfigBuilder::default().load_with(&without_signals).unwrap().wall);
    }

    #[test]
    fn the_default_of_every_key_can_be_parsed_from_its_text() {
        for (key, text, _) in Config::default().entries() {
            let Some(row) = KEYS.iter().find(|row| row.name == key) else { panic!("{key} has no documentation") };
            if text.is_empty() || matches!(row.shape, Shape::Destinations | Shape::RedactionRules) {
                continue;
            }
            let mut config = Config::default();
            assert!(config.set(key, &ConfigValue::Text(text.clone())).is_ok(), "{key}={text}");
            assert_eq!(config, Config::default(), "{key}");
        }
    }
}
