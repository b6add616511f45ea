//! The clocks on real threads of this process: weights, threads, forks, stray signals and restarts. Time bounds are wide,
//! since the machine may be oversubscribed; sums are compared exactly.

use crate::clocks::clock_types::{ClockChoice, ClockSettings};
use crate::clocks::thread_clocks::Clocks;
use crate::fork::install_fork_hook;
use crate::process::info::resident_bytes;
use crate::testing::{one_at_a_time, StopOnDrop};
use crate::threads::listing::thread_id;
use crate::threads::own_threads::own_cpu_ns;
use crate::time::{current_thread_cpu_ns, kernel_tick_hz};
use spanprof_signal::{
    handler, slot_table, Captured, DropReason, HandlerContext, RawFrame, RawStack, SampleFlags, WakeReason,
    MAX_PERIODS_AHEAD,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

const WALKED: RawFrame = RawFrame { code: 0x1000_0000, at: 7 };

unsafe fn one_frame(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    stack.push(WALKED);
    Captured::Walked
}

unsafe fn no_state(_: &HandlerContext, _: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::NoThreadState)
}

pub(crate) fn settings(kind: ClockChoice, rate_hz: u32) -> ClockSettings {
    ClockSettings {
        kind,
        rate_hz,
        max_stack_depth: 64,
        capture: one_frame,
        ring_bytes: 1 << 20,
        fallback_signal: libc::SIGPROF,
    }
}

/// Wakes the drain thread of a test on drop, also after a failed assertion.
struct WakeOnDrop<'a>(&'a Clocks);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Uses `ns` of the calling thread's CPU time; returns its CPU clock.
pub(crate) fn burn(ns: u64) -> u64 {
    let end = current_thread_cpu_ns() + ns;
    let mut x = 1u64;
    loop {
        for _ in 0..5_000 {
            x = std::hint::black_box(x.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(7));
        }
        let now = current_thread_cpu_ns();
        if now >= end {
            return now;
        }
    }
}

/// Uses the calling thread's CPU until `enough`, for at most 2 s of its CPU time: ticks are rare on an oversubscribed
/// processor.
pub(crate) fn burn_until(enough: impl Fn() -> bool) {
    let end = current_thread_cpu_ns() + 2_000_000_000;
    while !enough() && current_thread_cpu_ns() < end {
        burn(2_000_000);
    }
}

#[derive(Default, Debug, Clone)]
pub(crate) struct DrainedSamples {
    pub samples: u64,
    pub weight_ns: u64,
    pub first: u64,
    pub walked: u64,
    pub native: u64,
    /// Number and CPU time of the entries without a stack.
    pub reasons: HashMap<DropReason, (u64, u64)>,
}

pub(crate) fn drain(clocks: &Clocks) -> HashMap<u32, DrainedSamples> {
    let mut drained: HashMap<u32, DrainedSamples> = HashMap::new();
    let ring = clocks.ring();
    ring.drain(ring.head(), &mut |_, sample| {
        let thread = drained.entry(sample.thread_id).or_default();
        assert!(sample.values[1] >= 1);
        thread.samples += 1;
        thread.weight_ns += sample.values[0];
        thread.first += sample.flags.has(SampleFlags::FIRST_OF_THREAD) as u64;
        for frame in sample.frames {
            thread.walked += (*frame == WALKED) as u64;
            thread.native += frame.native_pc().is_some() as u64;
            if let Some(reason) = frame.as_reason() {
                let (entries, weight_ns) = thread.reasons.entry(reason).or_default();
                (*entries, *weight_ns) = (*entries + 1, *weight_ns + sample.values[0]);
            }
        }
    });
    drained
}

/// Starts the clocks with an empty ring.
pub(crate) fn start(settings: ClockSettings) -> Clocks {
    install_fork_hook();
    let clocks = Clocks::start(settings).expect("the clocks start");
    drain(&clocks);
    clocks
}

