//! Stacks of a JavaScript thread in the current turn of its event loop, both running and waiting. The thread's own handlers
//! write them; the same thread reads and clears them outside handlers. Reservoir sampling selects the stacks that are kept.

use std::cell::UnsafeCell;
use std::sync::atomic::{compiler_fence, AtomicBool, AtomicU32, AtomicU64, Ordering};

use spanprof_signal::{Context, RawFrame};

use super::ring_position::RingPosition;

/// Stacks kept per turn, running and waiting.
pub const MAX_RUNNING_STACKS: usize = 16;
const MAX_WAITING_STACKS: usize = 4;
/// Frames kept per stack, from the leaf.
const MAX_FRAMES: usize = 128;

/// A captured stack.
pub struct ObservedStack {
    /// Number of captures with this stack.
    pub observations: u32,
    pub context: Context,
    /// Ring position of the capture, at which the frames are resolved.
    pub captured_at: RingPosition,
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
}

impl ObservedStack {
    const NONE: ObservedStack = ObservedStack {
        observations: 0,
        context: Context::None,
        captured_at: RingPosition::NONE,
        frames: [RawFrame { code: 0, at: 0 }; MAX_FRAMES],
        len: 0,
    };

    pub fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }
}

struct Reservoir<const STACKS: usize> {
    seen: u64,
    random: u64,
    /// Index of the stack recorded last, if it is kept.
    last: usize,
    stacks: [ObservedStack; STACKS],
}

const NO_INDEX: usize = usize::MAX;

pub struct TurnStacks<const STACKS: usize> {
    reservoir: UnsafeCell<Reservoir<STACKS>>,
    /// Set while the thread reads the stacks; its handler then records nothing.
    is_read: AtomicBool,
}

// SAFETY: only the owning thread accesses `reservoir`; `is_read` excludes its handler during a read.
unsafe impl<const STACKS: usize> Sync for TurnStacks<STACKS> {}

impl<const STACKS: usize> TurnStacks<STACKS> {
    pub fn new() -> Self {
        let reservoir = Reservoir {
            seen: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            last: NO_INDEX,
            stacks: [const { ObservedStack::NONE }; STACKS],
        };
        Self { reservoir: UnsafeCell::new(reservoir), is_read: AtomicBool::new(false) }
    }

    /// Records a stack.
    ///
    /// # Safety
    /// In the handler of the owning thread, which does not nest.
    pub unsafe fn record(&self, frames: &[RawFrame], context: Context, captured_at: RingPosition) {
        if self.is_read.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: only the owning thread accesses the reservoir; `is_read` is false, and its handler does not nest.
        let reservoir = unsafe { &mut *self.reservoir.get() };
        reservoir.seen += 1;
        reservoir.random ^= reservoir.random << 13;
        reservoir.random ^= reservoir.random >> 7;
        reservoir.random ^= reservoir.random << 17;
        let index = match reservoir.seen as usize {
            seen if seen <= STACKS => seen - 1,
            _ => (reservoir.random % reservoir.seen) as usize,
        };
        reservoir.last = NO_INDEX;
        let Some(stack) = reservoir.stacks.get_mut(index) else { return };
        reservoir.last = index;
        let len = frames.len().min(MAX_FRAMES);
        if let (Some(to), Some(from)) = (stack.frames.get_mut(..len), frames.get(..len)) {
            to.copy_from_slice(from);
        }
        (stack.observations, stack.len, stack.context, stack.captured_at) = (1, len, context, captured_at);
    }

    /// Adds observations to the stack recorded last; without effect after `end_last`.
    ///
    /// # Safety
    /// In the handler of the owning thread, which does not nest.
    pub unsafe fn repeat_last(&self, observations: u32) {
        if self.is_read.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: only the owning thread accesses the reservoir; `is_read` is false, and its handler does not nest.
        let reservoir = unsafe { &mut *self.reservoir.get() };
        if let Some(stack) = reservoir.stacks.get_mut(reservoir.last) {
            stack.observations = stack.observations.saturating_add(observations);
        }
    }

    /// Ends the stack recorded last: the thread is now in a stack that is not recorded.
    ///
    /// # Safety
    /// In the handler of the owning thread, which does not nest.
    pub unsafe fn end_last(&self) {
        if !self.is_read.load(Ordering::Relaxed) {
            // SAFETY: only the owning thread accesses the reservoir; `is_read` is false, and its handler does not nest.
            unsafe { (*self.reservoir.get()).last = NO_INDEX };
        }
    }

    /// Passes the kept stacks to `take`, and clears them.
    ///
    /// # Safety
    /// On the owning thread, outside its handler.
    pub unsafe fn take(&self, take: impl FnOnce(&[ObservedStack])) {
        self.is_read.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the handler of this thread does not write while `is_read`, and no other thread calls this.
        let reservoir = unsafe { &mut *self.reservoir.get() };
        take(reservoir.stacks.get(..(reservoir.seen as usize).min(STACKS)).unwrap_or(&[]));
        (reservoir.seen, reservoir.last) = (0, NO_INDEX);
        compiler_fence(Ordering::SeqCst);
        self.is_read.store(false, Ordering::Relaxed);
    }
}

