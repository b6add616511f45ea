//! The crash-loop breaker's memory: a small file per program that says whether the process faulted in a walk of ours, since
//! when it runs and when it was last seen alive. A process that dies leaves it as it was; the next one reads it.
//!
//! The fault handler writes the one word (`spanprof_signal::walking`), normal threads the rest. Nothing is mapped: a
//! file that somebody cuts short must not fault in a handler, and a disk that is slow must not hold up a walk.
//!
//! Limits: only one process of a program keeps the file (a lock of the process, not inherited by fork); where no file can
//! be written there is no breaker; a death that reaches no fault handler of ours tells nothing (see decision 17).

use spanprof_signal::walking;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A process that lived longer than this before it died is no crash loop.
const LOOP_NS: u64 = 60_000_000_000;
const MAGIC: u64 = 0x7370_616e_7072_6632;

/// What lies in the file.
#[derive(Clone, Copy)]
struct Record {
    started_unix_ns: u64,
    alive_unix_ns: u64,
    ended: u32,
    faulted: u32,
}

const RECORD_BYTES: usize = 32;
const FAULTED_OFFSET: u64 = 28;

impl Record {
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
        let long = |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_ne_bytes);
        let short = |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes);
        let record =
            Self { started_unix_ns: long(8)?, alive_unix_ns: long(16)?, ended: short(24)?, faulted: short(28)? };
        (long(0)? == MAGIC).then_some(record)
    }

    fn is_crash_loop(&self) -> bool {
        let lived_ns = self.alive_unix_ns.saturating_sub(self.started_unix_ns);
        self.ended == 0 && self.faulted != 0 && lived_ns < LOOP_NS
    }
}

/// The file of this process, whose lock it keeps.
struct Marker {
    directory: PathBuf,
    file: File,
    identity: (u64, u64),
    record: Record,
    /// Nothing told of this program before, so that there is a file more.
    is_one_more: bool,
}

impl Marker {
    /// Writes what normal threads write, if the host did not close the file behind our back. What cannot be written
    /// is not told: the host comes first.
    fn write(&self) {
        if walking::identity(self.file.as_raw_fd()) == Some(self.identity) {
            let bytes = self.record.to_bytes();
            // The word of the fault handler is its own, except at the beginning.
            let _ = self.file.write_all_at(bytes.get(..FAULTED_OFFSET as usize).unwrap_or(&[]), 0);
        }
    }

    fn place(&self) -> walking::Place {
        let descriptor = self.file.as_raw_fd();
        walking::Place { descriptor, identity: self.identity, offset: FAULTED_OFFSET }
    }
}

static MARKER: Mutex<Option<Marker>> = Mutex::new(None);

/// Begins to tell. True when the last process of this program died in a walk of ours, within a minute of its start.
pub fn begin_crash_marker(directory: &Path, program: u64, now_unix_ns: u64) -> bool {
    let mut marker = MARKER.lock().unwrap_or_else(PoisonError::into_inner);
    if marker.is_none() {
        *marker = open(directory, program);
    }
    let Some(marker) = &mut *marker else { return false };
    let mut bytes = [0; RECORD_BYTES];
    let last = match marker.file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Record::from_bytes(&bytes),
        Err(_) => None,
    };
    marker.is_one_more = last.is_none();
    marker.record = Record { started_unix_ns: now_unix_ns, alive_unix_ns: now_unix_ns, ended: 0, faulted: 0 };
    marker.place().write(0);
    marker.write();
    walking::tell_in(Some(marker.place()));
    last.is_some_and(|last| last.is_crash_loop())
}

/// The process is alive now; called at the end of each window.
pub fn keep_crash_marker(now_unix_ns: u64) {
    if let Some(marker) = &mut *MARKER.lock().unwrap_or_else(PoisonError::into_inner) {
        marker.record.alive_unix_ns = now_unix_ns;
        marker.write();
    }
}

/// Sampling ended in an orderly way.
pub fn end_crash_marker() {
    walking::tell_in(None);
    if let Some(marker) = &mut *MARKER.lock().unwrap_or_else(PoisonError::into_inner) {
        marker.record.ended = 1;
        marker.write();
    }
}

/// Where the files lie: with the user's run-time files, else with temporary ones.
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
    let place = std::fs::symlink_metadata(directory).ok()?;
    // A directory that somebody else can write could be made to say what he wants.
    if !place.is_dir() || place.uid() != user || place.mode() & 0o022 != 0 {
        return None;
    }
    if !may_write() {
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
    let identity = walking::identity(file.as_raw_fd())?;
    let record = Record { started_unix_ns: 0, alive_unix_ns: 0, ended: 1, faulted: 0 };
    Some(Marker { directory: directory.to_owned(), file, identity, record, is_one_more: false })
}

/// Whether files may have the length of ours: a write beyond the limit ends the host.
fn may_write() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit to a local.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    known && limit.rlim_cur >= RECORD_BYTES as libc::rlim_t
}

/// Programs whose arguments change leave a file each: whoever leaves one more sees to it that, beyond a few, those not
/// touched for a day go. Looks at many files, which takes milliseconds: not for a thread of the host.
pub fn sweep_crash_markers() {
    let marker = MARKER.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = marker.as_ref().filter(|marker| marker.is_one_more).map(|marker| marker.directory.clone());
    drop(marker);
    if let Some(directory) = directory {
        sweep(&directory);
    }
}

