//! Slots: entering and leaving, schedule, accounting. No system calls: also run under Miri.

use crate::signals::slot::{EnterOutcome, Slot, SlotInit, Ticker};

/// Ticks per drawn interval of a perf event.
const BATCH: u32 = 64;

fn opened() -> (Slot, u32) {
    let slot = Slot::new();
    let init = SlotInit { thread_id: 7, accounted_cpu_ns: 100, first_of_thread: true, seed: 42 };
    let generation = slot.open(&init);
    (slot, generation)
}

#[test]
fn a_second_entry_is_nested_until_the_first_leaves() {
    let (slot, generation) = opened();
    assert_eq!(slot.enter(generation), EnterOutcome::Entered);
    assert_eq!(slot.enter(generation), EnterOutcome::Nested);
    assert!(!slot.is_quiescent());
    slot.leave();
    assert_eq!(slot.enter(generation), EnterOutcome::Entered);
}

#[test]
fn a_signal_of_an_earlier_opening_is_stale() {
    let (slot, first) = opened();
    slot.close();
    assert_eq!(slot.enter(first), EnterOutcome::Stale);
    slot.free();
    let second = slot.open(&SlotInit { thread_id: 8, accounted_cpu_ns: 0, first_of_thread: false, seed: 1 });
    assert_eq!(slot.enter(first), EnterOutcome::Stale);
    assert!(slot.is_quiescent());
    assert_eq!(slot.enter(second), EnterOutcome::Entered);
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn intervals_have_the_period_as_their_mean_and_spread_by_half_of_it() {
    let (slot, _) = opened();
    let (period, count) = (10_000_000, 20_000);
    let drawn: Vec<u64> = (0..count).map(|_| slot.draw_interval_ns(period)).collect();
    let mean = drawn.iter().sum::<u64>() / count;
    assert!(mean.abs_diff(period) < period / 100, "mean {mean}");
    assert!(drawn.iter().all(|d| (period / 2..=period * 3 / 2).contains(d)));
    assert!(drawn.iter().any(|d| *d < period * 55 / 100) && drawn.iter().any(|d| *d > period * 145 / 100));
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn the_schedule_catches_up_after_late_ticks() {
    let (slot, _) = opened();
    let (period, tick) = (10_000_000, 4_000_000);
    slot.begin_schedule(0, period, true);
    let (mut samples, mut periods, mut cpu) = (0u64, 0, 0);
    while cpu < 40_000_000_000 {
        cpu += tick;
        if slot.due_cpu_ns() <= cpu {
            samples += 1;
            periods += slot.advance(cpu, period);
        }
    }
    assert!(samples.abs_diff(4_000) < 60, "{samples} samples in 40 s at 100 Hz");
    assert!(periods >= samples && periods.abs_diff(4_000) < 60, "{periods} periods");
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn a_rate_equal_to_the_kernel_tick_uses_nearly_every_tick() {
    let (slot, _) = opened();
    let (period, tick, ticks) = (4_000_000, 4_000_000, 20_000);
    slot.begin_schedule(0, period, true);
    let (mut samples, mut periods) = (0u64, 0);
    for n in 1..=ticks {
        if slot.due_cpu_ns() <= n * tick {
            samples += 1;
            periods += slot.advance(n * tick, period);
            assert!(slot.due_cpu_ns() >= n * tick + period / 2, "a due time in the past would tick at once");
        }
    }
    assert!((ticks * 96 / 100..=ticks + 1).contains(&samples), "{samples} samples of {ticks} ticks");
    assert!(periods.abs_diff(ticks) < ticks / 50, "{periods} periods");
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn a_rate_above_the_kernel_tick_counts_every_elapsed_period() {
    let (slot, _) = opened();
    let (period, tick) = (1_000_000, 4_000_000);
    slot.begin_schedule(0, period, true);
    let mut periods = 0;
    for n in 1..=10_000 {
        periods += slot.advance(n * tick, period);
    }
    assert!(periods.abs_diff(40_000) < 400, "{periods} periods in 40 s at 1000 Hz");
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn a_free_running_clock_keeps_the_configured_rate_at_any_handler_delay() {
    let (slot, _) = opened();
    let (period, late) = (1_000_000, 60_000);
    let mut cpu = slot.begin_schedule(0, period, true);
    let (mut samples, mut periods, mut intervals) = (0u64, 0, std::collections::HashSet::new());
    while cpu < 100_000_000_000 {
        // The event continues from its own overflow, but a newly set interval begins when it is set.
        let sampled = cpu + late;
        samples += 1;
        periods += slot.advance_batch(sampled, period, BATCH);
        let interval = slot.interval_ns();
        assert!((period / 2..=period * 3 / 2 + late).contains(&interval), "{interval}");
        intervals.insert(interval);
        cpu = interval + if slot.begins_batch(BATCH) { sampled } else { cpu };
    }
    // Five standard deviations of the sum of the draws; time lost at each tick would be 6,000.
    assert!(samples.abs_diff(100_000) < 3_700, "{samples} samples in 100 s at 1000 Hz");
    assert_eq!(periods, samples);
    assert!(intervals.len() as u64 > samples / 80, "{} intervals were drawn", intervals.len());
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn a_free_running_timer_that_expires_only_at_kernel_ticks_keeps_the_configured_rate() {
    let (slot, _) = opened();
    let (period, tick, batch) = (10_000_000, 4_000_000, 16);
    let (mut expires_at, mut cpu) = (slot.begin_schedule(0, period, true), 0);
    let (mut samples, mut periods) = (0u64, 0);
    while cpu < 4_000_000_000_000 {
        cpu += tick;
        if cpu < expires_at {
            continue;
        }
        samples += 1;
        periods += slot.advance_batch(cpu, period, batch);
        let from = if slot.begins_batch(batch) { cpu } else { expires_at };
        expires_at = from + slot.interval_ns();
    }
    // Five standard deviations of the sum of the draws; half a tick lost in each batch would be 5,000.
    assert!(samples.abs_diff(400_000) < 3_700, "{samples} samples in 4,000 s at 100 Hz");
    assert_eq!(periods, samples);
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn a_free_running_timer_nearly_keeps_the_configured_rate_for_a_bursty_thread() {
    let (slot, _) = opened();
    let (period, batch) = (10_000_000, 16);
    let (mut expires_at, mut cpu) = (slot.begin_schedule(0, period, true), 0);
    let (mut samples, mut random) = (0u64, 7u64);
    while cpu < 4_000_000_000_000 {
        // The kernel tick meets a bursty thread after an exponential CPU time, 4 ms in the mean.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = ((random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        cpu += (-uniform.ln() * 4_000_000.0) as u64;
        if cpu < expires_at {
            continue;
        }
        samples += 1;
        slot.advance_batch(cpu, period, batch);
        if slot.begins_batch(batch) {
            expires_at = cpu;
        }
        // Several expirations before one tick are one signal.
        while expires_at <= cpu {
            expires_at += slot.interval_ns();
        }
    }
    assert!((388_000..=404_000).contains(&samples), "{samples} samples in 4,000 s at 100 Hz");
}

#[test]
fn a_thread_timer_reads_the_cpu_clock_at_each_tick() {
    let (slot, interval) = free_running();
    slot.set_ticker(Ticker::Timer(3), 0, 0);
    assert_eq!((1..=5).filter(|n| tick(&slot, 7_000_000 + n * interval, 2_000_000 + n * interval).1).count(), 5);
}

#[test]
fn a_delayed_free_running_clock_counts_the_elapsed_periods() {
    let (slot, _) = opened();
    let period = 1_000_000;
    slot.begin_schedule(0, period, true);
    slot.advance_batch(period, period, BATCH);
    assert!(slot.begins_batch(BATCH));
    let due = slot.due_cpu_ns();
    assert_eq!(slot.advance_batch(due + 10 * period, period, BATCH), 11);
    assert!(slot.due_cpu_ns() > due + 10 * period, "never in the past");
}

const PERIOD: u64 = 1_000_000;

/// A slot with a free-running event, and its interval. Its thread's CPU clock is 5 ms behind the monotonic clock.
fn free_running() -> (Slot, u64) {
    let (slot, _) = opened();
    slot.set_ticker(Ticker::Perf(3), 0, 0);
    slot.begin_schedule(0, PERIOD, true);
    slot.set_free_running(true);
    assert_eq!(slot.estimate_cpu_ns(7_000_000), None, "no reading yet");
    slot.record_cpu_reading(2_000_000, 7_000_000);
    slot.advance_batch(2_000_000, PERIOD, BATCH);
    let interval = slot.interval_ns();
    (slot, interval)
}

/// A tick at `at_ns`, as the handler makes it: the CPU time it uses, and whether it read the CPU clock, which is at `cpu_ns`.
fn tick(slot: &Slot, at_ns: u64, cpu_ns: u64) -> (u64, bool) {
    let estimated = slot.estimate_cpu_ns(at_ns);
    let now_ns = estimated.unwrap_or_else(|| {
        slot.record_cpu_reading(cpu_ns, at_ns);
        cpu_ns
    });
    slot.advance_batch(now_ns, PERIOD, BATCH);
    (now_ns, estimated.is_none())
}

#[test]
fn the_cpu_clock_of_a_thread_that_stays_on_its_processor_is_read_ever_less() {
    let (slot, interval) = free_running();
    let mut read_at = Vec::new();
    for n in 1..64 {
        let at_ns = 7_000_000 + n * interval + 9_000;
        let (cpu_ns, was_read) = tick(&slot, at_ns, at_ns - 5_000_000);
        assert_eq!(cpu_ns, at_ns - 5_000_000, "{n}");
        read_at.extend(was_read.then_some(n));
    }
    assert_eq!(read_at, [1, 3, 7, 15, 31, 47, 63]);
}

#[test]
fn the_cpu_clock_of_a_preempted_thread_is_read() {
    let (slot, interval) = free_running();
    let at = |n: u64| 7_000_000 + n * interval;
    assert_eq!((1..=4).filter(|n| tick(&slot, at(*n), at(*n) - 5_000_000).1).count(), 2);
    let preempted_ns = interval / 8;
    assert_eq!(tick(&slot, at(5) + preempted_ns, at(5) - 5_000_000), (at(5) - 5_000_000, true));
    let (next, was_read) = tick(&slot, at(6) + preempted_ns, at(6) - 5_000_000);
    assert_eq!((next, was_read), (at(6) - 5_000_000, true), "and at the next tick, until the readings agree again");
    assert!(!tick(&slot, at(7) + preempted_ns, at(7) - 5_000_000).1);
}

#[test]
fn a_cpu_clock_slowed_by_a_hypervisor_is_read_at_every_tick() {
    let (slot, interval) = free_running();
    let reads = (1..=20).filter(|n| tick(&slot, 7_000_000 + n * interval, 2_000_000 + n * interval * 3 / 4).1).count();
    assert_eq!(reads, 20);
}

#[test]
fn the_error_of_short_preemptions_does_not_accumulate() {
    let (slot, interval) = free_running();
    slot.record_cpu_reading(2_000_000, 7_000_000);
    let preempted_ns = interval / 40;
    for n in 1..64 {
        let true_ns = 2_000_000 + n * interval;
        let (cpu_ns, _) = tick(&slot, 7_000_000 + n * (interval + preempted_ns), true_ns);
        assert!(cpu_ns - true_ns <= interval / 16, "{n}: {} ns", cpu_ns - true_ns);
    }
}

#[test]
fn a_clock_armed_for_each_tick_reads_the_cpu_clock_at_each() {
    let (slot, interval) = free_running();
    assert_eq!((1..=3).filter(|n| tick(&slot, 7_000_000 + n * interval, 2_000_000 + n * interval).1).count(), 2);
    slot.set_free_running(false);
    assert_eq!(slot.estimate_cpu_ns(7_000_000 + 4 * interval), None);
}

#[test]
fn a_schedule_left_far_behind_catches_up_in_bounded_steps() {
    let (slot, _) = opened();
    slot.begin_schedule(0, 100_000, true);
    let periods = slot.advance(60_000_000_000, 100_000);
    assert!(periods.abs_diff(600_000) < 6_000, "{periods}");
    assert!(slot.due_cpu_ns() > 60_000_000_000);
}

#[test]
fn weights_are_the_cpu_time_since_the_last_sample() {
    let (slot, _) = opened();
    assert_eq!(slot.account(350), 250);
    assert_eq!(slot.account(350), 0);
    assert_eq!(slot.account(300), 0, "a clock that goes back adds no weight");
    assert_eq!(slot.account(400), 50);
}

#[cfg(not(miri))] // Many draws, no unsafe code.
#[test]
fn the_first_sample_of_a_new_thread_is_due_within_a_period() {
    let (slot, _) = opened();
    let mut earliest = u64::MAX;
    for _ in 0..1_000 {
        let due = slot.begin_schedule(0, 1_000, true);
        assert!((1..=1_000).contains(&due));
        earliest = earliest.min(due);
    }
    assert!(earliest < 20, "{earliest}");
    assert!(slot.begin_schedule(5_000, 1_000, true) > 5_000, "never in the past");
}
