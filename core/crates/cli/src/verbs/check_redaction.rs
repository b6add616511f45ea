//! `spanprof check --redaction`: the texts of profiles that the rules of a file and the default patterns would remove.

use std::hash::{BuildHasher, RandomState};

use serde_json::{json, Value};
use serde_norway::Value as Yaml;
use spanprof_profile::redact::{ProfileRedactor, RedactedText, RedactionRule, RedactionSettings, UnredactedProfiles};

use super::{selected, ReadArguments};
use crate::detail::Detail;
use crate::failure::{Failure, EXIT_FAILED};
use crate::output;

/// Largest file of rules, as of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `to`: the end of the selected time; `as_json`: for programs.
pub(super) fn run(file: &str, read: &ReadArguments, to: Option<&str>, as_json: bool) -> Result<i32, Failure> {
    let settings = settings(file)?;
    let (data, _) = selected(read, to, Detail::Everything)?;
    let mut redactor = ProfileRedactor::new(settings).collecting();
    UnredactedProfiles::new(data).redacted_with_resources(&mut redactor);
    let found = redactor.into_found();
    let text = if as_json { json(&found) } else { text(&found) };
    output::print(text.as_bytes())?;
    Ok(if found.is_empty() { 0 } else { EXIT_FAILED })
}

/// The rules of a configuration file of spanprof, or of a list.
fn settings(file: &str) -> Result<RedactionSettings, Failure> {
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

fn text(found: &[RedactedText]) -> String {
    let mut text = String::new();
    for RedactedText { target, key, before, after } in found {
        let (target, space) = (target.name(), if key.is_empty() { "" } else { " " });
        let after = match after {
            Some(after) => format!("becomes `{}`", after.escape_debug()),
            None => "is removed".to_owned(),
        };
        text += &format!("{target}{space}{key}: `{}` {after}\n", before.escape_debug());
    }
    let count = match found.len() {
        0 => "no text".to_owned(),
        1 => "1 text".to_owned(),
        count => format!("{count} different texts"),
    };
    text + &format!("{count} would be removed or replaced\n")
}

fn json(found: &[RedactedText]) -> String {
    let text = |RedactedText { target, key, before, after }: &RedactedText| json!({"where": target.name(), "key": key, "before": before, "after": after});
    json!({"count": found.len(), "texts": found.iter().map(text).collect::<Value>()}).to_string() + "\n"
}
