//! The configuration of the environment, as the profiler would load it: layers, kill switch, warnings.

use spanprof_config::{process_environment, BindingOption, Config, ConfigValue, OptionValues};

use super::DoctorCheck;
use crate::fetch;
use spanprof_answers::failure::Failure;

/// Settings of one language, whose variables are known too. Their values are checked by that language.
static OPTIONS: [BindingOption; 4] =
    [option("stack_walk"), option("event_loop_block"), option("worker_threads"), option("library_directory")];

const fn option(name: &'static str) -> BindingOption {
    BindingOption { name, values: OptionValues::Text, default: "", doc: "" }
}

/// Loads the environment of the process, and `endpoint` as if it was set in code.
pub(super) fn load(endpoint: Option<&str>) -> Result<Config, Failure> {
    let mut code: Vec<(String, ConfigValue)> = Vec::new();
    code.extend(endpoint.map(|url| ("endpoint".to_owned(), ConfigValue::from(url))));
    let authority = fetch::ca_certificates().map(|file| file.display().to_string());
    code.extend(authority.map(|file| ("certificate".to_owned(), ConfigValue::from(file.as_str()))));
    let mut config = Config::load_with_options(&code, &process_environment(), &OPTIONS)
        .map_err(|error| Failure::usage(error.message).hint(error.hint))?;
    if endpoint.is_some() {
        // The flag replaces every receiver.
        config.destinations = None;
        config.file_directory = None;
    }
    Ok(config)
}

pub(super) fn checks(config: &Config) -> Vec<DoctorCheck> {
    const CHECK: &str = "configuration";
    let mut checks = Vec::new();
    if let Some(variable) = &config.disabled_by {
        checks.push(DoctorCheck::problem(
            CHECK,
            format!("{variable} is set"),
            "the profiler does not start in a process with this variable",
            format!("unset {variable}"),
        ));
    }
    if !config.enabled {
        let meaning = "the profiler starts without taking samples";
        checks.push(DoctorCheck::problem(CHECK, "enabled is false", meaning, "unset enabled (SPANPROF_ENABLED)"));
    }
    for warning in &config.warnings {
        let action = "correct or unset it; docs/reference/configuration.md lists all keys with their values";
        checks.push(DoctorCheck::limited(CHECK, warning, "the setting has no effect", action));
    }
    if checks.is_empty() {
        let count = config.sources.len() + config.option_values.len();
        let found = match count {
            0 => "no setting in the environment".to_owned(),
            1 => "1 setting, which is valid".to_owned(),
            count => format!("{count} settings, which are valid"),
        };
        checks.push(DoctorCheck::ok(CHECK, found, "settings in code have precedence"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_settings_of_languages_are_those_of_the_schema() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../../../../docs/reference/schema.json")).expect("a schema");
        let keys: BTreeSet<&str> = spanprof_config::KEYS.iter().map(|key| key.name).collect();
        let properties = schema["properties"].as_object().expect("properties").iter();
        // Keys and their sections have a type; settings of a language only a description.
        let described: BTreeSet<&str> = properties
            .filter(|(name, schema)| {
                !keys.contains(name.as_str()) && schema.as_object().is_some_and(|it| it.len() == 1)
            })
            .filter(|(_, schema)| schema.get("description").is_some())
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(described, OPTIONS.iter().map(|option| option.name).collect());
    }
}
