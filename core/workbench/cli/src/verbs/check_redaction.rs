//! `spanprof check --redaction`: the texts of profiles that the rules of a file and the default patterns would remove, and
//! cases of texts with the result that their author expects.

use serde_json::{json, Value};
use spanprof_answers::failure::{Failure, EXIT_FAILED};
use spanprof_profile::redact::{ProfileRedactor, RedactedText, RedactionSettings, RedactionTarget, UnredactedProfiles};
use spanprof_read::query::Detail;

use super::{selected, ReadArguments};
use crate::redaction_rules::RedactionCase;
use crate::{output, redaction_rules};

/// `to`: the end of the selected time; `as_json`: for programs.
pub(super) fn run(file: &str, read: &ReadArguments, to: Option<&str>, as_json: bool) -> Result<i32, Failure> {
    let settings = redaction_rules::read(file)?;
    let is_yaml = |source: &String| source.ends_with(".yaml") || source.ends_with(".yml");
    if read.sources.iter().all(is_yaml) {
        return run_cases(settings, &read.sources, as_json);
    }
    let (data, _) = selected(read, to, Detail::Everything)?;
    let mut redactor = ProfileRedactor::new(settings).collecting();
    UnredactedProfiles::new(data).redacted_with_resources(&mut redactor);
    let found = redactor.into_found();
    let text = if as_json { json(&found) } else { text(&found) };
    output::print(text.as_bytes())?;
    Ok(if found.is_empty() { 0 } else { EXIT_FAILED })
}

/// Runs the cases of files against the rules; the exit code is 1 when one fails.
fn run_cases(settings: RedactionSettings, files: &[String], as_json: bool) -> Result<i32, Failure> {
    let mut redactor = ProfileRedactor::new(settings);
    let (mut count, mut failed) = (0, Vec::new());
    for file in files {
        for case in redaction_rules::cases(file)? {
            count += 1;
            let after = redacted(&mut redactor, &case);
            if after != case.becomes {
                failed.push((case, after));
            }
        }
    }
    let shown = |text: &str| format!("`{}`", text.escape_debug());
    let text = if as_json {
        let failure = |(case, after): &(RedactionCase, String)| json!({"where": case.target.name(), "key": case.key, "text": case.text, "becomes": after, "expected": case.becomes});
        json!({"cases": count, "failed": failed.iter().map(failure).collect::<Value>()}).to_string() + "\n"
    } else {
        let lines = failed.iter().map(|(case, after)| {
            let (place, before) = (case.target.name(), shown(&case.text));
            format!("{place}: {before} becomes {}, expected {}\n", shown(after), shown(&case.becomes))
        });
        lines.collect::<String>() + &format!("{count} cases, {} failed\n", failed.len())
    };
    output::print(text.as_bytes())?;
    Ok(if failed.is_empty() { 0 } else { EXIT_FAILED })
}

/// The text of a case after redaction; empty when it is removed.
fn redacted(redactor: &mut ProfileRedactor, case: &RedactionCase) -> String {
    if case.target == RedactionTarget::CommandLine {
        let arguments: Vec<_> = case.text.split(' ').map(str::to_owned).collect();
        return redactor.command_line(&arguments).join(" ");
    }
    let (key, value) = match case.target {
        RedactionTarget::LabelKey => (case.text.as_str(), "value"),
        _ => (case.key.as_str(), case.text.as_str()),
    };
    let target = if case.target == RedactionTarget::LabelKey { RedactionTarget::LabelValue } else { case.target };
    match redactor.pair(target, key, value) {
        Some((key, _)) if case.target == RedactionTarget::LabelKey => key,
        Some((_, value)) => value,
        None => String::new(),
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
