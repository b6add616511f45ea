//! The configuration of one call: JSON in camelCase, or an agent's options, into the core's keys and values. No policy: what
//! a value means is the core's. Called by the doors.

use serde_json::Value;
use spanprof::{ConfigValue, Error, ErrorKind};

use crate::runtime::StackWalk;

/// Keys whose maps hold the user's own names.
const OF_THE_USER: [&str; 3] = ["tags", "resource_attributes", "headers"];

/// The code layer of the configuration, in the order given.
pub fn config_from(json: &str) -> Result<Vec<(String, ConfigValue)>, Error> {
    let invalid = |message: String| {
        Error::new(ErrorKind::InvalidConfig, message, "give an object such as { serviceName: 'checkout' }")
    };
    match serde_json::from_str::<Value>(json) {
        Ok(Value::Object(keys)) => Ok(keys.into_iter().map(|(key, value)| entry(&key, value)).collect()),
        Ok(other) => Err(invalid(format!("the configuration must be an object, got {}", kind_of(&other)))),
        Err(error) => Err(invalid(format!("the configuration is not JSON: {error}"))),
    }
}

/// An agent's options: `key=value` pairs with commas between them.
pub fn options(text: &str) -> Vec<(String, ConfigValue)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (snake_case(key.trim()), ConfigValue::Text(value.trim().to_owned()))).collect()
}

/// Takes out the one key that is this binding's own: `stackWalk`.
pub fn take_stack_walk(code: &mut Vec<(String, ConfigValue)>) -> Result<StackWalk, Error> {
    let Some(at) = code.iter().position(|(key, _)| key == "stack_walk") else { return Ok(StackWalk::Auto) };
    match code.remove(at).1 {
        ConfigValue::Null => Ok(StackWalk::Auto),
        ConfigValue::Text(text) if text == "auto" || text == "own" => Ok(StackWalk::Auto),
        ConfigValue::Text(text) if text == "vm" => Ok(StackWalk::ByVm),
        other => {
            let message = format!("stackWalk is auto, own or vm, got {other:?}");
            Err(Error::new(ErrorKind::InvalidConfig, message, "leave it out: the best that works here is taken"))
        }
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

fn snake_case(key: &str) -> String {
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
        let code = config_from(given).unwrap();
        assert_eq!(code[0], ("sample_rate".to_owned(), ConfigValue::Int(99)));
        assert_eq!(code[1].1, ConfigValue::Map(vec![("podName".to_owned(), ConfigValue::from("a"))]));
        let ConfigValue::List(destinations) = &code[2].1 else { panic!("{code:?}") };
        let ConfigValue::Map(keys) = &destinations[0] else { panic!("{code:?}") };
        assert_eq!(keys[1].0, "file_keep");
        assert_eq!(keys[2].1, ConfigValue::Map(vec![("X-Key".to_owned(), ConfigValue::from("k"))]));
    }

    #[test]
    fn options_of_an_agent_are_keys_and_values() {
        let given = options("serviceName=checkout, sampleRate=99,,endpoint=http://a/?b=c");
        let text = |key: &str, value: &str| (key.to_owned(), ConfigValue::Text(value.to_owned()));
        let wanted = [text("service_name", "checkout"), text("sample_rate", "99"), text("endpoint", "http://a/?b=c")];
        assert_eq!(given, wanted);
        assert_eq!(options(""), []);
    }

    #[test]
    fn how_stacks_are_walked_is_no_key_of_the_core() {
        let mut code = options("stackWalk=vm,sampleRate=99");
        assert_eq!(take_stack_walk(&mut code).unwrap(), StackWalk::ByVm);
        assert_eq!(code, options("sampleRate=99"));
        assert_eq!(take_stack_walk(&mut code).unwrap(), StackWalk::Auto);
        assert!(take_stack_walk(&mut options("stackWalk=fast")).unwrap_err().message.contains("auto, own or vm"));
    }

    #[test]
    fn what_is_no_object_says_what_it_is() {
        assert!(config_from("[]").unwrap_err().message.contains("a list"));
        assert!(config_from("{").unwrap_err().message.contains("not JSON"));
    }
}
