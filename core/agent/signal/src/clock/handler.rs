//! The handler of clock signals: classifies the signal, walks the thread, submits one sample to the ring, and arms
//! the clock unless it runs free. Runs on host threads at any instruction. Restores errno on every exit.
//!
//! # Rules
//! 1. The source of a signal is decided before any of its data is dereferenced. A timer's value must lie inside the
//!    slot table; a perf signal's descriptor must be in the fixed table. Any other signal is forwarded to the
//!    previous handler. Without one it is swallowed and counted: the default action would end the host.
//! 2. Once installed, the handler stays for the life of the process. After `stop` it swallows clock signals.
//!    `signal_claim` chooses its signal. Wall requests (`self_walk`) use the same signal.
//! 3. Every signal also handles the overflows of the thread's perf event since its last tick (`slot_clock`): the kernel
//!    merges the signal of an overflow with one that is already pending.
//! 4. The weight of a sample is the thread's CPU time now minus the CPU time of earlier samples. It is exact for any
//!    tick, except that ticks of a free-running perf event may estimate CPU time within a sixteenth of an interval. A
//!    sample that finds the ring full adds its weight to the loss that the next entry reports, not to the next stack.
//! 5. A stack gets at most [`MAX_OBSERVED_PERIODS`], or a kernel tick, of CPU time for which it was not observed. CPU time
//!    before that is an entry without a stack.

use crate::clock::{counters, restart};
use crate::drop_reason::DropReason;
use crate::ring::inbox::Inbox;
use crate::ring::sample::{RawFrame, RawSample, SampleFlags, SampleKind};
use crate::signals::arm;
use crate::signals::forward::{thread_id, Forwarded, HandlerChain};
use crate::signals::slot::{EnterOutcome, Slot, Ticker};
use crate::signals::slot_clock::{arm_next, take_overflows, Overflows};
use crate::signals::slot_table::{is_in_tick, slot_of_descriptor, slot_of_value, slots, used_slots};
use crate::walk::capture::{CaptureFn, Captured, HandlerContext, RawStack};
use crate::walk::{guarded, self_walk};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The configuration of a sampling run. Never freed, since a handler may hold it at any time.
pub struct SamplingSession {
    /// Walks the interrupted thread.
    pub capture: CaptureFn,
    /// Destination of samples.
    pub inbox: &'static Inbox,
    /// `SLOTS × depth` frames; each slot's owner writes only its own part.
    pub scratch: *mut RawFrame,
    /// `max_stack_depth`.
    pub depth: usize,
}

impl SamplingSession {
    /// Prefetches the memory that a tick writes, all at once and before the clocks are read. At 100 ticks per second
    /// none of it is cached, and sequential misses are a large part of the cost of a tick.
    fn prefetch(&self, slot: &Slot, index: usize) {
        crate::prefetch::range((slot as *const Slot).cast(), size_of::<Slot>() / 2);
        crate::prefetch::range((self.inbox as *const Inbox).cast(), size_of::<Inbox>());
        crate::prefetch::range(self.scratch.wrapping_add(index * self.depth).cast(), 512);
        counters::prefetch();
    }
}

// SAFETY: `scratch` is partitioned by slot, and only the handler inside a slot accesses its part.
unsafe impl Sync for SamplingSession {}
// SAFETY: only the handler inside a slot accesses its part of `scratch`; no field is tied to the thread that created it.
unsafe impl Send for SamplingSession {}

static SESSION: AtomicPtr<SamplingSession> = AtomicPtr::new(core::ptr::null_mut());
static PERIOD_NS: AtomicU64 = AtomicU64::new(10_000_000);
/// Time between two kernel ticks, at which thread timers expire.
static KERNEL_TICK_NS: AtomicU64 = AtomicU64::new(4_000_000);
/// The previous handlers of each signal, by signal number.
static CHAINS: [HandlerChain; 65] = [const { HandlerChain::new() }; 65];

