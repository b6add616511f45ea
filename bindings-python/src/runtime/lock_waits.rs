//! Waits for locks as samples: the stack, labels and span of the waiting thread, how long it waited and how often. A wait of at
//! least the threshold is always recorded, a shorter one is sampled ([`sample_event`]).
//!
//! The waiter walks its own stack before it blocks. The sample is submitted after the waiter has released the lock: work done
//! while the lock is held would create contention. Until then the lock object keeps the wait. The lock types are in `ffi`;
//! the waits of semaphores and of asyncio are timed by the package (`locks.py`).

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof::binding::{ffi_guard, sample_event};
use spanprof::runtime::ReportedEvents;
use spanprof::{sys, Profiler};
use spanprof_signal::{Context, RawFrame, RawSample, RawStack, SampleFlags, SampleKind};

use super::capture_signal::walk_calling_thread_or_reason;

/// The threshold while no waits are reported.
const OFF: u64 = u64::MAX;
/// Waits of at least so many nanoseconds are always recorded.
static THRESHOLD_NS: AtomicU64 = AtomicU64::new(OFF);

/// Reports waits from now on, or no longer. Any thread.
pub fn set_reported(events: ReportedEvents) {
    THRESHOLD_NS.store(if events.lock { events.lock_threshold_ns.min(OFF - 1) } else { OFF }, Ordering::Relaxed);
}

/// Whether waits are reported now.
#[inline]
pub fn is_reported() -> bool {
    THRESHOLD_NS.load(Ordering::Relaxed) != OFF
}

/// A wait, from its begin until its sample is submitted.
pub struct LockWait {
    /// The next wait that the same lock keeps.
    next: Option<Box<LockWait>>,
    started_ns: u64,
    ended_ns: u64,
    /// As in the sample: nanoseconds, contentions.
    values: [u64; 2],
    thread_id: u32,
    fork_generation: u32,
    flags: SampleFlags,
    context: Context,
    frames: Vec<RawFrame>,
}

impl LockWait {
    /// Begins a wait of the calling thread and walks its stack. Leaves out the innermost `skipped` frames. `None` while waits
    /// are not reported.
    #[cold]
    pub fn begin(skipped: usize) -> Option<Box<Self>> {
        if !is_reported() {
            return None;
        }
        ffi_guard(None, || {
            let started_ns = sys::monotonic_ns();
            let depth = Profiler::running()?.config().max_stack_depth as usize;
            let mut frames = vec![RawFrame::default(); depth + skipped];
            let mut stack = RawStack::new(&mut frames);
            let flags = walk_calling_thread_or_reason(&mut stack);
            let (context, walked) = (stack.context, stack.frames().len());
            frames.truncate(walked);
            frames.drain(..skipped.min(walked.saturating_sub(1)));
            frames.shrink_to_fit();
            Some(Box::new(Self {
                next: None,
                started_ns,
                ended_ns: 0,
                values: [0; 2],
                thread_id: sys::thread_id(),
                fork_generation: sys::fork_generation(),
                flags,
                context,
                frames,
            }))
        })
    }

    /// Ends the wait; `None` if it is not recorded.
    pub fn end(mut self: Box<Self>, ended_ns: u64) -> Option<Box<Self>> {
        ffi_guard(None, || {
            let threshold_ns =
                Some(THRESHOLD_NS.load(Ordering::Relaxed)).filter(|threshold_ns| *threshold_ns != OFF)?;
            let event = sample_event(ended_ns.saturating_sub(self.started_ns), threshold_ns)?;
            self.ended_ns = ended_ns;
            self.values = [event.duration_ns, event.events];
            Some(self)
        })
    }
}

/// Waits of one lock that are recorded after its release. Empty in zeroed memory.
#[derive(Default)]
#[repr(transparent)]
pub struct PendingWaits(Option<Box<LockWait>>);

impl PendingWaits {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn push(&mut self, mut wait: Box<LockWait>) {
        wait.next = self.0.take();
        self.0 = Some(wait);
    }

    /// Drops the waits that began within `outer`: they are part of it.
    pub fn drop_within(&mut self, outer: &LockWait) {
        while let Some(mut wait) = self.0.take() {
            if wait.thread_id != outer.thread_id || wait.started_ns < outer.started_ns {
                self.0 = Some(wait);
                return;
            }
            self.0 = wait.next.take();
        }
    }

    /// Submits the waits as samples of the lock at `address`. A loss is counted by the core.
    #[cold]
    pub fn submit(self, address: u64) {
        ffi_guard((), || {
            let (mut next, generation) = (self.0, sys::fork_generation());
            let Some(profiler) = Profiler::running() else { return };
            while let Some(mut wait) = next {
                next = wait.next.take();
                // A wait before the fork belongs to the parent, which also has it.
                if wait.fork_generation != generation || !is_reported() {
                    continue;
                }
                let _ = profiler.submit(&RawSample {
                    kind: SampleKind::Lock,
                    flags: wait.flags,
                    thread_id: wait.thread_id,
                    time_ns: wait.ended_ns,
                    values: wait.values,
                    key: address,
                    context: wait.context,
                    frames: &wait.frames,
                });
            }
        });
    }
}
