//! Folders of one run: made empty under the target folder, kept afterwards so that a failure can be looked at.

use std::path::PathBuf;

use crate::step::{Failure, Outcome};

/// An empty folder `target/<name>`.
pub fn empty(name: &str) -> Outcome<PathBuf> {
    let folder = crate::workspace::target().join(name);
    let made = match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(&folder),
    };
    made.map_err(|error| Failure::new("scratch folder", format!("cannot empty {}: {error}", folder.display())))?;
    Ok(folder)
}

/// Writes a file and names it when that fails.
pub fn write(path: &std::path::Path, text: &str) -> Outcome {
    std::fs::write(path, text)
        .map_err(|error| Failure::new("write file", format!("cannot write {}: {error}", path.display())))
}

/// Reads a file and names it when that fails.
pub fn read(path: &std::path::Path) -> Outcome<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new("read file", format!("cannot read {}: {error}", path.display())))
}