/// Accepts samples (`Some`) or rejects them. A handler that already loaded the session may still submit one sample;
/// its time is before the end of the run.
pub fn set_session(session: Option<&'static SamplingSession>) {
    let session = session.map_or(core::ptr::null_mut(), |s| (s as *const SamplingSession).cast_mut());
    SESSION.store(session, Ordering::Release);
}

/// Sets the mean interval between samples of a thread, in its CPU time. Thread timers expire at kernel ticks,
/// `tick_ns` apart.
pub fn set_period_ns(period_ns: u64, tick_ns: u64) {
    PERIOD_NS.store(period_ns.max(1), Ordering::Relaxed);
    KERNEL_TICK_NS.store(tick_ns, Ordering::Relaxed);
}

/// Installs the handler for `signal`, or reinstalls it over a replacement. Normal threads only, one at a time. False
/// when the kernel refuses.
pub fn install(signal: libc::c_int) -> bool {
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let handler = on_clock as *const () as usize;
    CHAINS.get(signal as usize).is_some_and(|chain| chain.install(signal, handler, flags))
}

/// Whether our handler is installed for `signal`.
pub fn is_installed(signal: libc::c_int) -> bool {
    crate::signals::forward::current_action(signal)
        .is_some_and(|action| action.sa_sigaction == on_clock as *const () as usize)
}

/// Foreign signals that were forwarded to a previous handler.
pub fn forwarded() -> u64 {
    CHAINS.iter().map(HandlerChain::forwarded).sum()
}

enum SignalSource {
    Slot {
        index: usize,
        generation: u32,
    },
    ScanTimer,
    WallRequest {
        index: usize,
    },
    /// A wait of the handler itself ends (`restart`).
    EndOfResumed,
    Foreign,
}

/// The kernel's siginfo on 64-bit Linux: the part that clocks use.
#[repr(C)]
struct SignalInfo {
    signal: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    /// Timers: timer id, overruns. Kill and queue: sender's pid, uid. Poll: band.
    first: [i32; 2],
    /// Timers and queue: the value. Poll: the descriptor in the low half.
    second: usize,
}

/// If the handler takes longer by the monotonic clock, its thread may have been preempted, and its CPU time is read.
/// No scheduler preempts and resumes a thread in less.
const MAX_UNVERIFIED_HANDLER_NS: u64 = 30_000;

const POLL_IN: i32 = 1;
const POLL_HUP: i32 = 6;
/// Minimum period of a free-running perf event; shorter periods are armed for each tick.
const MIN_FREE_RUNNING_PERIOD_NS: u64 = 500_000;
/// Maximum number of ticks per drawn interval of a free-running clock. Setting an interval costs more than the rest of
/// a tick. Equal intervals still do not lock onto the program, since the interval is random and changes after each
/// batch.
const MAX_PERF_BATCH: u64 = 64;
/// Maximum duration of a batch. A batch of equal intervals that is a multiple of the program's own cycle samples one
/// phase of it. Batches of 64 samples at 100 Hz put 3 % of 12 s profiles beyond three standard errors, batches of 8
/// put 0.3 % there (simulated, cycles of 1 to 10 ms).
const MAX_PERF_BATCH_NS: u64 = 80_000_000;
/// CPU time, in periods, that a tick may give to its stack although the stack was observed at the tick only; at least a kernel
/// tick, since a hypervisor that steals the processor delays the timers of the kernel by that much.
const MAX_OBSERVED_PERIODS: u64 = 2;
/// Kernel ticks that a timer may be late in addition. A timer expires at a tick at which its thread runs; a thread that
/// runs in short bursts misses more than eight in a row in 0.03 % of its CPU time (e^-8).
const MAX_LATE_KERNEL_TICKS: u64 = 8;

