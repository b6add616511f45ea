//! Selects the profile files that a directory no longer keeps. Reads the directory; removes nothing.

use crate::files::file_name;
use crate::settings::FileDirectory;
use crate::stats::RemovedFiles;
use std::fs;
use std::io;
use std::path::Path;

/// A file to be removed.
pub(crate) struct OldFile {
    pub name: String,
    /// Counts the file, under the limit that it exceeds.
    pub counted: RemovedFiles,
}

/// The files beyond the limits, oldest first. Files of all processes that share the directory count. The newest one is always
/// kept.
pub(crate) fn old_files(settings: &FileDirectory) -> io::Result<Vec<OldFile>> {
    let names = fs::read_dir(&settings.directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut files: Vec<_> = names.filter_map(|name| Some((file_name::age_key(&name)?, name))).collect();
    files.sort_unstable_by(|left, right| right.cmp(left));
    let is_measured = settings.max_age.is_some() || settings.max_bytes.is_some();
    let keep = settings.keep.max(1);
    let mut old = Vec::new();
    let mut kept_bytes = 0u64;
    for (position, (_, name)) in files.into_iter().enumerate() {
        let mut counted = RemovedFiles::default();
        if position >= keep {
            counted.keep = 1;
        } else if is_measured {
            let Some((bytes, is_expired)) = measure(settings, &name) else { continue };
            kept_bytes = kept_bytes.saturating_add(bytes);
            if position == 0 {
                continue;
            } else if is_expired {
                kept_bytes -= bytes;
                counted.max_age = 1;
            } else if settings.max_bytes.is_some_and(|max_bytes| kept_bytes > max_bytes) {
                counted.max_bytes = 1;
            }
        }
        if counted != RemovedFiles::default() {
            old.push(OldFile { name, counted });
        }
    }
    old.reverse();
    Ok(old)
}

/// Bytes of a profile with its side-car, and whether its last modification is too long ago; `None` when another process has
/// removed it.
fn measure(settings: &FileDirectory, name: &str) -> Option<(u64, bool)> {
    let metadata = |name: &str| fs::symlink_metadata(Path::join(&settings.directory, name)).ok();
    let profile = metadata(name)?;
    let sidecar_bytes = metadata(&file_name::sidecar_of(name)).map_or(0, |sidecar| sidecar.len());
    // A time in the future is an age of 0.
    let age = profile.modified().ok()?.elapsed().unwrap_or_default();
    Some((profile.len() + sidecar_bytes, settings.max_age.is_some_and(|max_age| age > max_age)))
}