fn sweep(directory: &Path) {
    const FEW: usize = 64;
    const LOOKED_AT: usize = 1024;
    const DAY: Duration = Duration::from_secs(86_400);
    let is_old = |file: &std::fs::DirEntry| {
        let touched = file.metadata().and_then(|metadata| metadata.modified());
        touched.is_ok_and(|touched| touched.elapsed().is_ok_and(|age| age > DAY))
    };
    let files: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
    if files.len() > FEW {
        for file in files.iter().take(LOOKED_AT).filter(|file| is_old(file)) {
            // Another process may have been quicker.
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// Takes the lock that belongs to the process: forked children do not have it, and death gives it back.
fn lock(file: &File) -> bool {
    // SAFETY: an all-zero flock is a valid value: from the start of the file, for all of it.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open; the kernel reads the flock.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &whole) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fork_tests::wait_status_of_child;
    use crate::sys::live_tests::{burn, one_at_a_time, settings};
    use crate::sys::{ClockChoice, ClockSettings, Clocks};
    use spanprof_signal::walking::Walking;
    use spanprof_signal::{Captured, HandlerContext, RawStack};

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("spanprof-marker-{name}-{}", std::process::id()))
    }

    /// What the next process would do: this one's lock is given up first.
    fn next_process(directory: &Path, now_unix_ns: u64) -> bool {
        *MARKER.lock().unwrap() = None;
        begin_crash_marker(directory, 7, now_unix_ns)
    }

    fn forget_all(directory: &Path) {
        end_crash_marker();
        *MARKER.lock().unwrap() = None;
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// What the fault handler writes.
    fn fault_in_walk() {
        let marker = MARKER.lock().unwrap();
        assert!(marker.as_ref().unwrap().place().write(1));
    }

    #[test]
    fn only_a_death_in_a_walk_soon_after_start_trips_the_breaker() {
        let _turn = one_at_a_time();
        let directory = directory("when");
        assert!(!next_process(&directory, 1), "a first start");
        fault_in_walk();
        keep_crash_marker(1 + LOOP_NS / 2);
        assert!(next_process(&directory, 2), "died in a walk after half a minute");
        assert!(!next_process(&directory, 3), "died outside a walk");
        fault_in_walk();
        end_crash_marker();
        assert!(!next_process(&directory, 4), "ended in an orderly way");
        fault_in_walk();
        keep_crash_marker(4 + LOOP_NS);
        assert!(!next_process(&directory, 5), "lived longer than a minute");
        forget_all(&directory);
    }

    fn faults() {
        // SAFETY: none; the fault is what the test is about, and ends the child.
        unsafe { std::ptr::read_volatile(8 as *const u8) };
    }

    unsafe fn walk_that_faults(_: &HandlerContext, _: &mut RawStack<'_>) -> Captured {
        faults();
        Captured::Walked
    }

    /// Whether a child that does `body` dies of its fault and the next start of the program says so.
    fn trips(directory: &Path, body: impl FnOnce()) -> bool {
        // The lock is this process's until then.
        *MARKER.lock().unwrap() = None;
        let status = wait_status_of_child(|| {
            begin_crash_marker(directory, 9, crate::sys::unix_ns());
            body();
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:x}");
        begin_crash_marker(directory, 9, crate::sys::unix_ns())
    }

    #[test]
    fn a_real_fault_in_a_walk_is_told_and_one_of_the_host_is_not() {
        let _turn = one_at_a_time();
        let directory = directory("fault");
        let clocks = |capture| Clocks::start(ClockSettings { capture, ..settings(ClockChoice::ThreadTimer, 1_000) });
        let in_handler = || {
            let _clocks = clocks(walk_that_faults).expect("the clocks start");
            burn(2_000_000_000);
        };
        assert!(trips(&directory, in_handler), "the handler's walk faulted");
        let in_wall_walk = || {
            crate::sys::install_fault_guard();
            let _walking = Walking::begin(crate::sys::thread_id());
            faults();
        };
        assert!(trips(&directory, in_wall_walk), "the wall sampler's walk faulted");
        let of_host = || {
            crate::sys::install_fault_guard();
            // Another thread walks meanwhile.
            std::thread::spawn(|| std::mem::forget(Walking::begin(crate::sys::thread_id()))).join().unwrap();
            faults();
        };
        assert!(!trips(&directory, of_host), "the host faulted");
        forget_all(&directory);
    }

    #[test]
    fn a_file_cut_short_or_closed_by_the_host_harms_nobody() {
        let _turn = one_at_a_time();
        let directory = directory("cut");
        assert!(!next_process(&directory, 1));
        let file = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains(file.file_name().unwrap().to_str().unwrap()), "nothing to fault on");
        File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
        fault_in_walk();
        keep_crash_marker(2);
        assert!(next_process(&directory, 3), "written anew");
        // The host closes what it does not know and opens something of its own there.
        let hosts = directory.join("host");
        let theirs = File::create(&hosts).unwrap();
        let marker = MARKER.lock().unwrap().take().unwrap();
        // SAFETY: both descriptors are open and belong to this test.
        assert!(unsafe { libc::dup2(theirs.as_raw_fd(), marker.file.as_raw_fd()) } >= 0);
        *MARKER.lock().unwrap() = Some(marker);
        keep_crash_marker(4);
        end_crash_marker();
        assert!(std::fs::read(&hosts).unwrap().is_empty(), "the host's file is not ours to write");
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
    fn files_of_a_day_ago_go_once_there_are_many() {
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
    fn a_program_that_leaves_no_more_files_does_not_look_at_others() {
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
    fn where_nothing_can_be_written_there_is_no_breaker_and_no_error() {
        assert!(open(Path::new("/proc/spanprof-nowhere"), 7).is_none());
        // Everybody can write there.
        assert!(open(Path::new("/tmp"), 7).is_none());
    }
}