/// Entry point of the clock signals.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_clock(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    let saved = unsafe { *errno };
    // SAFETY: the kernel passes 128 bytes of siginfo to a SA_SIGINFO handler.
    let source = classify(unsafe { &*info.cast::<SignalInfo>() });
    // SAFETY: published sessions are never freed.
    let session = unsafe { SESSION.load(Ordering::Acquire).as_ref() };
    if let SignalSource::Slot { index, generation } = source {
        match (session, slots().get(index)) {
            // SAFETY: `ucontext` is the kernel's, on the interrupted thread.
            (Some(session), Some(slot)) => unsafe { tick(session, slot, index, generation, signal, ucontext) },
            _ => counters::count(DropReason::Disabled),
        }
    } else {
        // Nested, while the tick resumes a call: a wall request is sent again.
        let is_in_tick = is_in_tick(thread_id());
        match source {
            SignalSource::EndOfResumed => {}
            SignalSource::WallRequest { .. } if is_in_tick => {}
            // SAFETY: `ucontext` is the kernel's, on the interrupted thread.
            SignalSource::WallRequest { index } => unsafe { self_walk::respond(index, ucontext) },
            SignalSource::ScanTimer => session.into_iter().for_each(|session| session.inbox.scan_due()),
            // SAFETY: inside the handler, with the kernel's arguments.
            _ => unsafe { forward(signal, info, ucontext) },
        }
        // The tick ends at once without an overflow. It alone may read the event's buffer, which is unmapped with the slot.
        let session = session.filter(|_| !is_in_tick);
        if let Some((session, (index, slot))) = session.zip(perf_slot_of(thread_id())) {
            // SAFETY: `ucontext` is the kernel's, on the interrupted thread.
            unsafe { tick(session, slot, index, slot.generation(), signal, ucontext) };
        }
        if matches!(source, SignalSource::WallRequest { .. }) && !is_in_tick {
            // SAFETY: `ucontext` is the kernel's, on the interrupted thread.
            unsafe { restart::continue_wait(signal, ucontext) };
        }
    }
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    unsafe { *errno = saved };
}

/// Forwards a foreign signal, or discards it.
///
/// # Safety
/// Called inside the handler of `signal`, with the kernel's arguments.
unsafe fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    let outcome = match CHAINS.get(signal as usize) {
        // SAFETY: the caller's contract.
        Some(chain) => unsafe { chain.forward(signal, info, ucontext) },
        None => Forwarded::Default,
    };
    if outcome != Forwarded::Handled {
        counters::count_stray();
    }
}

/// The slot of a thread that has a perf event, and its index.
fn perf_slot_of(thread_id: u32) -> Option<(usize, &'static Slot)> {
    let is_own =
        |slot: &Slot| slot.thread_id() == thread_id && slot.is_live() && matches!(slot.ticker(), Ticker::Perf(_));
    used_slots().iter().enumerate().skip(1).find(|(_, slot)| is_own(slot))
}

fn classify(info: &SignalInfo) -> SignalSource {
    if info.code == libc::SI_TIMER {
        return match slot_of_value(info.second) {
            None if info.second == restart::END_OF_RESUMED => SignalSource::EndOfResumed,
            None => SignalSource::Foreign,
            Some((0, _)) => SignalSource::ScanTimer,
            Some((index, generation)) => SignalSource::Slot { index, generation },
        };
    }
    if (POLL_IN..=POLL_HUP).contains(&info.code) {
        let index = slot_of_descriptor(info.second as u32);
        return match slots().get(index) {
            Some(slot) if index != 0 && slot.thread_id() == thread_id() => {
                SignalSource::Slot { index, generation: slot.generation() }
            }
            _ => SignalSource::Foreign,
        };
    }
    if info.code == libc::SI_QUEUE && info.errno == self_walk::SIGINFO_MARK {
        return SignalSource::WallRequest { index: info.second };
    }
    // The kernel had no memory for the details of a perf signal: the signal has no sender, and this thread has a perf
    // clock.
    if info.code == libc::SI_USER && info.first == [0, 0] {
        if let Some((index, slot)) = perf_slot_of(thread_id()) {
            return SignalSource::Slot { index, generation: slot.generation() };
        }
    }
    SignalSource::Foreign
}

