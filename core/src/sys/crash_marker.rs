//! The crash-loop breaker's memory: a small file per program, mapped, that says whether a walk of ours is under way, since
//! when the process runs and when it was last seen alive. A process that dies leaves it as it was; the next one reads it.
//!
//! Limits: only one process of a program keeps the file (a lock of the process, not inherited by fork); where no file can
//! be written there is no breaker; a machine that loses power tells nothing.

use spanprof_signal::walking;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A process that lived longer than this before it died is no crash loop.
const LOOP_NS: u64 = 60_000_000_000;
const MAGIC: u64 = 0x7370_616e_7072_6631;

/// What lies in the file.
#[repr(C)]
struct Words {
    magic: AtomicU64,
    started_unix_ns: AtomicU64,
    alive_unix_ns: AtomicU64,
    ended: AtomicU32,
    walking: AtomicU32,
}

/// The mapping of this process, with the file whose lock it keeps.
struct Marker {
    words: &'static Words,
    _locked: File,
}

static MARKER: Mutex<Option<Marker>> = Mutex::new(None);

/// Begins to tell. True when the last process of this program died in a walk of ours, within a minute of its start.
pub fn begin_crash_marker(directory: &Path, program: u64, now_unix_ns: u64) -> bool {
    let mut marker = MARKER.lock().unwrap_or_else(PoisonError::into_inner);
    if marker.is_none() {
        *marker = open(directory, program);
    }
    let Some(Marker { words, .. }) = &*marker else { return false };
    let lived_ns =
        words.alive_unix_ns.load(Ordering::Relaxed).saturating_sub(words.started_unix_ns.load(Ordering::Relaxed));
    let died_in_walk = words.magic.load(Ordering::Relaxed) == MAGIC
        && words.ended.load(Ordering::Relaxed) == 0
        && words.walking.load(Ordering::Relaxed) > 0
        && lived_ns < LOOP_NS;
    words.magic.store(MAGIC, Ordering::Relaxed);
    words.started_unix_ns.store(now_unix_ns, Ordering::Relaxed);
    words.alive_unix_ns.store(now_unix_ns, Ordering::Relaxed);
    words.walking.store(0, Ordering::Relaxed);
    words.ended.store(0, Ordering::Relaxed);
    walking::tell_in(Some(&words.walking));
    died_in_walk
}

/// The process is alive now; called at the end of each window.
pub fn keep_crash_marker(now_unix_ns: u64) {
    if let Some(Marker { words, .. }) = &*MARKER.lock().unwrap_or_else(PoisonError::into_inner) {
        words.alive_unix_ns.store(now_unix_ns, Ordering::Relaxed);
    }
}

/// Sampling ended in an orderly way.
pub fn end_crash_marker() {
    walking::tell_in(None);
    if let Some(Marker { words, .. }) = &*MARKER.lock().unwrap_or_else(PoisonError::into_inner) {
        words.ended.store(1, Ordering::Relaxed);
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
    sweep(directory);
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
    file.set_len(size_of::<Words>() as u64).ok()?;
    Some(Marker { words: map(&file)?, _locked: file })
}

/// Programs whose arguments change leave a file each: beyond a few, those not touched for a day go.
fn sweep(directory: &Path) {
    const FEW: usize = 64;
    const DAY: Duration = Duration::from_secs(86_400);
    let files: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
    if files.len() <= FEW {
        return;
    }
    for file in files {
        let touched = file.metadata().and_then(|metadata| metadata.modified());
        if touched.is_ok_and(|touched| touched.elapsed().is_ok_and(|age| age > DAY)) {
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

fn map(file: &File) -> Option<&'static Words> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: asks for new memory over an open file; touches none that exists.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), size_of::<Words>(), protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: page-aligned, as long as `Words` since the file was set to that length, never unmapped; any bits are valid
    // in atomic integers. The file is ours alone (0600 in a directory of ours), so nobody cuts it short.
    Some(unsafe { &*start.cast::<Words>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::walking::Walking;

    /// What the next process would do: this one's lock and mapping are given up first.
    fn next_process(directory: &Path, now_unix_ns: u64) -> bool {
        *MARKER.lock().unwrap() = None;
        begin_crash_marker(directory, 7, now_unix_ns)
    }

    #[test]
    fn only_a_death_in_a_walk_soon_after_start_trips_the_breaker() {
        let _turn = crate::sys::live_tests::one_at_a_time();
        let directory = std::env::temp_dir().join(format!("spanprof-marker-{}", std::process::id()));
        assert!(!next_process(&directory, 1), "a first start");
        std::mem::forget(Walking::begin());
        keep_crash_marker(1 + LOOP_NS / 2);
        assert!(next_process(&directory, 2), "died in a walk after half a minute");
        assert!(!next_process(&directory, 3), "died outside a walk");
        std::mem::forget(Walking::begin());
        end_crash_marker();
        assert!(!next_process(&directory, 4), "ended in an orderly way");
        std::mem::forget(Walking::begin());
        keep_crash_marker(4 + LOOP_NS);
        assert!(!next_process(&directory, 5), "lived longer than a minute");
        end_crash_marker();
        *MARKER.lock().unwrap() = None;
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn where_nothing_can_be_written_there_is_no_breaker_and_no_error() {
        assert!(open(Path::new("/proc/spanprof-nowhere"), 7).is_none());
        // Everybody can write there.
        assert!(open(Path::new("/tmp"), 7).is_none());
    }
}
