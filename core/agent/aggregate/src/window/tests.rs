//! Tests of the window beyond the conformance cases: caps, closing one kind, clocks that step back, order.

use super::*;
use crate::context::intern_labels;
use crate::resolve::locations::LocationTable;
use crate::resolve::stacks::StackTable;
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::{Link, Sample};
use spanprof_signal::{Context, DropReason, SampleFlags};

use crate::scripted_engine_testing::{redactor, ScriptedSymbols, WINDOW as SETTINGS};

struct StackTables {
    locations: LocationTable,
    stacks: StackTable,
}

impl StackTables {
    fn new() -> Self {
        Self { locations: LocationTable::new(Box::new(ScriptedSymbols)), stacks: StackTable::default() }
    }

    fn stack(&mut self) -> StackIndex {
        self.stacks.reason(DropReason::FaultedRead, &mut self.locations)
    }

    fn close(&self, window: &mut Window, now_ns: u64) -> Option<ClosedWindow> {
        let mut redactor = redactor();
        window
            .close(CloseInput {
                dropped_attributes: 0,
                locations: &self.locations,
                stacks: &self.stacks,
                resource: &[],
                tags: &[],
                service_name: "",
                comment: "",
                now_monotonic_ns: now_ns,
                unix_offset_ns: 0,
                profile_id: || [1; 16],
                duty_cycles: &[],
                own_code: &OwnCode::default(),
            })
            .map(|closed| closed.redacted(&mut redactor))
    }
}

fn sample(kind: SampleKind, time_ns: u64, values: [u64; 2]) -> RawSample<'static> {
    RawSample {
        kind,
        flags: SampleFlags(0),
        thread_id: 1,
        time_ns,
        values,
        key: 0,
        context: Context::None,
        frames: &[],
    }
}

fn add(window: &mut Window, stack: StackIndex, sample: &RawSample<'_>, link: Link) {
    window.add(
        ResolvedSample {
            sample,
            stack,
            label_set: LabelSetId::EMPTY,
            link: link.into(),
            division: None,
            thread_name: None,
        },
        &Counters::default(),
    );
}

#[test]
fn samples_of_a_thread_have_the_name_that_the_language_gave_it_else_that_of_the_kernel() {
    let mut tables = StackTables::new();
    let (stack, label_set, link) = (tables.stack(), LabelSetId::EMPTY, Link::default());
    let settings = WindowSettings { thread_labels: true, thread_name: |_| Some("kernel".to_owned()), ..SETTINGS };
    let mut window = Window::new(settings, 0);
    let sample = sample(SampleKind::Cpu, 5, [20_000_000, 2]);
    for thread_name in [Some("first request".into()), None, Some("second request".into())] {
        let thread_name = thread_name.as_ref();
        let resolved =
            ResolvedSample { sample: &sample, stack, label_set, link: link.into(), division: None, thread_name };
        window.add(resolved, &Counters::default());
    }
    let data = tables.close(&mut window, 100).unwrap().data;
    let attributes =
        |sample: &spanprof_profile::Sample| data.dictionary.attributes_of(sample.attributes).collect::<Vec<_>>();
    let (_, profile) = data.profiles().next().unwrap();
    let names: Vec<_> =
        profile.samples.iter().flat_map(attributes).filter(|label| label.key == "thread.name").collect();
    let names: Vec<_> = names.iter().map(|label| label.value.to_string()).collect();
    assert_eq!(names, ["first request", "kernel", "second request"]);
}

#[test]
fn a_window_after_a_pause_does_not_begin_before_its_end() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    window.begin_at(90);
    add(&mut window, stack, &sample(SampleKind::Lock, 95, [7, 1]), Link::default());
    let closed = tables.close(&mut window, 100).unwrap();
    assert_eq!((closed.start_unix_ns, closed.duration_ns), (90, 10));
}

#[test]
fn a_window_with_too_many_spans_closes_early() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    for request in 1..MAX_ENTRIES as u64 {
        let link = Link { span_id: request.to_be_bytes(), ..Link::default() };
        add(&mut window, stack, &sample(SampleKind::Cpu, 5, [10_000_000, 1]), link);
    }
    assert!(!window.is_full());
    let last = Link { span_id: u64::MAX.to_be_bytes(), ..Link::default() };
    add(&mut window, stack, &sample(SampleKind::Cpu, 5, [10_000_000, 1]), last);
    assert!(window.is_full());
    let closed = tables.close(&mut window, 100).unwrap();
    assert_eq!(closed.samples, MAX_ENTRIES as u64);
    assert!(!window.is_full());
}

#[test]
fn a_window_with_too_many_kept_timestamps_is_full() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(WindowSettings { keep_timestamps: true, ..SETTINGS }, 0);
    for time_ns in 0..MAX_TIMESTAMPS as u64 {
        add(&mut window, stack, &sample(SampleKind::Wall, time_ns, [10, 1]), Link::default());
    }
    assert!(window.is_full());
}

