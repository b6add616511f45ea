//! The configuration of one call as JSON in camelCase: a language whose objects are handed over that way gives it in code.
//! No policy: what a value means is for `load`. Called by bindings.

use serde_json::Value;

use super::value::ConfigValue;
use crate::{Error, ErrorKind};

/// Keys whose maps hold the user's own names.
const OF_THE_USER: [&str; 3] = ["tags", "resource_attributes", "headers"];

/// The code layer of the configuration, in the order given.
///
/// # Errors
/// When the text is not JSON, or no object.
pub fn from_json(json: &str) -> Result<Vec<(String, ConfigValue)>, Error> {
    let invalid = |message: String| {
        Error::new(ErrorKind::InvalidConfig, message, "give an object such as { serviceName: 'checkout' }")
    };
    match serde_json::from_str::<Value>(json) {
        Ok(Value::Object(keys)) => Ok(keys.into_iter().map(|(key, value)| entry(&key, value)).collect()),
        Ok(other) => Err(invalid(format!("the configuration must be an object, got {}", kind_of(&other)))),
        Err(error) => Err(invalid(format!("the configuration is not JSON: {error}"))),
    }
}

fn entry(key: &str, value: Value) -> (String, ConfigValue) {
    let key = snake_case(key);
    let value = converted(value, !OF_THE_USER.contains(&key.as_str()));
    (key, value)
}

fn converted(value: Value, keys_are_ours: bool) -> ConfigValue {
    match value {
        Value::Null => ConfigValue::Null,
        Value::Bool(value) => ConfigValue::Bool(value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => ConfigValue::Int(number),
            None => ConfigValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => ConfigValue::Text(text),
        Value::Array(list) => {
            ConfigValue::List(list.into_iter().map(|value| converted(value, keys_are_ours)).collect())
        }
        Value::Object(map) if keys_are_ours => {
            ConfigValue::Map(map.into_iter().map(|(key, value)| entry(&key, value)).collect())
        }
        Value::Object(map) => {
            ConfigValue::Map(map.into_iter().map(|(key, value)| (key, converted(value, false))).collect())
        }
    }
}

/// A key as this crate spells it: `sampleRate` is `sample_rate`.
pub fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
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
    fn keys_become_snake_case_and_the_users_own_names_stay() {
        let given = r#"{"sampleRate": 99, "tags": {"podName": "a"}, "destinations": [{"type": "file", "fileKeep": 2, "headers": {"X-Key": "k"}}]}"#;
        let code = from_json(given).unwrap();
        assert_eq!(code[0], ("sample_rate".to_owned(), ConfigValue::Int(99)));
        assert_eq!(code[1].1, ConfigValue::Map(vec![("podName".to_owned(), ConfigValue::from("a"))]));
        let ConfigValue::List(destinations) = &code[2].1 else { panic!("{code:?}") };
        let ConfigValue::Map(keys) = &destinations[0] else { panic!("{code:?}") };
        assert_eq!(keys[1].0, "file_keep");
        assert_eq!(keys[2].1, ConfigValue::Map(vec![("X-Key".to_owned(), ConfigValue::from("k"))]));
    }

    #[test]
    fn what_is_no_object_says_what_it_is() {
        assert!(from_json("[]").unwrap_err().message.contains("a list"));
        assert!(from_json("{").unwrap_err().message.contains("not JSON"));
    }
}
