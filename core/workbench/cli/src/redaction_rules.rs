//! The rules of `--redaction FILE`: a configuration file of spanprof, or a list of rules in YAML. The cases that rules are
//! checked with.

use std::hash::{BuildHasher, RandomState};

use serde_norway::Value as Yaml;
use spanprof_profile::redact::{RedactionRule, RedactionSettings, RedactionTarget};

use spanprof_answers::failure::Failure;

/// Largest file of rules, as of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads and checks the file. An invalid rule is an error.
pub(crate) fn read(file: &str) -> Result<RedactionSettings, Failure> {
    let invalid = |problem: String| {
        Failure::usage(format!("the rules in {file} cannot be used: {problem}"))
            .hint("expected a configuration file with `redaction_rules`, or a list of rules")
    };
    let document = document(file).map_err(invalid)?;
    // A map around all keys, as in the configuration.
    let wrapped = ["profiling", "spanprof"].iter().find_map(|name| document.get(name)).filter(|map| map.is_mapping());
    let document = wrapped.unwrap_or(&document);
    let list = match document {
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

/// A file of YAML; the error is the reason why it cannot be read.
fn document(file: &str) -> Result<Yaml, String> {
    let length = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("it has {length} bytes, expected at most {MAX_FILE_BYTES}"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    serde_norway::from_str(&text).map_err(|error| error.to_string())
}

/// A text with its expected redaction.
pub(crate) struct RedactionCase {
    pub target: RedactionTarget,
    /// Key of the label or resource attribute.
    pub key: String,
    pub text: String,
    /// The text after redaction; empty when it is removed.
    pub becomes: String,
}

/// The cases of a file, one for each place. Without `where` it is both a label and a resource attribute; without `becomes` its text stays.
pub(crate) fn cases(file: &str) -> Result<Vec<RedactionCase>, Failure> {
    let invalid = |problem: String| {
        Failure::usage(format!("the cases in {file} cannot be used: {problem}"))
            .hint("expected a map with `redaction_cases`, a list of maps with text, becomes, where and key")
    };
    let document = document(file).map_err(invalid)?;
    let listed = document.get("redaction_cases").and_then(Yaml::as_sequence);
    let listed = listed.filter(|listed| !listed.is_empty()).ok_or_else(|| invalid("it has no cases".to_owned()))?;
    let of_case = |(index, case): (usize, &Yaml)| {
        let read = pairs(case).ok_or_else(|| "it must be a map of text".to_owned()).and_then(|pairs| case_of(&pairs));
        read.map_err(|problem| invalid(format!("case {}: {problem}", index + 1)))
    };
    Ok(listed.iter().enumerate().map(of_case).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn case_of(pairs: &[(String, Vec<String>)]) -> Result<Vec<RedactionCase>, String> {
    let names = ["text", "becomes", "where", "key"];
    if let Some((unknown, _)) = pairs.iter().find(|(name, _)| !names.contains(&name.as_str())) {
        return Err(format!("unknown key `{unknown}`; expected {}", names.join(", ")));
    }
    let text = |name: &str| pairs.iter().find(|(known, _)| known == name).and_then(|(_, texts)| texts.first().cloned());
    let before = text("text").ok_or_else(|| "`text` is missing".to_owned())?;
    let becomes = text("becomes").unwrap_or_else(|| before.clone());
    let places = pairs.iter().find(|(name, _)| name == "where").map(|(_, places)| places.as_slice());
    let named = |place: &String| RedactionTarget::from_name(place).ok_or_else(|| format!("unknown `where: {place}`"));
    let targets = match places {
        Some(places) => places.iter().map(named).collect::<Result<Vec<_>, _>>()?,
        None => vec![RedactionTarget::LabelValue, RedactionTarget::Resource],
    };
    let key = text("key").unwrap_or_else(|| "text".to_owned());
    let of_target = |target| RedactionCase { target, key: key.clone(), text: before.clone(), becomes: becomes.clone() };
    Ok(targets.into_iter().map(of_target).collect())
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
