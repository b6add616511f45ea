//! Tests of tail-based retention through the engine: decisions, totals, bounds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::engine::Engine;
use crate::engine::EngineSettings;
use crate::scripted_engine_testing::{closed, counter, engine, settings, tail_policy, with_retention};
use crate::testing::FakeRuntime;
use spanprof_profile::{kinds, ProfilesData};
use spanprof_signal::{Context, InlineContext, RawFrame, RawSample, SampleFlags, Sequence};

const MS: u64 = 1_000_000;

fn at_least(duration: Duration) -> EngineSettings {
    with_retention(TailPolicy { duration: Some(SlowLimit::AtLeast(duration)), ..tail_policy() })
}

struct Scripted {
    engine: Engine,
    runtime: Arc<FakeRuntime>,
    counters: Arc<Counters>,
}

/// A request, as its samples and its end name it.
fn inline(request: u64) -> InlineContext {
    InlineContext {
        trace_id: (u128::from(request) << 64 | 1).to_be_bytes(),
        span_id: request.to_be_bytes(),
        local_root_span_id: request.to_be_bytes(),
        ..InlineContext::default()
    }
}

impl Scripted {
    fn new(settings: EngineSettings) -> Self {
        let (runtime, counters) = (FakeRuntime::new(), Arc::new(Counters::default()));
        Self { engine: engine(settings, &runtime, &counters), runtime, counters }
    }

    fn raw(
        &mut self,
        kind: SampleKind,
        time_ns: u64,
        values: [u64; 2],
        key: u64,
        context: InlineContext,
        function: &str,
    ) {
        let frames = [RawFrame { code: self.runtime.code_of(function), at: 0 }];
        let context = if context == InlineContext::default() { Context::None } else { Context::Inline(context) };
        let flags = SampleFlags::default();
        self.engine
            .process(0, &RawSample { kind, flags, thread_id: 1, time_ns, values, key, context, frames: &frames });
    }

    fn cpu(&mut self, request: u64, time_ns: u64, function: &str) {
        self.raw(SampleKind::Cpu, time_ns, [10 * MS, 1], 0, inline(request), function);
    }

    fn end(&mut self, request: u64, time_ns: u64, duration_ns: u64, is_error: bool) {
        let values = [duration_ns, u64::from(is_error)];
        self.raw(SampleKind::RequestEnd, time_ns, values, 7, inline(request), "end");
    }

    fn close(&mut self, now_ns: u64) -> ProfilesData {
        closed(&mut self.engine, now_ns).unwrap_or_default()
    }

    fn close_last(&mut self, now_ns: u64) -> ProfilesData {
        self.engine.release_all_held();
        self.close(now_ns)
    }

    fn counter(&self, name: &str) -> u64 {
        counter(&self.counters, name)
    }
}

/// Number of samples with timestamps by span id, and the number of samples with a link but without timestamps.
fn detailed(data: &ProfilesData) -> (BTreeMap<u64, usize>, usize) {
    let (mut by_span, mut only_linked) = (BTreeMap::new(), 0);
    let sampled = data.profiles().filter(|(_, profile)| !kinds::REQUESTS.has(profile.type_name()));
    for sample in sampled.flat_map(|(_, profile)| &profile.samples) {
        let link = data.dictionary.get_link(sample.link);
        match sample.timestamps_unix_nano.len() {
            0 => only_linked += usize::from(!link.is_empty()),
            times => *by_span.entry(u64::from_be_bytes(link.span_id)).or_default() += times,
        }
    }
    (by_span, only_linked)
}

/// Weight of all samples of a type.
fn weight_of(data: &ProfilesData, type_name: &str) -> i64 {
    let of_type = data.profiles().filter(|(_, profile)| profile.type_name() == type_name);
    of_type.flat_map(|(_, profile)| profile.samples.iter().map(|sample| profile.weight(sample))).sum()
}

/// Values and exact values by type and function.
fn totals(data: &ProfilesData, sums: &mut HashMap<(String, String), [i64; 2]>) {
    for (_, profile) in data.profiles() {
        for sample in &profile.samples {
            let leaf = data.dictionary.get_location(data.dictionary.get_stack(sample.stack)[0]).lines[0].function;
            let name = data.dictionary.get_string(data.dictionary.get_function(leaf).name);
            let sum = sums.entry((profile.type_name().to_owned(), name.to_owned())).or_default();
            sum[0] += sample.total();
            sum[1] += sample.exact_value;
        }
    }
}

