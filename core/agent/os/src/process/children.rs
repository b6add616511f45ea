//! Counts forked children that ended without delivering their last window: by SIGKILL, a crash, or `_exit` in C code.
//! A page shared with all descendants holds the process id of each profiled child; an orderly exit removes its id. A
//! listed process that no longer exists was cut off. No wait and no signal handler is involved, so the host's
//! `waitpid` is unaffected. A child that was not yet waited for counts as alive.

use crate::memory::mapping::shared_words;
use spanprof_signal::fork_generation;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// One page: the count, then process ids.
const WORDS: usize = 512;

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

fn page() -> Option<(&'static AtomicU64, &'static [AtomicU64])> {
    let start = PAGE.load(Ordering::Acquire);
    if start.is_null() {
        return None;
    }
    // SAFETY: `register_child` stores only the start of WORDS shared words, which stay mapped.
    unsafe { std::slice::from_raw_parts(start, WORDS) }.split_first()
}

fn process_id() -> u64 {
    u64::from(std::process::id())
}

/// Called when a session starts: maps the page before there are children, and lists this process if it is a child.
pub fn register_child() {
    if fork_generation() == 0 {
        if PAGE.load(Ordering::Acquire).is_null() {
            if let Some(words) = shared_words(WORDS) {
                PAGE.store(words.as_ptr().cast_mut(), Ordering::Release);
            }
        }
        return;
    }
    let Some((_, entries)) = page() else { return };
    let claim =
        |entry: &&AtomicU64| entry.compare_exchange(0, process_id(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // If the page is full, further children are not counted.
    let _ = entries.iter().find(claim);
}

/// Called after delivery of this process's last window.
pub fn unregister_child() {
    if fork_generation() > 0 {
        let (own, entries) = (process_id(), page().map_or(&[][..], |(_, entries)| entries));
        for entry in entries {
            let _ = entry.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Number of profiled descendants of the first process that were cut off.
pub fn children_cut_off() -> u64 {
    let Some((count, entries)) = page() else { return 0 };
    for entry in entries {
        let child = entry.load(Ordering::Acquire);
        // SAFETY: signal 0 delivers nothing; the call only checks whether the process exists.
        let is_gone = child != 0
            && unsafe { libc::kill(child as libc::pid_t, 0) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if is_gone && entry.compare_exchange(child, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    count.load(Ordering::Relaxed)
}
