//! Native code through a window and both formats: receivers find its file and its address there.

use std::sync::Arc;

use spanprof_profile::encode::pprof::names;
use spanprof_profile::encode::{otlp, pprof};
use spanprof_profile::redact::RedactionRule;
use spanprof_profile::{ProfilesData, Value};
use spanprof_read::check::{check, CheckSettings};
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};

use crate::counters::Counters;
use crate::scripted_engine_testing::{closed, redacting_engine, settings, LIBRARY, LIBRARY_PART, PROGRAM};
use crate::testing::FakeRuntime;

/// A window with a sample of each address, called by the program.
fn window(pcs: &[u64], rules: &[[(&str, &str); 3]]) -> ProfilesData {
    let (runtime, counters) = (FakeRuntime::new(), Arc::new(Counters::default()));
    let rule = |pairs: &[(&str, &str); 3]| {
        let pairs = pairs.map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
        RedactionRule::from_pairs(&pairs).expect("a rule")
    };
    let rules = rules.iter().map(rule).collect();
    let mut engine = redacting_engine(settings(), &runtime, &counters, rules);
    for pc in pcs {
        let sample = RawSample {
            kind: SampleKind::Cpu,
            flags: SampleFlags(0),
            thread_id: 1,
            time_ns: 5_000_000,
            values: [10_000_000, 0],
            key: 0,
            context: Context::None,
            frames: &[RawFrame::native(*pc), RawFrame::native(PROGRAM + 5)],
        };
        engine.process(0, &sample);
    }
    closed(&mut engine, 10_000_000).expect("a window")
}

/// Function, address, file and GNU build id of each frame of each sample.
fn frames(data: &ProfilesData) -> Vec<Vec<String>> {
    let dictionary = &data.dictionary;
    let frame = |location: &spanprof_profile::LocationId| {
        let location = dictionary.get_location(*location);
        let mapping = dictionary.get_mapping(location.mapping);
        let build_id = dictionary.attributes_of(mapping.attributes).find_map(|attribute| match attribute.value {
            Value::String(text) if attribute.key == names::BUILD_ID => Some(text),
            _ => None,
        });
        assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        assert_eq!(mapping.file_offset, 0x800);
        let function = dictionary.get_string(dictionary.get_function(location.lines[0].function).name);
        let file = dictionary.get_string(mapping.filename);
        format!("{function} {:x} {file} {}", location.address, build_id.unwrap_or_default())
    };
    let samples = data.profiles().flat_map(|(_, profile)| &profile.samples);
    let mut stacks: Vec<Vec<_>> =
        samples.map(|sample| dictionary.get_stack(sample.stack).iter().map(frame).collect()).collect();
    stacks.sort();
    stacks
}

#[test]
fn native_frames_have_file_build_id_and_the_address_of_their_function_in_both_formats() {
    let data = window(&[LIBRARY_PART, LIBRARY + 7], &[]);
    let limits = DecodeLimits::default();
    let otlp = otlp::encode(&data, otlp::Revision::One);
    let findings = check(&otlp, &CheckSettings::default()).expect("OTLP");
    let pprof = decode::pprof::decode(&pprof::encode(&data), &limits).expect("pprof");
    let otlp = decode::otlp::decode(&otlp, &limits).expect("OTLP");
    let program = "main 1000 /bin/program c0ffee".to_owned();
    let unnamed = "[libc.so.6] 81000 /lib/libc.so.6 c0ffee".to_owned();
    let named = "getenv 1000 /lib/libc.so.6 c0ffee".to_owned();
    let expected = [vec![unnamed, program.clone()], vec![named, program]];
    assert_eq!([frames(&data), frames(&otlp), frames(&pprof)], [&expected; 3]);
    let hashes = |data: &ProfilesData| {
        let attributes = data.dictionary.mappings().iter().flat_map(|it| data.dictionary.attributes_of(it.attributes));
        attributes.filter(|attribute| attribute.key == names::HTLHASH).count()
    };
    assert_eq!([hashes(&data), hashes(&otlp)], [2, 2]);
    let of_tables: Vec<_> = findings.iter().filter(|finding| finding.path.starts_with("dictionary")).collect();
    assert!(of_tables.is_empty(), "{of_tables:?}");
}

#[test]
fn instructions_of_one_function_are_one_stack_and_those_without_a_name_keep_their_addresses() {
    let data = window(&[LIBRARY + 7, LIBRARY + 9, LIBRARY_PART, LIBRARY_PART + 1, LIBRARY_PART], &[]);
    let leaves: Vec<_> = frames(&data).into_iter().map(|stack| stack[0].clone()).collect();
    let unnamed = |address: &str| format!("[libc.so.6] {address} /lib/libc.so.6 c0ffee");
    assert_eq!(leaves, [unnamed("81000"), unnamed("81001"), "getenv 1000 /lib/libc.so.6 c0ffee".to_owned()]);
}

#[test]
fn rules_of_redaction_apply_to_the_paths_of_mappings() {
    let data = window(&[LIBRARY], &[[("where", "file"), ("action", "relativize"), ("with", "/lib/")]]);
    assert_eq!(frames(&data)[0][0], "getenv 1000 libc.so.6 c0ffee");
}
