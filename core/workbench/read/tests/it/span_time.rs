//! Where the time of a span went: the parts of its rows, and the mean of the others.

use proptest::prelude::*;
use spanprof_profile::code_origin::WaitReason;
use spanprof_profile::transform::CodePart;
use spanprof_profile::*;
use spanprof_read::query::{
    span_baseline, span_time, Granularity, SpanSubject, SpanTime, SpanTimeRow, SpanTotals, TimeCategory,
};

/// Functions by name, file and frame type.
const FUNCTIONS: [(&str, &str, FrameType); 12] = [
    ("price", "/srv/app.py", FrameType::Cpython),
    ("loads", "/usr/lib/python3.11/json/__init__.py", FrameType::Cpython),
    ("Condition.wait", "/usr/lib/python3.11/threading.py", FrameType::Cpython),
    ("SocketIO.readinto", "/usr/lib/python3.11/socket.py", FrameType::Cpython),
    ("gc_collect_main", "/usr/bin/python3.11", FrameType::Native),
    ("memmove", "/lib/x86_64-linux-gnu/libc.so.6", FrameType::Native),
    ("[lock]", "", FrameType::Unspecified),
    ("[I/O]", "", FrameType::Unspecified),
    ("[sleep]", "", FrameType::Unspecified),
    ("[scheduled out]", "", FrameType::Unspecified),
    ("handle", "/srv/app.py", FrameType::Cpython),
    ("dispatch", "/venv/site-packages/flask/app.py", FrameType::Cpython),
];

/// A sample of a type in a span: functions leaf first, by their number; nanoseconds.
type SpanSample<'s> = (&'s str, u64, &'s [usize], i64);

fn totals(samples: &[SpanSample<'_>]) -> SpanTotals {
    added(SpanTotals::with_categories(None), samples)
}

fn added(mut totals: SpanTotals, samples: &[SpanSample<'_>]) -> SpanTotals {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let route = dictionary.attribute("http.route", Value::String("/cart"), "");
    let attributes = dictionary.attribute_set(&[route]);
    let mut profiles: Vec<Profile> = Vec::new();
    for (type_name, span, functions, weight) in samples {
        let mut locations = Vec::new();
        for (name, file, frame_type) in functions.iter().map(|at| FUNCTIONS[*at]) {
            let function =
                Function { name: dictionary.string(name), filename: dictionary.string(file), ..Function::default() };
            let lines = [Line { function: dictionary.function(function), line: 1, column: 0 }];
            let attributes = dictionary.frame_type(frame_type);
            locations.push(dictionary.location(Location { lines: &lines, attributes, ..Location::default() }));
        }
        let stack = dictionary.stack(&locations);
        let link = dictionary.link(link(*span));
        let sample = Sample { stack, link, attributes, values: vec![*weight], ..Sample::default() };
        match profiles.iter_mut().find(|profile| profile.type_name() == *type_name) {
            Some(profile) => profile.samples.push(sample),
            None => profiles.push(Profile {
                sample_type: ValueType::new(*type_name, "nanoseconds"),
                period_type: ValueType::new(*type_name, "nanoseconds"),
                period: 10,
                samples: vec![sample],
                ..Profile::default()
            }),
        }
    }
    data.resources.push(ResourceProfiles { profiles, ..ResourceProfiles::default() });
    totals.add(&data);
    totals
}

fn link(span: u64) -> Link {
    Link { trace_id: u128::from(span).to_be_bytes(), span_id: span.to_be_bytes() }
}

fn time_of(samples: &[SpanSample<'_>], span: u64) -> SpanTime {
    span_time(&totals(samples), SpanSubject::Span(link(span))).expect("a span with samples")
}

fn row<'t>(time: &'t SpanTime, name: &str) -> &'t SpanTimeRow {
    time.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}: {time:?}"))
}

