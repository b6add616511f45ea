//! The clock of a slot: arms it after each tick, and finds the overflows of a perf event whose signal did not arrive as
//! one. Runs in the handler.
//!
//! # Rules
//! 1. A clock is armed by its own state, never by what is pending. A standard signal does not queue: the kernel drops a
//!    perf signal while a wall request or a signal of the host is pending for the thread (`legacy_queue` in
//!    kernel/signal.c, Linux 2.6–6.18). The number of overflows in the event's ring buffer is not affected, so every
//!    signal that our handler receives also handles the overflows since the last tick. Timers have a signal of their
//!    own in the kernel, which is always queued (`send_sigqueue`).
//! 2. A perf event never has more than [`MAX_ALLOWED_OVERFLOWS`] further overflows without our handler, and a timer
//!    expires once. If a program installs its own handler for the signal, this handler is called as often, and no more.
//! 3. An event that runs free always has one more allowed overflow, so the handler does not stop and start it: that
//!    costs more than the rest of a tick (decision 62). An event that is armed for each tick is disabled by its own
//!    overflow while the handler runs, so a thread whose walks are slower than its clock makes progress.

use crate::signals::arm;
use crate::signals::overflow::{self, OverflowRecord};
use crate::signals::slot::{Slot, Ticker};
use core::sync::atomic::{AtomicBool, Ordering};

/// Further overflows of an event that runs free: the next one, and one that keeps the event enabled at that overflow.
const MAX_ALLOWED_OVERFLOWS: u64 = 2;

/// Whether a clock could not be armed since the last scan.
static HAS_LOST_CLOCK: AtomicBool = AtomicBool::new(false);

/// Whether a clock could not be armed since the last [`take_lost_clock`]: the program closed its descriptor, or uses the
/// number for another file.
pub fn has_lost_clock() -> bool {
    HAS_LOST_CLOCK.load(Ordering::Relaxed)
}

/// As [`has_lost_clock`], once: the caller opens the clocks again.
pub fn take_lost_clock() -> bool {
    HAS_LOST_CLOCK.swap(false, Ordering::Relaxed)
}

/// The overflows of a perf event since its last tick.
pub(crate) struct Overflows {
    /// Their number; 0 if an earlier signal already handled the overflow of this one.
    pub count: u64,
    /// The overflow for which the kernel sent the first signal.
    pub first: Option<OverflowRecord>,
    /// The overflow for which it sent the last signal, which may have interrupted a system call.
    pub last: Option<OverflowRecord>,
}

/// Overflows of the slot's perf event so far; `None` without a perf event. Entered slots only.
fn overflow_count(slot: &Slot) -> Option<u64> {
    let is_perf = matches!(slot.ticker(), Ticker::Perf(_)) && slot.event_buffer() != 0;
    // SAFETY: the ring buffer of an entered slot's event stays mapped until the slot is quiescent.
    is_perf.then(|| unsafe { overflow::count(slot.event_buffer()) })
}

/// Takes the overflows since the last tick; `None` without a perf event. Entered slots only.
pub(crate) fn take_overflows(slot: &Slot) -> Option<Overflows> {
    let count = overflow_count(slot)?;
    let handled = slot.set_handled_overflows(count);
    // SAFETY: the ring buffer of an entered slot's event stays mapped until the slot is quiescent; `number` <= `count`.
    let record = |number| unsafe { OverflowRecord::read(slot.event_buffer(), number) };
    let [first, last] = if count > handled { [record(handled + 1), record(count)] } else { [None, None] };
    Some(Overflows { count: count.saturating_sub(handled), first, last })
}

/// Arms the clock of a slot for the first time, `interval_ns` of CPU time before `due_cpu_ns`. Opening thread only.
/// Returns 0 or errno.
pub fn arm_first(slot: &Slot, interval_ns: u64, due_cpu_ns: u64) -> i32 {
    match slot.ticker() {
        Ticker::None => 0,
        Ticker::Timer(id) => arm::arm_timer(id, due_cpu_ns),
        Ticker::Perf(descriptor) => match arm::set_perf_interval(descriptor, interval_ns) {
            0 => allow_overflows(slot, descriptor, 1),
            error => error,
        },
    }
}

/// Arms the clock for the next tick; false if it is lost. `handler_ns`: CPU time of this tick's handler so far. An event with
/// batches runs free while the handler takes less than a quarter of an interval.
pub(crate) fn arm_next(slot: &Slot, cpu_ns: u64, batch: u32, handler_ns: u64) -> bool {
    let due_cpu_ns = slot.due_cpu_ns();
    let interval_ns = due_cpu_ns.saturating_sub(cpu_ns);
    let is_quick = handler_ns < interval_ns / 4;
    let error = match slot.ticker() {
        Ticker::None => 0,
        // A slow handler's own time is excluded: a timer set into the past would expire at once.
        Ticker::Timer(id) => arm::arm_timer(id, if is_quick { due_cpu_ns } else { due_cpu_ns + handler_ns }),
        Ticker::Perf(descriptor) => {
            let runs_free = batch > 1 && is_quick;
            let has_new_interval = !slot.is_free_running() || slot.begins_batch(batch);
            slot.set_free_running(runs_free);
            arm_event(slot, descriptor, interval_ns, runs_free, has_new_interval)
        }
    };
    if error != 0 {
        HAS_LOST_CLOCK.store(true, Ordering::Relaxed);
    }
    error == 0
}

/// Returns 0 or errno.
fn arm_event(slot: &Slot, descriptor: u32, interval_ns: u64, runs_free: bool, has_new_interval: bool) -> i32 {
    let overflows = overflow_count(slot).unwrap_or(0);
    let allowed = slot.allowed_overflows().saturating_sub(overflows);
    // Otherwise the event overflowed in this handler: its signal is pending, and the next tick arms the event.
    let is_due = runs_free || overflows == slot.handled_overflows();
    let error =
        if is_due && (has_new_interval || !runs_free) { arm::set_perf_interval(descriptor, interval_ns) } else { 0 };
    let allowance = if runs_free { MAX_ALLOWED_OVERFLOWS } else { 1 };
    match error {
        0 if is_due => allow_overflows(slot, descriptor, allowance.saturating_sub(allowed)),
        error => error,
    }
}

fn allow_overflows(slot: &Slot, descriptor: u32, overflows: u64) -> i32 {
    if overflows == 0 {
        return 0;
    }
    // Counted first: an overflow may interrupt this thread before the next line.
    slot.add_allowed_overflows(overflows);
    arm::allow_perf_overflows(descriptor, overflows)
}