/// # Safety
/// Called inside the handler with the kernel's `ucontext`.
unsafe fn tick(
    session: &SamplingSession,
    slot: &Slot,
    index: usize,
    generation: u32,
    signal: libc::c_int,
    ucontext: *mut libc::c_void,
) {
    // Read before the slot is entered: a sample's time is then never after the end of its run. The drain thread can
    // thus separate the sample of a late handler from samples of the next run.
    let begun_ns = arm::monotonic_ns();
    session.prefetch(slot, index);
    match slot.enter(generation) {
        EnterOutcome::Entered => {}
        EnterOutcome::Nested => return counters::count(DropReason::Reentered),
        EnterOutcome::Stale => return counters::count(DropReason::Disabled),
    }
    guarded::check_if_due(begun_ns);
    session.inbox.prefetch_next_entry();
    // Taken before the event is armed again: its next overflow may occur inside this handler.
    let overflows = take_overflows(slot);
    let last_overflow = overflows.as_ref().and_then(|overflows| overflows.last.as_ref());
    if overflows.as_ref().is_some_and(|overflows| overflows.count == 0) {
        return slot.leave();
    }
    if let Some(overflow) = last_overflow {
        counters::add_delivery_ns(overflow.delivery_ns(begun_ns));
    }
    let cpu_ns = slot.estimate_cpu_ns(begun_ns).unwrap_or_else(|| {
        let cpu_ns = arm::thread_cpu_ns();
        slot.record_cpu_reading(cpu_ns, begun_ns);
        cpu_ns
    });
    let period_ns = PERIOD_NS.load(Ordering::Relaxed);
    let mut weight_ns = account(slot, cpu_ns, period_ns);
    let batch = batch_of(slot.ticker(), period_ns);
    let mut periods = if slot.is_free_running() {
        slot.advance_batch(cpu_ns, period_ns, batch)
    } else {
        slot.advance(cpu_ns, period_ns)
    };
    let thread_id = slot.thread_id();

    let report_loss = |reason, values| submit_loss(session.inbox, thread_id, begun_ns, reason, values);
    let [lost_ns, lost_periods] = slot.lost();
    if lost_ns > 0 && report_loss(DropReason::RingFull, [lost_ns, lost_periods]) {
        slot.set_lost([0, 0]);
    }
    let is_first = slot.take_first_of_thread();
    let unobserved = Tick { slot, period_ns, weight_ns, is_first }.unobserved(&overflows, ucontext);
    if let Some(reason) = unobserved {
        let [lost_ns, lost_periods] = [weight_ns - period_ns, (periods - 1).max(1)];
        if report_loss(reason, [lost_ns, lost_periods]) {
            counters::count(reason);
            (weight_ns, periods) = (period_ns, 1);
        }
    }

    // SAFETY: the entered slot grants exclusive access to its part of the scratch frames until `leave`; the part has
    // `depth` frames.
    let frames = unsafe { core::slice::from_raw_parts_mut(session.scratch.add(index * session.depth), session.depth) };
    let mut stack = RawStack::new(frames);
    let walk_begun_ns = arm::monotonic_ns();
    // SAFETY: inside the handler, with the kernel's context.
    unsafe { walk(session.capture, slot, &mut stack, ucontext) };
    let walked_ns = arm::monotonic_ns();
    let mut flags = SampleFlags(0);
    if is_first {
        flags.0 |= SampleFlags::FIRST_OF_THREAD;
    }
    if stack.is_truncated() {
        flags.0 |= SampleFlags::TRUNCATED;
    }
    let values = [weight_ns, periods];
    let context = stack.context;
    let sample = RawSample { flags, values, context, frames: stack.frames(), ..empty_cpu_sample(thread_id, begun_ns) };
    match session.inbox.submit(&sample) {
        Ok(_) => {
            counters::count_sample();
            counters::add_sampled_cpu_ns(weight_ns);
            counters::count_tick(overflows.is_some());
        }
        Err(reason) => {
            counters::count(reason);
            let [lost_ns, lost_periods] = slot.lost();
            slot.set_lost([lost_ns + weight_ns, lost_periods + periods]);
        }
    }
    // The CPU clock is the one that decides: a preempted handler is not slow.
    let cost_ns = |until_ns: u64| match until_ns.saturating_sub(begun_ns) {
        elapsed_ns if elapsed_ns > MAX_UNVERIFIED_HANDLER_NS => {
            arm::thread_cpu_ns().saturating_sub(cpu_ns).min(elapsed_ns)
        }
        elapsed_ns => elapsed_ns,
    };
    if !arm_next(slot, cpu_ns, batch, cost_ns(walked_ns)) {
        session.inbox.scan_due();
    }
    // A further overflow may follow the one that interrupted the call, before or in this handler.
    let (first, last) = match &overflows {
        Some(overflows) => (&overflows.first, &overflows.last),
        None => (&None, &None),
    };
    for overflow in [first, last].into_iter().flatten() {
        // SAFETY: `ucontext` is the kernel's, in the handler.
        unsafe { restart::restart_interrupted_call(signal, ucontext, overflow) };
    }
    let handler_ns = cost_ns(arm::monotonic_ns());
    slot.last_handler_ns.store(handler_ns, Ordering::Relaxed);
    counters::add_handler_ns(handler_ns, walked_ns.saturating_sub(walk_begun_ns).min(handler_ns));
    slot.leave();
}