/// Category, weight and mean of the parts of a row.
fn parts(time: &SpanTime, name: &str) -> Vec<(TimeCategory, i64, f64)> {
    row(time, name).parts.iter().map(|(category, part)| (*category, part.weight, part.mean)).collect()
}

#[test]
fn cpu_time_and_waits_have_parts_beside_the_mean_of_the_others() {
    let time = time_of(
        &[
            ("cpu", 1, &[0], 70),
            ("cpu", 1, &[1, 0], 20),
            ("cpu", 1, &[5, 4, 0], 10),
            ("cpu", 2, &[0], 30),
            ("cpu", 3, &[0], 50),
            ("off_cpu", 1, &[6, 2, 0], 500),
            ("off_cpu", 1, &[7, 3, 0], 40),
            ("off_cpu", 1, &[9, 0], 7),
            ("off_cpu", 2, &[6, 0], 60),
            ("gc", 1, &[4, 0], 9),
            ("event_loop_lag", 1, &[0], 8),
        ],
        1,
    );
    assert_eq!(time.others, 2);
    let titles: Vec<&str> = time.rows.iter().map(SpanTimeRow::title).collect();
    assert_eq!(titles, ["On the CPU", "Waiting (off CPU)", "Garbage collection", "Event loop blocked"]);
    let code = |part, weight, mean| (TimeCategory::Code(part), weight, mean);
    let collector = CodePart::Runtime(code_origin::RuntimeBucket::GarbageCollector);
    assert_eq!(
        parts(&time, "cpu"),
        [code(CodePart::Own, 70, 40.0), code(CodePart::Library, 20, 0.0), code(collector, 10, 0.0)]
    );
    let wait = |reason, weight, mean| (TimeCategory::Wait(reason), weight, mean);
    assert_eq!(
        parts(&time, "off_cpu"),
        [
            wait(WaitReason::Condition, 500, 0.0),
            wait(WaitReason::Socket, 40, 0.0),
            wait(WaitReason::LockOrCondition, 0, 30.0),
            wait(WaitReason::NoProcessor, 7, 0.0),
        ]
    );
    assert_eq!((row(&time, "cpu").total.weight, row(&time, "cpu").total.mean), (100, 40.0));
    assert_eq!(row(&time, "gc").total.weight, 9);
}