#[test]
fn of_a_thousand_requests_every_slow_one_keeps_its_samples_and_no_other() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(500)));
    let mut now_ns = 0;
    for request in 1..=1000u64 {
        let samples = if request % 50 == 0 { 60 } else { request % 40 + 1 };
        for nth in 0..samples {
            scripted.cpu(request, now_ns + (nth + 1) * 10 * MS, "work");
        }
        scripted.end(request, now_ns + samples * 10 * MS, samples * 10 * MS, false);
        now_ns += 3 * MS;
    }
    let (by_span, only_linked) = detailed(&scripted.close(now_ns + 1_000 * MS));
    let expected: BTreeMap<u64, usize> = (1..=20).map(|nth| (nth * 50, 60)).collect();
    assert_eq!((by_span, only_linked), (expected, 0));
    assert_eq!((scripted.counter("tail.requests"), scripted.counter("tail.kept_duration")), (1000, 20));
    assert_eq!((scripted.counter("tail.undecided"), scripted.counter("tail.held_bytes")), (0, 0));
}

#[test]
fn a_request_over_several_windows_keeps_the_samples_of_each() {
    let mut scripted = Scripted::new(with_retention(TailPolicy { duration: None, ..tail_policy() }));
    let mut sums = HashMap::new();
    for window in 0..3u64 {
        // Other stacks shift the indices of each window's tables.
        for other in 0..=window {
            scripted.raw(SampleKind::Cpu, window * 1000 * MS + 1, [10 * MS, 1], 0, inline(0), &format!("other{other}"));
        }
        scripted.cpu(9, window * 1000 * MS + 5, &format!("work{window}"));
        let data = scripted.close((window + 1) * 1000 * MS);
        assert_eq!(detailed(&data), (BTreeMap::new(), 0));
        totals(&data, &mut sums);
    }
    assert!(!sums.keys().any(|(_, name)| name.starts_with("work")), "{sums:?}");
    assert_eq!(scripted.engine.due_ns(), Some(13_000 * MS), "a held request keeps a window open");
    scripted.end(9, 3100 * MS, 3100 * MS, true);
    let data = scripted.close(4000 * MS);
    assert_eq!(detailed(&data), (BTreeMap::from([(9, 3)]), 0));
    let mut late = HashMap::new();
    totals(&data, &mut late);
    for window in 0..3 {
        assert_eq!(late[&("cpu".to_owned(), format!("work{window}"))], [1, 10 * MS as i64]);
    }
    let (_, profile) = data.profiles().next().unwrap();
    assert!(profile.time_unix_nano <= 5, "its window contains the timestamps of its samples");
    assert_eq!(scripted.counter("tail.kept_error"), 1);
}

#[test]
fn each_condition_keeps_the_requests_that_fulfil_it() {
    let none = TailPolicy { duration: None, errors: false, ..tail_policy() };
    let kept = |policy: TailPolicy, reason: &str| {
        let mut scripted = Scripted::new(with_retention(policy));
        // Request 1: 20 ms CPU in 100 ms. Request 2: 90 ms in 100 ms. Request 3: allocates. Request 4: fails. Request 5: long.
        for (request, samples) in [(1, 2), (2, 9), (3, 1), (4, 1), (5, 1)] {
            (0..samples).for_each(|nth| scripted.cpu(request, nth, "work"));
        }
        scripted.raw(SampleKind::Alloc, 5, [4096, 1], 0, inline(3), "allocate");
        for request in 1..=5 {
            scripted.end(request, 100 * MS, if request == 5 { 900 * MS } else { 100 * MS }, request == 4);
        }
        let spans: Vec<_> = detailed(&scripted.close(200 * MS)).0.into_keys().collect();
        assert_eq!(scripted.counter(&format!("tail.kept_{reason}")), spans.len() as u64);
        spans
    };
    assert!(kept(none.clone(), "duration").is_empty());
    assert_eq!(
        kept(TailPolicy { duration: Some(SlowLimit::AtLeast(Duration::from_millis(500))), ..none.clone() }, "duration"),
        [5]
    );
    assert_eq!(kept(TailPolicy { cpu_share: Some(0.5), ..none.clone() }, "cpu_share"), [2]);
    assert_eq!(kept(TailPolicy { allocated_bytes: Some(4096), ..none.clone() }, "allocated_bytes"), [3]);
    assert_eq!(kept(TailPolicy { errors: true, ..none }, "error"), [4]);
}