fn a_burning_thread_is_sampled_by(kind: ClockChoice, rate_hz: u32, least_samples: u64) {
    let _turn = one_at_a_time();
    let clocks = start(settings(kind, rate_hz));
    let (thread_id, accounted_ns) = account_for_thread(|| {
        clocks.register_current_thread();
        burn(500_000_000);
    });
    let drained = drain(&clocks).remove(&thread_id).expect("samples of the burning thread");
    assert!(drained.samples >= least_samples, "{drained:?}");
    // On an oversubscribed machine a tick may be late, a timer by more than eight ticks of the kernel: its stack gets one period.
    let (late, late_ns) = drained.reasons.get(&DropReason::LateTick).copied().unwrap_or_default();
    let late_by_ns = if kind == ClockChoice::ThreadTimer { 8_000_000_000 / u64::from(kernel_tick_hz()) } else { 0 };
    assert!(late_ns >= late * late_by_ns, "{drained:?}");
    assert_eq!(drained.walked + late, drained.samples, "{drained:?}");
    assert_eq!(drained.first, 1, "{drained:?}");
    assert_eq!(drained.weight_ns, accounted_ns);
    // Less than the total by the last interval, which is longer on an oversubscribed machine.
    assert!(accounted_ns > 350_000_000, "{accounted_ns} ns of 500 ms");
}

/// At 100 Hz.
const MAX_AHEAD_NS: u64 = MAX_PERIODS_AHEAD * 10_000_000;

/// The calling thread's id, and its CPU time that samples account for. Blocks further samples of it.
pub(crate) fn block_samples_and_account() -> (u32, u64) {
    crate::threads::listing::block_signal(libc::SIGURG);
    crate::threads::listing::block_signal(libc::SIGTRAP);
    let me = thread_id();
    let slot = slot_table::used_slots().iter().find(|slot| slot.is_live() && slot.thread_id() == me);
    let accounted_ns = slot.expect("it has a clock").accounted_cpu_ns();
    // Estimates of a free-running perf event are ahead if a hypervisor stole the processor.
    let cpu_ns = current_thread_cpu_ns();
    assert!(accounted_ns <= cpu_ns + MAX_AHEAD_NS, "{accounted_ns} ns accounted for of {cpu_ns}");
    (me, accounted_ns)
}

/// Runs `work` on a new thread. Returns that thread's id, and its CPU time that samples account for.
pub(crate) fn account_for_thread(work: impl FnOnce() + Send) -> (u32, u64) {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            work();
            block_samples_and_account()
        });
        worker.join().unwrap()
    })
}

#[test]
fn weights_of_a_thread_on_a_timer_sum_to_its_cpu_clock() {
    a_burning_thread_is_sampled_by(ClockChoice::ThreadTimer, 100, 20);
}

#[test]
fn a_timer_above_the_kernel_tick_still_gives_exact_weights() {
    a_burning_thread_is_sampled_by(ClockChoice::ThreadTimer, 2_000, 25);
}

/// Samples of the calling thread while it burns `ns` at a rate.
fn samples_at(clocks: &Clocks, rate_hz: u32, ns: u64) -> u64 {
    clocks.set_rate(rate_hz);
    drain(clocks);
    burn(ns);
    drain(clocks).remove(&thread_id()).map_or(0, |drained| drained.samples)
}

#[test]
fn timers_at_the_kernel_tick_use_most_of_its_ticks() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    let tick_hz = kernel_tick_hz();
    let (ticks, used) = std::thread::scope(|scope| {
        let burner = scope.spawn(|| {
            clocks.register_current_thread();
            // Alternates the rates, so that other load affects both. A rate above the kernel tick uses each tick.
            (0..6).fold((0, 0), |(ticks, used), _| {
                let ticks = ticks + samples_at(&clocks, 4 * tick_hz, 150_000_000);
                (ticks, used + samples_at(&clocks, tick_hz, 150_000_000))
            })
        });
        burner.join().unwrap()
    });
    assert!(ticks >= 20, "{ticks} ticks in 900 ms of CPU time");
    // Nine of ten on an idle machine. Under CPU contention a time slice ends between ticks, and some ticks are then too close
    // in the thread's CPU time to be used both. A clock armed one tick late would use every second tick.
    assert!(used * 10 >= ticks * 6, "{used} samples where the kernel ticked {ticks} times");
}

#[test]
fn weights_of_a_thread_on_perf_sum_to_its_cpu_clock() {
    if super::perf::probe(libc::SIGURG).is_ok() {
        a_burning_thread_is_sampled_by(ClockChoice::Perf, 1_000, 300);
    }
}

#[test]
fn a_configured_perf_clock_starts_or_reports_the_kernels_error() {
    let _turn = one_at_a_time();
    match (Clocks::start(settings(ClockChoice::Perf, 100)), super::perf::probe(libc::SIGURG)) {
        (Ok(clocks), Ok(())) => assert_eq!(clocks.in_use().name, "perf"),
        (Err(error), Err(refusal)) => assert!(error.message.contains(&refusal), "{error}"),
        (started, probe) => panic!("started {:?}, probe {probe:?}", started.map(|c| c.in_use())),
    }
}

