//! The handler's state of one thread: its clock, the CPU time that samples already account for, and whether a handler
//! is active in it. Fixed size, in memory that is never freed. Normal threads open and close slots (`spanprof_os`), one at a
//! time.
//!
//! # Rules
//! 1. `FREE → LIVE → CLOSING → FREE`, moved by normal threads only, one at a time.
//! 2. The handler sets `in_handler`, then loads state and generation; the closing thread stores the state, then loads
//!    `in_handler`. Both sides have a full fence between the two steps, so at least one of them sees the other's
//!    store. A closing slot without an active handler is quiescent and stays so: its descriptor may be closed and the
//!    slot reused.
//! 3. Each opening has a new generation. A signal carries the generation it was armed for; a late signal changes no
//!    data. At worst it sets the flag while the new owner's signal arrives. That signal then counts as nested, and
//!    the scan arms its clock again.
//! 4. Writers of the accounting words: the opening thread before the slot is live, then the owner's handler, and the
//!    scan while the owner blocks the signal.

use crate::atomics::{fence, AtomicU32, AtomicU64, Ordering};
use crate::signals::mapped_stack::MappedStack;

const FREE: u32 = 0;
const LIVE: u32 = 1;
const CLOSING: u32 = 2;

/// The kind of clock that ticks for a slot, and its kernel handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticker {
    /// No clock.
    None,
    /// A POSIX timer, by the kernel's id.
    Timer(u32),
    /// A perf event, by its descriptor.
    Perf(u32),
}

impl Ticker {
    const fn to_word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Timer(id) => 1 << 32 | id as u64,
            Self::Perf(descriptor) => 2 << 32 | descriptor as u64,
        }
    }

    const fn from_word(word: u64) -> Self {
        match word >> 32 {
            1 => Self::Timer(word as u32),
            2 => Self::Perf(word as u32),
            _ => Self::None,
        }
    }
}

/// Initial accounting of a newly opened slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotInit {
    /// Kernel thread id.
    pub thread_id: u32,
    /// CPU time of the thread that needs no sample: 0 for a thread that was created during the run.
    pub accounted_cpu_ns: u64,
    /// Whether the next sample is the first of its thread.
    pub first_of_thread: bool,
    /// Seed of the random intervals.
    pub seed: u64,
}

/// Outcome of entering a slot in a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnterOutcome {
    /// The slot belongs to this handler until `leave`.
    Entered,
    /// Another handler is active on the same thread.
    Nested,
    /// The slot is closed, or was opened again for another thread.
    Stale,
}

/// The state of one thread. All-zero memory is a free slot.
#[repr(C, align(256))]
pub struct Slot {
    state: AtomicU32,
    generation: AtomicU32,
    in_handler: AtomicU32,
    thread_id: AtomicU32,
    ticker: AtomicU64,
    accounted_cpu_ns: AtomicU64,
    due_cpu_ns: AtomicU64,
    schedule_cpu_ns: AtomicU64,
    random: AtomicU64,
    lost_cpu_ns: AtomicU64,
    lost_periods: AtomicU64,
    first_of_thread: AtomicU32,
    signal_blocked: AtomicU32,
    /// Free-running clocks only: the current interval, and its remaining uses before the next one is drawn.
    interval_ns: AtomicU64,
    repeats: AtomicU32,
    free_running: AtomicU32,
    /// The last reading of the thread's CPU clock, and its time on the monotonic clock.
    last_read_cpu_ns: AtomicU64,
    last_read_at_ns: AtomicU64,
    /// Ticks with estimated CPU time since that reading, and their maximum before the next reading.
    estimated_ticks: AtomicU32,
    estimate_budget: AtomicU32,
    /// Address of the perf event's ring buffer; 0 without one.
    event_buffer: AtomicU64,
    /// Overflows that the perf event was allowed since it was opened; the kernel disables it after them.
    allowed_overflows: AtomicU64,
    /// Overflows of the perf event before the last tick.
    handled_overflows: AtomicU64,
    /// CPU time in the handler of the last tick, which the next tick's weight contains. Owner only.
    pub(crate) last_handler_ns: AtomicU64,
    /// The part of the thread's stack that ticks found mapped. Owner only.
    pub(crate) mapped_stack: MappedStack,
    /// Kernel id of the perf event; not read by ticks.
    event_id: AtomicU64,
}

