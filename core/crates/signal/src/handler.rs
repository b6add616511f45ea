//! The handler of the clock's signal: judges whose signal it is, walks the thread, puts one sample into the ring, arms
//! the clock where it does not go on by itself. Runs on host threads at any instruction. Errno is as before on every way out.
//!
//! # Rules
//! 1. Ours is decided before anything of the signal is dereferenced: a timer's value by lying inside the slot table, a
//!    perf signal by its descriptor being in the fixed table. Everything else belongs to the handler before us; if there
//!    is none, it is swallowed and counted: the default action would kill the host.
//! 2. Once installed the handler stays for the life of the process. After `stop` it only swallows. Which signal it serves:
//!    `signal_claim`. The wall sampler's requests (`wall_request`) come with the same signal.
//! 3. Weight is the thread's CPU clock now less what samples already carry: exact, whatever the tick, but for the sixteenth
//!    of an interval within which ticks of a running perf event know it without asking. A sample that finds no room adds
//!    its weight to what the next entry says was lost; nothing goes missing.

use crate::counters;
use crate::forward::{thread_id, Forwarded, Predecessors};
use crate::overflow::Record;
use crate::slot::{Entry, Slot, Ticker, GENERATION_MASK};
use crate::{arm, guarded, prefetch, restart, wall_request};
use crate::{CaptureFn, Captured, Context, DropReason, HandlerContext, Inbox, RawFrame, RawSample, RawStack};
use crate::{SampleFlags, SampleKind};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Threads that can have a clock at one time, plus one: slot 0 stands for the scan timer.
pub const SLOTS: usize = 4096;
/// Perf descriptors above this are not used.
pub const DESCRIPTORS: usize = 65_536;

/// What a run of the clocks gives the handler. Lives for ever, since a handler may hold it at any time.
pub struct Session {
    /// Walks the interrupted thread.
    pub capture: CaptureFn,
    /// Where samples go.
    pub inbox: &'static Inbox,
    /// `SLOTS × depth` frames; each slot's owner writes its own part.
    pub scratch: *mut RawFrame,
    /// `max_stack_depth`.
    pub depth: usize,
}

impl Session {
    /// Asks for the memory that a tick writes, all at once and before the clocks are read: at a hundred ticks a second
    /// nothing of it is in the caches, and one miss after the other is a good part of what a tick costs.
    fn prefetch(&self, slot: &Slot, index: usize) {
        prefetch::range((slot as *const Slot).cast(), size_of::<Slot>() / 2);
        prefetch::range((self.inbox as *const Inbox).cast(), size_of::<Inbox>());
        prefetch::range(self.scratch.wrapping_add(index * self.depth).cast(), 512);
        counters::prefetch();
    }
}

// SAFETY: `scratch` is divided by slot, and only the handler inside a slot touches its part.
unsafe impl Sync for Session {}
// SAFETY: as above; nothing in it belongs to the thread that made it.
unsafe impl Send for Session {}

static TABLE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Slots from here on were never used.
static SLOTS_TOUCHED: AtomicUsize = AtomicUsize::new(0);
static SESSION: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());
static PERIOD_NS: AtomicU64 = AtomicU64::new(10_000_000);
/// How often a thread timer uses an interval.
static TIMER_RUN: AtomicU32 = AtomicU32::new(1);
/// Slot by perf descriptor; 0 is none. Untouched pages of it cost nothing.
static SLOT_OF_DESCRIPTOR: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(0) }; DESCRIPTORS];
/// Who had each signal before us, by its number.
static BEFORE_US: [Predecessors; 65] = [const { Predecessors::new() }; 65];

/// Publishes the slot table, once for the life of the process.
pub fn set_table(slots: &'static [Slot; SLOTS]) {
    TABLE.store(slots.as_ptr().cast_mut(), Ordering::Release);
}

/// The slot table; empty before `set_table`.
pub fn slots() -> &'static [Slot] {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: `set_table` took a shared reference to that many slots for ever.
    unsafe { core::slice::from_raw_parts(table, SLOTS) }
}

