//! Random profiles from small pools of values, so that entries repeat and interning is exercised.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use spanprof_profile::*;

/// Contents of a generated request.
#[derive(Clone, Copy, Debug)]
pub struct RequestContents {
    /// Timestamps, for which pprof has no field.
    pub timestamps: bool,
    /// Several resources; one otherwise.
    pub resources: bool,
    /// Scopes, profile ids, frame types and values of every type; otherwise only contents that pprof preserves.
    pub all_fields: bool,
}

pub const ALL: RequestContents = RequestContents { timestamps: true, resources: true, all_fields: true };
/// Contents that pprof preserves.
pub const PPROF: RequestContents = RequestContents { timestamps: false, resources: false, all_fields: false };

#[derive(Clone, Debug)]
struct SampleDraft {
    stack: Vec<(u8, u8)>,
    labels: u8,
    link: u8,
    value: i64,
    exact: i64,
    times: Vec<u64>,
}

fn sample_draft(contents: RequestContents) -> impl Strategy<Value = SampleDraft> {
    let times =
        vec(1_700_000_000_000_000_000u64..1_700_000_010_000_000_000, 0..if contents.timestamps { 4 } else { 1 });
    (vec((0u8..12, 0u8..6), 0..8), 0u8..16, 0u8..5, 1i64..1_000_000, 0i64..1 << 40, times)
        .prop_map(|(stack, labels, link, value, exact, times)| SampleDraft { stack, labels, link, value, exact, times })
}

/// A request with these contents. Samples of a profile have distinct identities, as in a window.
pub fn profiles_data(contents: RequestContents) -> impl Strategy<Value = ProfilesData> {
    // Miri is a thousand times slower.
    let (samples, profiles) = if cfg!(miri) { (3, 2) } else { (20, 4) };
    let resources = if contents.resources && !cfg!(miri) { 4 } else { 2 };
    let profile = (0usize..4, vec(sample_draft(contents), 1..samples), any::<u128>());
    vec(vec(profile, 1..profiles), 1..resources).prop_map(move |resources| {
        let mut data = ProfilesData::default();
        for (nth, profiles) in resources.into_iter().enumerate() {
            let mut resource = ResourceProfiles {
                resource: vec![
                    Attribute::string("service.name", format!("service {nth}")),
                    Attribute::string("host.name", "höst"),
                ],
                scope: if contents.all_fields { Scope::spanprof() } else { Scope::default() },
                profiles: Vec::new(),
                dropped_attributes_count: if contents.all_fields { nth as u32 } else { 0 },
            };
            if contents.all_fields {
                resource.resource.push(Attribute::int("process.pid", -7));
                resource.resource.push(Attribute { value: AttributeValue::Bool(true), ..Attribute::int("flag", 0) });
            }
            let mut kinds = HashSet::new();
            for (kind, samples, id) in profiles {
                if kinds.insert(kind) {
                    let mut profile = profile_of(kind, contents);
                    if contents.all_fields {
                        profile.profile_id = id.to_be_bytes();
                    }
                    fill(&mut profile, samples, contents, &mut data.dictionary);
                    resource.profiles.push(profile);
                }
            }
            if !contents.all_fields {
                resource.profiles.sort_by_key(|profile| profile.type_name() != "cpu");
                pair_periods(&mut resource.profiles);
            }
            data.resources.push(resource);
        }
        data
    })
}

/// Gives all profiles the period of the first, since a pprof file has one period.
fn pair_periods(profiles: &mut [Profile]) {
    if let Some((first, rest)) = profiles.split_first_mut() {
        for profile in rest {
            profile.period_type = first.period_type.clone();
            profile.period = first.period;
        }
    }
}

fn profile_of(kind: usize, contents: RequestContents) -> Profile {
    let nanoseconds = |kind| ValueType::new(kind, "nanoseconds");
    let (sample_type, period_type, period, exact_type) = [
        (ValueType::new("samples", "count"), nanoseconds("cpu"), 10_000_000, Some(nanoseconds("cpu"))),
        (nanoseconds("wall"), nanoseconds("wall"), 10_000_000, None),
        (ValueType::new("alloc_space", "bytes"), ValueType::new("space", "bytes"), 524_288, None),
        (ValueType::new("alloc_objects", "count"), ValueType::new("space", "bytes"), 524_288, None),
    ][kind]
        .clone();
    Profile {
        sample_type,
        period_type,
        period,
        exact_type: if contents.all_fields { None } else { exact_type },
        time_unix_nano: 1_700_000_000_000_000_000,
        duration_nano: 10_000_000_000,
        ..Profile::default()
    }
}

