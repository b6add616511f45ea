//! `spanprof check --redaction`: the texts of profiles that the rules of a file and the default patterns would remove.

use serde_json::{json, Value};
use spanprof_profile::redact::{ProfileRedactor, RedactedText, UnredactedProfiles};

use super::{selected, ReadArguments};
use crate::detail::Detail;
use crate::failure::{Failure, EXIT_FAILED};
use crate::{output, redaction_rules};

/// `to`: the end of the selected time; `as_json`: for programs.
pub(super) fn run(file: &str, read: &ReadArguments, to: Option<&str>, as_json: bool) -> Result<i32, Failure> {
    let settings = redaction_rules::read(file)?;
    let (data, _) = selected(read, to, Detail::Everything)?;
    let mut redactor = ProfileRedactor::new(settings).collecting();
    UnredactedProfiles::new(data).redacted_with_resources(&mut redactor);
    let found = redactor.into_found();
    let text = if as_json { json(&found) } else { text(&found) };
    output::print(text.as_bytes())?;
    Ok(if found.is_empty() { 0 } else { EXIT_FAILED })
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