#[test]
fn the_slowest_percent_of_an_endpoint_is_kept() {
    let mut scripted = Scripted::new(with_retention(tail_policy()));
    for request in 1..=2000u64 {
        scripted.cpu(request, request * MS, "work");
        scripted.end(request, request * MS + 1, if request % 200 == 0 { 400 * MS } else { 20 * MS }, false);
    }
    let (by_span, _) = detailed(&scripted.close(3000 * MS));
    assert_eq!(by_span.into_keys().collect::<Vec<_>>(), (1..=10).map(|nth| nth * 200).collect::<Vec<_>>());
    assert_eq!(scripted.counter("tail.kept_p99"), 10);
}

#[test]
fn samples_of_a_request_that_proves_long_are_kept_before_and_without_its_end() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(50)));
    (0..=8).for_each(|nth| scripted.cpu(1, nth * 10 * MS, "work"));
    scripted.cpu(2, 10 * MS, "work");
    assert_eq!(detailed(&scripted.close(100 * MS)), (BTreeMap::from([(1, 9)]), 0));
    let last = scripted.close_last(200 * MS);
    assert_eq!((detailed(&last), last.sample_count()), ((BTreeMap::new(), 0), 1));
    assert_eq!((scripted.counter("tail.kept_duration"), scripted.counter("tail.undecided")), (1, 1));
}

#[test]
fn samples_that_are_drained_after_the_end_get_the_decision_of_their_request() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(50)));
    for (request, duration_ms) in [(1, 80), (2, 8)] {
        scripted.end(request, 100 * MS, duration_ms * MS, false);
        scripted.cpu(request, 90 * MS, "late");
    }
    assert_eq!(detailed(&scripted.close(200 * MS)), (BTreeMap::from([(1, 1)]), 0));
    assert_eq!(scripted.counter("tail.held_bytes"), 0);
}

#[test]
fn a_second_request_of_a_trace_without_known_root_gets_its_own_decision() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(50)));
    let rootless = InlineContext { local_root_span_id: [0; 8], ..inline(3) };
    for (began_ms, duration_ms) in [(0, 8), (100, 80)] {
        scripted.raw(SampleKind::Cpu, (began_ms + 5) * MS, [10 * MS, 1], 0, rootless, "work");
        let ended_ns = (began_ms + duration_ms) * MS;
        scripted.raw(SampleKind::RequestEnd, ended_ns, [duration_ms * MS, 0], 7, rootless, "end");
    }
    assert_eq!(detailed(&scripted.close(200 * MS)).0, BTreeMap::from([(3, 1)]));
}

#[test]
fn one_end_decides_on_the_samples_of_a_middlewares_request_and_of_the_span_in_it() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(50)));
    for (request, duration_ms) in [(1u64, 80), (2, 8)] {
        // Before the span, in the span, and in a child of it whose local root is unknown.
        let middleware = InlineContext { local_root_span_id: [request as u8; 8], ..InlineContext::default() };
        let rootless = InlineContext { local_root_span_id: [0; 8], ..inline(request) };
        for context in [middleware, inline(request), rootless] {
            scripted.raw(SampleKind::Cpu, MS, [10 * MS, 1], 0, context, "work");
        }
        let end = InlineContext { local_root_span_id: [request as u8; 8], ..inline(request) };
        scripted.raw(SampleKind::RequestEnd, 100 * MS, [duration_ms * MS, 0], 7, end, "end");
    }
    assert_eq!(scripted.counter("tail.held_bytes"), 0);
    assert_eq!((scripted.counter("tail.requests"), scripted.counter("tail.kept_duration")), (2, 1));
    assert_eq!(detailed(&scripted.close(200 * MS)), (BTreeMap::from([(0, 1), (1, 2)]), 0));
}

#[test]
fn requests_whose_end_was_lost_are_released_without_detail_after_five_minutes() {
    let mut scripted = Scripted::new(at_least(Duration::from_secs(1)));
    scripted.cpu(1, 0, "work");
    assert_eq!(scripted.close(MAX_IDLE_NS - 1).sample_count(), 0);
    let data = scripted.close(MAX_IDLE_NS);
    assert_eq!((detailed(&data), data.sample_count()), ((BTreeMap::new(), 0), 1));
    assert_eq!((scripted.counter("tail.undecided"), scripted.engine.due_ns()), (1, None));
}