fn fill(profile: &mut Profile, samples: Vec<SampleDraft>, contents: RequestContents, dictionary: &mut Dictionary) {
    let mut identities = HashSet::new();
    for draft in samples {
        let locations: Vec<LocationId> =
            draft.stack.iter().map(|(function, line)| location(*function, *line, contents, dictionary)).collect();
        let stack = dictionary.stack(&locations);
        let attributes = labels(draft.labels, contents, dictionary);
        let link = dictionary.link(match draft.link {
            0 => TreeSpan::default(),
            // A trace without a span.
            1 => Link { trace_id: [1; 16], span_id: [0; 8] }.into(),
            n => TreeSpan::below(Link { trace_id: [n; 16], span_id: [n ^ 0xff; 8] }, [n & 2; 8]),
        });
        if identities.insert((stack, attributes, link)) {
            let values = match (draft.times.len(), draft.value % 2) {
                (0, _) => vec![draft.value],
                (_, 0) => Vec::new(),
                (length, _) => (0..length as i64).map(|nth| draft.value + nth).collect(),
            };
            profile.samples.push(Sample {
                stack,
                attributes,
                link,
                values,
                timestamps_unix_nano: draft.times,
                exact_value: if profile.exact_type.is_some() { draft.exact } else { 0 },
            });
        }
    }
}

fn location(function: u8, line: u8, contents: RequestContents, dictionary: &mut Dictionary) -> LocationId {
    let name = dictionary.string(["handle", "render", "λ", "a;b", "<lambda>", "Class.method"][function as usize % 6]);
    let filename = dictionary.string(["app.py", "src/main.rs", ""][function as usize % 3]);
    let system_name = if function == 11 { dictionary.string("_Zmangled") } else { StringId::EMPTY };
    let function_id =
        dictionary.function(Function { name, system_name, filename, start_line: i64::from(function) * 10 });
    let line_of = |line: u8, column| Line { function: function_id, line: i64::from(line), column };
    let column = if line == 3 { 17 } else { 0 };
    let lines = [line_of(line, column), line_of(line + 1, 0)];
    let nameless = function == 9;
    let lines = if nameless { &[][..] } else { &lines[..1 + usize::from(line == 5)] };
    let mut mapping = MappingId::EMPTY;
    if function % 4 == 3 {
        let filename = dictionary.string("/usr/lib/libc.so.6");
        let build_id = dictionary.attribute("process.executable.build_id.gnu", Value::String("beef01"), "");
        let mut set = vec![build_id];
        if !contents.all_fields {
            // Explicit flags, equal to those that the encoder derives, since the decoder returns them.
            let flags = ["has_functions", "has_filenames", "has_line_numbers", "has_inline_frames"];
            set.extend(flags.map(|flag| {
                dictionary.attribute(&format!("pprof.mapping.{flag}"), Value::Bool(flag == "has_functions"), "")
            }));
        }
        let attributes = dictionary.attribute_set(&set);
        mapping = dictionary.mapping(Mapping {
            memory_start: 0x40_0000,
            memory_limit: 0x50_0000,
            file_offset: 64,
            filename,
            attributes,
        });
    }
    let frame_type = [FrameType::Cpython, FrameType::Native, FrameType::Unspecified][function as usize % 3];
    let attributes = if contents.all_fields { dictionary.frame_type(frame_type) } else { AttributeSetId::EMPTY };
    let address = if nameless || !mapping.is_empty() { 0x40_1000 + u64::from(line) } else { 0 };
    dictionary.location(Location { mapping, address, lines, attributes })
}

fn labels(bits: u8, contents: RequestContents, dictionary: &mut Dictionary) -> AttributeSetId {
    let mut set = Vec::new();
    if bits & 1 != 0 {
        set.push(dictionary.attribute("http.route", Value::String("/cart/{id}"), ""));
    }
    if bits & 2 != 0 {
        set.push(dictionary.attribute("thread.id", Value::Int(i64::from(bits) - 3), ""));
    }
    if bits & 4 != 0 {
        set.push(dictionary.attribute("size", Value::Int(i64::MIN), "By"));
    }
    if bits & 8 != 0 && contents.all_fields {
        set.push(dictionary.attribute("cached", Value::Bool(false), ""));
        set.push(dictionary.attribute("load", Value::Double(0.25f64.to_bits()), "1"));
        set.push(dictionary.attribute("empty", Value::String(""), ""));
    }
    dictionary.attribute_set(&set)
}
