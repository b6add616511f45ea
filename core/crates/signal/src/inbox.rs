//! The ring and the bell beside it: where every sample enters, and where the drain thread waits. Not here: what the
//! drain thread does with samples, timers.
//!
//! # Rules of the bell
//! 1. The drain thread says how it sleeps (`sleeping`) before it looks at the ring a last time; a producer looks at
//!    `sleeping` after its commit. With a full fence between the two steps on both sides one of them sees the other: no
//!    wake-up is lost.
//! 2. While samples wait that are not worth waking for, the sleeper has a deadline; without a deadline the first
//!    sample wakes. So an idle process has neither timer nor wake-up, and a busy one is woken by deadline or a quarter full.
//! 3. Reasons are bits of the futex word. Whoever sets a bit while the drain thread sleeps wakes it. Setting is
//!    async-signal-safe.

use crate::atomics::{fence, AtomicU32, AtomicU64, Ordering};
use crate::{futex, DropReason, RawSample, Ring};

/// Why [`Inbox::wait`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// Somebody called [`Inbox::wake`].
    Requested,
    /// The process burnt enough CPU for a look at its list of threads.
    ScanDue,
    /// Samples wait: the first after silence, or a quarter of the ring.
    Samples,
    /// The deadline passed.
    TimedOut,
}

const REQUESTED: u32 = 1;
const SCAN_DUE: u32 = 2;
const SAMPLES: u32 = 4;

const AWAKE: u32 = 0;
const UNTIL_FIRST: u32 = 1;
const UNTIL_QUARTER: u32 = 2;

/// See the head of the module.
pub struct Inbox {
    ring: Ring,
    reasons: AtomicU32,
    sleeping: AtomicU32,
}

impl Inbox {
    /// An inbox over zeroed words; `None` unless their number is a power of two.
    pub fn new(words: &'static [AtomicU64]) -> Option<Self> {
        Some(Self { ring: Ring::new(words)?, reasons: AtomicU32::new(0), sleeping: AtomicU32::new(AWAKE) })
    }

    /// The ring, for reading.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Puts a sample into the ring and wakes the drain thread if that is due. From any thread, inside handlers too;
    /// may change errno.
    pub fn submit(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let outcome = self.ring.push(sample);
        // Rule 1: commit before looking whether somebody sleeps.
        fence(Ordering::SeqCst);
        let wake = match self.sleeping.load(Ordering::Relaxed) {
            AWAKE => false,
            UNTIL_FIRST => true,
            _ => self.is_quarter_full(),
        };
        if wake {
            self.set(SAMPLES);
        }
        outcome
    }

    /// Has the room of the next entry brought near, before it is written.
    pub(crate) fn prefetch_next_entry(&self) {
        self.ring.prefetch_next_entry();
    }

    /// Asks the drain thread to come back from its wait. From any thread, inside handlers too; may change errno.
    pub fn wake(&self) {
        self.set(REQUESTED);
    }

    /// Says that a scan of the process's threads is due. As [`Inbox::wake`].
    pub fn scan_due(&self) {
        self.set(SCAN_DUE);
    }

    /// Waits for something to do; `timeout_ns` as in rule 2. One waiting thread at a time.
    pub fn wait(&self, timeout_ns: Option<u64>) -> WakeReason {
        loop {
            if let Some(reason) = self.take_reason() {
                return reason;
            }
            let depth = if timeout_ns.is_some() { UNTIL_QUARTER } else { UNTIL_FIRST };
            self.sleeping.store(depth, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // An entry that is reserved and not committed is no reason to come back: its commit will ring.
            let enough = timeout_ns.is_none() || self.is_quarter_full();
            if enough && self.ring.has_committed() {
                self.sleeping.store(AWAKE, Ordering::Relaxed);
                return self.take_reason().unwrap_or(WakeReason::Samples);
            }
            let timed_out = futex::wait(&self.reasons, 0, timeout_ns);
            self.sleeping.store(AWAKE, Ordering::Relaxed);
            if timed_out {
                return self.take_reason().unwrap_or(WakeReason::TimedOut);
            }
        }
    }

    /// Forgets samples, sleeper and reasons of the parent, in a forked child, before anybody uses the inbox there.
    pub fn reset_after_fork(&self) {
        self.ring.reset_after_fork();
        self.reasons.store(0, Ordering::Relaxed);
        self.sleeping.store(AWAKE, Ordering::Relaxed);
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
        let set = self.reasons.load(Ordering::Acquire);
        let (bit, reason) = match set {
            _ if set & REQUESTED != 0 => (REQUESTED, WakeReason::Requested),
            _ if set & SCAN_DUE != 0 => (SCAN_DUE, WakeReason::ScanDue),
            _ if set & SAMPLES != 0 => (SAMPLES, WakeReason::Samples),
            _ => return None,
        };
        self.reasons.fetch_and(!bit, Ordering::AcqRel);
        Some(reason)
    }
}
