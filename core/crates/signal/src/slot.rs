//! What the handler knows of one thread: its clock, how much of its CPU time samples already carry, and whether it is
//! inside the handler now. Fixed size, lives in memory that is never taken back. Opening and closing clocks is done by
//! normal threads (`sys`), one at a time.
//!
//! # Rules
//! 1. `FREE → LIVE → CLOSING → FREE`, moved by normal threads alone, one at a time.
//! 2. The handler raises `in_handler`, then looks at state and generation; who closes sets the state, then looks at
//!    `in_handler`. With a full fence between the steps on both sides one of them sees the other: a slot that is closing
//!    and quiet is in no handler and will be in none, so its descriptor may be closed and its memory used again.
//! 3. Each opening has a new generation. A signal names the generation it was armed for; a late one touches nothing. At
//!    worst it raises the flag while the new owner's signal comes, which then counts as nested; the scan arms its clock
//!    again.
//! 4. The accounting words are written by the handler of the owning thread while the slot is live, by the opener before,
//!    and by the scan while the owner has the signal blocked.

use crate::atomics::{fence, AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
const LIVE: u32 = 1;
const CLOSING: u32 = 2;

/// Which clock ticks for a slot, and the kernel's handle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticker {
    /// Nothing ticks.
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

/// How the accounting of a newly opened slot begins.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Kernel thread id.
    pub thread_id: u32,
    /// CPU time of the thread that needs no sample any more: 0 for one born under our eyes.
    pub accounted_cpu_ns: u64,
    /// Whether the first sample is the first of its thread.
    pub first_of_thread: bool,
    /// Seed of the random intervals.
    pub seed: u64,
}

/// What came of trying to enter a slot from a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The slot is ours until `leave`.
    Entered,
    /// The thread is inside the handler already.
    Nested,
    /// The slot is closed, or open for somebody else.
    Gone,
}

/// See the head of the module. All-zero memory is a free slot.
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
    /// Running clocks alone: the interval in force, and how often it is used again before the next is drawn.
    interval_ns: AtomicU64,
    repeats: AtomicU32,
    runs: AtomicU32,
    /// What the thread's CPU clock said at a moment of the monotonic clock.
    read_cpu_ns: AtomicU64,
    read_at_ns: AtomicU64,
    /// Ticks since then, and how many there may be before the clock is read again.
    unread: AtomicU32,
    trust: AtomicU32,
    /// No tick asks for it.
    event_id: AtomicU64,
    /// Address of the perf event's ring buffer; 0 without one.
    ring: AtomicU64,
}

/// The part of an interval, one in so many, by which the CPU time of a tick may be off where the kernel is not asked for it.
const CLOSE: u64 = 16;
/// The most ticks in a row for which it is not asked.
const LONGEST_TRUST: u32 = 15;
/// Samples of a running perf event are ahead of their thread's clock by less than so many periods: by what a hypervisor takes
/// in the ticks for which the clock is not read, each half as long again as a period at most.
pub const MOST_PERIODS_AHEAD: u64 = (LONGEST_TRUST as u64 + 1) * 3 / 2;

/// Periods that the schedule may be behind, and is made to catch up with.
const MADE_UP: u64 = 4;

/// Bits of a slot's generation that fit below its address.
pub const GENERATION_MASK: u32 = 255;

