//! `spanprof convert --to firefox`: its samples, spans and members, beside those of another writer of the format.

use std::collections::BTreeSet;
use std::time::SystemTime;

use fxprof_processed_profile as reference;
use serde_json::Value;
use spanprof_profile::{transform, ProfilesData};

use crate::fixture::{encoded, ids, spanprof, window_at, TestDirectory, TestSample};

const START_NS: u64 = 1_760_000_000_000_000_000;
const MS: u64 = 1_000_000;

/// CPU and wait of a request in one thread, with a time for each value, and a sample of another thread without a span.
fn request() -> ProfilesData {
    let thread = |name| [("endpoint", "/cart"), ("thread.name", name)];
    let mut cpu = window_at(
        "checkout",
        "cpu",
        START_NS,
        &[
            TestSample(&["main", "serve", "price"], 30_000_000, &thread("worker"), 7),
            TestSample(&["main", "poll"], 10_000_000, &[("thread.name", "loop")], 0),
        ],
    );
    let samples = &mut cpu.resources[0].profiles[0].samples;
    (samples[0].values, samples[0].timestamps_unix_nano) = (vec![1, 2], [40, 20].map(|at| START_NS + at * MS).to_vec());
    samples[1].timestamps_unix_nano = vec![START_NS + 25 * MS];
    let mut wall = window_at(
        "checkout",
        "wall",
        START_NS,
        &[TestSample(&["main", "serve", "wait"], 5_500_000, &thread("worker"), 7)],
    );
    wall.resources[0].profiles[0].samples[0].timestamps_unix_nano = vec![START_NS + 60 * MS];
    transform::merge(&[cpu, wall])
}

fn converted(data: &ProfilesData, output: &str) -> Value {
    let home = TestDirectory::new();
    let source = home.file("a.otlp.pb", &encoded(data));
    let path = home.path().join(output).to_str().unwrap().to_owned();
    let convert = spanprof(&["convert", &source, "-o", &path]);
    assert_eq!(convert.code, 0, "{convert:?}");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn lane<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let lanes = profile["threads"].as_array().unwrap();
    lanes.iter().find(|lane| lane["name"] == name).unwrap_or_else(|| panic!("no lane {name}: {profile}"))
}

/// Names of the functions of a sample, leaf first.
fn stack(lane: &Value, sample: usize) -> Vec<&str> {
    let index = |value: &Value| value.as_u64().map(|index| index as usize);
    let mut names = Vec::new();
    let mut at = index(&lane["samples"]["stack"][sample]);
    while let Some(row) = at {
        let frame = index(&lane["stackTable"]["frame"][row]).unwrap();
        let function = index(&lane["frameTable"]["func"][frame]).unwrap();
        let name = index(&lane["funcTable"]["name"][function]).unwrap();
        names.push(lane["stringArray"][name].as_str().unwrap());
        at = index(&lane["stackTable"]["prefix"][row]);
    }
    names
}

#[test]
fn a_lane_has_the_samples_of_a_thread_in_the_order_of_their_times_with_exact_weights() {
    let profile = converted(&request(), "request.firefox.json");
    assert_eq!(profile["meta"]["preprocessedProfileVersion"], 55);
    assert_eq!(profile["meta"]["startTime"].as_f64(), Some((START_NS + 20 * MS) as f64 / MS as f64));
    assert_eq!(profile["threads"].as_array().unwrap().len(), 3, "{profile}");
    let worker = lane(&profile, "worker (cpu)");
    let numbers = |column: &Value| column.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers(&worker["samples"]["timeDeltas"]), [0.0, 20.0]);
    assert_eq!(numbers(&worker["samples"]["weight"]), [20.0, 10.0], "ms: values of 2 and 1 periods");
    assert_eq!(numbers(&worker["samples"]["threadCPUDelta"]), [20_000.0, 10_000.0], "µs");
    assert_eq!(stack(worker, 0), ["price", "serve", "main"]);
    let other = lane(&profile, "loop (cpu)");
    assert_eq!(numbers(&other["samples"]["timeDeltas"]), [5.0]);
    assert_eq!(stack(other, 0), ["poll", "main"]);
    let waits = lane(&profile, "worker (wall)");
    assert_eq!((numbers(&waits["samples"]["weight"]), stack(waits, 0)), (vec![5.5], vec!["wait", "serve", "main"]));
    assert!(waits["samples"].get("threadCPUDelta").is_none(), "no CPU time is known");
}

#[test]
fn the_page_shows_the_lanes_of_a_thread_with_cpu_time_first_and_selects_the_busiest() {
    let profile = converted(&request(), "request.firefox.json");
    let names: Vec<_> =
        profile["threads"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["loop (cpu)", "worker (cpu)", "worker (wall)"]);
    assert_eq!(profile["meta"]["keepProfileThreadOrder"], true);
    assert_eq!(profile["meta"]["initialSelectedThreads"], serde_json::json!([1]), "30 ms of CPU time against 10 ms");
    assert_eq!(profile["meta"]["initialVisibleThreads"], serde_json::json!([1, 0, 2]));
}