/// The slots that were ever used, slot 0 included: what a search has to look at.
pub fn touched_slots() -> &'static [Slot] {
    slots().get(..SLOTS_TOUCHED.load(Ordering::Acquire)).unwrap_or(&[])
}

/// Says that slot `index` is about to be used.
pub fn touch_slot(index: usize) {
    SLOTS_TOUCHED.fetch_max(index + 1, Ordering::AcqRel);
}

/// The value a timer's signal carries for a slot: its address with the generation in the low bits.
pub fn signal_value(index: usize, generation: u32) -> usize {
    TABLE.load(Ordering::Acquire) as usize + index * size_of::<Slot>() + (generation & GENERATION_MASK) as usize
}

/// Lets samples in (`Some`) or keeps them out. A handler that is already past the door may still submit one; its time
/// lies before the end of its run, whenever it is submitted.
pub fn set_session(session: Option<&'static Session>) {
    let session = session.map_or(core::ptr::null_mut(), |s| (s as *const Session).cast_mut());
    SESSION.store(session, Ordering::Release);
}

/// Mean interval between samples of a thread, in its CPU time. Thread timers ring at the kernel's ticks, `tick_ns` apart.
pub fn set_period_ns(period_ns: u64, tick_ns: u64) {
    PERIOD_NS.store(period_ns.max(1), Ordering::Relaxed);
    TIMER_RUN.store(timer_run(period_ns, tick_ns), Ordering::Relaxed);
}

/// An interval below the tick cannot be told from the tick, so that near it each is drawn anew; and where ticks are far
/// between, arming costs nothing to speak of.
fn timer_run(period_ns: u64, tick_ns: u64) -> u32 {
    match period_ns / 2 >= tick_ns {
        true => (LONGEST_TIMER_RUN_NS / period_ns).clamp(1, LONGEST_TIMER_RUN) as u32,
        false => 1,
    }
}

/// Connects a perf descriptor with its slot, or with none (0).
pub fn set_slot_of_descriptor(descriptor: u32, index: usize) -> bool {
    match SLOT_OF_DESCRIPTOR.get(descriptor as usize) {
        Some(entry) => {
            entry.store(index as u16, Ordering::Release);
            true
        }
        None => false,
    }
}

/// Installs the handler for `signal`, or installs it again over whoever replaced it. Normal threads only, one at a time.
pub fn install(signal: libc::c_int) -> bool {
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let handler = on_clock as *const () as usize;
    BEFORE_US.get(signal as usize).is_some_and(|before| before.install(signal, handler, flags))
}

/// Whether the handler in force for `signal` is ours.
pub fn is_installed(signal: libc::c_int) -> bool {
    crate::forward::current_action(signal).is_some_and(|action| action.sa_sigaction == on_clock as *const () as usize)
}

/// Foreign signals given to a handler that was there before us.
pub fn forwarded() -> u64 {
    BEFORE_US.iter().map(Predecessors::forwarded).sum()
}

enum Owner {
    Slot { index: usize, generation: u32 },
    ScanTimer,
    WallRequest { value: usize },
    Foreign,
}

/// The kernel's siginfo on 64-bit Linux, as far as clocks use it.
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

/// A handler that took longer by the monotonic clock may have lost its processor meanwhile: its CPU time is read. No
/// scheduler hands a processor to another thread and back in less.
const LONGEST_UNCHECKED_NS: u64 = 30_000;

const POLL_IN: i32 = 1;
const POLL_HUP: i32 = 6;
const TRAP_PERF: i32 = 6;
/// Shortest period at which a perf event may go on by itself after a tick; a shorter one is armed for each.
const SHORTEST_RUNNING_NS: u64 = 500_000;
/// How often a clock that goes on by itself uses an interval: setting one costs more than the rest of a tick, and ticks at
/// equal distance still lock onto nothing, since the distance is random and changes after them.
const LONGEST_PERF_RUN: u64 = 64;
/// A run of equal intervals that happens to be a multiple of the program's own cycle sees one place of it. Runs of 64
/// samples at 100 Hz put 3 % of 12 s profiles beyond three standard errors, runs of 8 put 0.3 % there (simulated, cycles
/// of 1 to 10 ms).
const LONGEST_PERF_RUN_NS: u64 = 80_000_000;
const LONGEST_TIMER_RUN: u64 = 16;
const LONGEST_TIMER_RUN_NS: u64 = 160_000_000;