#[test]
fn a_failed_span_says_so_and_one_without_samples_is_not_compared_with() {
    let samples: &[SpanSample<'_>] =
        &[("cpu", 1, &[0], 70), ("cpu", 2, &[0], 30), ("requests", 1, &[], 1), ("request_errors", 1, &[], 1)];
    let unsampled: &[SpanSample<'_>] = &[("requests", 3, &[], 1), ("request_errors", 3, &[], 1)];
    let samples = [samples, unsampled].concat();
    let failed = time_of(&samples, 1);
    assert_eq!((failed.is_failed, failed.others, row(&failed, "cpu").total.mean), (true, 1, 30.0));
    assert_eq!(failed.rows.len(), 1, "{failed:?}");
    assert!(!time_of(&samples, 2).is_failed);
    assert!(time_of(&samples, 3).is_failed);
}

#[test]
fn without_a_profile_of_waits_their_reason_follows_from_wall_time_less_cpu_time() {
    let samples: &[SpanSample<'_>] = &[
        ("cpu", 1, &[0], 100),
        ("cpu", 1, &[3, 0], 5),
        ("wall", 1, &[0], 130),
        ("wall", 1, &[3, 0], 300),
        ("wall", 2, &[2, 0], 80),
    ];
    let time = time_of(samples, 1);
    let wait = |reason, weight, mean| (TimeCategory::Wait(reason), weight, mean);
    // The rest is nobody's: own code that waits, or ran without a processor.
    assert_eq!(
        parts(&time, "waiting"),
        [wait(WaitReason::Socket, 295, 0.0), wait(WaitReason::Condition, 0, 80.0), wait(WaitReason::Unknown, 30, 0.0),]
    );
    assert_eq!(row(&time, "waiting").type_name, "wall");
    let measured = time_of(&[samples, &[("off_cpu", 9, &[6, 0], 1)]].concat(), 1);
    assert!(measured.rows.iter().all(|row| row.name != "waiting"), "{measured:?}");
}

#[test]
fn a_wait_of_which_nothing_is_known_has_no_parts() {
    let time = time_of(&[("cpu", 1, &[0], 10), ("wall", 1, &[0], 90)], 1);
    assert_eq!((row(&time, "waiting").total.weight, parts(&time, "waiting")), (80, vec![]));
    assert_eq!(parts(&time, "cpu"), [(TimeCategory::Code(CodePart::Own), 10, 0.0)]);
}

proptest! {
    #[test]
    fn the_parts_of_a_row_add_up_to_the_row(
        samples in prop::collection::vec(
            (0..3usize, 1..5u64, prop::collection::vec(0..FUNCTIONS.len(), 0..4), 1..1_000_000_000_000i64), 1..60
        ),
        has_off_cpu: bool,
    ) {
        let types = ["cpu", "wall", if has_off_cpu { "off_cpu" } else { "wall" }];
        let samples: Vec<SpanSample<'_>> =
            samples.iter().map(|(kind, span, functions, weight)| (types[*kind], *span, &functions[..], *weight)).collect();
        let totals = totals(&samples);
        for span in 1..5 {
            let Some(time) = span_time(&totals, SpanSubject::Span(link(span))) else { continue };
            for row in time.rows.iter().filter(|row| !row.parts.is_empty()) {
                let weight: i64 = row.parts.iter().map(|(_, part)| part.weight).sum();
                prop_assert_eq!(weight, row.total.weight, "{}: {:?}", &row.name, time);
                let mean: f64 = row.parts.iter().map(|(_, part)| part.mean).sum();
                prop_assert!((mean - row.total.mean).abs() <= 1e-9 * row.total.mean, "{}: {:?}", &row.name, time);
                prop_assert!(row.parts.iter().all(|(_, part)| part.weight >= 0 && part.mean >= 0.0), "{:?}", time);
                if row.name != "waiting" {
                    let samples: f64 = row.parts.iter().map(|(_, part)| part.samples).sum();
                    prop_assert!((samples - row.total.samples).abs() <= 1e-9 * samples.max(1.0), "{:?}", time);
                }
            }
        }
    }
}

#[test]
fn own_code_is_first_with_its_callees_and_libraries_have_their_own_time_only() {
    let named = |samples: &[SpanSample<'_>], type_name: &str| -> Vec<String> {
        let time = span_time(&totals(samples), SpanSubject::Span(link(1))).unwrap();
        let functions = added(SpanTotals::with_functions(None, type_name, Granularity::Function), samples);
        let baseline = span_baseline(&functions, &time, None).unwrap();
        baseline.rows.iter().map(|row| format!("{} {}", row.location.function, row.difference.weight)).collect()
    };
    // `dispatch` calls `handle`, which calls `price`, whose work is in `loads`.
    let cpu: [SpanSample<'_>; 3] =
        [("cpu", 1, &[1, 0, 10, 11], 900), ("cpu", 1, &[10, 11], 50), ("cpu", 2, &[1, 10, 11], 10)];
    assert_eq!(named(&cpu, "cpu"), ["price 900", "handle 950", "loads 900"]);
    let waits: [SpanSample<'_>; 2] = [("off_cpu", 1, &[6, 2, 0, 10, 11], 900), ("off_cpu", 2, &[6, 2, 10, 11], 10)];
    assert_eq!(named(&waits, "off_cpu"), ["price 900", "handle 900", "[lock] 900"]);
    // A request without own code: the libraries that wait.
    let of_libraries: [SpanSample<'_>; 2] = [("off_cpu", 1, &[6, 2, 11], 900), ("off_cpu", 2, &[6, 2, 11], 10)];
    assert_eq!(named(&of_libraries, "off_cpu").len(), 3);
}