/// A tick, for the decision how much of its CPU time its stack represents.
struct Tick<'a> {
    slot: &'a Slot,
    period_ns: u64,
    weight_ns: u64,
    is_first: bool,
}

impl Tick<'_> {
    /// The reason why the stack represents only one period of the tick's CPU time; `None` if it represents all of it.
    fn unobserved(&self, overflows: &Option<Overflows>, ucontext: *mut libc::c_void) -> Option<DropReason> {
        let was_blocked = self.slot.take_signal_blocked();
        let tick_ns = KERNEL_TICK_NS.load(Ordering::Relaxed);
        let observed_ns = (MAX_OBSERVED_PERIODS * self.period_ns).max(tick_ns);
        let late_timer_ns = if overflows.is_some() { 0 } else { MAX_LATE_KERNEL_TICKS * tick_ns };
        let own_ns = self.slot.last_handler_ns.load(Ordering::Relaxed);
        if self.weight_ns <= observed_ns + late_timer_ns + own_ns {
            return None;
        }
        let first_overflow = overflows.as_ref().and_then(|overflows| overflows.first.as_ref());
        // SAFETY: `ucontext` is the kernel's; fault signals are unblocked where code is read.
        let is_in_call = unsafe {
            match first_overflow {
                Some(overflow) => restart::is_in_recorded_call(ucontext, overflow),
                None => !guarded::blocks_faults(ucontext) && restart::is_in_masking_call(ucontext) == Some(false),
            }
        };
        if is_in_call && !was_blocked {
            // The kernel worked for the thread since the tick was due.
            return None;
        }
        // A second overflow occurred while the signal of the first one waited.
        let has_waited = overflows.as_ref().is_some_and(|overflows| overflows.count > 1);
        Some(match (was_blocked, self.is_first) {
            (false, true) => DropReason::UnseenThread,
            (false, false) if !has_waited => DropReason::LateTick,
            _ => DropReason::SignalBlocked,
        })
    }
}

/// Ticks per drawn interval of a free-running perf event; 1 where each tick is armed. Timers are armed for each tick: a
/// periodic timer would go on to call a handler that the program installs later.
fn batch_of(ticker: Ticker, period_ns: u64) -> u32 {
    match ticker {
        Ticker::Perf(_) if period_ns >= MIN_FREE_RUNNING_PERIOD_NS => {
            (MAX_PERF_BATCH_NS / period_ns).clamp(1, MAX_PERF_BATCH) as u32
        }
        _ => 1,
    }
}

