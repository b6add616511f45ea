//! Time and memory of the encoders for many distinct stacks, beside plain prost messages of the same profile.
//!
//! Without arguments: medians of interleaved rounds for each number of stacks. `cargo xtask bench encoder` calls the modes
//! `time STACKS ROUNDS`, `memory ENCODER STACKS` and `file STACKS PATH`, and compares with google/pprof.

use std::hint::black_box;
use std::time::Instant;

use prost::Message;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::encode::pprof;
use spanprof_profile::{
    Dictionary, Function, FunctionId, Line, Location, LocationId, Profile, ProfilesData, ResourceProfiles, Sample,
    StackId, StringId, Value, ValueType,
};

mod otlp_messages;
#[path = "../../read/tests/it/pprof_messages.rs"]
mod pprof_messages;

const STACKS: [usize; 4] = [20_000, 50_000, 100_000, 200_000];
const DEPTH: usize = 32;
const ROUNDS: usize = 9;

/// A way to encode a profile.
struct Encoder {
    name: &'static str,
    encode: fn(&ProfilesData) -> Vec<u8>,
}

const ENCODERS: [Encoder; 5] = [
    Encoder { name: "pprof", encode: pprof::encode_uncompressed },
    Encoder { name: "pprof-prost", encode: pprof_by_messages },
    Encoder { name: "otlp", encode: |data| otlp::encode(data, Revision::One) },
    Encoder { name: "otlp-prost", encode: otlp_by_messages },
    Encoder { name: "pprof-gzip", encode: pprof::encode },
];

