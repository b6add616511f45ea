//! Tests of collections for pulls: they take the same samples as the open window, and change nothing of it.

use crate::counters::Counters;
use crate::engine::EngineSettings;
use crate::engine::{CollectionTime, Engine, WindowEnd};
use crate::scripted_engine_testing::{counter, engine, settings};
use crate::testing::FakeRuntime;
use crate::window::SampleSelection;
use spanprof_profile::encode::text;
use spanprof_profile::ProfilesData;
use spanprof_signal::{Context, InlineContext, RawFrame, RawSample, SampleFlags, SampleKind};
use std::sync::Arc;

struct Run {
    engine: Engine,
    runtime: Arc<FakeRuntime>,
    counters: Arc<Counters>,
    windows: Vec<String>,
    unattributed_ns: u64,
    now_ns: u64,
}

impl Run {
    fn new() -> Self {
        let (runtime, counters) = (FakeRuntime::new(), Arc::new(Counters::default()));
        let engine = engine(EngineSettings { sums_since_start: true, ..settings() }, &runtime, &counters);
        Self { engine, runtime, counters, windows: Vec::new(), unattributed_ns: 0, now_ns: 0 }
    }

    /// One sample of each kind, of varying stack, thread, span and value.
    fn step(&mut self, number: u64) {
        self.now_ns += 7_000_000;
        self.unattributed_ns += 100_000;
        let names = ["leaf", "other", "third"].map(|name| self.runtime.code_of(name));
        let frames =
            [names[number as usize % 3], self.runtime.code_of("root")].map(|code| RawFrame { code, at: number % 5 });
        for (kind, values) in [
            (SampleKind::Cpu, [9_700_001 + number, 0]),
            (SampleKind::Wall, [10_000_000, 0]),
            (SampleKind::Lock, [1000 + number, 1]),
        ] {
            let span_id = [number as u8 % 4; 8];
            self.engine.process(
                number,
                &RawSample {
                    kind,
                    flags: SampleFlags(if number.is_multiple_of(10) { SampleFlags::FIRST_OF_THREAD } else { 0 }),
                    thread_id: 1 + number as u32 % 3,
                    time_ns: self.now_ns,
                    values,
                    key: 0,
                    context: Context::Inline(InlineContext { trace_id: [1; 16], span_id, ..InlineContext::default() }),
                    frames: &frames,
                },
            );
        }
    }

    fn close(&mut self) {
        let closed = self.engine.close(WindowEnd {
            now_monotonic_ns: self.now_ns,
            unix_offset_ns: 0,
            unattributed_ns: Some(self.unattributed_ns),
            is_alive: &mut |_| true,
            in_use: true,
            sums_since_start: false,
        });
        if let Some(mut closed) = closed {
            // Random.
            closed.data.resources[0].profiles.iter_mut().for_each(|profile| profile.profile_id = [0; 16]);
            self.windows.push(text::encode(&closed.data));
        }
    }

    fn time(&self) -> CollectionTime {
        let (now_monotonic_ns, unattributed_ns) = (self.now_ns, self.unattributed_ns);
        CollectionTime { now_monotonic_ns, unix_offset_ns: 0, unattributed_ns }
    }

    fn begin(&mut self, kind: SampleKind) {
        self.engine.begin_collection(0, SampleSelection::of_kinds(&[kind]), self.time());
    }

    fn end(&mut self, kinds: &[SampleKind]) -> ProfilesData {
        self.engine.end_collection(0, kinds, self.time())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        self.counters.values().collect()
    }
}

/// 200 steps with windows of 30 steps. `pulls` adds its own calls before each step.
fn run(mut pulls: impl FnMut(&mut Run, u64)) -> Run {
    let mut run = Run::new();
    for number in 0..200 {
        pulls(&mut run, number);
        run.step(number);
        if number % 30 == 29 {
            run.close();
        }
    }
    run.close();
    run
}

fn total(data: &ProfilesData, type_name: &str) -> i64 {
    let (_, profile) = data.profiles().find(|(_, profile)| profile.type_name() == type_name).unwrap();
    profile.samples.iter().map(|sample| profile.weight(sample)).sum()
}

#[test]
fn pulls_change_neither_the_windows_nor_the_counters() {
    let without = run(|_, _| {});
    let with = run(|run, number| {
        let kind = [SampleKind::Cpu, SampleKind::Wall, SampleKind::Lock][number as usize / 20 % 3];
        match number % 20 {
            3 => run.begin(kind),
            11 if number == 31 => run.engine.cancel_collection(0),
            17 => drop(run.end(&[kind])),
            18 => drop(run.end(&[SampleKind::Alloc, SampleKind::InUse])),
            _ => {}
        }
    });
    assert_eq!(without.windows.len(), 7);
    assert_eq!(with.windows, without.windows);
    assert_eq!(with.counted(), without.counted());
}

