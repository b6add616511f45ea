//! The value of `destinations`: reads the list, and reports invalid entries. The keys of an entry are those of the top level,
//! with the same types and bounds.

use super::nearest::nearest;
use crate::keys::table::KEYS;
use crate::types::basic_auth::basic_authorization;
use crate::types::choices::{DestinationConfig, DestinationType};
use crate::types::endpoint;
use crate::types::shape::Shape;
use crate::types::value::{ConfigType, ConfigValue};
use crate::types::yaml::list_of;

/// Keys of an entry, with the corresponding key of the top level.
pub(crate) const ENTRY_KEYS: &[(&str, &str)] = &[
    ("type", ""),
    ("endpoint", "endpoint"),
    ("protocol", "protocol"),
    ("headers", "headers"),
    ("tenant_id", ""),
    ("basic_auth_user", ""),
    ("basic_auth_password", ""),
    ("compression", "compression"),
    ("timeout", "timeout"),
    ("certificate", "certificate"),
    ("client_key", "client_key"),
    ("client_certificate", "client_certificate"),
    ("insecure", "insecure"),
    ("link", "link"),
    ("directory", "file_directory"),
    ("file_directory", "file_directory"),
    ("keep", "file_keep"),
    ("file_keep", "file_keep"),
    ("max_age", "file_max_age"),
    ("file_max_age", "file_max_age"),
    ("max_bytes", "file_max_bytes"),
    ("file_max_bytes", "file_max_bytes"),
];

impl ConfigType for Vec<DestinationConfig> {
    const SHAPE: Shape = Shape::Destinations;
    const SECRET: bool = true;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        entries(&list_of(value)?).ok()
    }

    fn problem(value: &ConfigValue) -> Option<String> {
        entries(&list_of(value)?).err()
    }

    fn to_text(&self) -> String {
        let types: Vec<_> = self.iter().map(|entry| entry.destination_type.text()).collect();
        types.join(",")
    }
}

fn entries(list: &[ConfigValue]) -> Result<Vec<DestinationConfig>, String> {
    let numbered = list.iter().enumerate();
    numbered.map(|(i, value)| entry(value).map_err(|problem| format!("entry {}: {problem}", i + 1))).collect()
}

fn entry(value: &ConfigValue) -> Result<DestinationConfig, String> {
    let ConfigValue::Map(pairs) = value else { return Err("it must be a map".to_owned()) };
    let destination_type = pairs.iter().find(|(key, _)| key == "type").map(|(_, value)| value);
    let Some(destination_type) = destination_type.and_then(DestinationType::from_value) else {
        return Err(format!("`type` must be {}", DestinationType::SHAPE.expected()));
    };
    let mut entry = DestinationConfig::new(destination_type);
    let (mut tenant_id, mut user, mut password) = (None, None, None);
    for (name, value) in pairs.iter().filter(|(_, value)| *value != ConfigValue::Null) {
        match name.as_str() {
            "type" => {}
            "endpoint" => entry.endpoint = read(name, value)?,
            "protocol" => entry.protocol = read(name, value)?,
            "headers" => entry.headers = read(name, value)?,
            "tenant_id" => tenant_id = read::<String>(name, value)?,
            "basic_auth_user" => user = read::<String>(name, value)?,
            "basic_auth_password" => password = read::<String>(name, value)?,
            "compression" => entry.compression = read(name, value)?,
            "timeout" => entry.timeout = read(name, value)?,
            "certificate" => entry.certificate = read(name, value)?,
            "client_key" => entry.client_key = read(name, value)?,
            "client_certificate" => entry.client_certificate = read(name, value)?,
            "insecure" => entry.insecure = read(name, value)?,
            "link" => entry.link = read(name, value)?,
            "directory" | "file_directory" => entry.directory = read(name, value)?,
            "keep" | "file_keep" => entry.keep = read(name, value)?,
            "max_age" | "file_max_age" => entry.max_age = read(name, value)?,
            "max_bytes" | "file_max_bytes" => entry.max_bytes = read(name, value)?,
            _ => {
                let hint = nearest(name, ENTRY_KEYS.iter().map(|(key, _)| *key));
                let hint = hint.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default();
                return Err(format!("unknown key `{name}`{hint}"));
            }
        }
    }
    if user.is_none() && password.is_some() {
        return Err("`basic_auth_password` requires `basic_auth_user`".to_owned());
    }
    let basic = user.map(|user| basic_authorization(&user, &password.unwrap_or_default()));
    for (name, value) in [("x-scope-orgid", tenant_id), ("authorization", basic)] {
        if let Some(value) = value {
            entry.headers.get_or_insert_default().insert(name, value);
        }
    }
    Ok(entry)
}