/// Distinct stacks over a tenth as many functions with two lines each; 1,000 labels; values of CPU time.
fn profile(stacks: usize) -> ProfilesData {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let locations: Vec<LocationId> = (0..stacks / 5)
        .map(|number| {
            let function = number / 2;
            let name = format!("com.example.shop.module_{}.OrderService.handle_{function}", function % 97);
            let name = dictionary.string(&name);
            let filename =
                dictionary.string(&format!("/srv/shop/src/module_{}/order_service_{}.py", function % 97, function / 8));
            let start_line = (function % 500) as i64;
            let function = dictionary.function(Function { name, filename, start_line, ..Function::default() });
            let lines = [Line { function, line: start_line + number as i64 % 2, ..Line::default() }];
            dictionary.location(Location { lines: &lines, ..Location::default() })
        })
        .collect();
    let samples = (0..stacks)
        .map(|number| {
            let at = |depth: usize| (number * 31 / (depth + 1) + depth * depth * 7) % locations.len();
            // The leaf and its caller are different in each stack.
            let frames: Vec<LocationId> = [number % locations.len(), number / locations.len() * 13 + 5]
                .into_iter()
                .chain((2..DEPTH).map(at))
                .map(|at| locations[at % locations.len()])
                .collect();
            let stack = dictionary.stack(&frames);
            let route = dictionary.attribute("http.route", Value::String(&format!("/cart/{}", number % 1000)), "");
            let attributes = dictionary.attribute_set(&[route]);
            Sample { stack, attributes, values: vec![10_000_000 + number as i64], ..Sample::default() }
        })
        .collect();
    let cpu = ValueType::new("cpu", "nanoseconds");
    let profile = Profile {
        sample_type: cpu.clone(),
        period_type: cpu,
        period: 10_000_000,
        time_unix_nano: 1_700_000_000_000_000_000,
        duration_nano: 10_000_000_000,
        samples,
        ..Profile::default()
    };
    assert_eq!(data.dictionary.lens().stacks, stacks + 1, "the stacks are distinct");
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

fn strings(dictionary: &Dictionary) -> Vec<String> {
    (0..dictionary.lens().strings).map(|id| dictionary.get_string(StringId(id as u32)).to_owned()).collect()
}

fn only_profile(data: &ProfilesData) -> &Profile {
    &data.resources[0].profiles[0]
}

/// pprof by a tree of messages. The ids of the dictionary are the indices of the file.
fn pprof_by_messages(data: &ProfilesData) -> Vec<u8> {
    use pprof_messages::*;
    let dictionary = &data.dictionary;
    let (lens, profile) = (dictionary.lens(), only_profile(data));
    let mut string_table = strings(dictionary);
    let mut text = |text: &str| {
        string_table.push(text.to_owned());
        string_table.len() as i64 - 1
    };
    let cpu = pprof_messages::ValueType { kind: text("cpu"), unit: text("nanoseconds") };
    let sample = |sample: &spanprof_profile::Sample| Sample {
        location_id: dictionary.get_stack(sample.stack).iter().map(|id| u64::from(id.0)).collect(),
        value: sample.values.clone(),
        label: dictionary
            .get_attribute_set(sample.attributes)
            .iter()
            .map(|id| {
                let stored = dictionary.get_stored_attribute(*id);
                let str = match stored.value {
                    spanprof_profile::StoredValue::String(text) => i64::from(text.0),
                    _ => 0,
                };
                Label { key: i64::from(stored.key.0), str, ..Label::default() }
            })
            .collect(),
    };
    let location = |id: u32| {
        let of = dictionary.get_location(LocationId(id));
        let line = |line: &spanprof_profile::Line| Line {
            function_id: u64::from(line.function.0),
            line: line.line,
            column: line.column,
        };
        Location {
            id: u64::from(id),
            mapping_id: 1,
            address: of.address,
            line: of.lines.iter().map(line).collect(),
            is_folded: false,
        }
    };
    let function = |id: u32| {
        let of = dictionary.get_function(FunctionId(id));
        Function {
            id: u64::from(id),
            name: i64::from(of.name.0),
            system_name: i64::from(of.system_name.0),
            filename: i64::from(of.filename.0),
            start_line: of.start_line,
        }
    };
    let file = File {
        sample_type: vec![cpu],
        sample: profile.samples.iter().map(sample).collect(),
        mapping: vec![Mapping { id: 1, has_functions: true, ..Mapping::default() }],
        location: (1..lens.locations as u32).map(location).collect(),
        function: (1..lens.functions as u32).map(function).collect(),
        string_table,
        time_nanos: profile.time_unix_nano as i64,
        duration_nanos: profile.duration_nano as i64,
        period_type: Some(cpu),
        period: profile.period,
        ..File::default()
    };
    file.encode_to_vec()
}

/// OTLP by a tree of messages. The ids of the dictionary are the indices of the tables.
fn otlp_by_messages(data: &ProfilesData) -> Vec<u8> {
    use otlp_messages::*;
    let dictionary = &data.dictionary;
    let (lens, profile) = (dictionary.lens(), only_profile(data));
    let mut string_table = strings(dictionary);
    let mut text = |text: &str| {
        string_table.push(text.to_owned());
        string_table.len() as i32 - 1
    };
    let cpu = TypeMessage { type_strindex: text("cpu"), unit_strindex: text("nanoseconds") };
    let indices = |set| dictionary.get_attribute_set(set).iter().map(|id| id.0 as i32).collect();
    let sample = |sample: &Sample| SampleMessage {
        stack_index: sample.stack.0 as i32,
        attribute_indices: indices(sample.attributes),
        link_index: 0,
        values: sample.values.clone(),
    };
    let location = |id: u32| {
        let of = dictionary.get_location(LocationId(id));
        let line = |line: &Line| LineMessage { function_index: line.function.0 as i32, line: line.line };
        LocationMessage { address: of.address, lines: of.lines.iter().map(line).collect() }
    };
    let function = |id: u32| {
        let of = dictionary.get_function(FunctionId(id));
        FunctionMessage {
            name_strindex: of.name.0 as i32,
            system_name_strindex: of.system_name.0 as i32,
            filename_strindex: of.filename.0 as i32,
            start_line: of.start_line,
        }
    };
    let attribute = |id: u32| {
        let of = dictionary.get_attribute(spanprof_profile::AttributeId(id));
        let key = dictionary.get_stored_attribute(spanprof_profile::AttributeId(id)).key;
        let value = ValueMessage { string_value: Some(of.value.to_string()) };
        AttributeMessage { key_strindex: key.0 as i32, value: Some(value) }
    };
    let stack = |id: u32| StackMessage {
        location_indices: dictionary.get_stack(StackId(id)).iter().map(|location| location.0 as i32).collect(),
    };
    let message = ProfileMessage {
        sample_type: Some(cpu),
        samples: profile.samples.iter().map(sample).collect(),
        time_unix_nano: profile.time_unix_nano,
        duration_nano: profile.duration_nano,
        period_type: Some(cpu),
        period: profile.period,
    };
    let tables = DictionaryMessage {
        mapping_table: vec![MappingMessage {}],
        location_table: (0..lens.locations as u32).map(location).collect(),
        function_table: (0..lens.functions as u32).map(function).collect(),
        string_table,
        attribute_table: (0..lens.attributes as u32).map(attribute).collect(),
        stack_table: (0..lens.stacks as u32).map(stack).collect(),
    };
    let scope_profiles = vec![ScopeMessage { profiles: vec![message] }];
    let request = Request { resource_profiles: vec![ResourceMessage { scope_profiles }], dictionary: Some(tables) };
    request.encode_to_vec()
}

/// Milliseconds of each encoder, medians of interleaved rounds.
fn times(data: &ProfilesData, rounds: usize) -> Vec<f64> {
    let mut times = vec![Vec::new(); ENCODERS.len()];
    // The first round fills the allocator.
    for round in 0..=rounds {
        for (encoder, times) in ENCODERS.iter().zip(&mut times) {
            let begun = Instant::now();
            let bytes = black_box((encoder.encode)(black_box(data)));
            let took = begun.elapsed().as_secs_f64() * 1e3;
            drop(bytes);
            if round > 0 {
                times.push(took);
            }
        }
    }
    times.into_iter().map(median).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A size in `/proc/self/status`, MB.
fn status_mb(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a size in the status");
    let kib: f64 = line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().expect("a number of KiB");
    kib * 1024.0 / 1e6
}

/// Peak of the resident memory during one encoding, above that before, MB. For a fresh process: freed memory would be used again.
fn peak_mb(encoder: &Encoder, data: &ProfilesData) -> f64 {
    // Resets the peak (proc_pid_clear_refs(5)).
    std::fs::write("/proc/self/clear_refs", "5").expect("/proc/self/clear_refs");
    let before = status_mb("VmRSS");
    black_box((encoder.encode)(black_box(data)));
    status_mb("VmHWM") - before
}

/// The messages of both ways have the same contents.
fn assert_equal_contents(data: &ProfilesData) {
    let pprof = [ENCODERS[0].encode, ENCODERS[1].encode].map(|encode| {
        let file = pprof_messages::File::decode(&encode(data)[..]).expect("a pprof message");
        let values: i64 = file.sample.iter().flat_map(|sample| &sample.value).sum();
        let frames: usize = file.sample.iter().map(|sample| sample.location_id.len() + sample.label.len()).sum();
        (file.sample.len(), file.location.len(), file.function.len(), values, frames)
    });
    assert_eq!(pprof[0], pprof[1]);
    let otlp = [ENCODERS[2].encode, ENCODERS[3].encode].map(|encode| {
        let request = otlp_messages::Request::decode(&encode(data)[..]).expect("an OTLP message");
        let tables = request.dictionary.expect("a dictionary");
        let samples = &request.resource_profiles[0].scope_profiles[0].profiles[0].samples;
        let values: i64 = samples.iter().flat_map(|sample| &sample.values).sum();
        let frames: usize = tables.stack_table.iter().map(|stack| stack.location_indices.len()).sum();
        (samples.len(), tables.location_table.len(), tables.function_table.len(), values, frames)
    });
    assert_eq!(otlp[0], otlp[1]);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a whole number");
    match arguments[..] {
        ["time", stacks, rounds] => {
            let data = profile(number(stacks));
            for (encoder, time) in ENCODERS.iter().zip(times(&data, number(rounds))) {
                println!("{} {time:.3}", encoder.name);
            }
        }
        ["memory", name, stacks] => {
            let encoder = ENCODERS.iter().find(|encoder| encoder.name == name).expect("the name of an encoder");
            println!("{:.1}", peak_mb(encoder, &profile(number(stacks))));
        }
        ["file", stacks, path] => {
            std::fs::write(path, pprof::encode_uncompressed(&profile(number(stacks)))).expect("the file");
        }
        [] => {
            assert_equal_contents(&profile(STACKS[0]));
            for stacks in STACKS {
                let data = profile(stacks);
                let times = times(&data, ROUNDS);
                let columns: Vec<String> = ENCODERS
                    .iter()
                    .zip(times)
                    .map(|(encoder, time)| format!("{} {time:.1} ms", encoder.name))
                    .collect();
                println!("{stacks:>7} stacks of {DEPTH} frames: {}", columns.join(", "));
            }
        }
        _ => panic!("expected no arguments, or `time STACKS ROUNDS`, `memory ENCODER STACKS` or `file STACKS PATH`"),
    }
}
