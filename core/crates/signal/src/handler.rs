//! The handler of clock signals: classifies the signal, walks the thread, submits one sample to the ring, and arms
//! the clock unless it runs free. Runs on host threads at any instruction. Restores errno on every exit.
//!
//! # Rules
//! 1. The source of a signal is decided before any of its data is dereferenced. A timer's value must lie inside the
//!    slot table; a perf signal's descriptor must be in the fixed table. Any other signal is forwarded to the
//!    previous handler. Without one it is swallowed and counted: the default action would end the host.
//! 2. Once installed, the handler stays for the life of the process. After `stop` it swallows clock signals.
//!    `signal_claim` chooses its signal. Wall requests (`self_walk`) use the same signal.
//! 3. The weight of a sample is the thread's CPU time now minus the CPU time of earlier samples. It is exact for any
//!    tick, except that ticks of a free-running perf event may estimate CPU time within a sixteenth of an interval. A
//!    sample that finds the ring full adds its weight to the loss that the next entry reports, so no weight is lost.

use crate::counters;
use crate::forward::{thread_id, Forwarded, HandlerChain};
use crate::overflow::OverflowRecord;
use crate::slot::{EnterOutcome, Slot, Ticker};
use crate::slot_table::{slot_of_descriptor, slot_of_value, slots, used_slots};
use crate::{arm, guarded, prefetch, restart, self_walk};
use crate::{CaptureFn, Captured, Context, DropReason, HandlerContext, Inbox, RawFrame, RawSample, RawStack};
use crate::{SampleFlags, SampleKind};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

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
        prefetch::range((slot as *const Slot).cast(), size_of::<Slot>() / 2);
        prefetch::range((self.inbox as *const Inbox).cast(), size_of::<Inbox>());
        prefetch::range(self.scratch.wrapping_add(index * self.depth).cast(), 512);
        counters::prefetch();
    }
}

// SAFETY: `scratch` is partitioned by slot, and only the handler inside a slot accesses its part.
unsafe impl Sync for SamplingSession {}
// SAFETY: as above; no field is tied to the thread that created it.
unsafe impl Send for SamplingSession {}

static SESSION: AtomicPtr<SamplingSession> = AtomicPtr::new(core::ptr::null_mut());
static PERIOD_NS: AtomicU64 = AtomicU64::new(10_000_000);
/// Ticks per drawn interval of a free-running thread timer.
static TIMER_BATCH: AtomicU32 = AtomicU32::new(1);
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
    TIMER_BATCH.store(timer_batch(period_ns, tick_ns), Ordering::Relaxed);
}

/// Ticks per drawn interval of a thread timer. Below two kernel ticks per period every interval is drawn anew, since
/// the tick dominates it; where ticks are rare, arming costs little.
fn timer_batch(period_ns: u64, tick_ns: u64) -> u32 {
    match period_ns / 2 >= tick_ns {
        true => (MAX_TIMER_BATCH_NS / period_ns).clamp(1, MAX_TIMER_BATCH) as u32,
        false => 1,
    }
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
    crate::forward::current_action(signal).is_some_and(|action| action.sa_sigaction == on_clock as *const () as usize)
}

/// Foreign signals that were forwarded to a previous handler.
pub fn forwarded() -> u64 {
    CHAINS.iter().map(HandlerChain::forwarded).sum()
}

