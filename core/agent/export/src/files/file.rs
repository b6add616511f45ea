//! Writes profiles and their side-cars as files. Each file is complete or absent, and private to its owner; the oldest are
//! removed. Runs on threads that may block; queues and retries belong to `deliver`.
//!
//! Files are not synced (`fsync`), which waits for what other programs write: with three calls per file, a stop on a busy disk
//! lost its windows to the deadline. After a power failure the last files may be empty.
//!
//! Each profile has a side-car of its own, since files are copied and removed one by one. The profile is linked first and
//! its side-car removed first: a process that is killed in between leaves no side-car without its profile, which
//! retention could not tell from a file of the program. Removal takes no lock: it is idempotent, and the process whose
//! `unlink` succeeds counts it.
//!
//! Files are published by `link`: `rename` would replace a file of the same millisecond of another process. The temporary name
//! contains process id, process namespace and start time, which distinguish leftovers from work in progress.

use crate::connect::blocking;
use crate::connect::owned_descriptor::OwnedDescriptor;
use crate::error::{ExportError, ExportErrorKind};
use crate::files::file_limits;
use crate::files::file_name::{self, WriterProcess};
use crate::outcome::{AttemptOutcome, RetryReason};
use crate::queue::bounded_queue::QueuedPayload;
use crate::settings::{FileDirectory, StartThread};
use crate::stats::RemovedFiles;
use flate2::write::GzEncoder;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Age after which an unfinished file of another process namespace is stale.
const FOREIGN_STALE_AGE: Duration = Duration::from_secs(3600);

/// Maximum number of files of one type and millisecond.
const MAX_DUPLICATES: u32 = 1000;

pub(crate) struct FileSender {
    directory: Arc<ProfileDirectory>,
    start_thread: StartThread,
    /// By the last attempt.
    pub removed: RemovedFiles,
}

struct ProfileDirectory {
    settings: FileDirectory,
    writer: WriterProcess,
}

impl FileSender {
    /// Creates the directory and removes unfinished files of killed processes.
    pub fn start(settings: &FileDirectory, start_thread: StartThread) -> Result<Self, ExportError> {
        let directory = ProfileDirectory { settings: settings.clone(), writer: this_process() };
        directory.create().and_then(|()| directory.remove_stale()).map_err(|error| {
            ExportError::new(
                ExportErrorKind::File,
                format!("the directory `{}` for profiles cannot be used: {error}", directory.path().display()),
                "give file_directory a directory that this process may create or write",
            )
        })?;
        Ok(Self { directory: Arc::new(directory), start_thread, removed: RemovedFiles::default() })
    }

    pub fn shown(&self) -> String {
        self.directory.path().display().to_string()
    }

    /// Writes one file on a thread of its own, since a disk may hang.
    pub async fn attempt(&mut self, payload: &QueuedPayload) -> AttemptOutcome {
        let (directory, payload) = (self.directory.clone(), payload.clone());
        let written = match blocking::spawn(self.start_thread, move || directory.write(&payload)) {
            Ok(pending) => pending.await,
            Err(error) => Ok(Err(error)),
        };
        let written = written.unwrap_or_else(|_| Err(io::Error::other("the write ended by an internal error")));
        self.removed = *written.as_ref().unwrap_or(&RemovedFiles::default());
        match written {
            Ok(_) => AttemptOutcome::Accepted { warning: None },
            Err(error) => {
                let message = format!("cannot write a profile into `{}`: {error}", self.shown());
                match error.kind() {
                    // Permanent until an administrator acts. A full disk or a removed directory may recover.
                    ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::NotADirectory
                    | ErrorKind::FileTooLarge
                    | ErrorKind::InvalidInput
                    | ErrorKind::InvalidFilename
                    | ErrorKind::AlreadyExists => AttemptOutcome::Rejected { message },
                    _ => AttemptOutcome::Retry { reason: RetryReason::NotConnected, message },
                }
            }
        }
    }
}