/// Accounts for the CPU time of the slot's thread up to `cpu_ns`; returns the time that was not accounted for.
fn account(slot: &Slot, cpu_ns: u64, period_ns: u64) -> u64 {
    let is_perf = matches!(slot.ticker(), Ticker::Perf(_));
    let tick_ns = if is_perf { 0 } else { KERNEL_TICK_NS.load(Ordering::Relaxed) };
    let accounted_ns = slot.account(cpu_ns);
    // No tick was due in the last handler, nor before the clock of a new thread was opened.
    let due_ns = match slot.is_first_of_thread() {
        true => accounted_ns.min(period_ns),
        false => accounted_ns.saturating_sub(slot.last_handler_ns.load(Ordering::Relaxed)),
    };
    counters::count_due(is_perf, due_ns, period_ns.max(tick_ns));
    accounted_ns
}

/// Submits an entry without a stack: CPU time and the reason for the missing stack. False when the ring is full.
fn submit_loss(inbox: &Inbox, thread_id: u32, time_ns: u64, reason: DropReason, values: [u64; 2]) -> bool {
    let frames = [RawFrame::reason(reason)];
    let sample = RawSample { values, frames: &frames, ..empty_cpu_sample(thread_id, time_ns) };
    let submitted = inbox.submit(&sample).is_ok();
    if submitted {
        counters::add_sampled_cpu_ns(values[0]);
    }
    submitted
}

/// Accounts for the CPU time of a live slot's thread, now `cpu_ns`, that runs with the clock's signal blocked. Called
/// by the scan on a normal thread. A concurrent signal accounts for its own part of the time.
pub fn account_signal_blocked(inbox: &Inbox, slot: &Slot, cpu_ns: u64) {
    slot.mark_signal_blocked();
    let period_ns = PERIOD_NS.load(Ordering::Relaxed);
    let values = [account(slot, cpu_ns, period_ns), slot.advance(cpu_ns, period_ns)];
    counters::count(DropReason::SignalBlocked);
    if !submit_loss(inbox, slot.thread_id(), arm::monotonic_ns(), DropReason::SignalBlocked, values) {
        counters::count(DropReason::RingFull);
    }
}

/// # Safety
/// As for [`tick`].
unsafe fn walk(capture: CaptureFn, slot: &Slot, stack: &mut RawStack<'_>, ucontext: *mut libc::c_void) {
    // SAFETY: `ucontext` is the kernel's, by the caller's contract.
    let captured = match unsafe { HandlerContext::in_handler(ucontext, slot.thread_id(), &slot.mapped_stack) } {
        // SAFETY: inside the handler, on the interrupted thread, as `CaptureFn` requires.
        Ok(context) => unsafe { capture(&context, stack) },
        Err(reason) => Captured::Dropped(reason),
    };
    let reason = match captured {
        Captured::Walked if !stack.is_empty() => return,
        Captured::Walked => DropReason::NoThreadState,
        Captured::Dropped(reason) => reason,
    };
    counters::count(reason);
    stack.clear();
    let leaf = match reason {
        // SAFETY: `ucontext` is the kernel's, by the caller's contract.
        DropReason::NoThreadState => RawFrame::native(unsafe { guarded::interrupted_pc(ucontext) }),
        reason => RawFrame::reason(reason),
    };
    stack.push(leaf);
}

fn empty_cpu_sample(thread_id: u32, time_ns: u64) -> RawSample<'static> {
    RawSample {
        kind: SampleKind::Cpu,
        flags: SampleFlags(0),
        thread_id,
        time_ns,
        values: [0, 0],
        key: 0,
        context: crate::context::Context::None,
        frames: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::{batch_of, Ticker};

    #[test]
    fn perf_events_batch_intervals_for_at_most_80_ms() {
        const US: u64 = 1_000;
        let periods = [400, 500, 1_000, 4_000, 10_000, 50_000, 1_000_000];
        assert_eq!(periods.map(|period| batch_of(Ticker::Perf(3), period * US)), [1, 64, 64, 20, 8, 1, 1]);
    }
}
