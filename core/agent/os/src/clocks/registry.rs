//! Maps threads to slots and clocks. Opens and closes the clocks, and detects new and ended threads. One registry per
//! process, behind a lock that only normal threads take. The handler accesses slots only.
//!
//! The scan also finds clocks that are overdue. If the thread blocks the signal, its CPU time so far becomes an entry without
//! a stack (`signal_blocked`): the first sample after it would charge all of it to the code that unblocks the signal.
//! Otherwise the signal was lost, and the clock is opened again.

use super::perf;
use crate::threads::{listing as threads, own_threads};
use crate::time::thread_cpu_ns;
use crate::timer;
use spanprof_signal::{
    arm, counters, handler, slot_clock, slot_table, DropReason, Inbox, Slot, SlotInit, Ticker, MAX_PERIODS_AHEAD,
};
use std::collections::HashMap;

/// The initial accounting of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountingStart {
    /// The thread existed before start: its CPU time so far is not counted.
    BeforeStart,
    /// The thread was created after start: all its CPU time counts.
    AfterStart,
    /// The clock is replaced: samples account for the CPU time up to this value.
    Accounted(u64),
}

/// The kind of clock for new threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickerKind {
    Timer,
    Perf,
}

/// Parameters for opening clocks.
#[derive(Clone, Copy)]
pub(crate) struct ClockSetup {
    pub kind: TickerKind,
    pub signal: libc::c_int,
    pub period_ns: u64,
    pub inbox: &'static Inbox,
}

struct TrackedThread {
    slot: usize,
    /// Number of re-arms since its last sample; each doubles the tolerance.
    rearmed: u32,
    accounted_cpu_ns: u64,
}

/// The threads with a clock, and those without.
#[derive(Default)]
pub(crate) struct Registry {
    tracked: HashMap<u32, TrackedThread>,
    /// Threads without a clock, and their initial accounting once they get one.
    refused: HashMap<u32, AccountingStart>,
    closing: Vec<usize>,
    open_perf_events: usize,
    /// Released slots.
    free: Vec<usize>,
    /// Highest slot used so far; beyond the table, further threads are refused.
    used: usize,
    ids: Vec<u32>,
    /// Clocks opened since the last search for ended threads.
    opened: usize,
    pub scans: u64,
    pub rearmed: u64,
}

/// Threads that register themselves until the ended ones among them are searched: each holds a slot and a descriptor until then.
const MAX_OPENED: usize = 256;

/// A clock is late when its thread used this much CPU time beyond the due time of its sample.
const LATE_NS: u64 = 100_000_000;

impl Registry {
    /// Opens a clock for a thread, unless it has one, is ours, or has ended.
    pub fn open(&mut self, thread_id: u32, start: AccountingStart, setup: &ClockSetup) {
        if own_threads::is_own(thread_id) || self.tracked.contains_key(&thread_id) {
            return;
        }
        let Some(cpu_ns) = thread_cpu_ns(thread_id) else { return };
        match self.open_slot(thread_id, start, cpu_ns, setup) {
            Ok(slot) => {
                self.tracked.insert(thread_id, TrackedThread { slot, rearmed: 0, accounted_cpu_ns: 0 });
                self.opened += 1;
                self.refused.remove(&thread_id);
            }
            Err(_) if thread_cpu_ns(thread_id).is_none() => {}
            Err(reason) => {
                if self.refused.insert(thread_id, start).is_none() {
                    counters::count(reason);
                }
            }
        }
    }

    /// As [`Registry::open`], for a thread that registers itself. Scans may be rarer than the ends of such threads.
    pub fn open_new(&mut self, thread_id: u32, setup: &ClockSetup) {
        if self.opened >= MAX_OPENED {
            self.close_ended(&[]);
        }
        self.open(thread_id, AccountingStart::AfterStart, setup);
    }

    fn open_slot(
        &mut self,
        thread_id: u32,
        start: AccountingStart,
        cpu_ns: u64,
        setup: &ClockSetup,
    ) -> Result<usize, DropReason> {
        self.reap();
        let (index, slot) = self.free_slot().ok_or(DropReason::TooManyThreads)?;
        let accounted_cpu_ns = match start {
            AccountingStart::BeforeStart => cpu_ns,
            AccountingStart::AfterStart => 0,
            AccountingStart::Accounted(ns) => ns.min(cpu_ns),
        };
        let first_of_thread = start == AccountingStart::AfterStart;
        let init = SlotInit { thread_id, accounted_cpu_ns, first_of_thread, seed: seed(thread_id) };
        let generation = slot.open(&init);
        let due = slot.begin_schedule(cpu_ns, setup.period_ns, first_of_thread);
        if self.open_ticker(slot, index, generation, setup)
            && slot_clock::arm_first(slot, due.saturating_sub(cpu_ns), due) == 0
        {
            return Ok(index);
        }
        self.retire(index);
        Err(DropReason::NoClock)
    }

