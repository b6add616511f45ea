//! Persistent state of the crash-loop breaker: a small file per program. It stores whether the process faulted inside
//! one of our stack walks, its start, and the last time it was alive. A process that dies leaves the file unchanged;
//! the next one reads it.
//!
//! The fault handler writes one word (`spanprof_signal::walk_fault`), normal threads the rest. The file is not
//! mapped: a truncated file must not fault in a handler, and a slow disk must not delay a walk.
//!
//! Limits: only one process of a program keeps the file (a process lock, not inherited by fork). Without a writable
//! file there is no breaker. A death that reaches no fault handler of ours is not recorded: a handler of the
//! host that does not forward, a stack overflow without an alternate stack, an abort by the C library.

use super::state_file::{file_size_allows, lock};
use spanprof_signal::walk_fault;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A process that lived longer than this before its death is not in a crash loop.
const MAX_LOOP_LIFETIME_NS: u64 = 60_000_000_000;
const MAGIC: u64 = 0x7370_616e_7072_6632;

/// The content of the file.
#[derive(Clone, Copy)]
struct MarkerRecord {
    started_unix_ns: u64,
    alive_unix_ns: u64,
    ended: u32,
    faulted: u32,
}

const RECORD_BYTES: usize = 32;
const FAULTED_OFFSET: u64 = 28;

impl MarkerRecord {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.started_unix_ns.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.alive_unix_ns.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.ended.to_ne_bytes());
        bytes[28..].copy_from_slice(&self.faulted.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let u64_at = |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_ne_bytes);
        let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes);
        let record =
            Self { started_unix_ns: u64_at(8)?, alive_unix_ns: u64_at(16)?, ended: u32_at(24)?, faulted: u32_at(28)? };
        (u64_at(0)? == MAGIC).then_some(record)
    }

    fn is_crash_loop(&self) -> bool {
        let lived_ns = self.alive_unix_ns.saturating_sub(self.started_unix_ns);
        self.ended == 0 && self.faulted != 0 && lived_ns < MAX_LOOP_LIFETIME_NS
    }
}

/// The marker file of this process, which holds its lock.
struct Marker {
    directory: PathBuf,
    file: File,
    identity: (u64, u64),
    record: MarkerRecord,
    /// No valid record existed: this program adds a file.
    is_new_file: bool,
}

impl Marker {
    /// Writes the fields of normal threads, if the host did not close the file. Write errors are ignored: the host
    /// takes precedence.
    fn write(&self) {
        if walk_fault::identity(self.file.as_raw_fd()) == Some(self.identity) {
            let bytes = self.record.to_bytes();
            // The fault handler writes the last word; `begin_crash_marker` resets it.
            let _ = self.file.write_all_at(bytes.get(..FAULTED_OFFSET as usize).unwrap_or(&[]), 0);
        }
    }

    fn fault_word(&self) -> walk_fault::FileWord {
        let descriptor = self.file.as_raw_fd();
        walk_fault::FileWord { descriptor, identity: self.identity, offset: FAULTED_OFFSET }
    }
}

static MARKER: Mutex<Option<Marker>> = Mutex::new(None);

/// Begins to record. True when the last process of this program died in one of our walks within a minute of its
/// start.
pub fn begin_crash_marker(directory: &Path, program: u64, now_unix_ns: u64) -> bool {
    let mut marker = MARKER.lock().unwrap_or_else(PoisonError::into_inner);
    if marker.is_none() {
        *marker = open(directory, program);
    }
    let Some(marker) = &mut *marker else { return false };
    let mut bytes = [0; RECORD_BYTES];
    let last = match marker.file.read_exact_at(&mut bytes, 0) {
        Ok(()) => MarkerRecord::from_bytes(&bytes),
        Err(_) => None,
    };
    marker.is_new_file = last.is_none();
    marker.record = MarkerRecord { started_unix_ns: now_unix_ns, alive_unix_ns: now_unix_ns, ended: 0, faulted: 0 };
    marker.fault_word().write(0);
    marker.write();
    walk_fault::set_report_location(Some(marker.fault_word()));
    last.is_some_and(|last| last.is_crash_loop())
}

/// Records that the process is alive; called at the end of each window.
pub fn keep_crash_marker(now_unix_ns: u64) {
    if let Some(marker) = &mut *MARKER.lock().unwrap_or_else(PoisonError::into_inner) {
        marker.record.alive_unix_ns = now_unix_ns;
        marker.write();
    }
}