#[test]
fn a_clock_that_steps_back_does_not_cause_a_negative_duration() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 1_000);
    add(&mut window, stack, &sample(SampleKind::Wall, 900, [10, 1]), Link::default());
    let closed = tables.close(&mut window, 800).unwrap();
    assert_eq!(closed.duration_ns, 1);
}

#[test]
fn the_order_of_samples_does_not_change_the_encoded_profile() {
    let build = |order: &[u64]| {
        let mut tables = StackTables::new();
        let stack = tables.stack();
        let mut window = Window::new(SETTINGS, 0);
        // Links get their ids in the same order; only the order of samples differs.
        for span in 1..=3u64 {
            let link = Link { span_id: span.to_be_bytes(), ..Link::default() };
            add(&mut window, stack, &sample(SampleKind::Wall, 1, [1, 1]), link);
        }
        for span in order {
            let link = Link { span_id: span.to_be_bytes(), ..Link::default() };
            add(&mut window, stack, &sample(SampleKind::Wall, 2, [*span, 1]), link);
        }
        let closed = tables.close(&mut window, 100).unwrap();
        spanprof_profile::encode::otlp::encode(&closed.data, Default::default())
    };
    assert_eq!(build(&[1, 2, 3, 3]), build(&[3, 1, 3, 2]));
}

#[test]
fn a_window_with_too_many_threads_closes_early() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    for thread_id in 1..=MAX_ENTRIES as u32 {
        let first = RawSample {
            thread_id,
            flags: SampleFlags(SampleFlags::FIRST_OF_THREAD),
            ..sample(SampleKind::Cpu, 5, [1_000_000, 1])
        };
        add(&mut window, stack, &first, Link::default());
    }
    assert!(window.is_full());
    tables.close(&mut window, 100).unwrap();
    window.release_remainders_of_ended_threads(&mut |_| false);
    assert!(!window.is_full());
}

#[test]
fn the_remainders_of_ended_threads_are_spread_over_the_samples_of_new_threads() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    let period_ns = SETTINGS.cpu_period_ns;
    for thread_id in 1..=100 {
        let flags = SampleFlags(SampleFlags::FIRST_OF_THREAD);
        let first = RawSample { thread_id, flags, ..sample(SampleKind::Cpu, 5, [period_ns * 3 / 2, 1]) };
        let link = Link { span_id: u64::from(thread_id).to_be_bytes(), ..Link::default() };
        add(&mut window, stack, &first, link);
    }
    window.release_remainders_of_ended_threads(&mut |_| false);
    window.add_unattributed(50 * period_ns, 10, stack, &Counters::default());
    let closed = tables.close(&mut window, 100).unwrap();
    let (_, cpu) = closed.data.profiles().find(|(_, profile)| profile.type_name() == "cpu").unwrap();
    let counts: Vec<_> = cpu.samples.iter().map(|sample| sample.total()).collect();
    assert_eq!((counts.len(), counts.iter().sum::<i64>()), (100, 200));
    assert!(counts.iter().all(|count| *count == 2), "{counts:?}");
}

#[test]
fn a_new_thread_gets_at_most_a_period_of_the_remainders_of_many_ended_threads() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    let period_ns = SETTINGS.cpu_period_ns;
    let link = |span: u64| Link { span_id: span.to_be_bytes(), ..Link::default() };
    for thread_id in 1..=50 {
        let flags = SampleFlags(if thread_id == 1 { SampleFlags::FIRST_OF_THREAD } else { 0 });
        let only = RawSample { thread_id, flags, ..sample(SampleKind::Cpu, 5, [period_ns * 3 / 2, 1]) };
        add(&mut window, stack, &only, link(u64::from(thread_id)));
    }
    window.release_remainders_of_ended_threads(&mut |_| false);
    window.add_unattributed(period_ns, 10, stack, &Counters::default());
    let closed = tables.close(&mut window, 100).unwrap();
    let (_, cpu) = closed.data.profiles().find(|(_, profile)| profile.type_name() == "cpu").unwrap();
    let count_of = |link: &Link| {
        let linked = cpu.samples.iter().filter(|sample| closed.data.dictionary.get_link(sample.link) == *link);
        linked.map(|sample| sample.total()).sum::<i64>()
    };
    assert_eq!((count_of(&link(1)), count_of(&link(2)), count_of(&Link::default())), (3, 1, 24));
}

/// Inserts an ended request of an endpoint into the window.
fn end_request(window: &mut Window, stack: StackIndex, endpoint: &str, duration_ms: u64, error: u64, span: u64) {
    let label_set = intern_labels(&[("endpoint", endpoint)]);
    let ended = sample(SampleKind::RequestEnd, 1_000 + span, [1, error]);
    let ended = RawSample { thread_id: 0, ..ended };
    let link = Link { span_id: span.to_be_bytes(), ..Link::default() };
    let duration_ns = duration_ms * 1_000_000;
    let division = Some(Division::Duration(RequestDuration::coarse(duration_ns)));
    let resolved = ResolvedSample { sample: &ended, stack, label_set, link: link.into(), division, thread_name: None };
    window.add_request(resolved, duration_ns, Vec::new(), &Counters::default());
}

