//! The ring and its wakeup: every sample enters here, and the drain thread waits here. Not here: the processing of
//! samples, timers.
//!
//! # Rules of the wakeup
//! 1. The drain thread stores `sleep_mode` before its last check of the ring; a producer loads `sleep_mode` after its
//!    commit. Both sides have a full fence between the two steps, so at least one of them sees the other's store: no
//!    wakeup is lost.
//! 2. With a deadline, the drain thread sleeps until then or until a quarter of the ring is used. Without a deadline,
//!    the first sample wakes it. An idle process thus has neither timer nor wakeup.
//! 3. Reasons are bits of the futex word. Setting a bit wakes a sleeping drain thread and is async-signal-safe.

use crate::atomics::{fence, AtomicU32, AtomicU64, Ordering};
use crate::drop_reason::DropReason;
use crate::futex;
use crate::ring::sample::RawSample;
use crate::ring::sample_ring::Ring;

/// Why [`Inbox::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// [`Inbox::wake`] was called.
    Requested,
    /// The process used enough CPU time to check for new threads.
    ScanDue,
    /// Samples are in the ring: the first one after idleness, or a quarter of the ring.
    Samples,
    /// The deadline passed.
    TimedOut,
}

const REQUESTED: u32 = 1;
const SCAN_DUE: u32 = 2;
const SAMPLES: u32 = 4;

const AWAKE: u32 = 0;
const UNTIL_FIRST_SAMPLE: u32 = 1;
const UNTIL_QUARTER_FULL: u32 = 2;

/// The ring, the wake reasons and the sleep mode of the drain thread.
pub struct Inbox {
    ring: Ring,
    reasons: AtomicU32,
    sleep_mode: AtomicU32,
}

impl Inbox {
    /// An inbox over zeroed words; `None` unless their number is a power of two.
    pub fn new(words: &'static [AtomicU64]) -> Option<Self> {
        Some(Self { ring: Ring::new(words)?, reasons: AtomicU32::new(0), sleep_mode: AtomicU32::new(AWAKE) })
    }

    /// The ring, for draining.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Pushes a sample into the ring and wakes the drain thread if due. Returns the ring position of the entry. From
    /// any thread, inside handlers too; may change errno.
    pub fn submit(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let outcome = self.ring.push(sample);
        // Rule 1: commit before loading `sleep_mode`.
        fence(Ordering::SeqCst);
        let wake = match self.sleep_mode.load(Ordering::Relaxed) {
            AWAKE => false,
            UNTIL_FIRST_SAMPLE => true,
            _ => self.is_quarter_full(),
        };
        if wake {
            self.set(SAMPLES);
        }
        outcome
    }

    /// Prefetches the words of the next entry.
    pub(crate) fn prefetch_next_entry(&self) {
        self.ring.prefetch_next_entry();
    }

    /// Makes [`Inbox::wait`] return. From any thread, inside handlers too; may change errno.
    pub fn wake(&self) {
        self.set(REQUESTED);
    }

    /// Requests a scan of the process's threads. From any thread, as [`Inbox::wake`].
    pub fn scan_due(&self) {
        self.set(SCAN_DUE);
    }

    /// Waits for a reason to wake; `timeout_ns` as in rule 2. One waiting thread at a time.
    pub fn wait(&self, timeout_ns: Option<u64>) -> WakeReason {
        loop {
            if let Some(reason) = self.take_reason() {
                return reason;
            }
            let mode = if timeout_ns.is_some() { UNTIL_QUARTER_FULL } else { UNTIL_FIRST_SAMPLE };
            self.sleep_mode.store(mode, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // A reserved entry without commit is no reason to return: its commit wakes this thread.
            let may_return = timeout_ns.is_none() || self.is_quarter_full();
            if may_return && self.ring.has_committed() {
                self.sleep_mode.store(AWAKE, Ordering::Relaxed);
                return self.take_reason().unwrap_or(WakeReason::Samples);
            }
            let timed_out = futex::wait(&self.reasons, 0, timeout_ns);
            self.sleep_mode.store(AWAKE, Ordering::Relaxed);
            if timed_out {
                return self.take_reason().unwrap_or(WakeReason::TimedOut);
            }
        }
    }

    /// Discards the parent's samples, sleeper and reasons in a forked child, before any use of the inbox there.
    pub fn reset_after_fork(&self) {
        self.ring.reset_after_fork();
        self.reasons.store(0, Ordering::Relaxed);
        self.sleep_mode.store(AWAKE, Ordering::Relaxed);
    }

    fn is_quarter_full(&self) -> bool {
        self.ring.used_words() >= self.ring.capacity_words() / 4
    }

    fn set(&self, reason: u32) {
        if self.reasons.fetch_or(reason, Ordering::AcqRel) & reason == 0 {
            futex::wake(&self.reasons);
        }
    }

    fn take_reason(&self) -> Option<WakeReason> {
        let reasons = self.reasons.load(Ordering::Acquire);
        let (bit, reason) = match reasons {
            _ if reasons & REQUESTED != 0 => (REQUESTED, WakeReason::Requested),
            _ if reasons & SCAN_DUE != 0 => (SCAN_DUE, WakeReason::ScanDue),
            _ if reasons & SAMPLES != 0 => (SAMPLES, WakeReason::Samples),
            _ => return None,
        };
        self.reasons.fetch_and(!bit, Ordering::AcqRel);
        Some(reason)
    }
}
