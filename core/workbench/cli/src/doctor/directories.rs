//! Directories that the profiler writes: each is tried with a file that is removed again. No directory is created.

use std::fs::{self, OpenOptions};
use std::path::Path;

use spanprof_config::{Config, DestinationType};

use super::DoctorCheck;

pub(super) fn checks(config: &Config) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    let set = [("heap_peak_directory", &config.heap_peak_directory), ("buffer_directory", &config.buffer_directory)];
    for (key, directory) in set {
        if let Some(directory) = directory {
            checks.push(configured(key, Path::new(directory), "the profiler runs without it"));
        }
    }
    for destination in config.effective_destinations() {
        if let (DestinationType::File, Some(directory)) = (destination.destination_type, destination.directory) {
            checks.push(configured("file_directory", Path::new(&directory), "no profile is written"));
        }
    }
    checks
}

fn configured(key: &'static str, directory: &Path, without: &str) -> DoctorCheck {
    match try_file(directory) {
        Ok(()) => DoctorCheck::ok(key, format!("{} is writable", directory.display()), "files are written there"),
        Err(reason) => DoctorCheck::problem(
            key,
            reason,
            without,
            format!(
                "set {key} (SPANPROF_{}) to a directory that the user of the program may write",
                key.to_uppercase()
            ),
        ),
    }
}

/// Creates and removes a file in the directory, or in its nearest ancestor that exists.
fn try_file(directory: &Path) -> Result<(), String> {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let existing = absolute.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    let path = existing.join(format!(".spanprof-doctor-{}", std::process::id()));
    let failed = |error| format!("{} is not writable: {error}", existing.display());
    // Without content: a write beyond the limit of file sizes would end this process.
    OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    fs::remove_file(&path).map_err(failed)
}
