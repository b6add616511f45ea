//! Directories that the profiler writes: each is tried with a file that is removed again. No directory is created.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use spanprof_config::{Config, DestinationType};

use super::DoctorCheck;

pub(super) fn checks(config: &Config) -> Vec<DoctorCheck> {
    let mut checks = vec![state_directory()];
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

fn state_directory() -> DoctorCheck {
    const CHECK: &str = "state_directory";
    let directory = spanprof_os::crash_marker_directory();
    match try_file(&directory) {
        Ok(()) => DoctorCheck::ok(
            CHECK,
            format!("{} is writable", directory.display()),
            "a program that crashed inside the profiler starts without samples the next time",
        ),
        Err(reason) => DoctorCheck::limited(
            CHECK,
            reason,
            "a program that crashes inside the profiler may do so at each start; profiles are complete",
            "set TMPDIR or XDG_RUNTIME_DIR to a directory that the user of the program may write",
        ),
    }
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

/// Whether a native library can be written to one of these directories, and loaded from it.
pub(super) fn library_directory(directories: &[PathBuf]) -> Result<&PathBuf, String> {
    let mut reasons = Vec::new();
    for directory in directories {
        let usable = try_file(directory).and_then(|()| match rustix::fs::statvfs(directory) {
            Ok(mount) if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) => {
                Err(format!("{} is mounted noexec", directory.display()))
            }
            _ => Ok(()),
        });
        match usable {
            Ok(()) => return Ok(directory),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}
