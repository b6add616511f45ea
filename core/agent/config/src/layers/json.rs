//! The code layer as JSON in camelCase, for languages that pass objects as JSON. Called by bindings. Not here: validation
//! (`load`).

use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::keys::key_case::snake_case;
use crate::types::value::ConfigValue;

/// Keys whose values are maps with keys of the user.
const USER_MAPS: [&str; 4] = ["tags", "resource_attributes", "headers", "metrics_headers"];

/// The code layer of the configuration, in the order of the object.
///
/// # Errors
/// When the text is not a JSON object.
pub fn from_json(json: &str) -> Result<Vec<(String, ConfigValue)>, Error> {
    let invalid = |message: String| {
        Error::new(ErrorKind::InvalidConfig, message, "pass an object such as { serviceName: 'checkout' }")
    };
    match serde_json::from_str::<Value>(json) {
        Ok(Value::Object(keys)) => Ok(keys.into_iter().map(|(key, value)| entry(&key, value)).collect()),
        Ok(other) => Err(invalid(format!("the configuration must be an object, got {}", kind_of(&other)))),
        Err(error) => Err(invalid(format!("the configuration is not JSON: {error}"))),
    }
}

fn entry(key: &str, value: Value) -> (String, ConfigValue) {
    let key = snake_case(key);
    let value = converted(value, !USER_MAPS.contains(&key.as_str()));
    (key, value)
}

fn converted(value: Value, has_known_keys: bool) -> ConfigValue {
    match value {
        Value::Null => ConfigValue::Null,
        Value::Bool(value) => ConfigValue::Bool(value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => ConfigValue::Int(number),
            None => ConfigValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => ConfigValue::Text(text),
        Value::Array(list) => {
            ConfigValue::List(list.into_iter().map(|value| converted(value, has_known_keys)).collect())
        }
        Value::Object(map) if has_known_keys => {
            ConfigValue::Map(map.into_iter().map(|(key, value)| entry(&key, value)).collect())
        }
        Value::Object(map) => {
            ConfigValue::Map(map.into_iter().map(|(key, value)| (key, converted(value, false))).collect())
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_snake_case_and_names_of_the_user_are_unchanged() {
        let json = r#"{"sampleRate": 99, "tags": {"podName": "a"}, "destinations": [{"type": "file", "fileKeep": 2, "headers": {"X-Key": "k"}}]}"#;
        let code = from_json(json).unwrap();
        assert_eq!(code[0], ("sample_rate".to_owned(), ConfigValue::Int(99)));
        assert_eq!(code[1].1, ConfigValue::Map(vec![("podName".to_owned(), ConfigValue::from("a"))]));
        let ConfigValue::List(destinations) = &code[2].1 else { panic!("{code:?}") };
        let ConfigValue::Map(keys) = &destinations[0] else { panic!("{code:?}") };
        assert_eq!(keys[1].0, "file_keep");
        assert_eq!(keys[2].1, ConfigValue::Map(vec![("X-Key".to_owned(), ConfigValue::from("k"))]));
    }

    #[test]
    fn an_error_about_json_without_an_object_contains_its_type() {
        assert!(from_json("[]").unwrap_err().message.contains("a list"));
        assert!(from_json("{").unwrap_err().message.contains("not JSON"));
    }
}