#[test]
fn a_span_is_one_marker_from_its_first_to_its_last_sample() {
    let profile = converted(&request(), "request.firefox.json");
    let markers: Vec<&Value> = profile["threads"].as_array().unwrap().iter().map(|lane| &lane["markers"]).collect();
    assert_eq!(markers.iter().map(|markers| markers["length"].as_u64().unwrap()).sum::<u64>(), 1, "{markers:?}");
    let worker = lane(&profile, "worker (cpu)");
    let marker = |column: &str| &worker["markers"][column][0];
    let text = |index: &Value| worker["stringArray"][index.as_u64().unwrap() as usize].as_str().unwrap();
    assert_eq!((marker("startTime").as_f64(), marker("endTime").as_f64()), (Some(0.0), Some(40.0)));
    assert_eq!(text(marker("name")), "/cart");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (trace_id, span_id) = ids(7);
    assert_eq!(text(&marker("data")["trace"]), hex(&trace_id));
    assert_eq!(text(&marker("data")["span"]), hex(&span_id));
}

/// Names of all members below a value, with `[]` for the elements of lists.
fn members(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, member) in object {
                into.insert(format!("{path}.{name}"));
                members(member, &format!("{path}.{name}"), into);
            }
        }
        Value::Array(list) => list.iter().for_each(|element| members(element, &format!("{path}[]"), into)),
        _ => {}
    }
}

/// A marker of the reference with two texts, as those of spans.
struct ReferenceSpan(reference::StringHandle);

impl reference::StaticSchemaMarker for ReferenceSpan {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Span";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.trace}");
    const DESCRIPTION: Option<&'static str> = Some("a span");
    const FIELDS: &'static [reference::StaticSchemaMarkerField] = &[
        reference::StaticSchemaMarkerField {
            key: "trace",
            label: "Trace id",
            format: reference::MarkerFieldFormat::String,
            flags: reference::MarkerFieldFlags::SEARCHABLE,
        },
        reference::StaticSchemaMarkerField {
            key: "span",
            label: "Span id",
            format: reference::MarkerFieldFormat::String,
            flags: reference::MarkerFieldFlags::SEARCHABLE,
        },
    ];

    fn name(&self, _profile: &mut reference::Profile) -> reference::StringHandle {
        self.0
    }

    fn category(&self, _profile: &mut reference::Profile) -> reference::CategoryHandle {
        reference::CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field_index: u32) -> reference::StringHandle {
        self.0
    }

    fn number_field_value(&self, _field_index: u32) -> f64 {
        0.0
    }
}

#[test]
fn the_members_are_those_of_another_writer_of_the_format() {
    let at = |ms: f64| reference::Timestamp::from_millis_since_reference(ms);
    let mut other =
        reference::Profile::new("checkout", SystemTime::now().into(), reference::SamplingInterval::from_millis(10));
    let process = other.add_process("checkout", 4711, at(0.0));
    let thread = other.add_thread(process, 1, at(0.0), false);
    let name = other.intern_string("main");
    let frame = reference::FrameInfo {
        frame: reference::Frame::Label(name),
        category_pair: reference::CategoryHandle::OTHER.into(),
        flags: reference::FrameFlags::empty(),
    };
    let stack = other.intern_stack_frames(thread, [frame].into_iter());
    other.add_initial_visible_thread(thread);
    other.add_initial_selected_thread(thread);
    other.add_sample(thread, at(1.0), stack, reference::CpuDelta::ZERO, 1);
    other.add_marker(thread, reference::MarkerTiming::Interval(at(0.0), at(1.0)), ReferenceSpan(name));
    let (mut expected, mut written) = (BTreeSet::new(), BTreeSet::new());
    members(&serde_json::to_value(&other).unwrap(), "", &mut expected);
    members(&converted(&request(), "request.firefox.json"), "", &mut written);
    // The reference cannot set this member of the page (`src/types/profile.ts`, ProfileMeta).
    expected.insert(".meta.keepProfileThreadOrder".to_owned());
    assert_eq!(written, expected);
}

#[test]
fn a_profile_without_timestamps_names_the_key_and_the_alternative() {
    let data = window_at("checkout", "cpu", START_NS, &[TestSample(&["main"], 10_000_000, &[], 0)]);
    let home = TestDirectory::new();
    let source = home.file("a.otlp.pb", &encoded(&data));
    let output = home.path().join("a.json").to_str().unwrap().to_owned();
    let convert = spanprof(&["convert", &source, "--to", "firefox", "-o", &output]);
    assert_eq!(convert.code, 1, "{convert:?}");
    assert!(
        convert.stderr.contains("keep_timestamps=true") && convert.stderr.contains("--to speedscope"),
        "{convert:?}"
    );
    assert_eq!(home.names(), ["a.otlp.pb"]);
}
