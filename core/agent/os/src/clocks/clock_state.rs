//! The state of the clocks of this process: the registered threads, the current run, and the snapshot for readers without the
//! lock. Not here: starting, changing and stopping them (`clocks`).
//!
//! A forked child creates its own state: the fork hook drops the pointer to all lock-protected state. No lock of the
//! child can thus be held by a thread that exists only in the parent.

use super::clock_snapshot::{ClockSnapshot, RunSnapshot};
use super::clock_types::ClockInUse;
use super::perf;
use super::registry::{ClockSetup, Registry};
use super::scan_schedule::ScanSchedule;
use crate::memory::inboxes;
use spanprof_signal::{counters, handler, slot_table, Ticker};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The state of the clocks, created anew in each forked child.
#[derive(Default)]
pub(crate) struct SharedClocks {
    pub(crate) state: Mutex<ClockState>,
    /// The thread that the scan timer wakes.
    pub(crate) scan_thread: AtomicU32,
    /// Requests a scan regardless of the thread count.
    pub(crate) scan_requested: AtomicBool,
    /// For readers that must not wait for `state`.
    pub(crate) snapshot: ClockSnapshot,
}

#[derive(Default)]
pub(crate) struct ClockState {
    pub(crate) registry: Registry,
    pub(crate) run: Option<ClockRun>,
    pub(crate) runs: u64,
    pub(crate) scan_timer: Option<u32>,
    pub(crate) schedule: ScanSchedule,
}

#[derive(Clone)]
pub(crate) struct ClockRun {
    pub(crate) number: u64,
    pub(crate) setup: ClockSetup,
    pub(crate) in_use: ClockInUse,
    pub(crate) process_ns: u64,
    pub(crate) own_ns: u64,
    pub(crate) sampled_ns: u64,
}

impl ClockRun {
    pub(crate) fn snapshot(&self) -> RunSnapshot {
        let (process_ns, own_ns) = (self.process_ns, self.own_ns);
        RunSnapshot { number: self.number, in_use: self.in_use.clone(), process_ns, own_ns }
    }
}

static SHARED: AtomicPtr<SharedClocks> = AtomicPtr::new(null_mut());

/// The state of this process.
pub(crate) fn shared() -> &'static SharedClocks {
    let present = SHARED.load(Ordering::Acquire);
    if present.is_null() {
        let made = Box::into_raw(Box::<SharedClocks>::default());
        if let Err(first) = SHARED.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: created above and not published.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: only leaked boxes are ever stored there.
            return unsafe { &*first };
        }
        // SAFETY: leaked above, never freed.
        return unsafe { &*made };
    }
    // SAFETY: only leaked boxes are ever stored there.
    unsafe { &*present }
}

impl SharedClocks {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Runs `body` while the lock is held.
#[cfg(test)]
pub(crate) fn with_lock_held<T>(body: impl FnOnce() -> T) -> T {
    let _held = shared().lock();
    body()
}

/// Closes the clock of a thread that became one of ours.
pub(crate) fn forget_thread(thread_id: u32) {
    let present = SHARED.load(Ordering::Acquire);
    // SAFETY: only leaked boxes are ever stored there.
    if let Some(shared) = unsafe { present.as_ref() } {
        let mut state = shared.lock();
        state.registry.close(thread_id);
        shared.snapshot.publish_threads(&state.registry);
    }
}

/// Discards all clocks in a forked child. Allocates nothing, takes no lock; closes inherited descriptors.
pub(crate) fn reset_in_child() {
    handler::set_session(None);
    SHARED.store(null_mut(), Ordering::Release);
    for slot in slot_table::used_slots() {
        if let (false, Ticker::Perf(descriptor)) = (slot.is_free(), slot.ticker()) {
            slot_table::set_slot_of_descriptor(descriptor, 0);
            perf::close_descriptor(perf::PerfEvent { descriptor, id: slot.event_id(), buffer: 0 });
        }
        slot.reset_after_fork();
    }
    counters::reset_after_fork();
    inboxes::reset_in_child();
}