enum SignalSource {
    Slot { index: usize, generation: u32 },
    ScanTimer,
    WallRequest { index: usize },
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
const TRAP_PERF: i32 = 6;
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
const MAX_TIMER_BATCH: u64 = 16;
const MAX_TIMER_BATCH_NS: u64 = 160_000_000;

/// Entry point of the clock signals.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_clock(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: the kernel passes 128 bytes of siginfo to a SA_SIGINFO handler.
    let source = classify(unsafe { &*info.cast::<SignalInfo>() });
    match source {
        SignalSource::Slot { index, generation } => {
            let session = SESSION.load(Ordering::Acquire);
            // SAFETY: published sessions are never freed.
            match (unsafe { session.as_ref() }, slots().get(index)) {
                // SAFETY: `ucontext` is the kernel's, on the interrupted thread.
                (Some(session), Some(slot)) => unsafe { tick(session, slot, index, generation, signal, ucontext) },
                _ => counters::count(DropReason::Disabled),
            }
        }
        // SAFETY: `ucontext` is the kernel's, on the interrupted thread.
        SignalSource::WallRequest { index } => unsafe { self_walk::respond(index, ucontext) },
        SignalSource::ScanTimer => {
            // SAFETY: published sessions are never freed.
            if let Some(session) = unsafe { SESSION.load(Ordering::Acquire).as_ref() } {
                session.inbox.scan_due();
            }
        }
        SignalSource::Foreign => {
            let outcome = match CHAINS.get(signal as usize) {
                // SAFETY: called inside the handler, with the kernel's arguments.
                Some(chain) => unsafe { chain.forward(signal, info, ucontext) },
                None => Forwarded::Default,
            };
            if outcome != Forwarded::Handled {
                // SAFETY: the kernel passes a valid siginfo_t.
                let sent = unsafe { (*info).si_code } <= 0;
                // An unhandled breakpoint ends the process, even if SIGTRAP is ignored.
                if signal == libc::SIGTRAP && (outcome == Forwarded::Default || !sent) {
                    guarded::apply_default_action(signal, true);
                }
                counters::count_stray();
            }
        }
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn classify(info: &SignalInfo) -> SignalSource {
    if info.code == libc::SI_TIMER || (info.signal == libc::SIGTRAP && info.code == TRAP_PERF) {
        return match slot_of_value(info.second) {
            None => SignalSource::Foreign,
            Some((0, _)) => SignalSource::ScanTimer,
            Some((index, generation)) => SignalSource::Slot { index, generation },
        };
    }
    if info.signal != libc::SIGTRAP && (POLL_IN..=POLL_HUP).contains(&info.code) {
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
        let me = thread_id();
        let is_mine =
            |slot: &Slot| slot.is_live() && slot.thread_id() == me && matches!(slot.ticker(), Ticker::Perf(_));
        if let Some((index, slot)) = used_slots().iter().enumerate().skip(1).find(|(_, slot)| is_mine(slot)) {
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
    session.prefetch(slot, index);
    let begun_ns = arm::monotonic_ns();
    match slot.enter(generation) {
        EnterOutcome::Entered => {}
        EnterOutcome::Nested => return counters::count(DropReason::Reentered),
        EnterOutcome::Stale => return counters::count(DropReason::Disabled),
    }
    session.inbox.prefetch_next_entry();
    // Read before the event is armed again: its next overflow may occur inside this handler and replace the record.
    // SAFETY: the ring buffer of an entered slot's event stays mapped until the slot is quiescent.
    let overflow = (slot.event_buffer() != 0).then(|| unsafe { OverflowRecord::last(slot.event_buffer()) }).flatten();
    if let Some(overflow) = &overflow {
        counters::add_delivery_ns(overflow.delivery_ns(begun_ns));
    }
    let cpu_ns = slot.estimate_cpu_ns(begun_ns).unwrap_or_else(|| {
        let cpu_ns = arm::thread_cpu_ns();
        slot.record_cpu_reading(cpu_ns, begun_ns);
        cpu_ns
    });
    let period_ns = PERIOD_NS.load(Ordering::Relaxed);
    let late_ns = cpu_ns.saturating_sub(slot.due_cpu_ns());
    let mut weight_ns = slot.account(cpu_ns);
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
    // CPU time used while the signal was blocked does not belong to this stack.
    if slot.take_signal_blocked() && periods > 1 && report_loss(DropReason::SignalBlocked, [late_ns, periods - 1]) {
        counters::count(DropReason::SignalBlocked);
        weight_ns = weight_ns.saturating_sub(late_ns);
        periods = 1;
    }

    // SAFETY: the entered slot grants exclusive access to its part of the scratch frames until `leave`; the part has
    // `depth` frames.
    let frames = unsafe { core::slice::from_raw_parts_mut(session.scratch.add(index * session.depth), session.depth) };
    let mut stack = RawStack::new(frames);
    let walk_begun_ns = arm::monotonic_ns();
    // SAFETY: inside the handler, with the kernel's context.
    unsafe { walk(session.capture, &mut stack, thread_id, ucontext) };
    let walked_ns = arm::monotonic_ns();
    let mut flags = SampleFlags(0);
    if slot.take_first_of_thread() {
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
        }
        Err(reason) => {
            counters::count(reason);
            let [lost_ns, lost_periods] = slot.lost();
            slot.set_lost([lost_ns + weight_ns, lost_periods + periods]);
        }
    }
    arm_next(slot, signal, cpu_ns, batch, walked_ns.saturating_sub(begun_ns));
    let elapsed_ns = arm::monotonic_ns().saturating_sub(begun_ns);
    let handler_ns = match elapsed_ns > MAX_UNVERIFIED_HANDLER_NS {
        true => arm::thread_cpu_ns().saturating_sub(cpu_ns).min(elapsed_ns),
        false => elapsed_ns,
    };
    counters::add_handler_ns(handler_ns, walked_ns.saturating_sub(walk_begun_ns).min(handler_ns));
    if let Some(overflow) = &overflow {
        // SAFETY: `ucontext` is the kernel's; fault signals are unblocked where the restart reads code.
        unsafe {
            if !guarded::blocks_faults(ucontext) {
                restart::restart_interrupted_call(ucontext, overflow);
            }
        }
    }
    slot.leave();
}

/// Ticks per drawn interval of a free-running clock; 1 where each tick is armed.
fn batch_of(ticker: Ticker, period_ns: u64) -> u32 {
    match ticker {
        Ticker::Perf(_) if period_ns >= MIN_FREE_RUNNING_PERIOD_NS => {
            (MAX_PERF_BATCH_NS / period_ns).clamp(1, MAX_PERF_BATCH) as u32
        }
        Ticker::Timer(_) => TIMER_BATCH.load(Ordering::Relaxed),
        _ => 1,
    }
}

/// Arms the clock for the next tick. A clock runs free while the handler is quick, since starting and stopping it
/// costs more than the rest of a tick. Once the handler takes a quarter of an interval, each tick is armed at the end
/// of the previous one. The thread thus always makes progress.
fn arm_next(slot: &Slot, signal: libc::c_int, cpu_ns: u64, batch: u32, handler_ns: u64) {
    let due_cpu_ns = slot.due_cpu_ns();
    let interval_ns = due_cpu_ns.saturating_sub(cpu_ns);
    let is_quick = handler_ns < interval_ns / 4;
    let (was_free_running, free_run) = (slot.is_free_running(), batch > 1 && is_quick);
    if was_free_running && free_run && !slot.begins_batch(batch) {
        return;
    }
    slot.set_free_running(free_run);
    match slot.ticker() {
        Ticker::None => 0,
        Ticker::Timer(id) if is_quick => arm::arm_timer(id, due_cpu_ns, if free_run { interval_ns } else { 0 }),
        // The handler's own time is excluded: a timer set into the past would expire at once.
        Ticker::Timer(id) => arm::arm_timer(id, due_cpu_ns + handler_ns, 0),
        Ticker::Perf(descriptor) => {
            let next = match (was_free_running, free_run) {
                (true, true) => arm::PerfArming::KeepFreeRunning,
                (true, false) => arm::PerfArming::StopThenOneShot,
                (false, true) => arm::PerfArming::StartFreeRunning,
                (false, false) => arm::PerfArming::OneShot,
            };
            arm::arm_perf(descriptor, signal, interval_ns, next)
        }
    };
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
    let values = [slot.account(cpu_ns), slot.advance(cpu_ns, PERIOD_NS.load(Ordering::Relaxed))];
    counters::count(DropReason::SignalBlocked);
    if !submit_loss(inbox, slot.thread_id(), arm::monotonic_ns(), DropReason::SignalBlocked, values) {
        counters::count(DropReason::RingFull);
    }
}

/// # Safety
/// As for [`tick`].
unsafe fn walk(capture: CaptureFn, stack: &mut RawStack<'_>, thread_id: u32, ucontext: *mut libc::c_void) {
    // SAFETY: `ucontext` is the kernel's, by the caller's contract.
    let captured = if unsafe { guarded::blocks_faults(ucontext) } {
        Captured::Dropped(DropReason::FaultsBlocked)
    } else {
        // SAFETY: inside the handler, on the interrupted thread, as `CaptureFn` requires.
        unsafe { capture(&HandlerContext { ucontext, thread_id }, stack) }
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
        context: Context::None,
        frames: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::{batch_of, timer_batch};
    use crate::slot::Ticker;

    #[test]
    fn timers_batch_intervals_only_above_two_kernel_ticks_and_for_at_most_160_ms() {
        const MS: u64 = 1_000_000;
        assert_eq!([10, 8, 7, 4, 1].map(|period| timer_batch(period * MS, 4 * MS)), [16, 16, 1, 1, 1]);
        assert_eq!([52, 100, 1_000].map(|period| timer_batch(period * MS, 4 * MS)), [3, 1, 1]);
        assert_eq!([10, 20].map(|period| timer_batch(period * MS, 10 * MS)), [1, 8]);
    }

    #[test]
    fn perf_events_batch_intervals_for_at_most_80_ms() {
        const US: u64 = 1_000;
        let periods = [400, 500, 1_000, 4_000, 10_000, 50_000, 1_000_000];
        assert_eq!(periods.map(|period| batch_of(Ticker::Perf(3), period * US)), [1, 64, 64, 20, 8, 1, 1]);
    }
}