impl Slot {
    /// A free slot. The table in the process is zeroed memory instead.
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
            runs: AtomicU32::new(0),
            read_cpu_ns: AtomicU64::new(0),
            read_at_ns: AtomicU64::new(0),
            unread: AtomicU32::new(0),
            trust: AtomicU32::new(0),
            event_id: AtomicU64::new(0),
            ring: AtomicU64::new(0),
        }
    }

    /// Whether nobody uses the slot.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Whether a thread's clock ticks here.
    pub fn is_live(&self) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
    }

    /// Whether the slot waits for its last handler to leave.
    pub fn is_closing(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSING
    }

    /// Opens a free slot; gives the generation for the signal's value. The clock is armed afterwards.
    pub fn open(&self, opening: &Opening) -> u32 {
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1) & GENERATION_MASK;
        self.thread_id.store(opening.thread_id, Ordering::Relaxed);
        self.ticker.store(0, Ordering::Relaxed);
        self.accounted_cpu_ns.store(opening.accounted_cpu_ns, Ordering::Relaxed);
        self.due_cpu_ns.store(0, Ordering::Relaxed);
        self.schedule_cpu_ns.store(0, Ordering::Relaxed);
        self.random.store(opening.seed | 1, Ordering::Relaxed);
        self.lost_cpu_ns.store(0, Ordering::Relaxed);
        self.lost_periods.store(0, Ordering::Relaxed);
        self.first_of_thread.store(opening.first_of_thread as u32, Ordering::Relaxed);
        self.signal_blocked.store(0, Ordering::Relaxed);
        self.repeats.store(0, Ordering::Relaxed);
        self.runs.store(0, Ordering::Relaxed);
        self.trust.store(0, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.state.store(LIVE, Ordering::Release);
        generation
    }

    /// Forbids further entries.
    pub fn close(&self) {
        self.state.store(CLOSING, Ordering::Release);
    }

    /// Frees a slot that was closing and quiet.
    pub fn free(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    /// Whether no handler is inside. The fence of rule 2 is here: close first, then ask. Once true of a closing slot it stays so in meaning (rule 2): a late handler may
    /// still raise the flag, find the slot closed, and leave.
    pub fn is_quiet(&self) -> bool {
        fence(Ordering::SeqCst);
        self.in_handler.load(Ordering::Acquire) == 0
    }

    /// Forgets everything, in a forked child's first moments, when no other thread exists.
    pub fn forget(&self) {
        self.state.store(FREE, Ordering::Relaxed);
        self.in_handler.store(0, Ordering::Relaxed);
    }

    /// The handler's way in (rule 2). `leave` must follow `Entered`, and only that.
    pub fn enter(&self, generation: u32) -> Entry {
        let mine =
            || self.state.load(Ordering::Acquire) == LIVE && self.generation.load(Ordering::Relaxed) == generation;
        if !mine() {
            return Entry::Gone;
        }
        if self.in_handler.swap(1, Ordering::Acquire) != 0 {
            return Entry::Nested;
        }
        fence(Ordering::SeqCst);
        if !mine() {
            self.leave();
            return Entry::Gone;
        }
        Entry::Entered
    }

    /// The handler's way out.
    pub fn leave(&self) {
        self.in_handler.store(0, Ordering::Release);
    }

    /// Kernel thread id of the owner.
    pub fn thread_id(&self) -> u32 {
        self.thread_id.load(Ordering::Relaxed)
    }

    /// Whether a handler of that thread is inside.
    pub(crate) fn is_entered_by(&self, thread_id: u32) -> bool {
        self.in_handler.load(Ordering::Relaxed) != 0 && self.thread_id.load(Ordering::Relaxed) == thread_id
    }

    /// The generation in force.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The clock.
    pub fn ticker(&self) -> Ticker {
        Ticker::from_word(self.ticker.load(Ordering::Acquire))
    }

    /// The kernel's id of the perf event, by which its descriptor is told from one the host opened in its place.
    pub fn event_id(&self) -> u64 {
        self.event_id.load(Ordering::Relaxed)
    }

    /// Address of the perf event's ring buffer, mapped as long as the slot is not free; 0 without one.
    pub fn ring(&self) -> usize {
        self.ring.load(Ordering::Relaxed) as usize
    }

    /// Notes the clock, and the id and ring buffer of a perf event, before it is armed for the first time.
    pub fn set_ticker(&self, ticker: Ticker, event_id: u64, ring: usize) {
        self.event_id.store(event_id, Ordering::Relaxed);
        self.ring.store(ring as u64, Ordering::Relaxed);
        self.ticker.store(ticker.to_word(), Ordering::Release);
    }

    /// CPU time of the thread that samples carry already.
    pub fn accounted_cpu_ns(&self) -> u64 {
        self.accounted_cpu_ns.load(Ordering::Relaxed)
    }

    /// CPU time of the thread at which the next sample is due: what the clock is armed for.
    pub fn due_cpu_ns(&self) -> u64 {
        self.due_cpu_ns.load(Ordering::Relaxed)
    }

    /// CPU time of samples that found the ring full and that no entry tells of yet.
    pub fn lost_cpu_ns(&self) -> u64 {
        self.lost_cpu_ns.load(Ordering::Relaxed)
    }

    /// Says that the owner was seen running with the clock's signal blocked.
    pub(crate) fn mark_signal_blocked(&self) {
        self.signal_blocked.store(1, Ordering::Relaxed);
    }

    /// Draws the next interval: uniform in [0.5, 1.5] periods.
    pub fn draw_interval_ns(&self, period_ns: u64) -> u64 {
        period_ns / 2 + self.draw(period_ns)
    }

    /// Uniform in [0, limit], by xorshift64*. Owner or opener only.
    fn draw(&self, limit: u64) -> u64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.store(x, Ordering::Relaxed);
        let uniform = x.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((uniform as u128 * (limit as u128 + 1)) >> 64) as u64
    }

    /// Moves the schedule on by one sample, taken at `cpu_ns`; gives the periods that the sample stands for, at least one.
    ///
    /// Intervals are added to the schedule and not to the moment of the tick, so that the mean rate is the asked one
    /// wherever the kernel can keep up. Where two samples fell due before one tick, the schedule stays behind and the
    /// next sample is due early: else an eighth of the ticks would go unused at a rate equal to the kernel's tick.
    /// Periods beyond what may be made up belong to this sample.
    pub(crate) fn advance(&self, cpu_ns: u64, period_ns: u64) -> u64 {
        const STEPS: u64 = 64;
        let mut schedule = self.schedule_cpu_ns.load(Ordering::Relaxed).min(cpu_ns);
        let oldest = cpu_ns.saturating_sub(MADE_UP * period_ns);
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
        // Never sooner than the shortest interval: a clock set into the past ticks at once, on the same stack.
        self.due_cpu_ns.store(schedule.max(cpu_ns + (period_ns / 2).max(1)), Ordering::Relaxed);
        periods
    }

    /// As [`Slot::advance`], for a clock that is not armed for each tick: an interval is used `run` times before the next is
    /// drawn, and all of them together make up for what the schedule is behind.
    pub(crate) fn advance_run(&self, cpu_ns: u64, period_ns: u64, run: u32) -> u64 {
        let late_ns = cpu_ns.saturating_sub(self.due_cpu_ns.load(Ordering::Relaxed));
        let repeats = self.repeats.load(Ordering::Relaxed);
        if repeats > 0 {
            self.repeats.store(repeats - 1, Ordering::Relaxed);
        } else {
            let run = u64::from(run.max(1));
            let behind_ns =
                cpu_ns.saturating_sub(self.schedule_cpu_ns.load(Ordering::Relaxed)).min(MADE_UP * period_ns);
            let drawn_ns = self.draw_interval_ns(period_ns).saturating_sub(behind_ns / run);
            let interval_ns = drawn_ns.max(period_ns / 2).max(1);
            self.interval_ns.store(interval_ns, Ordering::Relaxed);
            self.schedule_cpu_ns.store(cpu_ns + run * interval_ns, Ordering::Relaxed);
            self.repeats.store((run - 1) as u32, Ordering::Relaxed);
        }
        self.due_cpu_ns.store(cpu_ns + self.interval_ns(), Ordering::Relaxed);
        1 + late_ns / period_ns.max(1)
    }

    /// CPU time of the thread, now that its perf event ticks by itself at `at_ns` of the monotonic clock, where that is known
    /// without asking the kernel. So much passed since the clock was read as the ticks since then stand for, and at most so
    /// much as the monotonic clock says: where the two agree within [`CLOSE`] of an interval, the thread hardly left the
    /// processor in between. A hypervisor that takes the processor away stops the CPU clock alone: so readings that agreed
    /// are what allows to do without the next ones, each twice as many, [`LONGEST_TRUST`] at most.
    pub(crate) fn cpu_ns_by_ticks(&self, at_ns: u64) -> Option<u64> {
        let interval_ns = self.interval_ns();
        let unread = self.unread.load(Ordering::Relaxed);
        let ends_run = self.repeats.load(Ordering::Relaxed) == 0;
        let is_exact = matches!(self.ticker(), Ticker::Perf(_));
        if !is_exact || !self.runs() || ends_run || unread >= self.trust.load(Ordering::Relaxed) {
            return None;
        }
        let ticked_ns = (u64::from(unread) + 1) * interval_ns;
        let passed_ns = at_ns.saturating_sub(self.read_at_ns.load(Ordering::Relaxed));
        if passed_ns.abs_diff(ticked_ns) > interval_ns / CLOSE {
            return None;
        }
        self.unread.store(unread + 1, Ordering::Relaxed);
        Some(self.read_cpu_ns.load(Ordering::Relaxed) + passed_ns)
    }

    /// Notes what the thread's CPU clock said at `at_ns` of the monotonic clock.
    pub(crate) fn note_reading(&self, cpu_ns: u64, at_ns: u64) {
        let burnt_ns = cpu_ns.saturating_sub(self.read_cpu_ns.swap(cpu_ns, Ordering::Relaxed));
        let passed_ns = at_ns.saturating_sub(self.read_at_ns.swap(at_ns, Ordering::Relaxed));
        let interval_ns = self.interval_ns();
        let ticked_ns = (u64::from(self.unread.load(Ordering::Relaxed)) + 1) * interval_ns;
        let most_ns = interval_ns / CLOSE;
        // A tick whose handler was late is no start to count intervals from.
        let agree = passed_ns.abs_diff(burnt_ns) <= most_ns && burnt_ns.abs_diff(ticked_ns) <= most_ns;
        let trust = if agree { 2 * self.trust.load(Ordering::Relaxed) + 1 } else { 0 };
        self.trust.store(trust.min(LONGEST_TRUST), Ordering::Relaxed);
        self.unread.store(0, Ordering::Relaxed);
    }

    /// Whether an interval was drawn that the clock does not know yet.
    pub(crate) fn begins_run(&self, run: u32) -> bool {
        self.repeats.load(Ordering::Relaxed) == run.max(1) - 1
    }

    /// The interval in force.
    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ns.load(Ordering::Relaxed)
    }

    /// Whether the clock goes on by itself after a tick.
    pub(crate) fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed) != 0
    }

    /// Notes that it does, or that it is armed for each tick.
    pub(crate) fn set_runs(&self, runs: bool) {
        let ran = self.runs.swap(runs as u32, Ordering::Relaxed) != 0;
        if ran && !runs {
            self.repeats.store(0, Ordering::Relaxed);
            // It was that of the end of the run.
            self.schedule_cpu_ns.store(self.due_cpu_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Begins the schedule with a first phase, uniform in (0, period]: from the thread's birth if that moment is still
    /// ahead, so that short lives are met in proportion to their length, else from `cpu_ns`. Opener only.
    pub fn begin_schedule(&self, cpu_ns: u64, period_ns: u64, from_birth: bool) -> u64 {
        let phase = || 1 + self.draw(period_ns.saturating_sub(1));
        let first = phase();
        let due = if from_birth && first > cpu_ns { first } else { cpu_ns + phase() };
        self.schedule_cpu_ns.store(due, Ordering::Relaxed);
        self.due_cpu_ns.store(due, Ordering::Relaxed);
        due
    }

    pub(crate) fn account(&self, cpu_ns: u64) -> u64 {
        // One step, since the scan may account for a thread whose signal is blocked: no time is told twice.
        cpu_ns.saturating_sub(self.accounted_cpu_ns.fetch_max(cpu_ns, Ordering::Relaxed))
    }

    pub(crate) fn take_first_of_thread(&self) -> bool {
        let first = self.first_of_thread.load(Ordering::Relaxed) != 0;
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
