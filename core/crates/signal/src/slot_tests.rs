//! Slots: entering and leaving, the schedule, the account. No system calls: also run under Miri.

use crate::slot::{Entry, Opening, Slot, Ticker};

/// How often a perf event uses an interval.
const RUN: u32 = 64;

fn opened() -> (Slot, u32) {
    let slot = Slot::new();
    let opening = Opening { thread_id: 7, accounted_cpu_ns: 100, first_of_thread: true, seed: 42 };
    let generation = slot.open(&opening);
    (slot, generation)
}

#[test]
fn a_second_entry_is_nested_until_the_first_leaves() {
    let (slot, generation) = opened();
    assert_eq!(slot.enter(generation), Entry::Entered);
    assert_eq!(slot.enter(generation), Entry::Nested);
    assert!(!slot.is_quiet());
    slot.leave();
    assert_eq!(slot.enter(generation), Entry::Entered);
}

#[test]
fn a_signal_of_an_earlier_opening_finds_the_slot_gone() {
    let (slot, first) = opened();
    slot.close();
    assert_eq!(slot.enter(first), Entry::Gone);
    slot.free();
    let second = slot.open(&Opening { thread_id: 8, accounted_cpu_ns: 0, first_of_thread: false, seed: 1 });
    assert_eq!(slot.enter(first), Entry::Gone);
    assert!(slot.is_quiet());
    assert_eq!(slot.enter(second), Entry::Entered);
}

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
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

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn the_schedule_makes_up_for_late_ticks() {
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

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn a_rate_of_the_tick_uses_nearly_every_tick() {
    let (slot, _) = opened();
    let (period, tick, ticks) = (4_000_000, 4_000_000, 20_000);
    slot.begin_schedule(0, period, true);
    let (mut samples, mut periods) = (0u64, 0);
    for n in 1..=ticks {
        if slot.due_cpu_ns() <= n * tick {
            samples += 1;
            periods += slot.advance(n * tick, period);
            assert!(slot.due_cpu_ns() >= n * tick + period / 2, "a moment that is past would tick at once");
        }
    }
    assert!((ticks * 96 / 100..=ticks + 1).contains(&samples), "{samples} samples of {ticks} ticks");
    assert!(periods.abs_diff(ticks) < ticks / 50, "{periods} periods");
}

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn a_rate_above_the_tick_counts_every_period_that_passed() {
    let (slot, _) = opened();
    let (period, tick) = (1_000_000, 4_000_000);
    slot.begin_schedule(0, period, true);
    let mut periods = 0;
    for n in 1..=10_000 {
        periods += slot.advance(n * tick, period);
    }
    assert!(periods.abs_diff(40_000) < 400, "{periods} periods in 40 s at 1000 Hz");
}

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn a_clock_that_runs_by_itself_keeps_the_asked_rate_however_late_its_ticks_are() {
    let (slot, _) = opened();
    let (period, late) = (1_000_000, 60_000);
    let mut cpu = slot.begin_schedule(0, period, true);
    let (mut samples, mut periods, mut intervals) = (0u64, 0, std::collections::HashSet::new());
    while cpu < 100_000_000_000 {
        // The event counts on from its own overflow, but an interval that is set begins with the setting.
        let sampled = cpu + late;
        samples += 1;
        periods += slot.advance_run(sampled, period, RUN);
        let interval = slot.interval_ns();
        assert!((period / 2..=period * 3 / 2 + late).contains(&interval), "{interval}");
        intervals.insert(interval);
        cpu = interval + if slot.begins_run(RUN) { sampled } else { cpu };
    }
    // Five standard deviations of what so many draws add up to; time lost at each tick would be 6,000.
    assert!(samples.abs_diff(100_000) < 3_700, "{samples} samples in 100 s at 1000 Hz");
    assert_eq!(periods, samples);
    assert!(intervals.len() as u64 > samples / 80, "{} intervals were drawn", intervals.len());
}

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn a_timer_that_goes_on_by_itself_and_rings_at_ticks_alone_keeps_the_asked_rate() {
    let (slot, _) = opened();
    let (period, tick, run) = (10_000_000, 4_000_000, 16);
    let (mut rings_at, mut cpu) = (slot.begin_schedule(0, period, true), 0);
    let (mut samples, mut periods) = (0u64, 0);
    while cpu < 4_000_000_000_000 {
        cpu += tick;
        if cpu < rings_at {
            continue;
        }
        samples += 1;
        periods += slot.advance_run(cpu, period, run);
        let from = if slot.begins_run(run) { cpu } else { rings_at };
        rings_at = from + slot.interval_ns();
    }
    // Five standard deviations of what so many draws add up to; half a tick lost in each run would be 5,000.
    assert!(samples.abs_diff(400_000) < 3_700, "{samples} samples in 4,000 s at 100 Hz");
    assert_eq!(periods, samples);
}

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn a_timer_that_goes_on_by_itself_keeps_nearly_the_asked_rate_where_its_thread_runs_in_bursts() {
    let (slot, _) = opened();
    let (period, run) = (10_000_000, 16);
    let (mut rings_at, mut cpu) = (slot.begin_schedule(0, period, true), 0);
    let (mut samples, mut random) = (0u64, 7u64);
    while cpu < 4_000_000_000_000 {
        // A tick meets a thread that runs for moments after any CPU time, 4 ms in the mean.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = ((random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        cpu += (-uniform.ln() * 4_000_000.0) as u64;
        if cpu < rings_at {
            continue;
        }
        samples += 1;
        slot.advance_run(cpu, period, run);
        if slot.begins_run(run) {
            rings_at = cpu;
        }
        // What rang more than once before one tick is one signal.
        while rings_at <= cpu {
            rings_at += slot.interval_ns();
        }
    }
    assert!((388_000..=404_000).contains(&samples), "{samples} samples in 4,000 s at 100 Hz");
}

#[test]
fn a_timer_is_asked_for_its_threads_cpu_time_at_each_tick() {
    let (slot, interval) = running();
    slot.set_ticker(Ticker::Timer(3), 0, 0);
    assert_eq!((1..=5).filter(|n| tick(&slot, 7_000_000 + n * interval, 2_000_000 + n * interval).1).count(), 5);
}

#[test]
fn a_running_clock_that_was_held_up_says_how_many_periods_passed() {
    let (slot, _) = opened();
    let period = 1_000_000;
    slot.begin_schedule(0, period, true);
    slot.advance_run(period, period, RUN);
    assert!(slot.begins_run(RUN));
    let due = slot.due_cpu_ns();
    assert_eq!(slot.advance_run(due + 10 * period, period, RUN), 11);
    assert!(slot.due_cpu_ns() > due + 10 * period, "never in the past");
}

const PERIOD: u64 = 1_000_000;

/// A slot whose event runs by itself, and its interval. Its thread's CPU clock is 5 ms behind the monotonic clock.
fn running() -> (Slot, u64) {
    let (slot, _) = opened();
    slot.set_ticker(Ticker::Perf(3), 0, 0);
    slot.begin_schedule(0, PERIOD, true);
    slot.set_runs(true);
    assert_eq!(slot.cpu_ns_by_ticks(7_000_000), None, "nothing was read yet");
    slot.note_reading(2_000_000, 7_000_000);
    slot.advance_run(2_000_000, PERIOD, RUN);
    let interval = slot.interval_ns();
    (slot, interval)
}

/// A tick at `at_ns`, where the CPU clock says `cpu_ns` if it is asked: what the handler does.
fn tick(slot: &Slot, at_ns: u64, cpu_ns: u64) -> (u64, bool) {
    let known = slot.cpu_ns_by_ticks(at_ns);
    let now_ns = known.unwrap_or_else(|| {
        slot.note_reading(cpu_ns, at_ns);
        cpu_ns
    });
    slot.advance_run(now_ns, PERIOD, RUN);
    (now_ns, known.is_none())
}

#[test]
fn the_cpu_clock_of_a_thread_that_keeps_its_processor_is_asked_ever_more_seldom() {
    let (slot, interval) = running();
    let mut asked = Vec::new();
    for n in 1..64 {
        let at_ns = 7_000_000 + n * interval + 9_000;
        let (cpu_ns, was_asked) = tick(&slot, at_ns, at_ns - 5_000_000);
        assert_eq!(cpu_ns, at_ns - 5_000_000, "{n}");
        asked.extend(was_asked.then_some(n));
    }
    assert_eq!(asked, [1, 3, 7, 15, 31, 47, 63]);
}

#[test]
fn a_thread_that_left_its_processor_is_asked_for_its_cpu_time() {
    let (slot, interval) = running();
    let at = |n: u64| 7_000_000 + n * interval;
    assert_eq!((1..=4).filter(|n| tick(&slot, at(*n), at(*n) - 5_000_000).1).count(), 2);
    let away = interval / 8;
    assert_eq!(tick(&slot, at(5) + away, at(5) - 5_000_000), (at(5) - 5_000_000, true));
    let (next, was_asked) = tick(&slot, at(6) + away, at(6) - 5_000_000);
    assert_eq!((next, was_asked), (at(6) - 5_000_000, true), "and at the next tick, until the two agree again");
    assert!(!tick(&slot, at(7) + away, at(7) - 5_000_000).1);
}

#[test]
fn a_clock_that_a_hypervisor_slows_down_is_asked_at_every_tick() {
    let (slot, interval) = running();
    let asked = (1..=20).filter(|n| tick(&slot, 7_000_000 + n * interval, 2_000_000 + n * interval * 3 / 4).1).count();
    assert_eq!(asked, 20);
}

#[test]
fn short_absences_do_not_add_up_unseen() {
    let (slot, interval) = running();
    slot.note_reading(2_000_000, 7_000_000);
    let absence = interval / 40;
    for n in 1..64 {
        let true_ns = 2_000_000 + n * interval;
        let (cpu_ns, _) = tick(&slot, 7_000_000 + n * (interval + absence), true_ns);
        assert!(cpu_ns - true_ns <= interval / 16, "{n}: {} ns", cpu_ns - true_ns);
    }
}

#[test]
fn a_clock_that_is_armed_for_each_tick_is_read_at_each() {
    let (slot, interval) = running();
    assert_eq!((1..=3).filter(|n| tick(&slot, 7_000_000 + n * interval, 2_000_000 + n * interval).1).count(), 2);
    slot.set_runs(false);
    assert_eq!(slot.cpu_ns_by_ticks(7_000_000 + 4 * interval), None);
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
fn weights_are_what_was_burnt_since_the_last_sample() {
    let (slot, _) = opened();
    assert_eq!(slot.account(350), 250);
    assert_eq!(slot.account(350), 0);
    assert_eq!(slot.account(300), 0, "a clock that seems to go back weighs nothing");
    assert_eq!(slot.account(400), 50);
}

#[cfg(not(miri))] // Many draws; nothing for Miri to see.
#[test]
fn a_young_threads_first_sample_is_due_within_a_period_of_its_birth() {
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
