//! Profiles as files: each complete or absent, private to its owner, the oldest removed. Runs on threads that may block;
//! knows nothing of queues and retries.

use crate::blocking;
use crate::error::ExportError;
use crate::file_name::{self, Writer};
use crate::outcome::{Outcome, RetryReason};
use crate::owned::Owned;
use crate::queue::Parcel;
use crate::settings::{FileDirectory, StartThread};
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

/// Unfinished files of a writer that cannot be looked up are litter after this long.
const FOREIGN_LITTER_AGE: Duration = Duration::from_secs(3600);

/// Files of one type and millisecond; more in one is not a profiler's doing.
const MOST_DUPLICATES: u32 = 1000;

pub(crate) struct FileSender {
    directory: Arc<Directory>,
    start_thread: StartThread,
}

struct Directory {
    path: PathBuf,
    keep: usize,
    writer: Writer,
}

impl FileSender {
    /// Makes the directory and clears what killed processes left in it.
    pub fn start(settings: &FileDirectory, start_thread: StartThread) -> Result<Self, ExportError> {
        let path = settings.directory.clone();
        let directory = Directory { path, keep: settings.keep.max(1), writer: this_process() };
        directory.create().and_then(|()| directory.remove_litter()).map_err(|error| {
            ExportError::new(
                format!("the directory `{}` for profiles cannot be used: {error}", directory.path.display()),
                "give file_directory a directory that this process may create or write",
            )
        })?;
        Ok(Self { directory: Arc::new(directory), start_thread })
    }

    pub fn shown(&self) -> String {
        self.directory.path.display().to_string()
    }

    /// Writes one file, on a thread of its own since a disk may hang.
    pub async fn attempt(&mut self, parcel: &Parcel) -> Outcome {
        let (directory, parcel) = (self.directory.clone(), parcel.clone());
        let written = match blocking::begin(self.start_thread, move || directory.write(&parcel)) {
            Ok(pending) => pending.await,
            Err(error) => Ok(Err(error)),
        };
        let written = written.unwrap_or_else(|_| Err(io::Error::other("the write was cut short by an internal error")));
        match written {
            Ok(()) => Outcome::Accepted { warning: None },
            Err(error) => {
                let message = format!("cannot write a profile into `{}`: {error}", self.shown());
                match error.kind() {
                    // What an administrator must change. A full disk or a vanished directory may heal by itself.
                    ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::NotADirectory
                    | ErrorKind::FileTooLarge
                    | ErrorKind::InvalidInput
                    | ErrorKind::InvalidFilename
                    | ErrorKind::AlreadyExists => Outcome::Refused { message },
                    _ => Outcome::Retry { reason: RetryReason::NotConnected, message },
                }
            }
        }
    }
}

impl Directory {
    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    fn write(&self, parcel: &Parcel) -> io::Result<()> {
        let (unfinished, file) = match self.open_unfinished() {
            // The directory went away under us.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.create()?;
                self.open_unfinished()?
            }
            opened => opened?,
        };
        let written =
            fill(&file, parcel).and_then(|()| file.get()?.sync_all()).and_then(|()| self.publish(&unfinished, parcel));
        // After publishing the name is spare; after a failure the content is. It may be gone already.
        let _ = fs::remove_file(&unfinished);
        written?;
        // The file is in place; that its directory entry or the removal of an old file is not yet on disk is no loss.
        let _ = File::open(&self.path).and_then(|directory| directory.sync_all());
        let _ = self.rotate();
        Ok(())
    }

    fn open_unfinished(&self) -> io::Result<(PathBuf, Owned<File>)> {
        let path = self.path.join(file_name::unfinished(self.writer, RandomState::new().hash_one(0u8)));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)?;
        Ok((path, Owned::new(file)?))
    }

    /// Gives the complete file its name, without ever replacing or following what may be there already.
    fn publish(&self, unfinished: &Path, parcel: &Parcel) -> io::Result<()> {
        for duplicate in 0..MOST_DUPLICATES {
            let name = file_name::finished(parcel.profile_type.as_deref(), parcel.time_unix_ms, duplicate);
            let target = self.path.join(name);
            match fs::hard_link(unfinished, &target) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if is_without_links(&error) => {
                    if fs::symlink_metadata(&target).is_ok() {
                        continue;
                    }
                    return fs::rename(unfinished, &target);
                }
                linked => return linked,
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, format!("{MOST_DUPLICATES} files of one millisecond exist")))
    }

    /// Removes the oldest finished files beyond the number to keep.
    fn rotate(&self) -> io::Result<()> {
        let mut files: Vec<_> =
            self.names()?.filter_map(|name| Some((file_name::order(name.to_str()?)?, name))).collect();
        files.sort_unstable();
        let surplus = files.len().saturating_sub(self.keep);
        for (_, name) in &files[..surplus] {
            // Another process that shares the directory may have removed it first.
            let _ = fs::remove_file(self.path.join(name));
        }
        Ok(())
    }

    /// Removes unfinished files whose writer is gone.
    fn remove_litter(&self) -> io::Result<()> {
        for name in self.names()? {
            let Some(writer) = name.to_str().and_then(file_name::writer) else { continue };
            let path = self.path.join(&name);
            let is_litter = if writer.namespace == self.writer.namespace && writer.namespace != 0 {
                started(&writer.process_id.to_string()) != Some(writer.started)
            } else {
                let age = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified()).map(|at| at.elapsed());
                matches!(age, Ok(Ok(age)) if age > FOREIGN_LITTER_AGE)
            };
            if is_litter {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<impl Iterator<Item = OsString>> {
        Ok(fs::read_dir(&self.path)?.filter_map(|entry| entry.ok().map(|entry| entry.file_name())))
    }
}

fn fill(file: &Owned<File>, parcel: &Parcel) -> io::Result<()> {
    if parcel.body.starts_with(&GZIP_MAGIC) {
        return file.get()?.write_all(&parcel.body);
    }
    let mut encoder = GzEncoder::new(file.get()?, flate2::Compression::fast());
    encoder.write_all(&parcel.body)?;
    encoder.finish().map(drop)
}

/// Some file systems have no hard links (FAT, some network and FUSE mounts).
fn is_without_links(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        || matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EMLINK))
}

fn this_process() -> Writer {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link.to_string_lossy().chars().filter(|character| character.is_ascii_digit()).collect();
    Writer {
        process_id: std::process::id(),
        namespace: digits.parse().unwrap_or(0),
        started: started("self").unwrap_or(0),
    }
}

/// When a living process of this namespace was started, in kernel ticks since boot: tells a process from a later one of
/// the same number.
fn started(process: &str) -> Option<u64> {
    let stat = fs::read(Path::new("/proc").join(process).join("stat")).ok()?;
    // The name of the program comes second, in parentheses, and may hold anything.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}
