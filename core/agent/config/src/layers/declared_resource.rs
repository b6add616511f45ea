//! The resource in the file of `OTEL_CONFIG_FILE`: OpenTelemetry's declarative configuration (opentelemetry-configuration 1.0,
//! which has no part for profiles; substitution of variables by the specification 1.48). Not here: its other parts, which are
//! the SDK's alone.

use std::collections::BTreeMap;
use std::path::Path;

use super::file::read_map;
use crate::types::value::{baggage_pairs, ConfigValue};

/// Attributes of the resource; a later one wins. The error is the reason why the file cannot be used.
pub(super) fn declared_resource(
    path: &str,
    environment: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, String> {
    let document = read_map(Path::new(path))?;
    member(&document, "file_format").ok_or("it has no file_format")?;
    let Some(ConfigValue::Map(resource)) = member(&document, "resource") else { return Ok(Vec::new()) };
    let text_of = |pairs, name| scalar(member(pairs, name)?, environment);
    let list = text_of(resource, "attributes_list").unwrap_or_default();
    let mut pairs = baggage_pairs(&list).ok_or("resource.attributes_list must be key=value pairs")?;
    if let Some(ConfigValue::List(attributes)) = member(resource, "attributes") {
        pairs.extend(attributes.iter().filter_map(|attribute| match attribute {
            ConfigValue::Map(attribute) => Some((text_of(attribute, "name")?, text_of(attribute, "value")?)),
            _ => None,
        }));
    }
    Ok(pairs)
}

fn member<'v>(pairs: &'v [(String, ConfigValue)], name: &str) -> Option<&'v ConfigValue> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// A scalar as text; `None` for lists and empty values.
fn scalar(value: &ConfigValue, environment: &BTreeMap<String, String>) -> Option<String> {
    Some(substituted(&value.scalar_text()?, environment)).filter(|text| !text.is_empty())
}

/// Text with the values of `${NAME}`, `${env:NAME}` and `${NAME:-default}`; `$$` is `$`.
fn substituted(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        let reference = after.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        rest = match (after.strip_prefix('$'), reference) {
            (Some(rest), _) => {
                result.push('$');
                rest
            }
            (None, Some((reference, rest))) => {
                let (name, default) = reference.split_once(":-").unwrap_or((reference, ""));
                let value = environment.get(name.strip_prefix("env:").unwrap_or(name)).map(String::as_str);
                result.push_str(value.filter(|value| !value.is_empty()).unwrap_or(default));
                rest
            }
            (None, None) => {
                result.push('$');
                after
            }
        };
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::table::Config;

    fn loaded(file: &str, variables: &[(&str, &str)]) -> Config {
        let path = std::env::temp_dir().join(format!("spanprof-otel-{}-{}.yaml", std::process::id(), file.len()));
        std::fs::write(&path, file).unwrap();
        let mut environment: BTreeMap<String, String> =
            variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        environment.insert("OTEL_CONFIG_FILE".to_owned(), path.to_string_lossy().into_owned());
        let config = Config::load(&[], &environment).unwrap();
        std::fs::remove_file(&path).unwrap();
        config
    }

    const FILE: &str = "file_format: '1.0'\nresource:\n  attributes_list: ${LIST}\n  attributes:\n\
        \x20   - {name: service.name, value: '${NAME:-cart}'}\n    - {name: service.version, value: 2, type: int}\n\
        \x20   - {name: price, value: '$$${env:PRICE}'}\n    - {name: tags, value: [a, b], type: string_array}\n\
        \x20   - {name: empty, value: '${UNSET}'}\ntracer_provider: {processors: []}\n";

    #[test]
    fn the_resource_of_the_sdks_file_is_that_of_the_profiles_and_its_other_variables_are_not_read() {
        let variables = [
            ("LIST", "region=eu,service.version=1"),
            ("PRICE", "7"),
            ("OTEL_SERVICE_NAME", "ignored"),
            ("OTEL_RESOURCE_ATTRIBUTES", "ignored=1"),
        ];
        let config = loaded(FILE, &variables);
        assert_eq!((config.service_name.as_str(), config.warnings.len()), ("cart", 0));
        let attributes = [("price", "$7"), ("region", "eu"), ("service.version", "2")];
        assert!(config.resource_attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(attributes));
        assert_eq!(loaded(FILE, &[("NAME", "pay")]).service_name, "pay");
        assert_eq!(loaded(FILE, &[("SPANPROF_SERVICE_NAME", "own")]).service_name, "own");
    }

    #[test]
    fn a_file_of_the_sdk_that_cannot_be_used_is_one_warning() {
        for (file, cause) in [("resource: {}\n", "file_format"), ("a: [", "while parsing")] {
            let config = loaded(file, &[("OTEL_SERVICE_NAME", "shop")]);
            assert_eq!(config.service_name, "shop", "{file}");
            assert!(config.warnings.len() == 1 && config.warnings[0].contains(cause), "{:?}", config.warnings);
        }
    }
}
