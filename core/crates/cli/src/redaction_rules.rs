//! The rules of `--redaction FILE`: a configuration file of spanprof, or a list of rules in YAML.

use std::hash::{BuildHasher, RandomState};

use serde_norway::Value as Yaml;
use spanprof_profile::redact::{RedactionRule, RedactionSettings};

use crate::failure::Failure;

/// Largest file of rules, as of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads and checks the file. An invalid rule is an error.
pub(crate) fn read(file: &str) -> Result<RedactionSettings, Failure> {
    let invalid = |problem: String| {
        Failure::usage(format!("the rules in {file} cannot be used: {problem}"))
            .hint("expected a configuration file with `redaction_rules`, or a list of rules")
    };
    let length = std::fs::metadata(file).map_err(|error| invalid(error.to_string()))?.len();
    if length > MAX_FILE_BYTES {
        return Err(invalid(format!("it has {length} bytes, expected at most {MAX_FILE_BYTES}")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
    let document: Yaml = serde_norway::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    let list = match &document {
        Yaml::Sequence(list) => Some(list),
        Yaml::Mapping(_) => document.get("redaction_rules").and_then(Yaml::as_sequence),
        _ => return Err(invalid("it is neither a map nor a list".to_owned())),
    };
    let has_rules = document.get("redaction_rules").is_some_and(|rules| !rules.is_null());
    if has_rules && list.is_none() {
        return Err(invalid("`redaction_rules` is not a list".to_owned()));
    }
    let rules = list.into_iter().flatten().enumerate().map(|(index, rule)| {
        let pairs = pairs(rule).ok_or_else(|| "it must be a map of text".to_owned());
        let rule = pairs.and_then(|pairs| RedactionRule::from_pairs(&pairs));
        rule.map_err(|problem| invalid(format!("rule {}: {problem}", index + 1)))
    });
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    let default_patterns = document.get("redaction").and_then(Yaml::as_bool).unwrap_or(true);
    let hash_key = match document.get("redaction_hash_key").and_then(scalar_text) {
        Some(key) => key.into_bytes(),
        None => RandomState::new().hash_one(file).to_ne_bytes().to_vec(),
    };
    Ok(RedactionSettings { default_patterns, rules, hash_key })
}

fn pairs(rule: &Yaml) -> Option<Vec<(String, Vec<String>)>> {
    let pairs = rule.as_mapping()?.iter().filter(|(_, value)| !value.is_null());
    pairs
        .map(|(key, value)| {
            let texts = match value {
                Yaml::Sequence(list) => list.iter().map(scalar_text).collect::<Option<Vec<_>>>()?,
                single => vec![scalar_text(single)?],
            };
            Some((scalar_text(key)?, texts))
        })
        .collect()
}

fn scalar_text(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) => Some(text.clone()),
        Yaml::Bool(flag) => Some(flag.to_string()),
        Yaml::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
