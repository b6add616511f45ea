//! The index of the stored files, kept in the file `.index` of their directory, so that a start does not decode each file. One
//! writer: the server that holds the lock of the directory.
//!
//! Format: a line with the version, then records: length and CRC-32 of the payload (four bytes each, little-endian), and the
//! payload, JSON of `window_record`. Records are only appended. Reading stops at the first record that is incomplete or has
//! another checksum, and cuts the file there. A record is valid for a file of its name, size and modification time; the last
//! record of a name counts. Files without a valid record are read again, and records without a file are ignored, so that the
//! log may be deleted at any time and needs no sync.
//!
//! The version of spanprof is in the first line, because `received` hashes with the standard library's hasher, which another
//! compiler may change.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;

use super::locks::lock;
use super::window::StoredWindow;
use super::window_record;

const NAME: &str = ".index";
const VERSION: &str = concat!("spanprof-index 2 ", env!("CARGO_PKG_VERSION"), "\n");
/// Longer records are corrupt: a record has at most 64 labels of 100 values per service.
const MAX_RECORD_BYTES: u32 = 16 << 20;
/// Fewer dead records do not justify a rewrite.
const MIN_DEAD_RECORDS: usize = 256;

#[derive(Debug)]
pub(crate) struct IndexLog {
    path: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
enum LogState {
    /// Before [`IndexLog::load`], and after an error of the file system: entries are not written, and the next start reads
    /// their files again.
    Unusable,
    /// Created with the first entry.
    Absent,
    Open(OpenLog),
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    bytes: u64,
    records: usize,
}

impl IndexLog {
    /// The log of a directory, to be loaded.
    pub(crate) fn of(directory: &Path) -> Self {
        IndexLog { path: directory.join(NAME), state: Mutex::new(LogState::Unusable) }
    }

    /// The entries by path. Cuts a corrupt end, and starts anew for another version.
    pub(crate) fn load(&self) -> HashMap<PathBuf, StoredWindow> {
        let mut windows = HashMap::new();
        let loaded = open_file(&self.path, false).and_then(|file| {
            let (bytes, records) = self.read(&file, &mut windows)?;
            let mut log = OpenLog { file, bytes, records };
            log.cut()?;
            if bytes == 0 {
                log.append(VERSION.as_bytes())?;
            }
            Ok(log)
        });
        *lock(&self.state) = match loaded {
            Ok(log) => LogState::Open(log),
            Err(error) if error.kind() == io::ErrorKind::NotFound => LogState::Absent,
            Err(_) => LogState::Unusable,
        };
        windows
    }

    /// Reads the valid records: their end in the file, and their number.
    fn read(&self, file: &File, windows: &mut HashMap<PathBuf, StoredWindow>) -> io::Result<(u64, usize)> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut version = vec![0; VERSION.len()];
        if !read_whole(&mut reader, &mut version)? || version != VERSION.as_bytes() {
            return Ok((0, 0));
        }
        let (mut end, mut records) = (VERSION.len() as u64, 0);
        let mut payload = Vec::new();
        loop {
            let mut header = [0; 8];
            if !read_whole(&mut reader, &mut header)? {
                break;
            }
            let [length, checksum] =
                [0, 4].map(|start| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[start + byte])));
            // After a power failure the end may be zeros.
            if length == 0 || length > MAX_RECORD_BYTES {
                break;
            }
            payload.resize(length as usize, 0);
            if !read_whole(&mut reader, &mut payload)? || crc(&payload) != checksum {
                break;
            }
            let Some(window) = window_record::decode(&payload, directory) else { break };
            windows.insert(window.path.clone(), window);
            end += 8 + u64::from(length);
            records += 1;
        }
        Ok((end, records))
    }

    /// Appends the entry of a new file.
    pub(crate) fn append(&self, window: &StoredWindow) {
        let mut state = lock(&self.state);
        if matches!(*state, LogState::Absent) {
            *state = OpenLog::create(&self.path).map_or(LogState::Unusable, LogState::Open);
        }
        let LogState::Open(log) = &mut *state else { return };
        let record = record(window);
        // One that a start would take for corrupt.
        if record.len() > MAX_RECORD_BYTES as usize {
            return;
        }
        log.records += 1;
        // A partial record would hide those after it.
        if log.append(&record).is_err() && log.cut().is_err() {
            *state = LogState::Unusable;
        }
    }

    /// Whether more than half of the records are of removed files.
    pub(crate) fn is_sparse(&self, windows: usize) -> bool {
        matches!(&*lock(&self.state), LogState::Open(log) if log.records > 2 * windows + MIN_DEAD_RECORDS)
    }

    /// Rewrites the log with the entries of `windows`.
    pub(crate) fn compact(&self, windows: &[Arc<StoredWindow>]) {
        let mut state = lock(&self.state);
        if !matches!(*state, LogState::Open(_)) {
            return;
        }
        let temporary = self.path.with_extension("tmp");
        let _ = fs::remove_file(&temporary);
        let rewritten = OpenLog::create(&temporary).and_then(|mut log| {
            for record in windows.iter().map(|window| record(window)) {
                if record.len() <= MAX_RECORD_BYTES as usize {
                    log.append(&record)?;
                    log.records += 1;
                }
            }
            fs::rename(&temporary, &self.path)?;
            Ok(log)
        });
        match rewritten {
            Ok(log) => *state = LogState::Open(log),
            Err(_) => drop(fs::remove_file(&temporary)),
        }
    }
}