/// The value of one key, within the bounds of the key at the top level.
fn read<T: ConfigType>(name: &str, value: &ConfigValue) -> Result<Option<T>, String> {
    let Some(typed) = T::from_value(value) else { return Err(format!("`{name}` must be {}", T::SHAPE.expected())) };
    if name == "endpoint" {
        endpoint::check(&typed.to_text()).map_err(|problem| format!("`endpoint` {}", problem.message))?;
    }
    let key = KEYS.iter().find(|key| ENTRY_KEYS.contains(&(name, key.name)));
    if let (Some(key), Some(magnitude)) = (key, typed.magnitude()) {
        if key.bounds.is_some_and(|bounds| !bounds.contain(magnitude)) {
            let range = key.range().unwrap_or_default();
            return Err(format!("`{name}` must lie between {range}, got {}", typed.to_text()));
        }
    }
    Ok(Some(typed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn list(text: &str) -> Result<Vec<DestinationConfig>, String> {
        entries(&list_of(&text.into()).unwrap())
    }

    #[test]
    fn text_is_parsed_as_yaml_for_environment_variables() {
        let read = list("[{type: file, directory: d, keep: 3, max_age: 1h, max_bytes: 64MiB}, {\"type\": \"otlp\", \"endpoint\": null}]").unwrap();
        assert_eq!((read[0].directory.as_deref(), read[0].keep), (Some("d"), Some(3)));
        assert_eq!((read[0].max_age, read[0].max_bytes), (Some(Duration::from_secs(3600)), Some(64 << 20)));
        assert_eq!(read[1], DestinationConfig::new(DestinationType::Otlp));
        assert!(list_of(&"otlp".into()).is_none());
    }

    #[test]
    fn an_error_about_an_entry_contains_its_number_and_key_and_no_value() {
        let problem = |text| list(text).unwrap_err();
        assert_eq!(
            problem("[{type: otlp}, {type: file, directry: d}]"),
            "entry 2: unknown key `directry`; did you mean `directory`?"
        );
        assert_eq!(problem("[{directory: d}]"), "entry 1: `type` must be otlp, pyroscope or file");
        assert_eq!(problem("[{type: otlp, headers: marker}]"), "entry 1: `headers` must be a map of text");
        assert_eq!(problem("[{type: otlp, timeout: 0}]"), "entry 1: `timeout` must lie between 0.001 and 600 s, got 0");
        assert_eq!(problem("[otlp]"), "entry 1: it must be a map");
    }

    #[test]
    fn tenant_and_basic_authentication_become_headers_whose_values_are_not_shown() {
        let text =
            "[{type: pyroscope, tenant_id: team, basic_auth_user: '7', basic_auth_password: marker, headers: {a: b}}]";
        let entry = list(text).unwrap().remove(0);
        let headers: Vec<_> = entry.headers.iter().flat_map(|headers| headers.reveal()).collect();
        assert_eq!(headers, [("a", "b"), ("authorization", "Basic NzptYXJrZXI="), ("x-scope-orgid", "team")]);
        assert!(!format!("{entry:?}").contains("NzptYXJrZXI"));
        let problem = list("[{type: pyroscope, basic_auth_password: marker}]").unwrap_err();
        assert_eq!(problem, "entry 1: `basic_auth_password` requires `basic_auth_user`");
    }

    #[test]
    fn every_key_of_an_entry_has_a_key_of_the_top_level() {
        for (name, top_level) in ENTRY_KEYS.iter().filter(|(_, top_level)| !top_level.is_empty()) {
            assert!(KEYS.iter().any(|key| key.name == *top_level), "{name}");
            assert!(!list(&format!("[{{type: otlp, {name}: [1]}}]")).unwrap_err().contains("unknown"), "{name}");
        }
    }
}