impl ProfileDirectory {
    fn path(&self) -> &Path {
        &self.settings.directory
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.path())
    }

    /// Writes a profile with its side-car, and then removes the files beyond the limits.
    fn write(&self, payload: &QueuedPayload) -> io::Result<RemovedFiles> {
        let write_profile = |file: &OwnedDescriptor<File>| write_gzipped(file, payload);
        let profile = match self.write_unfinished(&write_profile) {
            // The directory was removed after the start.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.create()?;
                self.write_unfinished(&write_profile)?
            }
            written => written?,
        };
        let sidecar = match &payload.sidecar {
            Some(text) => Some(self.write_unfinished(&|file| file.get()?.write_all(text))?),
            None => None,
        };
        self.publish(&profile, sidecar.as_ref(), payload)?;
        // The file is published: an error in removing an old file loses no profile.
        Ok(self.remove_old().unwrap_or_default())
    }

    /// Writes a complete file under an unfinished name.
    fn write_unfinished(&self, write: &dyn Fn(&OwnedDescriptor<File>) -> io::Result<()>) -> io::Result<UnfinishedFile> {
        let path = self.path().join(file_name::unfinished(self.writer, RandomState::new().hash_one(0u8)));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)?;
        let unfinished = UnfinishedFile(path);
        let file = OwnedDescriptor::new(file)?;
        write(&file)?;
        Ok(unfinished)
    }

    /// Links the complete files to their names, the profile first: a process that is killed in between leaves no side-car
    /// without a profile. Never replaces an existing file and never follows a link.
    fn publish(
        &self,
        profile: &UnfinishedFile,
        sidecar: Option<&UnfinishedFile>,
        payload: &QueuedPayload,
    ) -> io::Result<()> {
        for duplicate in 0..MAX_DUPLICATES {
            let stem = file_name::stem(payload.profile_type.as_deref(), payload.time_unix_ms, duplicate);
            let [target, beside] =
                [file_name::FINISHED, file_name::SIDECAR].map(|suffix| self.path().join(format!("{stem}{suffix}")));
            let is_taken = sidecar.is_some() && fs::symlink_metadata(&beside).is_ok();
            if is_taken || !profile.link_to(&target)? {
                continue;
            }
            if let Some(sidecar) = sidecar {
                // The profile is complete without it.
                let is_linked = sidecar.link_to(&beside).unwrap_or(false);
                // Another process may have removed the profile meanwhile.
                if is_linked && fs::symlink_metadata(&target).is_err() {
                    let _ = fs::remove_file(&beside);
                }
            }
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, format!("{MAX_DUPLICATES} files of one millisecond exist")))
    }

    /// Removes the files beyond the limits; returns those that this process removed.
    fn remove_old(&self) -> io::Result<RemovedFiles> {
        let mut removed = RemovedFiles::default();
        for file in file_limits::old_files(&self.settings)? {
            if self.remove(&file.name) {
                removed.add(file.counted);
            }
        }
        Ok(removed)
    }

    /// Removes a profile and its side-car; `false` when another process that shares the directory was first.
    fn remove(&self, name: &str) -> bool {
        let sidecar = self.path().join(file_name::sidecar_of(name));
        // First, so that a killed process leaves no side-car without a profile. Again at the end, since the process that
        // wrote the profile may have linked its side-car in between.
        let _ = fs::remove_file(&sidecar);
        let is_removed = fs::remove_file(self.path().join(name)).is_ok();
        let _ = fs::remove_file(&sidecar);
        is_removed
    }

    /// Removes unfinished files whose writer has exited.
    fn remove_stale(&self) -> io::Result<()> {
        for name in self.names()? {
            let Some(writer) = name.to_str().and_then(file_name::writer) else { continue };
            let path = self.path().join(&name);
            let is_stale = if writer.namespace == self.writer.namespace && writer.namespace != 0 {
                start_time(&writer.process_id.to_string()) != Some(writer.start_time)
            } else {
                let age = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified()).map(|at| at.elapsed());
                matches!(age, Ok(Ok(age)) if age > FOREIGN_STALE_AGE)
            };
            if is_stale {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<impl Iterator<Item = OsString>> {
        Ok(fs::read_dir(self.path())?.filter_map(|entry| entry.ok().map(|entry| entry.file_name())))
    }
}

/// A file under an unfinished name, which is removed on drop: after publishing it is redundant, after a failure incomplete.
struct UnfinishedFile(PathBuf);

impl UnfinishedFile {
    /// Gives the file its final name as well; `false` when a file of that name exists.
    fn link_to(&self, target: &Path) -> io::Result<bool> {
        match fs::hard_link(&self.0, target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) if lacks_hard_links(&error) => {
                if fs::symlink_metadata(target).is_ok() {
                    return Ok(false);
                }
                fs::rename(&self.0, target).map(|()| true)
            }
            linked => linked.map(|()| true),
        }
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.0);
    }
}

fn write_gzipped(file: &OwnedDescriptor<File>, payload: &QueuedPayload) -> io::Result<()> {
    if payload.body.starts_with(&GZIP_MAGIC) {
        return file.get()?.write_all(&payload.body);
    }
    let mut encoder = GzEncoder::new(file.get()?, flate2::Compression::fast());
    encoder.write_all(&payload.body)?;
    encoder.finish().map(drop)
}

/// Whether the file system has no hard links (FAT, some network and FUSE mounts).
fn lacks_hard_links(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        || matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EMLINK))
}

fn this_process() -> WriterProcess {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link.to_string_lossy().chars().filter(|character| character.is_ascii_digit()).collect();
    WriterProcess {
        process_id: std::process::id(),
        namespace: digits.parse().unwrap_or(0),
        start_time: start_time("self").unwrap_or(0),
    }
}

/// Start time of a live process of this namespace, in clock ticks since boot (field 22 of `/proc/<pid>/stat`, proc(5)).
/// Distinguishes a process from a later one with the same id.
fn start_time(process: &str) -> Option<u64> {
    let stat = fs::read(Path::new("/proc").join(process).join("stat")).ok()?;
    // Field 2 is the program's name in parentheses; it may contain any character.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}
