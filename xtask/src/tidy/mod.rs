//! The rules of the house that a machine can keep. Each rule is a pure function of a path and a text, tested beside
//! itself; this file reads the work tree and asks them all. Called by the verbs `tidy`, `check` and `test`.

mod code_map;
mod dependencies;
mod shape;
mod source;
mod tests_run;
mod unsafe_code;
mod words;

use std::fmt;

use crate::step::{Failure, Outcome};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File, relative to the root.
    pub path: String,
    /// Line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong and what is wanted.
    pub message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Asks every rule about every file of the work tree.
pub fn findings() -> Outcome<Vec<Finding>> {
    let root = crate::workspace::root();
    let files = crate::workspace::files()?;
    let mut findings = Vec::new();
    for path in &files {
        let bytes = std::fs::read(root.join(path))
            .map_err(|error| Failure::new("tidy", format!("cannot read {path}: {error}")))?;
        // A picture or a recorded profile is no text; no rule is about it.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        findings.extend(of_file(path, &text));
    }
    let map = crate::scratch::read(&root.join("ARCHITECTURE.md"))?;
    findings.extend(code_map::check(&files, &map));
    findings.extend(dependencies::directions(&cargo_metadata()?));
    Ok(findings)
}

fn of_file(path: &str, text: &str) -> Vec<Finding> {
    [
        unsafe_code::check(path, text),
        shape::check(path, text),
        tests_run::check(path, text),
        words::check(path, text),
        dependencies::reasons(path, text),
    ]
    .concat()
}

fn cargo_metadata() -> Outcome<serde_json::Value> {
    let text = crate::step::Step::cargo("cargo metadata")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .capture()?;
    serde_json::from_str(&text).map_err(|error| Failure::new("cargo metadata", format!("not JSON: {error}")))
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
}