/// Records an orderly end of sampling.
pub fn end_crash_marker() {
    walk_fault::set_report_location(None);
    if let Some(marker) = &mut *MARKER.lock().unwrap_or_else(PoisonError::into_inner) {
        marker.record.ended = 1;
        marker.write();
    }
}

/// The directory of the files: in the user's runtime directory, else in the temporary one.
pub fn crash_marker_directory() -> PathBuf {
    // SAFETY: no arguments, no failure.
    let user = unsafe { libc::geteuid() };
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).unwrap_or_else(std::env::temp_dir);
    base.join(format!("spanprof-{user}"))
}

fn open(directory: &Path, program: u64) -> Option<Marker> {
    // SAFETY: no arguments, no failure.
    let user = unsafe { libc::geteuid() };
    let _ = DirBuilder::new().mode(0o700).create(directory);
    let metadata = std::fs::symlink_metadata(directory).ok()?;
    // A directory that other users can write is not trusted.
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return None;
    }
    if !file_size_allows(RECORD_BYTES as u64) {
        return None;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(format!("{program:016x}.state")))
        .ok()?;
    if !lock(&file) {
        return None;
    }
    let identity = walk_fault::identity(file.as_raw_fd())?;
    let record = MarkerRecord { started_unix_ns: 0, alive_unix_ns: 0, ended: 1, faulted: 0 };
    Some(Marker { directory: directory.to_owned(), file, identity, record, is_new_file: false })
}

/// Removes old marker files: programs whose arguments change leave one file each. A process that adds a file removes
/// files older than a day, once there are more than 64. Takes milliseconds for many files: not for host threads.
pub fn sweep_crash_markers() {
    let marker = MARKER.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = marker.as_ref().filter(|marker| marker.is_new_file).map(|marker| marker.directory.clone());
    drop(marker);
    if let Some(directory) = directory {
        sweep(&directory);
    }
}

