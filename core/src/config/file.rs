//! The YAML configuration file: one map of keys. Values are typed by the key table.

use super::types::ConfigSource;
use super::value::{ConfigValue, Setting};
use crate::{Error, ErrorKind};
use serde_norway::Value;

/// Maximum size of the file; a configuration is far smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings of the file at `path`.
pub(crate) fn settings(path: &str) -> Result<Vec<Setting>, Error> {
    let hint = "correct config_file or SPANPROF_CONFIG_FILE, or remove it";
    let unreadable = |cause: String| {
        Error::new(ErrorKind::ConfigFile, format!("the configuration file `{path}` could not be read: {cause}"), hint)
    };
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        // Reading a pipe would block the start of the program.
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    let size = metadata.len();
    if size > MAX_FILE_BYTES {
        return Err(unreadable(format!("it has {size} bytes, expected at most {MAX_FILE_BYTES}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    parse(&text, path).map_err(unreadable)
}

fn parse(text: &str, path: &str) -> Result<Vec<Setting>, String> {
    let document: Value = serde_norway::from_str(text).map_err(|error| error.to_string())?;
    let pairs = match value(&document) {
        ConfigValue::Null => Vec::new(),
        ConfigValue::Map(pairs) => pairs,
        other => return Err(format!("expected a map of keys, got {}", other.shown())),
    };
    Ok(pairs
        .into_iter()
        .map(|(key, value)| Setting { key, value, source: ConfigSource::File(path.to_owned()) })
        .collect())
}

pub(crate) fn value(yaml: &Value) -> ConfigValue {
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

fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_map_of_keys() {
        let settings = parse("sample_rate: 19\ntags: {team: a}\nservice_name: 12\n", "f").unwrap();
        assert_eq!(settings[0].value, ConfigValue::Int(19));
        assert_eq!(settings[1].value, ConfigValue::Map(vec![("team".to_owned(), "a".into())]));
        assert!(parse("", "f").unwrap().is_empty());
        assert_eq!(parse("- a\n- b", "f").err().unwrap(), "expected a map of keys, got a list of 2");
    }

    #[test]
    fn a_missing_file_is_an_error_with_its_path() {
        let error = settings("/nonexistent/spanprof.yaml").err().unwrap();
        assert_eq!(error.kind, ErrorKind::ConfigFile);
        assert!(error.message.contains("/nonexistent/spanprof.yaml"), "{}", error.message);
    }
}
