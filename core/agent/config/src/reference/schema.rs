//! The JSON schema of the configuration file, generated from the key table. Editors and deployments validate files with it. It
//! is stricter than loading: an unknown key is a warning there.

use serde_json::{json, Map, Value};

use crate::keys::destinations::ENTRY_KEYS;
use crate::keys::key::{Bounds, Key};
use crate::keys::nested::{nested_names, CPU_PERCENT, WRAPPERS};
use crate::keys::table::{Config, KEYS};
use crate::types::choices::DestinationType;
use crate::types::shape::Shape;
use spanprof_profile::redact::RedactionRule;

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
            "additionalProperties": false,
        });
        // One line per property.
        let properties =
            properties.iter().map(|(name, schema)| format!("\n  \"{name}\": {schema}")).collect::<Vec<_>>();
        let head = schema.to_string();
        format!("{},\n\"properties\": {{{}\n}}}}\n", head.trim_end_matches('}'), properties.join(","))
    }
}

fn sections() -> Map<String, Value> {
    let mut sections = Map::new();
    for (section, name, key) in nested_names() {
        let Some(key) = KEYS.iter().find(|row| row.name == key) else { continue };
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

/// The values of a key. An empty value is that of the lower layers.
fn of_type(key: &Key) -> Value {
    of_shape(key.shape, key.bounds)
}

fn of_shape(shape: Shape, bounds: Option<Bounds>) -> Value {
    let bounded = |type_name: &str| match bounds {
        Some(bounds) => json!({ "type": type_name, "minimum": bounds.min, "maximum": bounds.max }),
        None => json!({ "type": type_name }),
    };
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let maps = |item: Value| vec![json!({ "type": "array", "items": item }), json!({ "type": "string" })];
    let forms = match shape {
        Shape::Switch => vec![json!({ "type": "boolean" }), json!({ "enum": [0, 1] }), text(SWITCH)],
        Shape::WholeNumber => vec![bounded("integer"), text(WHOLE_NUMBER)],
        Shape::Number => vec![bounded("number"), text(NUMBER)],
        Shape::NumberOr(words) => vec![bounded("number"), text(NUMBER), json!({ "enum": words })],
        Shape::Share => vec![bounded("number"), text(SHARE)],
        Shape::Text => vec![scalar()],
        Shape::DutyCycle => {
            let duration = NUMBER.trim_start_matches('^').trim_end_matches('$');
            vec![text(&format!("^{duration}/{duration}$"))]
        }
        Shape::TextList => vec![json!({ "type": "array", "items": scalar() }), json!({ "type": "string" })],
        Shape::TextMap => {
            vec![json!({ "type": "object", "additionalProperties": scalar() }), json!({ "type": "string" })]
        }
        Shape::Choice(words) => vec![json!({ "enum": words })],
        Shape::Destinations => maps(destination()),
        Shape::RedactionRules => maps(redaction_rule()),
    };
    json!({ "anyOf": forms.into_iter().chain([json!({ "type": "null" })]).collect::<Vec<_>>() })
}

fn scalar() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

fn destination() -> Value {
    let mut properties = Map::new();
    for (name, key) in ENTRY_KEYS {
        let schema = match (*name, KEYS.iter().find(|row| row.name == *key)) {
            (_, Some(key)) => of_type(key),
            ("type", _) => json!({ "enum": DestinationType::TEXTS }),
            // Only in an entry: the tenant, the user and the password.
            _ => of_shape(Shape::Text, None),
        };
        properties.insert((*name).to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "required": ["type"], "additionalProperties": false })
}

fn redaction_rule() -> Value {
    let texts = json!({ "anyOf": [scalar(), { "type": "array", "items": scalar() }, { "type": "null" }] });
    let properties: Map<String, Value> =
        RedactionRule::KEYS.iter().map(|name| ((*name).to_owned(), texts.clone())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}