impl OpenLog {
    fn create(path: &Path) -> io::Result<Self> {
        let mut log = OpenLog { file: open_file(path, true)?, bytes: 0, records: 0 };
        log.append(VERSION.as_bytes())?;
        Ok(log)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Removes what follows the last valid record.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::Start(self.bytes)).map(drop)
    }
}

fn record(window: &StoredWindow) -> Vec<u8> {
    let payload = window_record::encode(window);
    let mut record = Vec::with_capacity(8 + payload.len());
    record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    record.extend_from_slice(&crc(&payload).to_le_bytes());
    record.extend_from_slice(&payload);
    record
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Fills `buffer`; `false` at the end of the file.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Mode 0600; fails for symbolic links.
fn open_file(path: &Path, is_new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(is_new)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::directory::DirectoryFile;
    use spanprof_profile::{Attribute, Link, Profile, ProfilesData, ResourceProfiles, Sample, ValueType};

    fn window(directory: &Path, name: &str) -> StoredWindow {
        let mut data = ProfilesData::default();
        let link = data.dictionary.link(Link { trace_id: [1; 16], span_id: [2; 8] });
        let profile = Profile {
            sample_type: ValueType::new("wall", "nanoseconds"),
            time_unix_nano: 5,
            duration_nano: 7,
            profile_id: [3; 16],
            samples: vec![Sample { values: vec![-1], link, ..Sample::default() }],
            ..Profile::default()
        };
        let resource = vec![Attribute::string("service.name", "shop"), Attribute::string("region", "é")];
        data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
        let file = DirectoryFile {
            path: directory.join(name),
            bytes: 10,
            modified_unix_nano: u64::MAX,
            received_unix_ms: 1_700_000_000_000,
            is_owned: true,
            is_rollup: false,
        };
        StoredWindow::new(&data, file)
    }

    fn names(log: &IndexLog) -> Vec<String> {
        let mut names: Vec<_> = log.load().values().map(|window| window.name().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let log = IndexLog::of(home.path());
        assert!(log.load().is_empty());
        let written = window(home.path(), "a");
        log.append(&written);
        let read = IndexLog::of(home.path()).load().remove(&home.path().join("a")).unwrap();
        assert_eq!(format!("{read:?}"), format!("{written:?}"));
    }

    #[test]
    fn a_corrupt_or_truncated_end_is_cut_and_later_entries_follow_the_valid_ones() {
        for damage in [1, 9, 20] {
            let home = tempfile::tempdir().unwrap();
            let log = IndexLog::of(home.path());
            log.load();
            ["a", "b"].iter().for_each(|name| log.append(&window(home.path(), name)));
            let path = home.path().join(NAME);
            let whole = fs::read(&path).unwrap();
            fs::write(&path, &whole[..whole.len() - damage]).unwrap();
            assert_eq!(names(&log), ["a"], "truncated by {damage}");
            log.append(&window(home.path(), "c"));
            assert_eq!(names(&log), ["a", "c"]);
            let mut flipped = fs::read(&path).unwrap();
            let position = flipped.len() - damage;
            flipped[position] ^= 1;
            flipped.extend([0; 100]);
            fs::write(&path, flipped).unwrap();
            assert_eq!(names(&log), ["a"], "bit flip {damage} bytes before the end");
        }
    }

    #[test]
    fn a_log_of_another_version_is_started_anew() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(NAME), "spanprof-index 0 0.0.1\nsomething else").unwrap();
        let log = IndexLog::of(home.path());
        assert!(names(&log).is_empty());
        log.append(&window(home.path(), "a"));
        assert_eq!(names(&log), ["a"]);
    }

    #[test]
    fn a_log_of_mostly_removed_files_is_rewritten() {
        let home = tempfile::tempdir().unwrap();
        let log = IndexLog::of(home.path());
        log.load();
        let kept = [Arc::new(window(home.path(), "a"))];
        (0..300).for_each(|_| log.append(&kept[0]));
        let before = fs::metadata(home.path().join(NAME)).unwrap().len();
        assert!(log.is_sparse(kept.len()));
        log.compact(&kept);
        assert!(!log.is_sparse(kept.len()));
        log.append(&window(home.path(), "b"));
        assert!(fs::metadata(home.path().join(NAME)).unwrap().len() < before / 100);
        assert_eq!(names(&log), ["a", "b"]);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let secret = home.path().join("secret");
        fs::write(&secret, "untouched").unwrap();
        std::os::unix::fs::symlink(&secret, home.path().join(NAME)).unwrap();
        let log = IndexLog::of(home.path());
        assert!(names(&log).is_empty());
        log.append(&window(home.path(), "a"));
        assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
    }
}
