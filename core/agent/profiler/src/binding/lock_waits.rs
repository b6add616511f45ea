//! Waits for locks as samples: the stack, labels and span of the waiting thread, how long it waited and how often. A wait of at
//! least the threshold is always recorded, a shorter one is sampled ([`super::sample_event`]).
//!
//! The waiter walks its own stack before it blocks. The sample is submitted after the waiter has released the lock: work done
//! while the lock is held would create contention. Until then the owner keeps the wait ([`PendingWaits`]). The random
//! number of the sampling is drawn before the wait, so that a waiter that spins can leave out the walk of a wait that is not
//! recorded ([`WaitStart::is_recorded`]).
//!
//! While many waits are recorded, the threshold rises ([`LOCK_THRESHOLD`]), with the same unbiased totals.

use std::time::Duration;

use spanprof_signal::{Context, RawFrame, RawSample, RawStack, SampleFlags, SampleKind};

use super::event_sampling::{select_event, SampledEvent};
use super::ffi_guard;
use crate::lifecycle::ProfilerHandle;
use spanprof_aggregate::runtime::ReportedEvents;
use spanprof_aggregate::sample_rate::{AWAIT_THRESHOLD, LOCK_THRESHOLD};
use spanprof_os::random;

/// Reports waits from now on, or no longer. Any thread.
pub fn set_lock_waits_reported(events: ReportedEvents) {
    LOCK_THRESHOLD.set(events.lock.then_some(events.lock_threshold_ns), events.lock_rate_limit);
    AWAIT_THRESHOLD.set(events.off_cpu.then_some(AWAIT_NS), true);
}

/// Whether waits of futures are reported now.
pub fn awaits_are_reported() -> bool {
    AWAIT_THRESHOLD.get().is_some()
}

/// Submits a recorded wait. A loss is counted.
pub fn submit_lock_wait(profiler: &ProfilerHandle, wait: &RawSample<'_>) {
    let _ = profiler.submit(wait);
    LOCK_THRESHOLD.count(wait.time_ns);
}

/// Whether waits are reported now.
#[inline]
pub fn lock_waits_are_reported() -> bool {
    LOCK_THRESHOLD.get().is_some()
}

/// Waits of futures of at least this are all recorded, nanoseconds.
const AWAIT_NS: u64 = 10_000_000;

/// The begin of a wait, and the decision from which duration on it is recorded.
#[derive(Clone, Copy, Debug)]
pub struct WaitStart {
    started_ns: u64,
    threshold_ns: u64,
    random: u64,
}

impl WaitStart {
    /// The calling thread begins to wait. `None` while waits are not reported.
    pub fn now() -> Option<Self> {
        Some(Self::with_threshold(LOCK_THRESHOLD.get()?))
    }

    /// As [`WaitStart::now`], of a future.
    pub fn of_await() -> Option<Self> {
        Some(Self::with_threshold(AWAIT_THRESHOLD.get()?))
    }

    fn with_threshold(threshold_ns: u64) -> Self {
        Self { started_ns: spanprof_os::monotonic_ns(), threshold_ns, random: random::number() }
    }

    /// Whether the wait is recorded if it ends now. It stays true.
    pub fn is_recorded(&self) -> bool {
        self.event(spanprof_os::monotonic_ns()).is_some()
    }

    /// The duration of a wait that ends at this time, nanoseconds.
    pub fn waited_ns(&self, ended_ns: u64) -> u64 {
        ended_ns.saturating_sub(self.started_ns)
    }

    /// The waits for which the one that ends at this time is recorded.
    pub fn event(&self, ended_ns: u64) -> Option<SampledEvent> {
        select_event(self.waited_ns(ended_ns), self.threshold_ns, self.random)
    }
}

