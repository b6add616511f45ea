//! The file of the heap at its peak: creation, writes, and the files of ended processes. Its format is
//! `spanprof_profile::heap_peak`.
//!
//! The file is written by `pwrite` and not mapped: both put the bytes into the page cache, which outlives the process, but
//! a store to a mapping of a truncated file or of a failing disk ends the host by SIGBUS. All blocks are
//! allocated at its creation, so a full disk is an error there. Writes that would exceed the limit of file sizes, or whose
//! descriptor the host closed, are not made.
//!
//! A process holds a lock on its file (a process lock: not inherited by fork, released on death). A file without a lock
//! belongs to a process that ended. The process removes its file at its orderly end.

use super::state_file::{file_size_allows, lock};
use crate::system_calls::{may_use, SystemCall};
use spanprof_signal::fork_generation;
use spanprof_signal::walk_fault;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Extension of the file of a running process, or of one that ended and was not yet found.
pub const PEAK_EXTENSION: &str = "peak";
/// Extension of the kept file of a process that ended.
pub const CRASH_EXTENSION: &str = "crash";

/// Start of this process in clock ticks after the boot; 0 when unknown.
pub fn process_start_ticks() -> u64 {
    start_ticks_of("self").unwrap_or(0)
}

/// Field 22 of the `stat` file.
fn start_ticks_of(process: &str) -> Option<u64> {
    super::info::stat_field(process, 22)
}

/// Inode of this process's pid namespace; 0 when unknown.
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Whether the process of this id and start time runs in this process's pid namespace.
pub fn is_process_running(process_id: u32, start_ticks: u64) -> bool {
    start_ticks_of(&process_id.to_string()).is_some_and(|ticks| ticks == start_ticks)
}

/// The file of this process, removed when it is dropped.
pub struct PeakFile {
    path: PathBuf,
    file: ManuallyDrop<File>,
    identity: (u64, u64),
    bytes: u64,
    generation: u32,
}

impl PeakFile {
    /// Creates the file and allocates its `bytes`. Creates the directory if it does not exist. A file of this name belongs to
    /// a program that this process ran before `exec`, and is replaced.
    pub fn create(directory: &Path, name: &str, bytes: u64) -> io::Result<Self> {
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        if !file_size_allows(bytes) {
            return Err(io::Error::other(format!("the limit of file sizes (RLIMIT_FSIZE) is below {bytes} bytes")));
        }
        // Absolute: the program may change its working directory.
        let path = std::path::absolute(directory)?.join(name).with_extension(PEAK_EXTENSION);
        let _ = std::fs::remove_file(&path);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let identity = walk_fault::identity(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        let created = Self { path, file: ManuallyDrop::new(file), identity, bytes, generation: fork_generation() };
        // A file system without locks: the process id decides.
        lock(&created.file);
        created.allocate()?;
        Ok(created)
    }

    fn allocate(&self) -> io::Result<()> {
        if !may_use(SystemCall::Fallocate) {
            let zeros = vec![0; 1 << 16];
            let chunks = (0..self.bytes).step_by(zeros.len());
            return chunks.into_iter().try_for_each(|at| {
                let length = zeros.len().min((self.bytes - at) as usize);
                self.file.write_all_at(&zeros[..length], at)
            });
        }
        // SAFETY: the descriptor is open and ours; the call only changes the file.
        match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, self.bytes as libc::off_t) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Stores bytes at an offset, within the file's size. After an error the caller creates a new file.
    pub fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.bytes || !file_size_allows(end) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if !self.is_open() {
            return Err(io::Error::other("the descriptor was closed"));
        }
        let metadata = self.file.metadata()?;
        if metadata.len() < self.bytes || metadata.nlink() == 0 {
            return Err(io::Error::other("the file was truncated or removed"));
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Whether the descriptor still refers to the file.
    fn is_open(&self) -> bool {
        walk_fault::identity(self.file.as_raw_fd()) == Some(self.identity)
    }
}

impl Drop for PeakFile {
    fn drop(&mut self) {
        // A forked child has the file of its parent.
        if self.generation != fork_generation() {
            return;
        }
        // Where the directory became read-only, the file is left without content.
        let _ = self.store(0, &[0; 8]);
        let _ = std::fs::remove_file(&self.path);
        // A descriptor that the host closed may be a file of the host now.
        if self.is_open() {
            // SAFETY: the value is dropped, so nothing uses the file afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// The files in `directory` with one of our extensions, newest first, and their time of modification.
pub fn peak_files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|other| other == extension))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    files.sort_by(|left, right| right.cmp(left));
    files.into_iter().map(|(_, path)| path).collect()
}

/// Whether no process holds the lock of the file. Must not be called for a file of this process: it would lose its lock.
pub fn is_unlocked(path: &Path) -> bool {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    file.is_ok_and(|file| lock(&file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_child, wait_status_of_child};

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("spanprof-peak-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_file_is_preallocated_and_removed_when_it_is_dropped() {
        let directory = directory("drop");
        let file = PeakFile::create(&directory, "heap-1", 100_000).unwrap();
        let path = directory.join("heap-1.peak");
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.len(), 100_000);
        assert!(metadata.blocks() * 512 >= 100_000, "its blocks are allocated");
        assert_eq!(metadata.mode() & 0o777, 0o600);
        file.store(99_990, b"0123456789").unwrap();
        assert!(file.store(99_991, b"0123456789").is_err(), "beyond its size");
        assert_eq!(std::fs::read(&path).unwrap()[99_990..], *b"0123456789");
        drop(file);
        assert!(!path.exists());
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn only_the_file_of_an_ended_process_is_unlocked() {
        let directory = directory("lock");
        let status = wait_status_of_child(|| {
            let file = PeakFile::create(&directory, "heap-2", 4096).unwrap();
            let owned = || is_unlocked(&directory.join("heap-2.peak"));
            assert_eq!(wait_status_of_child(|| assert!(!owned())), 0, "its own child does not hold the lock");
            std::mem::forget(file);
        });
        assert_eq!(status, 0);
        assert_eq!(peak_files(&directory, PEAK_EXTENSION), [directory.join("heap-2.peak")]);
        assert!(is_unlocked(&directory.join("heap-2.peak")), "it ended");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_forked_child_that_drops_the_file_of_its_parent_does_not_remove_it() {
        crate::fork::install_fork_hook();
        let directory = directory("fork");
        let mut file = Some(PeakFile::create(&directory, "heap-3", 4096).unwrap());
        in_child(|| drop(file.take()));
        assert!(directory.join("heap-3.peak").exists());
        drop(file);
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn a_process_is_identified_by_its_id_and_start() {
        let (own, ticks) = (std::process::id(), process_start_ticks());
        assert!(ticks > 0 && pid_namespace() > 0);
        assert!(is_process_running(own, ticks) && !is_process_running(own, ticks + 1));
    }
}