#[test]
fn memory_is_bounded_with_a_hundred_thousand_open_requests() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(500)));
    let (mut largest, mut weight) = (0, 0);
    for request in 1..=100_000u64 {
        scripted.cpu(request, request, &format!("work{}", request % 1000));
        largest = largest.max(scripted.counter("tail.held_bytes"));
        if request % 30_000 == 0 {
            weight += weight_of(&scripted.close(request), "cpu");
            largest = largest.max(scripted.counter("tail.held_bytes"));
        }
    }
    assert!(largest <= 8 << 20, "{largest}");
    let undecided = scripted.counter("tail.undecided");
    assert!((50_000..80_000).contains(&undecided), "{undecided}");
    // The newest requests are still held, and their end decides.
    scripted.end(100_000, 600 * MS, 600 * MS, false);
    let data = scripted.close_last(700 * MS);
    assert_eq!(detailed(&data), (BTreeMap::from([(100_000, 1)]), 0));
    weight += weight_of(&data, "cpu");
    assert_eq!(weight, 100_000 * 10 * MS as i64);
}

#[test]
fn every_end_is_counted_and_the_first_failed_requests_keep_their_span() {
    for settings in [settings(), at_least(Duration::from_millis(500))] {
        let mut scripted = Scripted::new(settings);
        for request in 1..=3000 {
            scripted.end(request, request * MS, 8 * MS, request % 2 == 0);
        }
        let data = scripted.close(4000 * MS);
        assert_eq!((weight_of(&data, "requests"), weight_of(&data, "request_errors")), (3000, 1500));
        let failed = data.profiles().filter(|(_, profile)| profile.type_name() == "request_errors");
        let mut spans: Vec<_> = failed
            .flat_map(|(_, profile)| &profile.samples)
            .map(|sample| (u64::from_be_bytes(data.dictionary.get_link(sample.link).span_id), sample.total()))
            .collect();
        spans.sort_unstable();
        let with_span = 1_024;
        let rest = 1500 - with_span as i64;
        let expected = std::iter::once((0, rest)).chain((1..=with_span).map(|nth| (2 * nth, 1)));
        assert_eq!(spans, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_change_to_all_releases_the_held_samples() {
    let mut scripted = Scripted::new(at_least(Duration::from_millis(500)));
    scripted.cpu(1, 5, "work");
    scripted.engine.apply(settings(), 5);
    scripted.cpu(2, 6, "work");
    let data = scripted.close(10 * MS);
    assert_eq!((data.sample_count(), detailed(&data)), (2, (BTreeMap::new(), 2)));
}

#[test]
fn totals_with_retention_equal_those_without() {
    const KINDS: [SampleKind; 5] =
        [SampleKind::Cpu, SampleKind::Wall, SampleKind::Alloc, SampleKind::Lock, SampleKind::OffCpu];
    for seed in 0..20 {
        let slow = Some(SlowLimit::AtLeast(Duration::from_millis(200)));
        let mut tight = with_retention(TailPolicy { duration: slow, max_bytes: 65_536, ..tail_policy() });
        tight.window.strips_links = seed % 2 != 0;
        let percentile = with_retention(TailPolicy { cpu_share: Some(0.3), ..tail_policy() });
        let sums_of = |settings: EngineSettings| {
            let (mut scripted, mut random, mut sums) = (Scripted::new(settings), Sequence::new(seed), HashMap::new());
            for step in 0..3_000u64 {
                let (request, now_ns) = (random.below(150) as u64, step * MS);
                match random.below(100) {
                    0 => totals(&scripted.close(now_ns), &mut sums),
                    1..=9 => scripted.end(request, now_ns, random.below(400) as u64 * MS, random.below(9) == 0),
                    choice => {
                        let values = [1 + random.below(30_000_000) as u64, 1 + random.below(3) as u64];
                        let context = inline(request * (choice as u64 % 2));
                        let function = format!("function{}", random.below(40));
                        scripted.raw(KINDS[choice % KINDS.len()], now_ns, values, 0, context, &function);
                    }
                }
            }
            totals(&scripted.close_last(4_000 * MS), &mut sums);
            assert_eq!(scripted.counter("tail.held_bytes"), 0);
            sums
        };
        let expected = sums_of(settings());
        assert_eq!(sums_of(tight), expected, "seed {seed}");
        assert_eq!(sums_of(percentile), expected, "seed {seed}");
    }
}