/// A wait, from its begin until its sample is submitted.
pub struct LockWait {
    /// The next wait of the same owner.
    next: Option<Box<LockWait>>,
    start: WaitStart,
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
    /// Begins a wait of the calling thread; `walk` writes its stack. Leaves out the innermost `skipped` frames. `None` while
    /// waits are not reported.
    #[cold]
    pub fn begin(skipped: usize, walk: impl FnOnce(&mut RawStack<'_>) -> SampleFlags) -> Option<Box<Self>> {
        Self::begin_at(WaitStart::now()?, skipped, walk)
    }

    /// As [`LockWait::begin`], for a wait that began before.
    #[cold]
    pub fn begin_at(
        start: WaitStart,
        skipped: usize,
        walk: impl FnOnce(&mut RawStack<'_>) -> SampleFlags,
    ) -> Option<Box<Self>> {
        ffi_guard(None, || {
            let depth = ProfilerHandle::running()?.max_stack_depth();
            let mut frames = vec![RawFrame::default(); depth + skipped];
            let mut stack = RawStack::new(&mut frames);
            let mut flags = walk(&mut stack);
            if stack.is_truncated() {
                flags.0 |= SampleFlags::TRUNCATED;
            }
            let (context, walked) = (stack.context, stack.frames().len());
            frames.truncate(walked);
            frames.drain(..skipped.min(walked.saturating_sub(1)));
            frames.shrink_to_fit();
            Some(Box::new(Self {
                next: None,
                start,
                ended_ns: 0,
                values: [0; 2],
                thread_id: spanprof_os::thread_id(),
                fork_generation: spanprof_signal::fork_generation(),
                flags,
                context,
                frames,
            }))
        })
    }

    /// Submits the wait of a future, which ends now, if it is recorded.
    pub fn submit_await(&self) {
        ffi_guard((), || {
            let ended_ns = spanprof_os::monotonic_ns();
            let Some(event) = self.start.event(ended_ns).filter(|_| awaits_are_reported()) else { return };
            let Context::Id(context) = self.context else { return };
            if self.fork_generation != spanprof_signal::fork_generation() {
                return;
            }
            super::submit_awaiting(context, &self.frames, Duration::from_nanos(event.duration_ns));
            AWAIT_THRESHOLD.count(ended_ns);
        });
    }

    /// The same code waits again, from now on.
    pub fn restart(&mut self, start: WaitStart) {
        self.start = start;
    }

    /// Ends the wait; `None` if it is not recorded.
    pub fn end(mut self: Box<Self>, ended_ns: u64) -> Option<Box<Self>> {
        let event = self.start.event(ended_ns).filter(|_| lock_waits_are_reported())?;
        self.ended_ns = ended_ns;
        self.values = [event.duration_ns, event.events];
        Some(self)
    }
}

/// Waits that are recorded after the release of a lock. Empty in zeroed memory.
#[derive(Default)]
#[repr(transparent)]
pub struct PendingWaits(Option<Box<LockWait>>);

impl PendingWaits {
    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds an ended wait.
    pub fn push(&mut self, mut wait: Box<LockWait>) {
        wait.next = self.0.take();
        self.0 = Some(wait);
    }

    /// Drops the waits that began within `outer`: they are part of it.
    pub fn drop_within(&mut self, outer: &LockWait) {
        while let Some(mut wait) = self.0.take() {
            if wait.thread_id != outer.thread_id || wait.start.started_ns < outer.start.started_ns {
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
            let (mut next, generation) = (self.0, spanprof_signal::fork_generation());
            let Some(profiler) = ProfilerHandle::running() else { return };
            while let Some(mut wait) = next {
                next = wait.next.take();
                // A wait before the fork belongs to the parent, which also has it.
                if wait.fork_generation != generation || !lock_waits_are_reported() {
                    continue;
                }
                let sample = RawSample {
                    kind: SampleKind::Lock,
                    flags: wait.flags,
                    thread_id: wait.thread_id,
                    time_ns: wait.ended_ns,
                    values: wait.values,
                    key: address,
                    context: wait.context,
                    frames: &wait.frames,
                };
                submit_lock_wait(&profiler, &sample);
            }
        });
    }
}