#[test]
fn what_a_slow_request_awaited_is_in_the_window_and_that_of_a_counted_one_is_not() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let (mut window, counters) = (Window::new(SETTINGS, 0), Counters::default());
    for span in 0..12 {
        let link = TreeSpan::from(Link { trace_id: [1; 16], span_id: [span as u8 + 1; 8] });
        let [ended, call] =
            [SampleKind::RequestEnd, SampleKind::Awaited].map(|kind| sample(kind, 1_000 + span, [span + 1, 1]));
        let resolved = |sample| {
            let label_set = LabelSetId::EMPTY;
            ResolvedSample { sample, stack, label_set, link, division: None, thread_name: None }
        };
        let awaited = vec![window.weigh(resolved(&call), &counters)];
        let ended = RawSample { values: [1, 0], ..ended };
        window.add_request(resolved(&ended), 1_000 * (span + 1), awaited, &counters);
    }
    let closed = tables.close(&mut window, 2_000).unwrap();
    // The ten slowest of twelve.
    assert_eq!(requests_of(&closed, "awaited").0, (3..=12).sum::<i64>());
    assert_eq!((window.take_awaited(), counters.samples_submitted.value()), (10, 12), "the calls, and the requests");
}

/// Number of requests, of samples, and the spans in ascending order, of all profiles of one type.
fn requests_of(closed: &ClosedWindow, type_name: &str) -> (i64, usize, Vec<u64>) {
    let profiles = closed.data.profiles().filter(|(_, profile)| profile.type_name() == type_name);
    let samples: Vec<_> = profiles.flat_map(|(_, profile)| &profile.samples).collect();
    let links = samples.iter().map(|sample| closed.data.dictionary.get_link(sample.link).span_id);
    let mut spans: Vec<_> = links.map(u64::from_be_bytes).filter(|span| *span != 0).collect();
    spans.sort_unstable();
    (samples.iter().map(|sample| sample.total()).sum(), samples.len(), spans)
}

#[test]
fn the_slowest_requests_of_each_endpoint_keep_their_span_and_all_are_counted() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    let duration_ms = |number: u64| number * 7 % 1_009;
    for number in 1..=1_000 {
        end_request(&mut window, stack, "slow", duration_ms(number), 0, number);
        end_request(&mut window, stack, "fast", 1, 0, 10_000 + number);
    }
    let closed = tables.close(&mut window, 100_000).unwrap();
    assert_eq!(window.due_ns(), None);
    let (count, samples, spans) = requests_of(&closed, "requests");
    assert_eq!(count, 2_000);
    // Durations from 1 ms to 1 s have ten powers of two.
    assert!(samples <= 20 + 10 * 8 + 2, "{samples}");
    let mut slowest: Vec<u64> = (1..=1_000).collect();
    slowest.sort_by_key(|number| std::cmp::Reverse(duration_ms(*number)));
    slowest.truncate(10);
    slowest.extend(10_001..=10_010);
    slowest.sort_unstable();
    assert_eq!(spans, slowest);
    for (_, profile) in closed.data.profiles() {
        let has_times = |sample: &&Sample| !sample.timestamps_unix_nano.is_empty();
        let timed = profile.samples.iter().filter(has_times).count();
        assert!(timed == 0 || timed == profile.samples.len(), "all samples of a profile have timestamps, or none");
    }
}

#[test]
fn failed_requests_keep_their_span_up_to_a_limit_and_those_without_a_span_are_counted() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    for number in 1..=3_000 {
        end_request(&mut window, stack, "failing", 5, 1, number);
        end_request(&mut window, stack, "unlinked", 5, 0, 0);
    }
    let closed = tables.close(&mut window, 100_000).unwrap();
    let (failed, _, spans) = requests_of(&closed, "request_errors");
    assert_eq!((failed, spans), (3_000, (1..=1_024).collect()));
    assert_eq!(requests_of(&closed, "requests").0, 6_000);
}

#[test]
fn the_number_of_endpoints_whose_slow_requests_keep_their_span_is_bounded() {
    let mut tables = StackTables::new();
    let stack = tables.stack();
    let mut window = Window::new(SETTINGS, 0);
    for number in 1..=3_000 {
        end_request(&mut window, stack, &format!("endpoint {number}"), number, 0, number);
    }
    let closed = tables.close(&mut window, 100_000).unwrap();
    let (count, _, spans) = requests_of(&closed, "requests");
    assert_eq!((count, spans), (3_000, (1..=1_024).collect()));
}
