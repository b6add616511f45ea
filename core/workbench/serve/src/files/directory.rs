//! The files of `serve`: one per received request, written atomically. The index is in `store`.
//!
//! Files of requests need no storage format: the other commands read the same directory, retention deletes files, and nothing
//! is migrated. Names with a leading dot are temporary files and the log of `index_log`; the other commands skip them. They are
//! not synced (`fsync`): after a power failure the last ones may be empty, and the next start skips and reports them.
//!
//! Invariants: a file is created with mode 0600 under a temporary name and renamed; symbolic links are followed neither for
//! writing nor for reading; only files with names of [`WindowDirectory::write`] are removed.

use spanprof_answers::failure::Failure;
use spanprof_answers::profile_name::looks_like_a_profile;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};

use super::file_names::{received_of_name, side_file, side_files, RollupName, SUFFIX};

/// A temporary file of this age was left by a process that died while writing.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Larger files were not written by `serve` and are not read.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct WindowDirectory {
    path: PathBuf,
    written: AtomicU64,
    /// Locked until the process ends: two servers would remove each other's files.
    _lock: fs::File,
}

/// A file of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub modified_unix_nano: u64,
    /// Of an hour that replaced its windows, that of the last one: the time of its file.
    pub received_unix_ms: u64,
    /// Whether `serve` wrote the file, hence may remove it.
    pub is_owned: bool,
    /// Whether it is an hour that replaced its windows.
    pub is_rollup: bool,
}

impl DirectoryFile {
    /// The file of an hour that replaces its windows. `bytes`: with its facts.
    pub(crate) fn of_rollup(path: PathBuf, bytes: u64) -> io::Result<Self> {
        let modified_unix_nano = modified_unix_nano(&fs::symlink_metadata(&path)?);
        let received_unix_ms = modified_unix_nano / 1_000_000;
        Ok(DirectoryFile { path, bytes, modified_unix_nano, received_unix_ms, is_owned: true, is_rollup: true })
    }
}

impl WindowDirectory {
    /// Opens the directory, creates it (0700) if needed, and checks that it is writable.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |what: &str, error: io::Error| {
            Failure::new(format!("cannot {what} the directory {}: {error}", path.display()))
                .hint("give a directory this user may write: --dir DIR")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed("create", error))?;
        let path = path.canonicalize().map_err(|error| failed("open", error))?;
        let lock = lock(&path)?;
        let directory = WindowDirectory { path, written: AtomicU64::new(0), _lock: lock };
        let probe = directory.path.join(format!(".probe-{}.tmp", std::process::id()));
        create_new(&probe).map_err(|error| failed("write into", error))?;
        fs::remove_file(&probe).map_err(|error| failed("write into", error))?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any user of the machine can create files here: world-writable and not sticky.
    pub(crate) fn is_open_to_all(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| meta.mode() & 0o1002 == 0o0002)
    }

    /// Writes one request atomically. Without fsync: after a power failure the last files may be empty, which the next
    /// start reports and skips.
    pub(crate) fn write(&self, gzipped: &[u8], received_unix_ms: u64) -> io::Result<DirectoryFile> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let name = format!("{received_unix_ms:013}-{}-{number:06}{SUFFIX}", std::process::id());
        let path = write_file(&self.path, &name, gzipped)?;
        // Without the time the next start reads the file again.
        let modified_unix_nano = fs::symlink_metadata(&path).map_or(0, |meta| modified_unix_nano(&meta));
        let bytes = gzipped.len() as u64;
        Ok(DirectoryFile { path, bytes, modified_unix_nano, received_unix_ms, is_owned: true, is_rollup: false })
    }

    /// Every file that may be a window, newest first. Removes temporary files of dead processes.
    pub(crate) fn list(&self) -> io::Result<Vec<DirectoryFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let Ok(entry) = entry else { continue };
            let path = entry.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            // Metadata of the entry itself, not of the target of a link.
            let Ok(meta) = entry.metadata() else { continue };
            if !meta.is_file() {
                continue;
            }
            if name.starts_with('.') {
                if name.ends_with(".tmp") && meta.modified().is_ok_and(is_stale) {
                    let _ = fs::remove_file(&path);
                }
                continue;
            }
            let is_rollup = RollupName::parse(name).is_some_and(RollupName::is_hour);
            let received_of_name = received_of_name(name);
            let is_owned = is_rollup || received_of_name.is_some();
            if !is_owned && !looks_like_a_profile(&path) {
                continue;
            }
            let modified_unix_nano = modified_unix_nano(&meta);
            let received_unix_ms = received_of_name.unwrap_or(modified_unix_nano / 1_000_000);
            let beside = if is_rollup { bytes_beside(&path) } else { 0 };
            files.push(DirectoryFile {
                path,
                bytes: meta.len() + beside,
                modified_unix_nano,
                received_unix_ms,
                is_owned,
                is_rollup,
            });
        }
        files.sort_by(|left, right| (right.received_unix_ms, &right.path).cmp(&(left.received_unix_ms, &left.path)));
        Ok(files)
    }
}

/// Bytes of the files beside a roll-up.
pub(crate) fn bytes_beside(path: &Path) -> u64 {
    side_files(path).iter().filter_map(|path| fs::symlink_metadata(path).ok()).map(|meta| meta.len()).sum()
}

pub(crate) fn set_modified(path: &Path, unix_ms: u64) -> io::Result<()> {
    fs::File::open(path)?.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms))
}

/// Removes a roll-up and the files beside it.
pub(crate) fn remove_rollup(path: &Path) {
    let _ = fs::remove_file(path);
    for path in side_files(path) {
        let _ = fs::remove_file(path);
    }
}

