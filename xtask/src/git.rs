//! The files of the work tree. Called by the verbs that read or copy them.

use crate::step::{ProcessStep, StepResult};
use crate::workspace::root;

/// Files of the work tree that git tracks or would track, relative to the root and sorted.
pub fn files() -> StepResult<Vec<String>> {
    let list = ProcessStep::new("list files", "git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .install_hint("install git")
        .capture()?;
    let root = root();
    let mut files: Vec<String> = list.lines().filter(|path| root.join(path).is_file()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// The commit of the work tree, unless it has changes.
pub fn commit() -> StepResult<Option<String>> {
    let git = |words: &[&str]| ProcessStep::new("read the commit", "git").args(words).capture();
    let is_clean = git(&["status", "--porcelain"])?.trim().is_empty();
    Ok(is_clean.then_some(git(&["rev-parse", "HEAD"])?.trim().to_owned()))
}
