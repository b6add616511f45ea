//! Working directories below the target directory: emptied at the start of a run, kept afterwards for the analysis of
//! failures.

use std::path::PathBuf;

use crate::step::{StepFailure, StepResult};

/// Creates an empty directory `target/<name>`.
pub fn empty(name: &str) -> StepResult<PathBuf> {
    let directory = crate::workspace::target().join(name);
    let made = match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(&directory),
    };
    made.map_err(|error| {
        StepFailure::new("scratch directory", format!("cannot empty {}: {error}", directory.display()))
    })?;
    Ok(directory)
}

/// Writes a file, and creates its directory; the error names it.
pub fn write(path: &std::path::Path, text: &str) -> StepResult {
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| StepFailure::new("write file", format!("cannot write {}: {error}", path.display())))
}

/// Reads a file; the error names it.
pub fn read(path: &std::path::Path) -> StepResult<String> {
    std::fs::read_to_string(path)
        .map_err(|error| StepFailure::new("read file", format!("cannot read {}: {error}", path.display())))
}