/// Writes a new file atomically.
pub(crate) fn write_file(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    write_with(directory, name, |file| file.write_all(bytes))
}

/// As [`write_file`]; the file also exists after a power failure.
pub(crate) fn write_synced_file(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    // Left by a server that was killed.
    let _ = fs::remove_file(temporary_path(directory, name));
    write_with(directory, name, |file| file.write_all(bytes).and_then(|()| file.sync_all()))?;
    fs::File::open(directory)?.sync_all()
}

fn temporary_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{}.tmp", name.trim_start_matches('.')))
}

fn write_with(
    directory: &Path,
    name: &str,
    write: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let temporary = temporary_path(directory, name);
    let path = directory.join(name);
    let outcome =
        create_new(&temporary).and_then(|mut file| write(&mut file)).and_then(|()| fs::rename(&temporary, &path));
    if let Err(error) = outcome {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(path)
}

/// Locks the directory itself, which leaves no lock file. Errors of file systems without locks are ignored.
fn lock(path: &Path) -> Result<fs::File, Failure> {
    let opened = fs::File::open(path)
        .map_err(|error| Failure::new(format!("cannot open the directory {}: {error}", path.display())))?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            Err(Failure::new(format!("another `spanprof serve` keeps its profiles in {}", path.display()))
                .hint("stop it, or give this one a directory of its own: --dir DIR"))
        }
        Ok(()) | Err(_) => Ok(opened),
    }
}

/// The bytes of a window's file; fails for symbolic links.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if meta.len() > MAX_FILE_BYTES {
        let message = format!("{} bytes, at most {MAX_FILE_BYTES} are read", meta.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    fs::read(path)
}

/// Reads and decodes a file. Requests were accepted within stricter limits; other files are the user's.
pub(crate) fn read_profiles(path: &Path) -> Result<ProfilesData, String> {
    let bytes = read(path).map_err(|error| error.to_string())?;
    decode::any(&bytes, &DecodeLimits::of_files()).map(|(_, data)| data).map_err(|error| error.to_string())
}

/// The file beside a roll-up; `None` for a window, and if it is missing or corrupt.
pub(crate) fn read_json_beside(rollup: &Path, suffix: &str) -> Option<serde_json::Value> {
    RollupName::of_path(rollup)?;
    let mut text = Vec::new();
    GzDecoder::new(&read(&side_file(rollup, suffix)).ok()?[..]).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn is_stale(modified: SystemTime) -> bool {
    modified.elapsed().is_ok_and(|age| age > STALE_AFTER)
}

fn modified_unix_nano(meta: &fs::Metadata) -> u64 {
    let since = meta.modified().ok().and_then(|modified| modified.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn create_new(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_window_is_written_with_mode_0600_and_listed_newest_first() {
        let home = tempfile::tempdir().unwrap();
        let directory = WindowDirectory::open(&home.path().join("deep/down")).unwrap();
        let old = directory.write(b"one", 1_700_000_000_000).unwrap();
        let new = directory.write(b"two", 1_700_000_000_001).unwrap();
        assert_eq!(fs::metadata(&old.path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o777, 0o700);
        let listed = directory.list().unwrap();
        assert_eq!(listed.iter().map(|file| &file.path).collect::<Vec<_>>(), [&new.path, &old.path]);
        assert_eq!(listed, [new.clone(), old]);
        assert_eq!(read(&new.path).unwrap(), b"two");
    }

    #[test]
    fn a_symbolic_link_is_neither_listed_nor_read_nor_written_through() {
        let home = tempfile::tempdir().unwrap();
        let directory = WindowDirectory::open(home.path()).unwrap();
        let secret = home.path().join("secret.txt");
        fs::write(&secret, "untouched").unwrap();
        let name = format!("1700000000000-{}-000000{SUFFIX}", std::process::id());
        symlink(&secret, home.path().join(&name)).unwrap();
        symlink(&secret, home.path().join(format!(".{name}.tmp"))).unwrap();
        assert!(directory.list().unwrap().is_empty());
        assert!(read(&home.path().join(&name)).is_err());
        assert!(directory.write(b"data", 1_700_000_000_000).is_err());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
    }

    #[test]
    fn a_directory_is_locked_by_one_server_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let first = WindowDirectory::open(home.path()).unwrap();
        let failure = WindowDirectory::open(home.path()).unwrap_err();
        assert!(failure.message.contains("another `spanprof serve`"), "{failure}");
        drop(first);
        assert!(WindowDirectory::open(home.path()).is_ok());
    }

    #[test]
    fn only_names_of_written_files_are_recognized() {
        assert_eq!(received_of_name("1700000000000-12-000003.otlp.pb.gz"), Some(1_700_000_000_000));
        for name in ["cpu-1700000000000.pb.gz", "1700000000000-a-1.otlp.pb.gz", "1700000000000-1-1-1.otlp.pb.gz", ""] {
            assert_eq!(received_of_name(name), None, "{name}");
        }
        let [profile, notes] = ["cpu-1700000000000.pb.gz", "notes.txt"].map(Path::new);
        assert!(looks_like_a_profile(profile) && !looks_like_a_profile(notes));
    }

    #[test]
    fn a_directory_that_cannot_be_created_is_named_in_the_error() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        let failure = WindowDirectory::open(&home.path().join("file/below")).unwrap_err();
        assert!(failure.message.contains("cannot create the directory"), "{failure}");
        assert!(failure.hint.unwrap().contains("--dir"));
    }
}
