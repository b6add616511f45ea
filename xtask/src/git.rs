//! The files of the work tree. Called by the verbs that read or copy them.

use std::path::Path;

use crate::artifact;
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

/// Copies the file with this path, or the files below this directory, which ends with a slash.
pub fn copy(prefix: &str, into: &Path) -> StepResult {
    for file in files()? {
        if let Some(inside) = file.strip_prefix(prefix) {
            let to = if inside.is_empty() { into.to_owned() } else { into.join(inside) };
            artifact::copy(&root().join(&file), &to)?;
        }
    }
    Ok(())
}

/// The commit of the work tree, unless it has changes.
pub fn commit() -> StepResult<Option<String>> {
    let git = |words: &[&str]| ProcessStep::new("read the commit", "git").args(words).capture();
    let is_clean = git(&["status", "--porcelain"])?.trim().is_empty();
    Ok(is_clean.then_some(git(&["rev-parse", "HEAD"])?.trim().to_owned()))
}
