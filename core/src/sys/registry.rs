//! Which thread has which slot and which clock: opening, closing, finding new and ended threads. One registry per
//! process, behind a lock that only normal threads take. The handler sees slots alone.

use super::time::thread_cpu_ns;
use super::{own_threads, perf, threads, timer};
use spanprof_signal::{arm, counters, handler, DropReason, Inbox, Opening, Slot, Ticker, MOST_PERIODS_AHEAD};
use std::collections::HashMap;

/// How a thread's accounting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// It lived before us: its CPU time so far is not ours to tell.
    BeforeStart,
    /// It was born while we were looking: all its CPU time counts.
    AfterStart,
    /// Its clock is changed: samples carry its CPU time up to here.
    Accounted(u64),
}

/// What ticks for new threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Timer,
    Perf,
    /// Perf with [`perf::Notify::Trap`].
    Trap,
}

/// What the registry needs to open clocks.
#[derive(Clone, Copy)]
pub(super) struct Ticking {
    pub kind: Kind,
    pub signal: libc::c_int,
    pub period_ns: u64,
    pub inbox: &'static Inbox,
}

impl Ticking {
    /// How perf events notify their threads.
    fn notify(&self) -> perf::Notify {
        match self.kind {
            Kind::Trap => perf::Notify::Trap,
            Kind::Timer | Kind::Perf => perf::Notify::Signal(self.signal),
        }
    }
}

struct Known {
    slot: usize,
    /// How often its clock had to be armed again since its last sample; each time waits twice as long.
    rearmed: u32,
    accounted_then: u64,
}

/// See the head of the module.
#[derive(Default)]
pub(super) struct Registry {
    known: HashMap<u32, Known>,
    /// Threads without a clock, and how their accounting is to begin once they get one.
    refused: HashMap<u32, Birth>,
    /// Threads that are to have no clock for now, and the CPU time that samples carry of them.
    suspended: HashMap<u32, u64>,
    closing: Vec<usize>,
    perf_open: usize,
    /// Slots that were used and are free again.
    free: Vec<usize>,
    /// Slots from 1 to here were used; beyond the table, further threads are refused.
    used: usize,
    ids: Vec<u32>,
    pub scans: u64,
    pub rearmed: u64,
}

/// A clock is late when its thread burnt this much CPU time beyond the moment its sample was due.
const LATE_NS: u64 = 100_000_000;

impl Registry {
    /// Gives a thread a clock unless it has one, is ours, or has ended.
    pub fn open(&mut self, thread_id: u32, birth: Birth, ticking: &Ticking) {
        let has_none = own_threads::is_own(thread_id) || self.suspended.contains_key(&thread_id);
        if has_none || self.known.contains_key(&thread_id) {
            return;
        }
        let Some(cpu_ns) = thread_cpu_ns(thread_id) else { return };
        match self.open_slot(thread_id, birth, cpu_ns, ticking) {
            Ok(slot) => {
                self.known.insert(thread_id, Known { slot, rearmed: 0, accounted_then: 0 });
                self.refused.remove(&thread_id);
            }
            Err(_) if thread_cpu_ns(thread_id).is_none() => {}
            Err(reason) => {
                if self.refused.insert(thread_id, birth).is_none() {
                    counters::count(reason);
                }
            }
        }
    }

    fn open_slot(&mut self, thread_id: u32, birth: Birth, cpu_ns: u64, ticking: &Ticking) -> Result<usize, DropReason> {
        self.reap();
        let (index, slot) = self.free_slot().ok_or(DropReason::TooManyThreads)?;
        let accounted_cpu_ns = match birth {
            Birth::BeforeStart => cpu_ns,
            Birth::AfterStart => 0,
            Birth::Accounted(ns) => ns.min(cpu_ns),
        };
        let first_of_thread = birth == Birth::AfterStart;
        let opening = Opening { thread_id, accounted_cpu_ns, first_of_thread, seed: seed(thread_id) };
        let generation = slot.open(&opening);
        let due = slot.begin_schedule(cpu_ns, ticking.period_ns, first_of_thread);
        if self.open_ticker(slot, index, generation, ticking) && arm::arm(slot.ticker(), cpu_ns, due) == 0 {
            return Ok(index);
        }
        self.retire(index);
        Err(DropReason::NoClock)
    }