#[test]
fn a_second_start_is_refused_while_the_first_runs() {
    let _turn = one_at_a_time();
    let first = start(settings(ClockChoice::ThreadTimer, 100));
    let second = Clocks::start(settings(ClockChoice::ThreadTimer, 100));
    assert!(second.is_err_and(|error| error.message.contains("already run")));
    drop(first);
    assert!(Clocks::start(settings(ClockChoice::ThreadTimer, 100)).is_ok());
}

#[test]
fn a_change_of_rate_loses_no_cpu_time() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::Auto, 100));
    let (me, accounted_ns) = account_for_thread(|| {
        clocks.register_current_thread();
        for rate_hz in [1_000, 50, 3_000, 200] {
            burn(60_000_000);
            clocks.set_rate(rate_hz);
        }
        burn(60_000_000);
    });
    let drained = drain(&clocks).remove(&me).unwrap();
    assert_eq!(drained.weight_ns, accounted_ns);
    assert!(accounted_ns > 150_000_000, "{accounted_ns} ns of 300 ms");
}

#[test]
fn the_cpu_time_of_a_thousand_short_threads_is_accounted_for() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    let mut truth = 0;
    for round in 0..1_000 {
        truth += std::thread::scope(|scope| {
            let short = scope.spawn(|| {
                clocks.register_current_thread();
                burn(500_000)
            });
            short.join().unwrap()
        });
        if round % 100 == 0 {
            clocks.scan();
        }
    }
    clocks.scan();
    let account = clocks.account();
    let threads = clocks.counters().threads;
    clocks.stop();
    let parts = account.own_ns + account.sampled_ns + account.waiting_ns + account.unattributed_ns();
    assert!(parts >= account.process_ns && account.process_ns >= truth, "{account:?}, truth {truth}");
    assert!(account.sampled_ns + account.unattributed_ns() >= truth * 9 / 10, "{account:?}, truth {truth}");
    assert!(threads < 100, "{threads} threads still have a clock");
}

#[test]
fn a_thread_found_by_the_scan_is_accounted_for_since_its_birth() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    let (found, accounted_ns) = account_for_thread(|| {
        burn(40_000_000);
        clocks.scan();
        burn_until(|| clocks.ring().has_committed());
    });
    let drained = drain(&clocks).remove(&found).expect("the thread was found");
    assert_eq!(drained.first, 1);
    assert_eq!(drained.weight_ns, accounted_ns);
    assert!(accounted_ns > 40_000_000, "{accounted_ns} ns since birth");
}

#[test]
fn our_own_threads_are_never_sampled_and_their_cpu_is_counted() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    let before = own_cpu_ns();
    let ours = std::thread::scope(|scope| {
        let ours = scope.spawn(|| {
            let _own = Clocks::exempt_current_thread();
            clocks.register_current_thread();
            clocks.scan();
            burn(50_000_000);
            thread_id()
        });
        ours.join().unwrap()
    });
    assert!(!drain(&clocks).contains_key(&ours));
    assert!(own_cpu_ns() - before >= 50_000_000);
}

#[test]
fn a_thread_without_managed_frames_shows_its_native_leaf() {
    let _turn = one_at_a_time();
    let clocks = start(ClockSettings { capture: no_state, ..settings(ClockChoice::ThreadTimer, 250) });
    let me = std::thread::scope(|scope| {
        let native = scope.spawn(|| {
            clocks.register_current_thread();
            let before = clocks.counters().samples;
            burn_until(|| clocks.counters().samples > before + 50);
            thread_id()
        });
        native.join().unwrap()
    });
    let drained = drain(&clocks).remove(&me).unwrap();
    assert!(drained.samples > 3 && drained.native == drained.samples, "{drained:?}");
}