/// Waits of a thread, as the wall sampler observes them.
pub struct ObservedWaits {
    /// Stacks in which the thread waited in this turn of its event loop.
    stacks: TurnStacks<MAX_WAITING_STACKS>,
    /// Observations since the last walk that found it current. Incremented by the wall sampler, taken by the thread.
    repeats: AtomicU32,
    /// Whether the event loop was waiting for events during the last walk.
    is_idle: AtomicBool,
    /// Monotonic time of the last walk whose signal ended such a wait, until `take_idle_until`; 0 without one.
    idle_until_ns: AtomicU64,
}

/// The activity of a thread during its walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// Its event loop waits for events, or returns from that wait.
    Idle {
        /// Whether the walk's signal ended the wait.
        is_interrupted: bool,
    },
    /// It waits within a turn of its event loop.
    Waiting,
    Running,
}

impl ObservedWaits {
    pub fn new() -> Self {
        Self {
            stacks: TurnStacks::new(),
            repeats: AtomicU32::new(0),
            is_idle: AtomicBool::new(true),
            idle_until_ns: AtomicU64::new(0),
        }
    }

    /// Another thread takes over.
    pub fn reset(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
    }

    /// Whether the event loop was waiting for events during the last walk.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// The last walk is still current. Called by the wall sampler.
    pub fn repeat_last(&self) {
        self.repeats.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a walk.
    ///
    /// # Safety
    /// In the handler of the owning thread, which does not nest.
    pub unsafe fn record(&self, activity: ThreadActivity, frames: &[RawFrame], context: Context) {
        self.is_idle.store(matches!(activity, ThreadActivity::Idle { .. }), Ordering::Relaxed);
        if let ThreadActivity::Idle { is_interrupted: true } = activity {
            self.idle_until_ns.store(spanprof_os::monotonic_ns(), Ordering::Relaxed);
        }
        let repeats = self.repeats.swap(0, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.stacks.repeat_last(repeats);
            match activity {
                ThreadActivity::Waiting => self.stacks.record(frames, context, RingPosition::now()),
                ThreadActivity::Idle { .. } | ThreadActivity::Running => self.stacks.end_last(),
            }
        }
    }

    /// Passes the stacks in which the thread has waited since the last call to `take`, with their numbers of observations.
    ///
    /// # Safety
    /// On the owning thread, outside its handler.
    pub unsafe fn take(&self, take: impl FnOnce(&[ObservedStack])) {
        if self.repeats.load(Ordering::Relaxed) != 0 {
            // SAFETY: on the thread itself; its handler runs before or after this.
            unsafe { self.stacks.repeat_last(self.repeats.swap(0, Ordering::Relaxed)) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.stacks.take(take) };
    }

    /// Monotonic time of the last walk whose signal ended a wait for events, since the last call; 0 without one.
    pub fn take_idle_until(&self) -> u64 {
        self.idle_until_ns.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(turn_stacks: &TurnStacks<MAX_RUNNING_STACKS>, code: u64) {
        // SAFETY: one thread, no handler.
        unsafe { turn_stacks.record(&[RawFrame { code, at: 0 }], Context::Id(code), RingPosition::NONE) };
    }

    fn taken(turn_stacks: &TurnStacks<MAX_RUNNING_STACKS>) -> Vec<u64> {
        let mut codes = Vec::new();
        // SAFETY: one thread, no handler.
        unsafe { turn_stacks.take(|stacks| codes.extend(stacks.iter().map(|stack| stack.frames()[0].code))) };
        codes
    }

    #[test]
    fn stacks_are_taken_once() {
        let turn_stacks = TurnStacks::new();
        (1..4).for_each(|code| record(&turn_stacks, code));
        assert_eq!(taken(&turn_stacks), [1, 2, 3]);
        assert!(taken(&turn_stacks).is_empty());
    }

    #[test]
    fn a_stack_counts_its_observations_until_the_thread_leaves_it() {
        let turn_stacks = TurnStacks::new();
        // SAFETY: one thread, no handler.
        let repeat = |observations| unsafe { turn_stacks.repeat_last(observations) };
        repeat(7);
        record(&turn_stacks, 1);
        repeat(3);
        record(&turn_stacks, 2);
        // SAFETY: one thread, no handler.
        unsafe { turn_stacks.end_last() };
        repeat(5);
        let mut observations = Vec::new();
        // SAFETY: one thread, no handler.
        unsafe { turn_stacks.take(|stacks| observations.extend(stacks.iter().map(|stack| stack.observations))) };
        assert_eq!(observations, [4, 1]);
        repeat(9);
        assert!(taken(&turn_stacks).is_empty());
    }

    #[test]
    fn a_wait_for_events_that_was_over_is_not_idle_time_of_its_own() {
        let waits = ObservedWaits::new();
        for is_interrupted in [true, false] {
            // SAFETY: one thread, no handler.
            unsafe { waits.record(ThreadActivity::Idle { is_interrupted }, &[], Context::None) };
            assert!(waits.is_idle());
            assert_eq!(waits.take_idle_until() != 0, is_interrupted);
        }
    }

    #[test]
    fn the_reservoir_keeps_early_and_late_stacks_alike() {
        let turn_stacks = TurnStacks::new();
        let mut late = 0;
        for _ in 0..100 {
            (0..160).for_each(|code| record(&turn_stacks, code));
            let reservoir = taken(&turn_stacks);
            assert_eq!(reservoir.len(), MAX_RUNNING_STACKS);
            late += reservoir.iter().filter(|code| **code >= 80).count();
        }
        // Half of 1,600, plus or minus eight standard errors.
        assert!((640..=960).contains(&late), "{late}");
    }
}
