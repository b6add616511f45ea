//! Rules that a machine checks. Each rule is a pure function of a path and a text, with its tests beside it; this file reads
//! the work tree and runs them. Called by the verbs `tidy`, `check` and `test`.

mod binding_modules;
mod commits;
mod crate_headers;
mod dependencies;
mod disabled_tests;
mod file_shape;
mod forbidden_text;
mod handler_folders;
mod import_cycles;
mod named_paths;
mod rust_imports;
mod rust_paths;
mod source;
mod test_modules;
mod type_names;
mod unsafe_code;

use std::fmt;

use crate::step::{StepFailure, StepResult};
use type_names::TypeNames;

/// Directories of the core's crates; `core/src` is the binding for Rust.
const CORE_CRATES: [&str; 4] = ["core/agent/", "core/workbench/", "core/profile/", "core/recorded-stack/"];

fn is_core_crate(path: &str) -> bool {
    CORE_CRATES.iter().any(|directory| path.starts_with(directory))
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// File, relative to the root, or a commit.
    pub path: String,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// The violation, and the accepted form.
    pub message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Result of one run.
#[derive(Debug, Default)]
pub struct TidyReport {
    /// Any of these fails the run.
    pub violations: Vec<Violation>,
    /// Messages of commits. Fail a run before the commits are published; a published commit cannot be changed.
    pub commits: Vec<Violation>,
}

/// Content of the work tree, by path, and the type names that it declares.
pub struct WorkTree {
    files: Vec<(String, String)>,
    paths: Vec<String>,
    types: TypeNames,
}

impl WorkTree {
    /// Reads every text file that git tracks or would track.
    pub fn read() -> StepResult<Self> {
        let root = crate::workspace::root();
        let paths = crate::git::files()?;
        let mut tree = Self { files: Vec::new(), paths, types: TypeNames::new() };
        for path in &tree.paths {
            let bytes = std::fs::read(root.join(path))
                .map_err(|error| StepFailure::new("tidy", format!("cannot read {path}: {error}")))?;
            // Images and recorded profiles are not text; no rule applies to them.
            let Ok(text) = String::from_utf8(bytes) else { continue };
            type_names::collect(path, &text, &mut tree.types);
            tree.files.push((path.clone(), text));
        }
        Ok(tree)
    }

    /// Runs every rule.
    pub fn check(&self) -> StepResult<TidyReport> {
        let imports = rust_imports::read(&self.files);
        let violations = [type_names::check(&self.types), import_cycles::check(&imports)].concat();
        let mut report = TidyReport { violations, commits: commits::check()? };
        for (path, text) in &self.files {
            report.violations.extend(of_file(path, text));
            report.violations.extend(named_paths::check(&self.paths, path, text));
        }
        report.violations.extend(named_paths::headers(&self.files));
        report.violations.extend(test_modules::undeclared(&self.files));
        report.violations.extend(binding_modules::check(&self.paths));
        report.violations.extend(handler_folders::check(&self.files));
        report.violations.extend(crate_headers::check(&self.files, &imports));
        report.violations.extend(dependencies::directions(&cargo_metadata()?));
        Ok(report)
    }
}

fn of_file(path: &str, text: &str) -> Vec<Violation> {
    [
        unsafe_code::check(path, text),
        file_shape::check(path, text),
        disabled_tests::check(path, text),
        test_modules::check(path, text),
        forbidden_text::check(path, text),
        dependencies::reasons(path, text),
    ]
    .concat()
}

fn cargo_metadata() -> StepResult<serde_json::Value> {
    let text = crate::step::ProcessStep::cargo("cargo metadata")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .capture()?;
    serde_json::from_str(&text).map_err(|error| StepFailure::new("cargo metadata", format!("not JSON: {error}")))
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
}
