//! Counts the forked children that ended without delivering their last window: by SIGKILL, by a crash, by `_exit` in C code. A
//! page shared with all descendants holds the process id of each profiled child; one that ends in an orderly way takes its own
//! out. Who is gone and still listed was cut off. Nobody is waited for and no signal is handled: the program's `waitpid` sees
//! what it would see anyway. A child that nobody has waited for yet counts as alive.

use super::fork::fork_generation;
use super::mapping::shared_words;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// One page: the count, then process ids.
const WORDS: usize = 512;

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

fn page() -> Option<(&'static AtomicU64, &'static [AtomicU64])> {
    let start = PAGE.load(Ordering::Acquire);
    if start.is_null() {
        return None;
    }
    // SAFETY: only the start of WORDS shared words is ever stored there, and they stay mapped.
    unsafe { std::slice::from_raw_parts(start, WORDS) }.split_first()
}

fn process_id() -> u64 {
    u64::from(std::process::id())
}

/// A session starts here: maps the page before there are children, and lists this process if it is one.
pub fn register_child() {
    if fork_generation() == 0 {
        if PAGE.load(Ordering::Acquire).is_null() {
            if let Some(words) = shared_words(WORDS) {
                PAGE.store(words.as_ptr().cast_mut(), Ordering::Release);
            }
        }
        return;
    }
    let Some((_, places)) = page() else { return };
    let take =
        |place: &&AtomicU64| place.compare_exchange(0, process_id(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // More than there are places for are not counted.
    let _ = places.iter().find(take);
}

/// The last window of this process was handed over.
pub fn unregister_child() {
    if fork_generation() > 0 {
        let (own, places) = (process_id(), page().map_or(&[][..], |(_, places)| places));
        for place in places {
            let _ = place.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Profiled descendants of the first process that were cut off so far.
pub fn children_cut_off() -> u64 {
    let Some((count, places)) = page() else { return 0 };
    for place in places {
        let child = place.load(Ordering::Acquire);
        // SAFETY: signal 0 is none; only whether the process exists is asked.
        let is_gone = child != 0
            && unsafe { libc::kill(child as libc::pid_t, 0) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if is_gone && place.compare_exchange(child, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    count.load(Ordering::Relaxed)
}