/// Entry of the clock's signal.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_clock(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: the C library keeps errno of this thread at this address for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: the kernel passes 128 bytes of siginfo to a SA_SIGINFO handler.
    let owner = judge(unsafe { &*info.cast::<SignalInfo>() });
    match owner {
        Owner::Slot { index, generation } => {
            let session = SESSION.load(Ordering::Acquire);
            // SAFETY: a session that was ever published lives for ever.
            match (unsafe { session.as_ref() }, slots().get(index)) {
                // SAFETY: `ucontext` is the kernel's, on the thread it interrupted.
                (Some(session), Some(slot)) => unsafe { tick(session, slot, index, generation, signal, ucontext) },
                _ => counters::count(DropReason::Disabled),
            }
        }
        // SAFETY: the kernel's context, on the thread it interrupted.
        Owner::WallRequest { value } => unsafe { wall_request::respond(value, ucontext) },
        Owner::ScanTimer => {
            // SAFETY: as above.
            if let Some(session) = unsafe { SESSION.load(Ordering::Acquire).as_ref() } {
                session.inbox.scan_due();
            }
        }
        Owner::Foreign => {
            let outcome = match BEFORE_US.get(signal as usize) {
                // SAFETY: we are the handler and pass on what the kernel gave.
                Some(before) => unsafe { before.forward(signal, info, ucontext) },
                None => Forwarded::Default,
            };
            if outcome != Forwarded::Handled {
                // SAFETY: as above.
                let sent = unsafe { (*info).si_code } <= 0;
                // A breakpoint that nobody handles ends a process by default, and so does one that is ignored.
                if signal == libc::SIGTRAP && (outcome == Forwarded::Default || !sent) {
                    guarded::die_by_default(signal, true);
                }
                counters::count_stray();
            }
        }
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn judge(info: &SignalInfo) -> Owner {
    if info.code == libc::SI_TIMER || (info.signal == libc::SIGTRAP && info.code == TRAP_PERF) {
        let table = TABLE.load(Ordering::Acquire) as usize;
        let offset = info.second.wrapping_sub(table);
        if table == 0 || offset >= SLOTS * size_of::<Slot>() {
            return Owner::Foreign;
        }
        let generation = (offset % size_of::<Slot>()) as u32;
        return match offset / size_of::<Slot>() {
            0 => Owner::ScanTimer,
            index => Owner::Slot { index, generation },
        };
    }
    if info.signal != libc::SIGTRAP && (POLL_IN..=POLL_HUP).contains(&info.code) {
        let descriptor = info.second as u32 as usize;
        let index = SLOT_OF_DESCRIPTOR.get(descriptor).map_or(0, |entry| entry.load(Ordering::Acquire)) as usize;
        return match slots().get(index) {
            Some(slot) if index != 0 && slot.thread_id() == thread_id() => {
                Owner::Slot { index, generation: slot.generation() }
            }
            _ => Owner::Foreign,
        };
    }
    if info.code == libc::SI_QUEUE && info.errno == wall_request::SIGINFO_MARK {
        return Owner::WallRequest { value: info.second };
    }
    // The kernel had no memory for the details of a perf signal: nobody sent it, and this thread has a perf clock.
    if info.code == libc::SI_USER && info.first == [0, 0] {
        let me = thread_id();
        let mine = |slot: &Slot| slot.is_live() && slot.thread_id() == me && matches!(slot.ticker(), Ticker::Perf(_));
        if let Some((index, slot)) = touched_slots().iter().enumerate().skip(1).find(|(_, slot)| mine(slot)) {
            return Owner::Slot { index, generation: slot.generation() };
        }
    }
    Owner::Foreign
}

/// # Safety
/// Called inside the handler with the kernel's `ucontext`.
unsafe fn tick(
    session: &Session,
    slot: &Slot,
    index: usize,
    generation: u32,
    signal: libc::c_int,
    ucontext: *mut libc::c_void,
) {
    // Read before the door: a sample's time is then never after the end of the run that let it in, and who drains can
    // tell what a late handler left from samples of the next run.
    session.prefetch(slot, index);
    let begun_ns = arm::monotonic_ns();
    match slot.enter(generation) {
        Entry::Entered => {}
        Entry::Nested => return counters::count(DropReason::Reentered),
        Entry::Gone => return counters::count(DropReason::Disabled),
    }
    session.inbox.prefetch_next_entry();
    // Read before the event is armed again: its next overflow may come inside this handler and replace the record.
    // SAFETY: the ring buffer of an entered slot's event stays mapped.
    let overflow = (slot.ring() != 0).then(|| unsafe { Record::last(slot.ring()) }).flatten();
    if let Some(overflow) = &overflow {
        counters::add_delivery_ns(overflow.delivery_ns(begun_ns));
    }
    let cpu_ns = slot.cpu_ns_by_ticks(begun_ns).unwrap_or_else(|| {
        let cpu_ns = arm::thread_cpu_ns();
        slot.note_reading(cpu_ns, begun_ns);
        cpu_ns
    });
    let period_ns = PERIOD_NS.load(Ordering::Relaxed);
    let late_ns = cpu_ns.saturating_sub(slot.due_cpu_ns());
    let mut weight_ns = slot.account(cpu_ns);
    let run = run_of(slot.ticker(), period_ns);
    let mut periods =
        if slot.runs() { slot.advance_run(cpu_ns, period_ns, run) } else { slot.advance(cpu_ns, period_ns) };
    let thread_id = slot.thread_id();

    let note = |reason, values| tell(session.inbox, thread_id, begun_ns, reason, values);
    let [lost_ns, lost_periods] = slot.lost();
    if lost_ns > 0 && note(DropReason::RingFull, [lost_ns, lost_periods]) {
        slot.set_lost([0, 0]);
    }
    // What ran while the signal was blocked did not run here.
    if slot.take_signal_blocked() && periods > 1 && note(DropReason::SignalBlocked, [late_ns, periods - 1]) {
        counters::count(DropReason::SignalBlocked);
        weight_ns = weight_ns.saturating_sub(late_ns);
        periods = 1;
    }

    // SAFETY: the slot is entered, so this part of the scratch frames is ours until `leave`; depth divides the area.
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
    let sample = RawSample { flags, values, context, frames: stack.frames(), ..bare(thread_id, begun_ns) };
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
    arm_next(slot, signal, cpu_ns, run, walked_ns.saturating_sub(begun_ns));
    let passed_ns = arm::monotonic_ns().saturating_sub(begun_ns);
    let took_ns = match passed_ns > LONGEST_UNCHECKED_NS {
        true => arm::thread_cpu_ns().saturating_sub(cpu_ns).min(passed_ns),
        false => passed_ns,
    };
    counters::add_handler_ns(took_ns, walked_ns.saturating_sub(walk_begun_ns).min(took_ns));
    if let Some(overflow) = &overflow {
        // SAFETY: the kernel's context.
        unsafe {
            if !guarded::blocks_faults(ucontext) {
                restart::restart_interrupted_call(ucontext, overflow);
            }
        }
    }
    slot.leave();
}

/// How often a clock uses an interval, once it goes on by itself.
fn run_of(ticker: Ticker, period_ns: u64) -> u32 {
    match ticker {
        Ticker::Perf(_) if period_ns >= SHORTEST_RUNNING_NS => {
            (LONGEST_PERF_RUN_NS / period_ns).clamp(1, LONGEST_PERF_RUN) as u32
        }
        Ticker::Timer(_) => TIMER_RUN.load(Ordering::Relaxed),
        _ => 1,
    }
}

/// Arms the clock for the next tick. It is left to go on by itself while the handler is quick, for starting and stopping it
/// costs more than the rest of a tick; once the handler takes a quarter of an interval, each tick is armed when the last one
/// is done with, so that the thread always gets on with its own work.
fn arm_next(slot: &Slot, signal: libc::c_int, cpu_ns: u64, run: u32, took_ns: u64) {
    let due_cpu_ns = slot.due_cpu_ns();
    let interval_ns = due_cpu_ns.saturating_sub(cpu_ns);
    let is_quick = took_ns < interval_ns / 4;
    let (ran, may_run) = (slot.runs(), run > 1 && is_quick);
    if ran && may_run && !slot.begins_run(run) {
        return;
    }
    slot.set_runs(may_run);
    match slot.ticker() {
        Ticker::None => 0,
        Ticker::Timer(id) if is_quick => arm::arm_timer(id, due_cpu_ns, if may_run { interval_ns } else { 0 }),
        // What the handler took was not the thread's own: a timer set into the past would ring at once.
        Ticker::Timer(id) => arm::arm_timer(id, due_cpu_ns + took_ns, 0),
        Ticker::Perf(descriptor) => {
            let next = match (ran, may_run) {
                (true, true) => arm::Perf::RunOn,
                (true, false) => arm::Perf::Stop,
                (false, true) => arm::Perf::Run,
                (false, false) => arm::Perf::Once,
            };
            arm::arm_perf(descriptor, signal, interval_ns, next)
        }
    };
}

/// An entry without a stack: CPU time that is known and the reason why nothing else is. False when the ring is full.
fn tell(inbox: &Inbox, thread_id: u32, time_ns: u64, reason: DropReason, values: [u64; 2]) -> bool {
    let frames = [RawFrame::reason(reason)];
    let sample = RawSample { values, frames: &frames, ..bare(thread_id, time_ns) };
    let told = inbox.submit(&sample).is_ok();
    if told {
        counters::add_sampled_cpu_ns(values[0]);
    }
    told
}

/// Accounts for the CPU time of a live slot's thread, now `cpu_ns`, that runs with the clock's signal blocked. Called by
/// the scan on a normal thread; a signal that comes at this moment after all takes its own part of the time.
pub fn tell_signal_blocked(inbox: &Inbox, slot: &Slot, cpu_ns: u64) {
    slot.mark_signal_blocked();
    let values = [slot.account(cpu_ns), slot.advance(cpu_ns, PERIOD_NS.load(Ordering::Relaxed))];
    counters::count(DropReason::SignalBlocked);
    if !tell(inbox, slot.thread_id(), arm::monotonic_ns(), DropReason::SignalBlocked, values) {
        counters::count(DropReason::RingFull);
    }
}

/// # Safety
/// As for [`tick`].
unsafe fn walk(capture: CaptureFn, stack: &mut RawStack<'_>, thread_id: u32, ucontext: *mut libc::c_void) {
    // SAFETY: the caller's promise.
    let captured = if unsafe { guarded::blocks_faults(ucontext) } {
        Captured::Dropped(DropReason::FaultsBlocked)
    } else {
        // SAFETY: inside the handler, on the interrupted thread: what the function asks for.
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
        // SAFETY: the caller's promise.
        DropReason::NoThreadState => RawFrame::native(unsafe { guarded::interrupted_at(ucontext) }),
        reason => RawFrame::reason(reason),
    };
    stack.push(leaf);
}

fn bare(thread_id: u32, time_ns: u64) -> RawSample<'static> {
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
    use super::{run_of, timer_run};
    use crate::slot::Ticker;

    #[test]
    fn timers_use_an_interval_again_where_the_tick_is_finer_and_no_longer_than_a_moment() {
        const MS: u64 = 1_000_000;
        assert_eq!([10, 8, 7, 4, 1].map(|period| timer_run(period * MS, 4 * MS)), [16, 16, 1, 1, 1]);
        assert_eq!([52, 100, 1_000].map(|period| timer_run(period * MS, 4 * MS)), [3, 1, 1]);
        assert_eq!([10, 20].map(|period| timer_run(period * MS, 10 * MS)), [1, 8]);
    }

    #[test]
    fn perf_events_use_an_interval_again_for_no_longer_than_80_ms() {
        const US: u64 = 1_000;
        let periods = [400, 500, 1_000, 4_000, 10_000, 50_000, 1_000_000];
        assert_eq!(periods.map(|period| run_of(Ticker::Perf(3), period * US)), [1, 64, 64, 20, 8, 1, 1]);
    }
}
