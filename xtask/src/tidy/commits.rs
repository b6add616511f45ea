//! Rule: each commit after [`BASE`] has the subject `area: summary` of at most 72 characters and a body, and is no merge.
//! History before it is not rewritten. Skipped where the base is not an ancestor, as in a shallow clone.

use super::Violation;
use crate::step::{ProcessStep, StepResult};

/// The last commit that is not checked.
const BASE: &str = "16b0f40fd58588d217a2e7892d764bbefc0db5ab";
const LONGEST_SUBJECT: usize = 72;

/// Separates the fields of a commit, and the commits, in git's output.
const FIELD: char = '\u{1f}';
const COMMIT: char = '\u{1e}';

/// Checks the commits from the base to HEAD.
pub fn check() -> StepResult<Vec<Violation>> {
    let ancestor = ProcessStep::new("find the base commit", "git").args(["merge-base", "--is-ancestor", BASE, "HEAD"]);
    if !ancestor.capture_any()?.0.success() {
        return Ok(Vec::new());
    }
    let log = ProcessStep::new("list commits", "git")
        .args(["log", "--format=%h%x1f%p%x1f%s%x1f%b%x1e", &format!("{BASE}..HEAD")])
        .capture()?;
    Ok(log.split(COMMIT).map(str::trim).filter(|commit| !commit.is_empty()).flat_map(of_commit).collect())
}

fn of_commit(commit: &str) -> Vec<Violation> {
    let fields: Vec<_> = commit.splitn(4, FIELD).collect();
    let [id, parents, subject, body] = fields[..] else { return Vec::new() };
    let place = format!("commit {id}");
    let mut messages = Vec::new();
    if parents.split_whitespace().count() > 1 {
        messages.push("a merge commit: rebase the branch".to_owned());
    }
    if !has_area(subject) {
        messages.push(format!("subject `{subject}` has not the form `area: summary`"));
    }
    if subject.chars().count() > LONGEST_SUBJECT {
        messages.push(format!("subject of {} characters, {LONGEST_SUBJECT} are allowed", subject.chars().count()));
    }
    if body.trim().is_empty() {
        messages.push("no body: state why in at least one line".to_owned());
    }
    messages.into_iter().map(|message| Violation::new(&place, 0, message)).collect()
}

fn has_area(subject: &str) -> bool {
    let area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/., ".contains(c);
    subject.split_once(": ").is_some_and(|(name, summary)| {
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(area) && !summary.trim().is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(parents: &str, subject: &str, body: &str) -> Vec<String> {
        let commit = ["1234567", parents, subject, body].join(&FIELD.to_string());
        of_commit(&commit).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn a_subject_with_area_and_a_body_is_right() {
        assert!(messages("a", "java: prefetch frames of the previous walk", "It saves 3 %.").is_empty());
        assert!(messages("a", "core, cli: rename the window", "One name per type.").is_empty());
    }

    #[test]
    fn a_subject_without_area_is_found() {
        assert_eq!(messages("a", "Say no more of the tests than is true", "Why.").len(), 1);
        assert_eq!(messages("a", "Java: rename", "Why.").len(), 1);
        assert_eq!(messages("a", "java:", "Why.").len(), 1);
    }

    #[test]
    fn a_subject_of_73_characters_is_too_long_and_one_of_72_is_not() {
        assert!(messages("a", &format!("java: {}", "x".repeat(66)), "Why.").is_empty());
        assert_eq!(messages("a", &format!("java: {}", "x".repeat(67)), "Why.").len(), 1);
    }

    #[test]
    fn a_missing_body_and_a_merge_are_found() {
        assert_eq!(messages("a", "java: rename", "").len(), 1);
        assert_eq!(messages("a b", "java: rename", "Why.").len(), 1);
    }
}
