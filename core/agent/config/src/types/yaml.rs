//! Values of YAML as values of the configuration.

use super::value::ConfigValue;
use serde_norway::Value;

/// The value in the types of the configuration.
pub fn value(yaml: &Value) -> ConfigValue {
    match yaml {
        Value::Null => ConfigValue::Null,
        Value::Bool(value) => ConfigValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => ConfigValue::Int(value),
            None => ConfigValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => ConfigValue::Text(text.clone()),
        Value::Sequence(list) => ConfigValue::List(list.iter().map(value).collect()),
        Value::Mapping(map) => ConfigValue::Map(map.iter().map(|(key, item)| (key_text(key), value(item))).collect()),
        Value::Tagged(tagged) => value(&tagged.value),
    }
}

/// The list. Text is parsed as YAML, for environment variables.
pub(crate) fn list_of(given: &ConfigValue) -> Option<Vec<ConfigValue>> {
    match given {
        ConfigValue::List(list) => Some(list.clone()),
        ConfigValue::Text(text) => match value(&serde_norway::from_str(text).ok()?) {
            ConfigValue::List(list) => Some(list),
            _ => None,
        },
        _ => None,
    }
}

fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