    fn open_ticker(&mut self, slot: &Slot, index: usize, generation: u32, setup: &ClockSetup) -> bool {
        let thread_id = slot.thread_id();
        let value = slot_table::signal_value(index, generation);
        if setup.kind != TickerKind::Timer && self.open_perf_events < perf::descriptor_budget() {
            if let Ok(event) = perf::open(thread_id, setup.signal, setup.period_ns) {
                if slot_table::set_slot_of_descriptor(event.descriptor, index) {
                    slot.set_ticker(Ticker::Perf(event.descriptor), event.id, event.buffer);
                    self.open_perf_events += 1;
                    return true;
                }
                perf::close(event);
            }
        }
        match timer::create_for_thread(thread_id, setup.signal, value) {
            Ok(id) => {
                slot.set_ticker(Ticker::Timer(id), 0, 0);
                true
            }
            Err(_) => false,
        }
    }

    /// Returns a released slot if available, to keep the number of touched pages low.
    fn free_slot(&mut self) -> Option<(usize, &'static Slot)> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.used = (self.used + 1).min(slot_table::SLOTS);
            self.used
        });
        let slot = slot_table::slots().get(index)?;
        slot_table::mark_slot_used(index);
        Some((index, slot))
    }

    /// Closes the clock of a thread.
    pub fn close(&mut self, thread_id: u32) {
        if let Some(tracked) = self.tracked.remove(&thread_id) {
            self.retire(tracked.slot);
        }
        self.reap();
    }

    /// Closes all clocks, and waits up to 10 ms for handlers to leave.
    pub fn close_all(&mut self) {
        for (_, tracked) in std::mem::take(&mut self.tracked) {
            self.retire(tracked.slot);
        }
        self.refused.clear();
        for _ in 0..100 {
            self.reap();
            if self.closing.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    fn retire(&mut self, index: usize) {
        let slot = &slot_table::slots()[index];
        slot.close();
        match slot.ticker() {
            Ticker::None => {}
            Ticker::Timer(id) => arm::delete_timer(id),
            Ticker::Perf(descriptor) => perf::disable(perf_event(slot, descriptor)),
        }
        self.closing.push(index);
    }

    /// Frees closing slots that are quiescent.
    fn reap(&mut self) {
        let (open_perf_events, free) = (&mut self.open_perf_events, &mut self.free);
        self.closing.retain(|&index| {
            let slot = &slot_table::slots()[index];
            if !slot.is_quiescent() {
                return true;
            }
            if let Ticker::Perf(descriptor) = slot.ticker() {
                slot_table::set_slot_of_descriptor(descriptor, 0);
                perf::close(perf_event(slot, descriptor));
                *open_perf_events -= 1;
            }
            slot.free();
            free.push(index);
            false
        });
    }

    /// Detects new and ended threads, and clocks whose signal was lost.
    pub fn scan(&mut self, start: AccountingStart, setup: &ClockSetup) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        if threads::thread_ids(&mut ids) {
            ids.sort_unstable();
            self.apply_list(&ids, start, setup);
        }
        self.ids = ids;
    }

    /// Applies a list of thread ids, sorted by id.
    pub(crate) fn apply_list(&mut self, ids: &[u32], start: AccountingStart, setup: &ClockSetup) {
        self.scans += 1;
        let has_lost_clock = slot_clock::take_lost_clock();
        self.refused.retain(|thread_id, _| ids.binary_search(thread_id).is_ok());
        self.close_ended(ids);
        for &thread_id in ids {
            match self.tracked.contains_key(&thread_id) {
                true if has_lost_clock && self.has_lost_event(thread_id) => {
                    self.rearmed += 1;
                    self.reopen(thread_id, setup);
                }
                true => self.check_clock(thread_id, setup),
                false => self.open(thread_id, self.refused.get(&thread_id).copied().unwrap_or(start), setup),
            }
        }
    }

    /// Closes the clocks of ended threads; `listed` threads exist.
    fn close_ended(&mut self, listed: &[u32]) {
        self.opened = 0;
        // An unlisted thread may still exist. The kernel continues a listing by position when the last thread read
        // has ended. Each thread that ended before that position causes one to be skipped (`first_tid` in
        // fs/proc/base.c).
        let is_gone = |id: &u32| listed.binary_search(id).is_err() && thread_cpu_ns(*id).is_none();
        let ended: Vec<u32> = self.tracked.keys().copied().filter(is_gone).collect();
        for thread_id in ended {
            self.close(thread_id);
        }
    }

    /// Whether the program closed the descriptor of a thread's perf event.
    fn has_lost_event(&self, thread_id: u32) -> bool {
        let slot = self.tracked.get(&thread_id).map(|tracked| &slot_table::slots()[tracked.slot]);
        slot.is_some_and(|slot| match slot.ticker() {
            Ticker::Perf(descriptor) => !perf::is_still_ours(perf_event(slot, descriptor)),
            _ => false,
        })
    }

    /// Re-arms a late clock. A clock that is armed for each tick stops when its one signal is lost. Replaces the
    /// clock of an earlier thread with the same id.
    fn check_clock(&mut self, thread_id: u32, setup: &ClockSetup) {
        let Some(tracked) = self.tracked.get_mut(&thread_id) else { return };
        let slot = &slot_table::slots()[tracked.slot];
        // Read before the thread's clock: a concurrent sample could otherwise exceed that clock, as if it were the
        // clock of another thread.
        let accounted = slot.accounted_cpu_ns();
        let Some(cpu_ns) = thread_cpu_ns(thread_id) else { return };
        if cpu_ns.saturating_add(MAX_PERIODS_AHEAD * setup.period_ns) < accounted {
            self.close(thread_id);
            return self.open(thread_id, AccountingStart::AfterStart, setup);
        }
        if accounted != tracked.accounted_cpu_ns {
            tracked.accounted_cpu_ns = accounted;
            tracked.rearmed = 0;
        }
        let tolerance_ns = (LATE_NS + 8 * setup.period_ns) << tracked.rearmed.min(16);
        if cpu_ns < slot.due_cpu_ns().saturating_add(tolerance_ns) {
            return;
        }
        if threads::holds_back_signal(thread_id, setup.signal) {
            return handler::account_signal_blocked(setup.inbox, slot, cpu_ns);
        }
        tracked.rearmed += 1;
        self.rearmed += 1;
        let rearmed = tracked.rearmed;
        self.reopen(thread_id, setup);
        if let Some(tracked) = self.tracked.get_mut(&thread_id) {
            tracked.rearmed = rearmed;
            tracked.accounted_cpu_ns = accounted;
        }
    }

    /// Replaces a thread's clock; its accounting continues.
    fn reopen(&mut self, thread_id: u32, setup: &ClockSetup) {
        let Some(slot) = self.tracked.get(&thread_id).map(|tracked| &slot_table::slots()[tracked.slot]) else { return };
        self.close(thread_id);
        // A handler that is still active may not have stored its CPU time yet.
        for _ in 0..100 {
            if slot.is_quiescent() {
                break;
            }
            std::thread::yield_now();
        }
        self.open(thread_id, AccountingStart::Accounted(slot.accounted_cpu_ns()), setup);
    }

    /// Applies a new rate to every thread, and a new clock if its kind or signal changed.
    pub fn change(&mut self, setup: &ClockSetup, clock_changed: bool) {
        let all: Vec<(u32, usize)> = self.tracked.iter().map(|(id, tracked)| (*id, tracked.slot)).collect();
        for (thread_id, index) in all {
            let slot = &slot_table::slots()[index];
            match slot.ticker() {
                Ticker::Timer(id) if !clock_changed => {
                    let Some(cpu_ns) = thread_cpu_ns(thread_id) else { continue };
                    let due = slot.begin_schedule(cpu_ns, setup.period_ns, false);
                    arm::arm_timer(id, due);
                }
                // A perf event may run free; only its own thread can reconfigure it.
                _ => self.reopen(thread_id, setup),
            }
        }
    }

    /// Every thread with a clock, and its slot.
    pub fn threads(&self) -> impl Iterator<Item = (u32, &'static Slot)> + '_ {
        self.tracked.iter().map(|(thread_id, tracked)| (*thread_id, &slot_table::slots()[tracked.slot]))
    }

    /// Number of threads with a clock.
    pub fn len(&self) -> usize {
        self.tracked.len()
    }

    /// Number of these with a perf event.
    pub fn on_perf(&self) -> usize {
        self.open_perf_events
    }

    /// Number of threads without a clock.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }
}

fn perf_event(slot: &Slot, descriptor: u32) -> perf::PerfEvent {
    perf::PerfEvent { descriptor, id: slot.event_id(), buffer: slot.event_buffer() }
}

/// A seed that differs per thread, start and process; not a secret.
fn seed(thread_id: u32) -> u64 {
    let address = &raw const thread_id as u64;
    let mut x = crate::time::monotonic_ns() ^ ((thread_id as u64) << 32) ^ address.rotate_left(17);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