    fn open_ticker(&mut self, slot: &Slot, index: usize, generation: u32, ticking: &Ticking) -> bool {
        let thread_id = slot.thread_id();
        let value = handler::signal_value(index, generation);
        if ticking.kind != Kind::Timer && self.perf_open < perf::descriptor_budget() {
            if let Ok(event) = perf::open(thread_id, ticking.notify(), ticking.period_ns, value) {
                if handler::set_slot_of_descriptor(event.descriptor, index) {
                    slot.set_ticker(Ticker::Perf(event.descriptor), event.id, event.ring);
                    self.perf_open += 1;
                    return true;
                }
                perf::close(event);
            }
        }
        match timer::create_for_thread(thread_id, ticking.signal, value) {
            Ok(id) => {
                slot.set_ticker(Ticker::Timer(id), 0, 0);
                true
            }
            Err(_) => false,
        }
    }

    /// A slot used before, if there is one, so that few pages are ever touched.
    fn free_slot(&mut self) -> Option<(usize, &'static Slot)> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.used = (self.used + 1).min(handler::SLOTS);
            self.used
        });
        let slot = handler::slots().get(index)?;
        handler::touch_slot(index);
        Some((index, slot))
    }

    /// Takes the clock from a thread.
    pub fn close(&mut self, thread_id: u32) {
        if let Some(known) = self.known.remove(&thread_id) {
            self.retire(known.slot);
        }
        self.reap();
    }

    /// Takes the clock from a thread, which calls this, until [`Registry::resume`].
    pub fn suspend(&mut self, thread_id: u32) {
        let Some(slot) = self.known.get(&thread_id).map(|known| &handler::slots()[known.slot]) else { return };
        self.close(thread_id);
        self.suspended.insert(thread_id, slot.accounted_cpu_ns());
    }

    /// Gives a suspended thread a clock again.
    pub fn resume(&mut self, thread_id: u32, ticking: &Ticking) {
        if let Some(accounted_ns) = self.suspended.remove(&thread_id) {
            self.open(thread_id, Birth::Accounted(accounted_ns), ticking);
        }
    }

    /// Takes the clock from every thread, and waits shortly for handlers to leave.
    pub fn close_all(&mut self) {
        for (_, known) in std::mem::take(&mut self.known) {
            self.retire(known.slot);
        }
        self.refused.clear();
        self.suspended.clear();
        for _ in 0..100 {
            self.reap();
            if self.closing.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    fn retire(&mut self, index: usize) {
        let slot = &handler::slots()[index];
        slot.close();
        match slot.ticker() {
            Ticker::None => {}
            Ticker::Timer(id) => timer::delete(id),
            Ticker::Perf(descriptor) => {
                perf::disable(perf::Event { descriptor, id: slot.event_id(), ring: slot.ring() })
            }
        }
        self.closing.push(index);
    }

    /// Frees slots whose last handler left.
    fn reap(&mut self) {
        let (perf_open, free) = (&mut self.perf_open, &mut self.free);
        self.closing.retain(|&index| {
            let slot = &handler::slots()[index];
            if !slot.is_quiet() {
                return true;
            }
            if let Ticker::Perf(descriptor) = slot.ticker() {
                handler::set_slot_of_descriptor(descriptor, 0);
                perf::close(perf::Event { descriptor, id: slot.event_id(), ring: slot.ring() });
                *perf_open -= 1;
            }
            slot.free();
            free.push(index);
            false
        });
    }

    /// Finds new and ended threads, and clocks whose signal was lost.
    pub fn scan(&mut self, birth: Birth, ticking: &Ticking) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        if threads::thread_ids(&mut ids) {
            ids.sort_unstable();
            self.follow(&ids, birth, ticking);
        }
        self.ids = ids;
    }

    /// What follows from a list of threads, in order of their ids.
    pub(super) fn follow(&mut self, ids: &[u32], birth: Birth, ticking: &Ticking) {
        self.scans += 1;
        self.refused.retain(|thread_id, _| ids.binary_search(thread_id).is_ok());
        // Not listed is not ended: reading goes on by position when the last thread read has ended, and each that ended
        // before it lets one be passed by (`first_tid` in the kernel's fs/proc/base.c).
        let is_gone = |id: &u32| ids.binary_search(id).is_err() && thread_cpu_ns(*id).is_none();
        let ended: Vec<u32> = self.known.keys().copied().filter(is_gone).collect();
        for thread_id in ended {
            self.close(thread_id);
        }
        for &thread_id in ids {
            match self.known.contains_key(&thread_id) {
                true => self.look_after(thread_id, ticking),
                false => self.open(thread_id, self.refused.get(&thread_id).copied().unwrap_or(birth), ticking),
            }
        }
    }

    /// A clock that is armed for each tick stops for good when its one signal is lost; or it belongs to an earlier thread of
    /// the same id.
    fn look_after(&mut self, thread_id: u32, ticking: &Ticking) {
        let Some(known) = self.known.get_mut(&thread_id) else { return };
        let slot = &handler::slots()[known.slot];
        // Before its clock: what a sample carries meanwhile must not look like the clock of another thread.
        let accounted = slot.accounted_cpu_ns();
        let Some(cpu_ns) = thread_cpu_ns(thread_id) else { return };
        if cpu_ns.saturating_add(MOST_PERIODS_AHEAD * ticking.period_ns) < accounted {
            self.close(thread_id);
            return self.open(thread_id, Birth::AfterStart, ticking);
        }
        if accounted != known.accounted_then {
            known.accounted_then = accounted;
            known.rearmed = 0;
        }
        let patience = (LATE_NS + 8 * ticking.period_ns) << known.rearmed.min(16);
        if cpu_ns < slot.due_cpu_ns().saturating_add(patience) {
            return;
        }
        let signal = match slot.ticker() {
            Ticker::Perf(_) => ticking.notify().signal(),
            _ => ticking.signal,
        };
        if threads::blocks_signal(thread_id, signal) {
            return handler::tell_signal_blocked(ticking.inbox, slot, cpu_ns);
        }
        known.rearmed += 1;
        self.rearmed += 1;
        let rearmed = known.rearmed;
        self.renew(thread_id, ticking);
        if let Some(known) = self.known.get_mut(&thread_id) {
            known.rearmed = rearmed;
            known.accounted_then = accounted;
        }
    }

    /// Gives a thread another clock that goes on where its first one stops.
    fn renew(&mut self, thread_id: u32, ticking: &Ticking) {
        let Some(slot) = self.known.get(&thread_id).map(|known| &handler::slots()[known.slot]) else { return };
        self.close(thread_id);
        // A handler still inside carries CPU time that it may not have noted yet.
        for _ in 0..100 {
            if slot.is_quiet() {
                break;
            }
            std::thread::yield_now();
        }
        self.open(thread_id, Birth::Accounted(slot.accounted_cpu_ns()), ticking);
    }

    /// Puts every thread on a new rate, and on a new clock if its kind or signal changed.
    pub fn change(&mut self, ticking: &Ticking, clock_changed: bool) {
        let all: Vec<(u32, usize)> = self.known.iter().map(|(id, known)| (*id, known.slot)).collect();
        for (thread_id, index) in all {
            let slot = &handler::slots()[index];
            match slot.ticker() {
                Ticker::Timer(id) if !clock_changed => {
                    let Some(cpu_ns) = thread_cpu_ns(thread_id) else { continue };
                    let due = slot.begin_schedule(cpu_ns, ticking.period_ns, false);
                    // Its handler may have left it to ring by itself, and then arms it no sooner than at the end of a run.
                    arm::arm_timer(id, due, ticking.period_ns);
                }
                // A perf event may run by itself, which only its own thread can change.
                _ => self.renew(thread_id, ticking),
            }
        }
    }

    /// Every thread with a clock, and its slot.
    pub fn threads(&self) -> impl Iterator<Item = (u32, &'static Slot)> + '_ {
        self.known.iter().map(|(thread_id, known)| (*thread_id, &handler::slots()[known.slot]))
    }

    /// Threads that have a clock.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Those of them that have a perf event.
    pub fn on_perf(&self) -> usize {
        self.perf_open
    }

    /// Threads that could not get one.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// Different for each thread, start and process; no secret.
fn seed(thread_id: u32) -> u64 {
    let place = &raw const thread_id as u64;
    let mut x = super::monotonic_ns() ^ ((thread_id as u64) << 32) ^ place.rotate_left(17);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