fn sweep(directory: &Path) {
    const MAX_FILES: usize = 64;
    const MAX_INSPECTED_FILES: usize = 1024;
    const DAY: Duration = Duration::from_secs(86_400);
    let is_old = |file: &std::fs::DirEntry| {
        let touched = file.metadata().and_then(|metadata| metadata.modified());
        touched.is_ok_and(|touched| touched.elapsed().is_ok_and(|age| age > DAY))
    };
    let files: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
    if files.len() > MAX_FILES {
        for file in files.iter().take(MAX_INSPECTED_FILES).filter(|file| is_old(file)) {
            // Another process may have removed it.
            let _ = std::fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::clock_types::{ClockChoice, ClockSettings};
    use crate::clocks::live_tests::{burn, settings};
    use crate::clocks::thread_clocks::Clocks;
    use crate::memory::fault_guard::install_fault_guard;
    use crate::testing::{one_at_a_time, wait_status_of_child};
    use crate::threads::listing::thread_id;
    use crate::time::unix_ns;
    use spanprof_signal::walk_fault::WalkGuard;
    use spanprof_signal::{Captured, HandlerContext, RawStack};

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("spanprof-marker-{name}-{}", std::process::id()))
    }

    /// Simulates the next process: releases this one's lock first.
    fn next_process(directory: &Path, now_unix_ns: u64) -> bool {
        *MARKER.lock().unwrap() = None;
        begin_crash_marker(directory, 7, now_unix_ns)
    }

    fn forget_all(directory: &Path) {
        end_crash_marker();
        *MARKER.lock().unwrap() = None;
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// Simulates the write of the fault handler.
    fn fault_in_walk() {
        let marker = MARKER.lock().unwrap();
        assert!(marker.as_ref().unwrap().fault_word().write(1));
    }

    #[test]
    fn only_a_death_in_a_walk_soon_after_start_trips_the_breaker() {
        let _turn = one_at_a_time();
        let directory = directory("when");
        assert!(!next_process(&directory, 1), "a first start");
        fault_in_walk();
        keep_crash_marker(1 + MAX_LOOP_LIFETIME_NS / 2);
        assert!(next_process(&directory, 2), "died in a walk after half a minute");
        assert!(!next_process(&directory, 3), "died outside a walk");
        fault_in_walk();
        end_crash_marker();
        assert!(!next_process(&directory, 4), "orderly end");
        fault_in_walk();
        keep_crash_marker(4 + MAX_LOOP_LIFETIME_NS);
        assert!(!next_process(&directory, 5), "lived longer than a minute");
        forget_all(&directory);
    }

    fn faults() {
        // SAFETY: the read faults, which this test provokes and which ends the child.
        unsafe { std::ptr::read_volatile(8 as *const u8) };
    }

    unsafe fn walk_that_faults(_: &HandlerContext, _: &mut RawStack<'_>) -> Captured {
        faults();
        Captured::Walked
    }

    /// Whether a child that runs `body` dies of its fault and the next start reports it.
    fn trips(directory: &Path, body: impl FnOnce()) -> bool {
        // Releases this process's lock for the child.
        *MARKER.lock().unwrap() = None;
        let status = wait_status_of_child(|| {
            begin_crash_marker(directory, 9, unix_ns());
            body();
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:x}");
        begin_crash_marker(directory, 9, unix_ns())
    }

    #[test]
    fn a_fault_in_a_walk_is_recorded_and_a_fault_of_the_host_is_not() {
        let _turn = one_at_a_time();
        let directory = directory("fault");
        let clocks = |capture| Clocks::start(ClockSettings { capture, ..settings(ClockChoice::ThreadTimer, 1_000) });
        let in_handler = || {
            let _clocks = clocks(walk_that_faults).expect("the clocks start");
            burn(2_000_000_000);
        };
        assert!(trips(&directory, in_handler), "the handler's walk faulted");
        let in_wall_walk = || {
            install_fault_guard();
            let _guard = WalkGuard::begin(thread_id());
            faults();
        };
        assert!(trips(&directory, in_wall_walk), "the wall sampler's walk faulted");
        let of_host = || {
            install_fault_guard();
            // Another thread walks at the same time.
            std::thread::spawn(|| std::mem::forget(WalkGuard::begin(thread_id()))).join().unwrap();
            faults();
        };
        assert!(!trips(&directory, of_host), "the host faulted");
        forget_all(&directory);
    }

    #[test]
    fn a_file_truncated_or_closed_by_the_host_causes_no_fault_and_no_foreign_write() {
        let _turn = one_at_a_time();
        let directory = directory("cut");
        assert!(!next_process(&directory, 1));
        let file = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains(file.file_name().unwrap().to_str().unwrap()), "the file is not mapped");
        File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
        fault_in_walk();
        keep_crash_marker(2);
        assert!(next_process(&directory, 3), "the record was written again");
        // The host closes unknown descriptors and opens its own file there.
        let hosts = directory.join("host");
        let theirs = File::create(&hosts).unwrap();
        let marker = MARKER.lock().unwrap().take().unwrap();
        // SAFETY: both descriptors are open and owned by this test.
        assert!(unsafe { libc::dup2(theirs.as_raw_fd(), marker.file.as_raw_fd()) } >= 0);
        *MARKER.lock().unwrap() = Some(marker);
        keep_crash_marker(4);
        end_crash_marker();
        assert!(std::fs::read(&hosts).unwrap().is_empty(), "no write to the host's file");
        forget_all(&directory);
    }

    /// Files of other programs, last touched at `modified`.
    fn leave_files(directory: &Path, count: u32, modified: std::time::SystemTime) {
        for number in 0..count {
            let name = format!("{number}-{modified:?}.state");
            File::create(directory.join(name)).unwrap().set_modified(modified).unwrap();
        }
    }

    fn a_day_ago() -> std::time::SystemTime {
        std::time::SystemTime::now() - Duration::from_secs(90_000)
    }

    #[test]
    fn files_older_than_a_day_are_removed_once_there_are_many() {
        let directory = directory("sweep");
        std::fs::create_dir(&directory).unwrap();
        let files = || std::fs::read_dir(&directory).unwrap().count();
        leave_files(&directory, 64, a_day_ago());
        sweep(&directory);
        assert_eq!(files(), 64, "few");
        leave_files(&directory, 10, std::time::SystemTime::now());
        sweep(&directory);
        assert_eq!(files(), 10);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_program_that_adds_no_file_removes_none() {
        let _turn = one_at_a_time();
        let directory = directory("again");
        std::fs::create_dir(&directory).unwrap();
        let files = || std::fs::read_dir(&directory).unwrap().count();
        leave_files(&directory, 100, a_day_ago());
        next_process(&directory, 1);
        sweep_crash_markers();
        assert_eq!(files(), 1, "the first start of the program");
        leave_files(&directory, 100, a_day_ago());
        next_process(&directory, 2);
        sweep_crash_markers();
        assert_eq!(files(), 101, "its second");
        forget_all(&directory);
    }

    #[test]
    fn without_a_writable_directory_there_is_no_breaker_and_no_error() {
        assert!(open(Path::new("/proc/spanprof-nowhere"), 7).is_none());
        // A directory that every user can write.
        assert!(open(Path::new("/tmp"), 7).is_none());
    }
}