#[test]
fn a_guard_beside_pulls_reads_its_samples_repeatedly_and_changes_nothing() {
    let without = run(|_, _| {});
    let mut totals = Vec::new();
    let of_guard = SampleSelection { by_thread: true, ..SampleSelection::of_kinds(&[SampleKind::Cpu]) };
    let with = run(|run, number| {
        let time = run.time();
        match number {
            20 => run.engine.begin_collection(1, of_guard.clone(), time),
            50 => run.begin(SampleKind::Cpu),
            70 => drop(run.end(&[SampleKind::Cpu])),
            60 | 150 => {
                let data = run.engine.read_collection(1, &[SampleKind::Cpu], time);
                totals.push(total(&data, "cpu"));
                let (_, profile) = data.profiles().next().unwrap();
                let is_thread = |sample: &spanprof_profile::Sample| {
                    data.dictionary.attributes_of(sample.attributes).any(|label| label.key == "thread.id")
                };
                // All but the unattributed time.
                assert_eq!(profile.samples.iter().filter(|sample| !is_thread(sample)).count(), 1);
                assert!(profile.samples.iter().all(|sample| sample.link.index() == 0));
            }
            160 => run.engine.cancel_collection(1),
            _ => {}
        }
    });
    // Each step uses 0.1 ms that no sample accounts for.
    let until = |end: i64| (20..end).map(|number| 9_700_001 + number + 100_000).sum::<i64>();
    assert_eq!(totals, [until(60), until(150)]);
    assert_eq!(with.windows, without.windows);
    assert_eq!(with.counted(), without.counted());
}

#[test]
fn a_collection_over_several_windows_has_exactly_the_samples_of_its_time() {
    let mut collected = None;
    run(|run, number| match number {
        20 => run.begin(SampleKind::Cpu),
        150 => collected = Some(run.end(&[SampleKind::Cpu])),
        _ => {}
    });
    let data = collected.unwrap();
    let sampled: i64 = (20..150).map(|number| 9_700_001 + number).sum();
    // Each step uses 0.1 ms that no sample accounts for.
    assert_eq!(total(&data, "cpu"), sampled + 130 * 100_000);
    let (_, profile) = data.profiles().next().unwrap();
    assert_eq!((profile.time_unix_nano, profile.duration_nano), (20 * 7_000_000, 130 * 7_000_000));
    assert!(profile.samples.iter().any(|sample| sample.link.index() != 0), "spans are kept");
}

#[test]
fn lock_waits_since_the_start_are_read_at_any_time_without_a_span() {
    let mut totals = Vec::new();
    let mut links = 0;
    run(|run, number| {
        if [0, 40, 130].contains(&number) {
            let data = run.end(&[SampleKind::Lock]);
            totals.push(total(&data, "delay"));
            let samples = data.profiles().flat_map(|(_, profile)| &profile.samples);
            links += samples.filter(|sample| sample.link.index() != 0).count();
        }
    });
    let until = |end: i64| (0..end).map(|number| 1000 + number).sum::<i64>();
    assert_eq!(totals, [0, until(40), until(130)]);
    assert_eq!(links, 0);
}

#[test]
fn live_threads_on_demand_are_in_their_pull_only() {
    let mut run = Run::new();
    let threads = |run: &mut Run, flags| {
        let frames = [RawFrame { code: run.runtime.code_of("waits"), at: 0 }];
        run.engine.process(
            1,
            &RawSample {
                kind: SampleKind::Threads,
                flags: SampleFlags(flags),
                thread_id: 1,
                time_ns: 5,
                values: [1, 0],
                key: 0,
                context: Context::None,
                frames: &frames,
            },
        );
    };
    run.begin(SampleKind::Threads);
    threads(&mut run, 0);
    (0..3).for_each(|_| threads(&mut run, SampleFlags::ON_DEMAND));
    assert_eq!(total(&run.end(&[SampleKind::Threads]), "threads"), 3);
    run.close();
    assert_eq!(run.windows.len(), 1);
    assert!(run.windows[0].contains("threads/count") && run.windows[0].contains(" 1"), "{}", run.windows[0]);
    assert_eq!(counter(&run.counters, "samples.submitted"), 1);
}

#[test]
fn a_profile_without_samples_has_its_types_and_duration() {
    let mut run = Run::new();
    run.begin(SampleKind::Wall);
    run.now_ns += 5_000_000_000;
    let data = run.end(&[SampleKind::Wall]);
    let (_, profile) = data.profiles().next().unwrap();
    assert_eq!((profile.type_name(), profile.duration_nano, profile.samples.len()), ("wall", 5_000_000_000, 0));
}

#[test]
fn wall_clock_samples_on_demand_are_collected_by_thread_and_not_in_the_window() {
    let mut run = Run::new();
    let sample = |run: &mut Run, thread_id, flags| {
        let frames = [RawFrame { code: run.runtime.code_of("waits"), at: 0 }];
        let (kind, flags, context) = (SampleKind::Wall, SampleFlags(flags), Context::None);
        let sample =
            RawSample { kind, flags, thread_id, time_ns: 5, values: [10, 0], key: 0, context, frames: &frames };
        run.engine.process(1, &sample);
    };
    let kinds = vec![SampleKind::Wall];
    let of_thread = SampleSelection { thread_id: Some(2), ..SampleSelection::of_kinds(&kinds) };
    run.engine.begin_collection(7, of_thread, run.time());
    run.engine.begin_collection(8, SampleSelection::of_kinds(&kinds), run.time());
    (1..=3).for_each(|thread_id| sample(&mut run, thread_id, SampleFlags::ON_DEMAND));
    sample(&mut run, 2, 0);
    let collected =
        |run: &mut Run, number| total(&run.engine.end_collection(number, &[SampleKind::Wall], run.time()), "wall");
    assert_eq!([collected(&mut run, 7), collected(&mut run, 8)], [20, 40]);
    sample(&mut run, 2, SampleFlags::ON_DEMAND);
    run.close();
    assert_eq!(run.windows.len(), 1);
    assert!(run.windows[0].contains(" 10") && !run.windows[0].contains(" 20"), "{}", run.windows[0]);
    assert_eq!(counter(&run.counters, "samples.wall"), 1);
}
