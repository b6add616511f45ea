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
mod imports;
mod named_paths;
mod ratchet;
mod rust_imports;
mod rust_paths;
mod script_imports;
mod source;
mod test_modules;
mod type_names;
mod unsafe_code;

use std::collections::BTreeMap;
use std::fmt;

use crate::step::{StepFailure, StepResult};
use ratchet::Places;

/// Allowed counts of type names that are declared more than once.
const TYPES: &str = "xtask/src/tidy/counts/types.txt";

/// Import cycles that remain.
const CYCLES: &str = "xtask/src/tidy/counts/import_cycles.txt";

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
    /// Printed only: counts that fell, and cycles that shrank.
    pub notices: Vec<String>,
}

/// Content of the work tree, by path, and the type names that are declared more than once.
pub struct WorkTree {
    files: Vec<(String, String)>,
    paths: Vec<String>,
    types: BTreeMap<String, Places>,
}

impl WorkTree {
    /// Reads every text file that git tracks or would track.
    pub fn read() -> StepResult<Self> {
        let root = crate::workspace::root();
        let paths = crate::git::files()?;
        let mut tree = Self { files: Vec::new(), paths, types: BTreeMap::new() };
        for path in &tree.paths {
            let bytes = std::fs::read(root.join(path))
                .map_err(|error| StepFailure::new("tidy", format!("cannot read {path}: {error}")))?;
            // Images and recorded profiles are not text; no rule applies to them.
            let Ok(text) = String::from_utf8(bytes) else { continue };
            type_names::collect(path, &text, &mut tree.types);
            tree.files.push((path.clone(), text));
        }
        tree.types = type_names::repeated(tree.types);
        Ok(tree)
    }

    /// Runs every rule.
    pub fn check(&self) -> StepResult<TidyReport> {
        let types = ratchet::compare(TYPES, self.text(TYPES), &self.types, |_| "rename all but one".to_owned());
        let imports = self.imports();
        let cycles = import_cycles::compare(CYCLES, self.text(CYCLES), &import_cycles::find(&imports));
        let mut report = TidyReport {
            violations: [types.violations, cycles.violations].concat(),
            notices: [types.notices, cycles.notices].concat(),
            commits: commits::check()?,
        };
        for (path, text) in &self.files {
            report.violations.extend(of_file(path, text));
            report.violations.extend(named_paths::check(&self.paths, path, text));
        }
        report.violations.extend(binding_modules::check(&self.paths));
        report.violations.extend(handler_folders::check(&self.files));
        report.violations.extend(crate_headers::check(&self.files, &imports));
        report.violations.extend(dependencies::directions(&cargo_metadata()?));
        Ok(report)
    }

    /// The imports of every source directory.
    fn imports(&self) -> Vec<imports::SourceImports> {
        [rust_imports::read(&self.files), script_imports::read(&self.files)].into_iter().flatten().collect()
    }

    /// Writes the allowed counts that fell, and the cycles that shrank.
    pub fn lower_counts(&self) -> StepResult {
        let cycles = import_cycles::find(&self.imports());
        for (path, lowered) in [
            (TYPES, ratchet::lowered(self.text(TYPES), &self.types)),
            (CYCLES, import_cycles::lowered(self.text(CYCLES), &cycles)),
        ] {
            std::fs::write(crate::workspace::root().join(path), lowered)
                .map_err(|error| StepFailure::new("tidy", format!("cannot write {path}: {error}")))?;
        }
        Ok(())
    }

    /// Places of a type name that is declared more than once.
    pub fn places(&self, name: &str) -> Vec<&(String, usize)> {
        self.types.get(name).into_iter().flatten().collect()
    }

    fn text(&self, path: &str) -> &str {
        self.files.iter().find(|(name, _)| name == path).map_or("", |(_, text)| text)
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