/// Tolerance of an estimated CPU time: the interval divided by this.
const TOLERANCE_DIVISOR: u64 = 16;
/// Maximum number of consecutive ticks with estimated CPU time.
const MAX_ESTIMATED_TICKS: u32 = 15;
/// Samples of a free-running perf event are ahead of their thread's CPU clock by fewer periods than this. The lead is
/// the time that a hypervisor steals during the estimated ticks, each of which lasts 1.5 periods at most.
pub const MAX_PERIODS_AHEAD: u64 = (MAX_ESTIMATED_TICKS as u64 + 1) * 3 / 2;

/// Maximum lag, in periods, that the schedule catches up.
const MAX_CATCH_UP_PERIODS: u64 = 4;

/// Generation bits that fit below a slot's address.
pub const GENERATION_MASK: u32 = 255;

impl Slot {
    /// A free slot. The process's slot table is zeroed memory instead.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            generation: AtomicU32::new(0),
            in_handler: AtomicU32::new(0),
            thread_id: AtomicU32::new(0),
            ticker: AtomicU64::new(0),
            accounted_cpu_ns: AtomicU64::new(0),
            due_cpu_ns: AtomicU64::new(0),
            schedule_cpu_ns: AtomicU64::new(0),
            random: AtomicU64::new(0),
            lost_cpu_ns: AtomicU64::new(0),
            lost_periods: AtomicU64::new(0),
            first_of_thread: AtomicU32::new(0),
            signal_blocked: AtomicU32::new(0),
            interval_ns: AtomicU64::new(0),
            repeats: AtomicU32::new(0),
            free_running: AtomicU32::new(0),
            last_read_cpu_ns: AtomicU64::new(0),
            last_read_at_ns: AtomicU64::new(0),
            estimated_ticks: AtomicU32::new(0),
            estimate_budget: AtomicU32::new(0),
            event_buffer: AtomicU64::new(0),
            allowed_overflows: AtomicU64::new(0),
            handled_overflows: AtomicU64::new(0),
            last_handler_ns: AtomicU64::new(0),
            mapped_stack: MappedStack::new(),
            event_id: AtomicU64::new(0),
        }
    }

    /// Whether the slot is unused.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Whether the slot has an open clock.
    pub fn is_live(&self) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
    }

    /// Opens a free slot; returns the generation for the signal's value. The clock is armed afterwards.
    pub fn open(&self, init: &SlotInit) -> u32 {
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1) & GENERATION_MASK;
        self.thread_id.store(init.thread_id, Ordering::Relaxed);
        self.ticker.store(0, Ordering::Relaxed);
        self.accounted_cpu_ns.store(init.accounted_cpu_ns, Ordering::Relaxed);
        self.due_cpu_ns.store(0, Ordering::Relaxed);
        self.schedule_cpu_ns.store(0, Ordering::Relaxed);
        self.random.store(init.seed | 1, Ordering::Relaxed);
        self.lost_cpu_ns.store(0, Ordering::Relaxed);
        self.lost_periods.store(0, Ordering::Relaxed);
        self.first_of_thread.store(init.first_of_thread as u32, Ordering::Relaxed);
        self.signal_blocked.store(0, Ordering::Relaxed);
        self.repeats.store(0, Ordering::Relaxed);
        self.free_running.store(0, Ordering::Relaxed);
        self.estimate_budget.store(0, Ordering::Relaxed);
        self.last_handler_ns.store(0, Ordering::Relaxed);
        self.mapped_stack.clear();
        self.generation.store(generation, Ordering::Relaxed);
        self.state.store(LIVE, Ordering::Release);
        generation
    }

    /// Forbids further entries.
    pub fn close(&self) {
        self.state.store(CLOSING, Ordering::Release);
    }

    /// Frees a closing slot that is quiescent.
    pub fn free(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    /// Whether no handler is active in the slot. Contains the fence of rule 2: close first, then call this. A closing
    /// slot stays quiescent: a late handler may set the flag, finds the slot closed, and leaves.
    pub fn is_quiescent(&self) -> bool {
        fence(Ordering::SeqCst);
        self.in_handler.load(Ordering::Acquire) == 0
    }

    /// Frees the slot in a forked child, while no other thread exists.
    pub fn reset_after_fork(&self) {
        self.state.store(FREE, Ordering::Relaxed);
        self.in_handler.store(0, Ordering::Relaxed);
    }

    /// Enters the slot in the handler (rule 2). The caller calls `leave` after `Entered`, and only then.
    pub fn enter(&self, generation: u32) -> EnterOutcome {
        let is_current =
            || self.state.load(Ordering::Acquire) == LIVE && self.generation.load(Ordering::Relaxed) == generation;
        if !is_current() {
            return EnterOutcome::Stale;
        }
        if self.in_handler.swap(1, Ordering::Acquire) != 0 {
            return EnterOutcome::Nested;
        }
        fence(Ordering::SeqCst);
        if !is_current() {
            self.leave();
            return EnterOutcome::Stale;
        }
        EnterOutcome::Entered
    }

    /// Leaves the slot in the handler.
    pub fn leave(&self) {
        self.in_handler.store(0, Ordering::Release);
    }

    /// Kernel thread id of the owner.
    pub fn thread_id(&self) -> u32 {
        self.thread_id.load(Ordering::Relaxed)
    }

    /// Whether a handler of this thread is active in the slot.
    pub(crate) fn is_entered_by(&self, thread_id: u32) -> bool {
        self.in_handler.load(Ordering::Relaxed) != 0 && self.thread_id.load(Ordering::Relaxed) == thread_id
    }

    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The clock.
    pub fn ticker(&self) -> Ticker {
        Ticker::from_word(self.ticker.load(Ordering::Acquire))
    }

    /// The kernel's id of the perf event; it detects a descriptor that the host closed and reused.
    pub fn event_id(&self) -> u64 {
        self.event_id.load(Ordering::Relaxed)
    }

    /// Address of the perf event's ring buffer, mapped until the slot is free; 0 without one.
    pub fn event_buffer(&self) -> usize {
        self.event_buffer.load(Ordering::Relaxed) as usize
    }

    /// Stores the clock, and the id and ring buffer of a perf event, before the clock is first armed.
    pub fn set_ticker(&self, ticker: Ticker, event_id: u64, event_buffer: usize) {
        self.event_id.store(event_id, Ordering::Relaxed);
        self.event_buffer.store(event_buffer as u64, Ordering::Relaxed);
        self.allowed_overflows.store(0, Ordering::Relaxed);
        self.handled_overflows.store(0, Ordering::Relaxed);
        self.ticker.store(ticker.to_word(), Ordering::Release);
    }

    /// Overflows that the perf event was allowed since it was opened.
    pub(crate) fn allowed_overflows(&self) -> u64 {
        self.allowed_overflows.load(Ordering::Relaxed)
    }

    /// Counts overflows that the perf event is about to be allowed. Opening thread or owner only.
    pub(crate) fn add_allowed_overflows(&self, overflows: u64) {
        self.allowed_overflows.store(self.allowed_overflows() + overflows, Ordering::Relaxed);
    }

    /// Overflows of the perf event before the last tick.
    pub(crate) fn handled_overflows(&self) -> u64 {
        self.handled_overflows.load(Ordering::Relaxed)
    }

    /// Stores the overflows before this tick; returns those before the last one. Owner only.
    pub(crate) fn set_handled_overflows(&self, overflows: u64) -> u64 {
        self.handled_overflows.swap(overflows, Ordering::Relaxed)
    }

    /// CPU time of the thread that samples already account for.
    pub fn accounted_cpu_ns(&self) -> u64 {
        self.accounted_cpu_ns.load(Ordering::Relaxed)
    }

    /// CPU time of the thread at which the next sample is due; the clock is armed for it.
    pub fn due_cpu_ns(&self) -> u64 {
        self.due_cpu_ns.load(Ordering::Relaxed)
    }

    /// CPU time of samples that found the ring full and that no entry has reported yet.
    pub fn lost_cpu_ns(&self) -> u64 {
        self.lost_cpu_ns.load(Ordering::Relaxed)
    }

    /// Records that the owner ran with the clock's signal blocked.
    pub(crate) fn mark_signal_blocked(&self) {
        self.signal_blocked.store(1, Ordering::Relaxed);
    }

    /// Draws the next interval: uniform in [0.5, 1.5] periods.
    pub fn draw_interval_ns(&self, period_ns: u64) -> u64 {
        period_ns / 2 + self.draw(period_ns)
    }

    /// Uniform in [0, limit], by xorshift64*. Owner or opening thread only.
    fn draw(&self, limit: u64) -> u64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.store(x, Ordering::Relaxed);
        let uniform = x.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((uniform as u128 * (limit as u128 + 1)) >> 64) as u64
    }

    /// Advances the schedule by one sample, taken at `cpu_ns`. Returns the periods that the sample represents, at
    /// least one.
    ///
    /// Intervals are added to the schedule, not to the time of the tick. So the mean rate is the configured one where
    /// the kernel keeps up. If two samples fall due before one tick, the schedule lags and the next sample is due
    /// early. Without this, an eighth of the ticks would be unused at a rate equal to the kernel tick. This sample
    /// represents the periods beyond the maximum lag.
    pub(crate) fn advance(&self, cpu_ns: u64, period_ns: u64) -> u64 {
        const STEPS: u64 = 64;
        let mut schedule = self.schedule_cpu_ns.load(Ordering::Relaxed).min(cpu_ns);
        let oldest = cpu_ns.saturating_sub(MAX_CATCH_UP_PERIODS * period_ns);
        let mut periods = 0;
        loop {
            schedule += self.draw_interval_ns(period_ns);
            periods += 1;
            if schedule >= oldest {
                break;
            }
            if periods >= STEPS {
                periods += (oldest - schedule).checked_div(period_ns).unwrap_or(0);
                schedule = oldest;
                break;
            }
        }
        self.schedule_cpu_ns.store(schedule, Ordering::Relaxed);
        // At least the shortest interval ahead: a clock set into the past would tick at once, on the same stack.
        self.due_cpu_ns.store(schedule.max(cpu_ns + (period_ns / 2).max(1)), Ordering::Relaxed);
        periods
    }

    /// As [`Slot::advance`], for a free-running clock: a drawn interval is used for `batch` ticks, which together
    /// catch up the lag of the schedule.
    pub(crate) fn advance_batch(&self, cpu_ns: u64, period_ns: u64, batch: u32) -> u64 {
        let late_ns = cpu_ns.saturating_sub(self.due_cpu_ns.load(Ordering::Relaxed));
        let repeats = self.repeats.load(Ordering::Relaxed);
        if repeats > 0 {
            self.repeats.store(repeats - 1, Ordering::Relaxed);
        } else {
            let batch = u64::from(batch.max(1));
            let lag_ns = cpu_ns
                .saturating_sub(self.schedule_cpu_ns.load(Ordering::Relaxed))
                .min(MAX_CATCH_UP_PERIODS * period_ns);
            let drawn_ns = self.draw_interval_ns(period_ns).saturating_sub(lag_ns / batch);
            let interval_ns = drawn_ns.max(period_ns / 2).max(1);
            self.interval_ns.store(interval_ns, Ordering::Relaxed);
            self.schedule_cpu_ns.store(cpu_ns + batch * interval_ns, Ordering::Relaxed);
            self.repeats.store((batch - 1) as u32, Ordering::Relaxed);
        }
        self.due_cpu_ns.store(cpu_ns + self.interval_ns(), Ordering::Relaxed);
        1 + late_ns / period_ns.max(1)
    }

    /// Estimates the thread's CPU time at a tick of its free-running perf event, at `at_ns` of the monotonic clock.
    /// Returns `None` where the CPU clock must be read.
    ///
    /// The estimate is the last reading plus the elapsed monotonic time. It is valid if that time agrees with the sum
    /// of the intervals within an interval / [`TOLERANCE_DIVISOR`]: the thread then hardly left the processor. A
    /// hypervisor that steals the processor stops only the CPU clock. So the number of allowed estimates grows only
    /// while readings agree: it doubles each time, up to [`MAX_ESTIMATED_TICKS`].
    pub(crate) fn estimate_cpu_ns(&self, at_ns: u64) -> Option<u64> {
        let interval_ns = self.interval_ns();
        let estimated_ticks = self.estimated_ticks.load(Ordering::Relaxed);
        let ends_batch = self.repeats.load(Ordering::Relaxed) == 0;
        let is_perf = matches!(self.ticker(), Ticker::Perf(_));
        if !is_perf
            || !self.is_free_running()
            || ends_batch
            || estimated_ticks >= self.estimate_budget.load(Ordering::Relaxed)
        {
            return None;
        }
        let expected_ns = (u64::from(estimated_ticks) + 1) * interval_ns;
        let elapsed_ns = at_ns.saturating_sub(self.last_read_at_ns.load(Ordering::Relaxed));
        if elapsed_ns.abs_diff(expected_ns) > interval_ns / TOLERANCE_DIVISOR {
            return None;
        }
        self.estimated_ticks.store(estimated_ticks + 1, Ordering::Relaxed);
        Some(self.last_read_cpu_ns.load(Ordering::Relaxed) + elapsed_ns)
    }

    /// Stores a reading of the thread's CPU clock, taken at `at_ns` of the monotonic clock.
    pub(crate) fn record_cpu_reading(&self, cpu_ns: u64, at_ns: u64) {
        let cpu_elapsed_ns = cpu_ns.saturating_sub(self.last_read_cpu_ns.swap(cpu_ns, Ordering::Relaxed));
        let elapsed_ns = at_ns.saturating_sub(self.last_read_at_ns.swap(at_ns, Ordering::Relaxed));
        let interval_ns = self.interval_ns();
        let expected_ns = (u64::from(self.estimated_ticks.load(Ordering::Relaxed)) + 1) * interval_ns;
        let tolerance_ns = interval_ns / TOLERANCE_DIVISOR;
        // A tick with a late handler is no valid start for counting intervals.
        let agree =
            elapsed_ns.abs_diff(cpu_elapsed_ns) <= tolerance_ns && cpu_elapsed_ns.abs_diff(expected_ns) <= tolerance_ns;
        let estimate_budget = if agree { 2 * self.estimate_budget.load(Ordering::Relaxed) + 1 } else { 0 };
        self.estimate_budget.store(estimate_budget.min(MAX_ESTIMATED_TICKS), Ordering::Relaxed);
        self.estimated_ticks.store(0, Ordering::Relaxed);
    }

    /// Whether the current interval was just drawn and is not yet set in the clock.
    pub(crate) fn begins_batch(&self, batch: u32) -> bool {
        self.repeats.load(Ordering::Relaxed) == batch.max(1) - 1
    }

    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ns.load(Ordering::Relaxed)
    }

    /// Whether the clock continues after a tick without being armed.
    pub(crate) fn is_free_running(&self) -> bool {
        self.free_running.load(Ordering::Relaxed) != 0
    }

    /// Stores whether the clock runs free or is armed for each tick.
    pub(crate) fn set_free_running(&self, free_running: bool) {
        let was_free_running = self.free_running.swap(free_running as u32, Ordering::Relaxed) != 0;
        if was_free_running && !free_running {
            self.repeats.store(0, Ordering::Relaxed);
            // The schedule was already advanced to the end of the batch.
            self.schedule_cpu_ns.store(self.due_cpu_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Begins the schedule with a random phase, uniform in (0, period]. The phase starts at the thread's birth if the
    /// first sample is then still ahead, else at `cpu_ns`. Short-lived threads are thus sampled in proportion to their
    /// CPU time. Returns the CPU time of the first sample. Opening thread only.
    pub fn begin_schedule(&self, cpu_ns: u64, period_ns: u64, from_birth: bool) -> u64 {
        let phase = || 1 + self.draw(period_ns.saturating_sub(1));
        let first = phase();
        let due = if from_birth && first > cpu_ns { first } else { cpu_ns + phase() };
        self.schedule_cpu_ns.store(due, Ordering::Relaxed);
        self.due_cpu_ns.store(due, Ordering::Relaxed);
        due
    }

    pub(crate) fn account(&self, cpu_ns: u64) -> u64 {
        // One atomic step, since the scan may account for a thread that blocks the signal: no time is counted twice.
        cpu_ns.saturating_sub(self.accounted_cpu_ns.fetch_max(cpu_ns, Ordering::Relaxed))
    }

    pub(crate) fn is_first_of_thread(&self) -> bool {
        self.first_of_thread.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn take_first_of_thread(&self) -> bool {
        let first = self.is_first_of_thread();
        self.first_of_thread.store(0, Ordering::Relaxed);
        first
    }

    pub(crate) fn take_signal_blocked(&self) -> bool {
        let blocked = self.signal_blocked.load(Ordering::Relaxed) != 0;
        if blocked {
            self.signal_blocked.store(0, Ordering::Relaxed);
        }
        blocked
    }

    pub(crate) fn lost(&self) -> [u64; 2] {
        [self.lost_cpu_ns.load(Ordering::Relaxed), self.lost_periods.load(Ordering::Relaxed)]
    }

    pub(crate) fn set_lost(&self, [cpu_ns, periods]: [u64; 2]) {
        self.lost_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.lost_periods.store(periods, Ordering::Relaxed);
    }
}
