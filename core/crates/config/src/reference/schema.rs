//! The JSON schema of the configuration file, generated from the key table. Editors and deployments validate files with it. It
//! is stricter than loading: an unknown key is a warning there.

use serde_json::{json, Map, Value};

use crate::keys::destinations::ENTRY_KEYS;
use crate::keys::key::Key;
use crate::keys::nested::{nested_names, CPU_PERCENT, WRAPPERS};
use crate::keys::table::{Config, KEYS};
use crate::types::value::SHARE_TYPE;

/// Text of a whole number, with an optional unit of bytes.
const WHOLE_NUMBER: &str = "^\\s*\\d+\\s*([kKmMgG][iI]?[bB])?\\s*$";
/// Text of a number, with an optional unit of time.
const NUMBER: &str = "^\\s*\\d+(\\.\\d+)?\\s*(ms|us|µs|s|min|m|h|d)?\\s*$";
/// Text of a share, in percent or not.
const SHARE: &str = "^\\s*\\d+(\\.\\d+)?\\s*%?\\s*$";
const SWITCH: &str =
    "^\\s*([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[yY][eE][sS]|[nN][oO]|[oO][nN]|[oO][fF][fF]|1|0)\\s*$";

impl Config {
    /// The JSON schema (draft 2020-12) of the configuration file. `options` are the names and descriptions of settings of the
    /// bindings.
    pub fn json_schema(options: &[(&str, &str)]) -> String {
        let mut properties: Map<String, Value> = KEYS.iter().map(|key| (key.name.to_owned(), of_key(key))).collect();
        for (name, doc) in options {
            properties.insert((*name).to_owned(), json!({ "description": doc }));
        }
        for (section, names) in sections() {
            let nested = json!({ "type": "object", "properties": names, "additionalProperties": false });
            let schema = match properties.remove(&section) {
                // A switch and a section: `wall: true` and `wall: {enabled: true}`.
                Some(switch) => json!({ "anyOf": [switch, nested] }),
                None => nested,
            };
            properties.insert(section, schema);
        }
        for wrapper in WRAPPERS {
            properties.insert((*wrapper).to_owned(), json!({ "description": "A map with all keys.", "$ref": "#" }));
        }
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Configuration file of spanprof",
            "description": "Nested names are other spellings of keys: cpu.sample_rate is sample_rate.",
            "type": ["object", "null"],
            "properties": properties,
            "additionalProperties": false,
        });
        format!("{schema:#}\n")
    }
}

fn sections() -> Map<String, Value> {
    let mut sections = Map::new();
    for (section, name, key) in nested_names() {
        let Some(key) = KEYS.iter().find(|known| known.name == key) else { continue };
        let names = sections.entry(section).or_insert_with(|| json!({}));
        let mut schema = match name {
            _ if key.name == "retention" => json!({}),
            CPU_PERCENT => json!({ "type": ["number", "string"] }),
            _ => of_type(key),
        };
        schema["description"] = json!(format!("The key `{}`.", key.name));
        names[name] = schema;
    }
    sections
}

fn of_key(key: &Key) -> Value {
    let mut schema = of_type(key);
    schema["description"] = key.doc.trim().into();
    let default = Config::default().entries().into_iter().find(|(name, _, _)| *name == key.name);
    if let Some((_, text, _)) = default.filter(|(_, text, _)| !text.is_empty()) {
        schema["default"] = serde_json::from_str(&text).unwrap_or(Value::String(text));
    }
    schema
}

/// The values of a key's type. Every type has a form as text, for variables; an empty value is that of the lower layers.
fn of_type(key: &Key) -> Value {
    let null = json!({ "type": "null" });
    let bounded = |type_name: &str| match key.bounds {
        Some(bounds) => json!({ "type": type_name, "minimum": bounds.min, "maximum": bounds.max }),
        None => json!({ "type": type_name }),
    };
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let forms = match key.type_name {
        "true or false" => vec![json!({ "type": "boolean" }), json!({ "enum": [0, 1] }), text(SWITCH)],
        "whole number" => vec![bounded("integer"), text(WHOLE_NUMBER)],
        "number" => vec![bounded("number"), text(NUMBER)],
        SHARE_TYPE => vec![bounded("number"), text(SHARE)],
        "text" => vec![json!({ "type": ["string", "number", "boolean"] })],
        "text such as 15s/5m" => {
            let duration = NUMBER.trim_start_matches("^").trim_end_matches("$");
            vec![text(&format!("^{duration}/{duration}$"))]
        }
        "map of text" => {
            let values = json!({ "type": ["string", "number", "boolean"] });
            vec![json!({ "type": "object", "additionalProperties": values }), json!({ "type": "string" })]
        }
        "list of maps" => vec![json!({ "type": "array", "items": destination() }), json!({ "type": "string" })],
        // `default or all`, `auto, perf or sigtrap`
        choice if choice.contains(" or ") && key.bounds.is_none() => {
            let words: Vec<_> = choice.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or").collect();
            vec![json!({ "enum": words })]
        }
        _ => return json!({}),
    };
    json!({ "anyOf": forms.into_iter().chain([null]).collect::<Vec<_>>() })
}

fn destination() -> Value {
    let mut properties = Map::new();
    for (name, key) in ENTRY_KEYS {
        let schema = match KEYS.iter().find(|known| known.name == *key) {
            Some(key) => of_type(key),
            None => json!({ "enum": crate::types::choices::DestinationType::TEXTS }),
        };
        properties.insert((*name).to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "required": ["type"], "additionalProperties": false })
}