#[test]
fn a_full_ring_reports_the_lost_cpu_time() {
    let _turn = one_at_a_time();
    let clocks = start(ClockSettings { ring_bytes: 1, ..settings(ClockChoice::ThreadTimer, 1_000) });
    let full = || clocks.counters().reasons.iter().find(|counted| counted.0 == DropReason::RingFull).unwrap().1;
    let (me, accounted_ns, before) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            clocks.register_current_thread();
            let filler = spanprof_signal::RawSample {
                kind: spanprof_signal::SampleKind::Lock,
                flags: SampleFlags(0),
                thread_id: 1,
                time_ns: 0,
                values: [0, 1],
                key: 0,
                context: spanprof_signal::Context::None,
                frames: &[],
            };
            burn_until(|| clocks.ring().has_committed());
            let mut before = 0;
            let mut collect_mine = || {
                let mine = drain(&clocks).remove(&thread_id()).unwrap_or_default();
                before += mine.weight_ns;
            };
            collect_mine();
            while clocks.ring().push(&filler).is_ok() {}
            let dropped = full();
            // Threads of other tests count too: the CPU time makes some of the samples this thread's own.
            let until_ns = current_thread_cpu_ns() + 40_000_000;
            burn_until(|| full() > dropped + 3 && current_thread_cpu_ns() >= until_ns);
            assert!(full() > dropped + 3, "a sample that finds the ring full is counted");
            collect_mine();
            burn_until(|| clocks.ring().has_committed());
            let (me, accounted_ns) = block_samples_and_account();
            (me, accounted_ns, before)
        });
        writer.join().unwrap()
    });
    let drained = drain(&clocks).remove(&me).unwrap();
    let lost_ns = drained.reasons.get(&DropReason::RingFull).map_or(0, |(_, lost_ns)| *lost_ns);
    // All samples in these 40 ms found the ring full.
    assert!(lost_ns >= 20_000_000, "{drained:?}");
    assert_eq!(before + drained.weight_ns, accounted_ns, "the loss is reported to the nanosecond");
}

#[test]
fn a_thousand_starts_and_stops_leak_no_resources() {
    let _turn = one_at_a_time();
    // In a child: memory and descriptors are those of the process, and threads of other tests allocate too.
    crate::testing::in_child(|| {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let running = Arc::new(AtomicBool::new(true));
        let burner = {
            let running = running.clone();
            std::thread::spawn(move || {
                while running.load(Ordering::Relaxed) {
                    burn(1_000_000);
                }
            })
        };
        let stop = StopOnDrop(&running);
        let mut before = (0, 0);
        for round in 0..1_000 {
            if round == 50 {
                before = (descriptors(), resident_bytes());
            }
            let kind = if round % 2 == 0 { ClockChoice::ThreadTimer } else { ClockChoice::Auto };
            let clocks = start(settings(kind, 4_000));
            if round % 10 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            clocks.stop();
            clocks.stop();
        }
        drop(stop);
        burner.join().unwrap();
        let (descriptors, resident) = (descriptors(), resident_bytes());
        assert!(descriptors <= before.0 + 2, "{descriptors} descriptors, {} before", before.0);
        assert!(resident < before.1 + (8 << 20), "{resident} bytes, {} before", before.1);
    });
}

#[test]
fn samples_and_the_scan_timer_wake_the_drain_thread_which_sleeps_when_idle() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 250));
    let (scans, samples) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            let _own = Clocks::exempt_current_thread();
            // The start wakes the drain thread once.
            clocks.wait_for_samples(Some(Duration::from_millis(1)));
            let mut reasons = Vec::new();
            loop {
                let reason = clocks.wait_for_samples(None);
                reasons.push(reason);
                match reason {
                    WakeReason::Requested => return reasons,
                    WakeReason::ScanDue => {
                        clocks.scan_if_due();
                        scans.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => {
                        drain(&clocks);
                        samples.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        let wake = WakeOnDrop(&clocks);
        let burner = scope.spawn(|| {
            clocks.register_current_thread();
            let mut rounds = 0;
            while rounds < 300 && (scans.load(Ordering::Relaxed) == 0 || samples.load(Ordering::Relaxed) == 0) {
                burn(10_000_000);
                rounds += 1;
            }
        });
        burner.join().unwrap();
        drop(wake);
        let reasons = drainer.join().unwrap();
        assert!(reasons.contains(&WakeReason::ScanDue), "{reasons:?}");
        assert!(reasons.contains(&WakeReason::Samples), "{reasons:?}");
    });
    // Pending reasons first, then a timeout.
    let waits = (0..50).map(|_| clocks.wait_for_samples(Some(Duration::from_millis(20))));
    assert!(waits.into_iter().any(|reason| reason == WakeReason::TimedOut));
}

#[test]
fn the_handler_stays_installed_after_stop_and_swallows_stray_signals() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    clocks.stop();
    let before = clocks.counters().stray;
    for _ in 0..100_000 {
        // SAFETY: sends a signal to this thread, whose handler is ours.
        unsafe { libc::raise(libc::SIGURG) };
    }
    assert!(handler::is_installed(libc::SIGURG));
    assert!(clocks.counters().stray >= before + 100_000);
}
