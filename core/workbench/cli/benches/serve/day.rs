//! The profiles of the benchmark: a day of windows of one service, as exporters send them, and one profile of many stacks.

use std::fs;
use std::io::Read;
use std::path::Path;

use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::transform::separate_exact_values;
use spanprof_profile::{
    Attribute, AttributeSetId, Dictionary, FrameType, Function, Line, Link, LinkId, Location, LocationId, Profile,
    ProfilesData, ResourceProfiles, Sample, Scope, StackId, Value, ValueType,
};

pub const SERVICE: &str = "shop";
pub const WINDOW_MS: u64 = 10_000;
const PERIOD_NS: i64 = 10_000_000;
/// Distinct stacks of the day; each window has a part of them.
const POOL: u64 = 6_000;
/// Distinct stacks of a window.
const STACKS: usize = 1_300;
const FUNCTIONS: u64 = 2_500;
const ENDPOINTS: u64 = 12;
/// Requests of a window, each a span of its own trace.
const REQUESTS: u64 = 100;
/// Samples of each heap type in a window.
const HEAP_SAMPLES: usize = 400;

/// Repeatable random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * limit) >> 32
    }
}

/// The functions of stack `number`, leaf first: frames of a server, then calls that are more different the deeper they are.
fn functions(number: u64, functions: u64) -> Vec<u64> {
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let depth = 12 + random.below(13);
    let mut stack: Vec<u64> = (0..8).chain([8 + number % ENDPOINTS]).collect();
    stack.extend((0..depth).map(|level| {
        // The same call for groups of stacks, which halve with each level.
        let group = number >> (depth - 1 - level).min(12);
        8 + ENDPOINTS + (group.wrapping_mul(0x9e37_79b9) + level * 131) % (functions - 8 - ENDPOINTS)
    }));
    stack.reverse();
    stack
}

/// A dictionary with the stacks of the program.
struct Stacks {
    dictionary: Dictionary,
    /// By function.
    locations: Vec<Option<LocationId>>,
}

impl Stacks {
    fn new(functions: u64) -> Self {
        Stacks { dictionary: Dictionary::new(), locations: vec![None; functions as usize] }
    }

    fn stack(&mut self, number: u64) -> StackId {
        let functions = functions(number, self.locations.len() as u64);
        let locations: Vec<LocationId> = functions.into_iter().map(|function| self.location(function)).collect();
        self.dictionary.stack(&locations)
    }

    fn location(&mut self, number: u64) -> LocationId {
        let Self { dictionary, locations } = self;
        *locations[number as usize].get_or_insert_with(|| {
            let file = match number {
                0..8 => format!("/usr/lib/python3/site-packages/server/worker_{}.py", number / 4),
                _ => format!("/srv/shop/app/module_{}/handlers_{}.py", number % 97, number / 10),
            };
            let start_line = (number % 500) as i64;
            let function = Function {
                name: dictionary.string(&format!("OrderService{}.handle_{number}", number % 61)),
                filename: dictionary.string(&file),
                start_line,
                ..Function::default()
            };
            let function = dictionary.function(function);
            let attributes = dictionary.frame_type(FrameType::Cpython);
            let lines = &[Line { function, line: start_line + 3, column: 0 }];
            dictionary.location(Location { lines, attributes, ..Location::default() })
        })
    }
}

fn labels(dictionary: &mut Dictionary, number: u64) -> AttributeSetId {
    let endpoint = format!("/api/v1/resource_{}", number % ENDPOINTS);
    let ids = [
        dictionary.attribute("endpoint", Value::String(&endpoint), ""),
        dictionary.attribute("thread.name", Value::String(&format!("worker-{}", number % 8)), ""),
    ];
    dictionary.attribute_set(&ids)
}

/// Trace and span of a request of the window that starts at `start_ms`.
pub fn link(start_ms: u64, request: u64) -> Link {
    let mut trace_id = [0xab; 16];
    trace_id[..8].copy_from_slice(&start_ms.to_be_bytes());
    trace_id[8..].copy_from_slice(&(request + 1).to_be_bytes());
    Link { trace_id, span_id: (start_ms << 8 | request).to_be_bytes() }
}

/// A window of the service: CPU time, and with `has_all_types` the other types that a program sends by default.
pub fn window(start_ms: u64, has_all_types: bool) -> ProfilesData {
    let mut stacks = Stacks::new(FUNCTIONS);
    let mut random = Random(start_ms);
    let mut numbers = std::collections::BTreeSet::new();
    while numbers.len() < STACKS {
        // Low numbers are in most windows, high ones in few.
        numbers.insert(random.below(POOL) * random.below(POOL) / POOL);
    }
    let mut samples = Vec::new();
    for number in numbers {
        // Requests and stacks of one endpoint have equal remainders.
        let request = random.below(REQUESTS / ENDPOINTS) * ENDPOINTS + number % ENDPOINTS;
        let ticks = 1 + random.below(4) * random.below(4);
        samples.push(Sample {
            stack: stacks.stack(number),
            attributes: labels(&mut stacks.dictionary, number),
            link: stacks.dictionary.link(link(start_ms, request)),
            values: vec![ticks as i64],
            exact_value: ticks as i64 * PERIOD_NS + random.below(PERIOD_NS as u64 / 10) as i64,
            ..Sample::default()
        });
    }
    let part = |has_links: bool, values: &mut dyn FnMut() -> i64| -> Vec<Sample> {
        let every = samples.len() / HEAP_SAMPLES;
        let part = samples.iter().step_by(every).map(|sample| Sample {
            link: if has_links { sample.link } else { LinkId::EMPTY },
            values: vec![values()],
            exact_value: 0,
            ..sample.clone()
        });
        part.collect()
    };
    let mut profiles = vec![profile(start_ms, ("samples", "count"), ("cpu", "nanoseconds"), samples.clone())];
    profiles[0].exact_type = Some(ValueType::new("cpu", "nanoseconds"));
    if has_all_types {
        for (name, unit, size, has_links) in [
            ("alloc_space", "bytes", 524_288, true),
            ("alloc_objects", "count", 900, true),
            ("inuse_space", "bytes", 524_288, false),
            ("inuse_objects", "count", 900, false),
        ] {
            let samples = part(has_links, &mut || (size + random.below(size)) as i64);
            profiles.push(profile(start_ms, (name, unit), ("memory", "bytes"), samples));
        }
        let pause = Sample { values: vec![3_000_000 + random.below(4_000_000) as i64], ..Sample::default() };
        profiles.push(profile(start_ms, ("gc", "nanoseconds"), ("gc", "nanoseconds"), vec![pause]));
    }
    with_resource(stacks.dictionary, profiles)
}

fn profile(start_ms: u64, sample: (&str, &str), period: (&str, &str), samples: Vec<Sample>) -> Profile {
    let mut profile_id = [0; 16];
    profile_id[..8].copy_from_slice(&start_ms.to_be_bytes());
    profile_id[8..12].copy_from_slice(&sample.0.as_bytes()[..2].repeat(2));
    profile_id[12] = sample.0.len() as u8;
    Profile {
        sample_type: ValueType::new(sample.0, sample.1),
        period_type: ValueType::new(period.0, period.1),
        period: if period.0 == "cpu" { PERIOD_NS } else { 524_288 },
        time_unix_nano: start_ms * 1_000_000,
        duration_nano: WINDOW_MS * 1_000_000,
        profile_id,
        samples,
        ..Profile::default()
    }
}

fn with_resource(dictionary: Dictionary, profiles: Vec<Profile>) -> ProfilesData {
    let resource = vec![
        Attribute::string("service.name", SERVICE),
        Attribute::string("service.version", "1.4.2"),
        Attribute::int("process.pid", 4711),
    ];
    ProfilesData {
        dictionary,
        resources: vec![ResourceProfiles {
            resource,
            scope: Scope::spanprof(),
            profiles,
            ..ResourceProfiles::default()
        }],
    }
}

/// The bytes of an exporter's request.
pub fn request(data: ProfilesData) -> Vec<u8> {
    let encoded = otlp::encode(&separate_exact_values(data), Revision::One);
    let mut bytes = Vec::new();
    flate2::read::GzEncoder::new(&encoded[..], flate2::Compression::fast())
        .read_to_end(&mut bytes)
        .expect("memory to memory");
    bytes
}

/// Writes windows as `serve` stores them: the received bytes, under the time of arrival. The last one ends at `end_ms`.
pub fn write(directory: &Path, windows: u64, end_ms: u64, has_all_types: bool) {
    fs::create_dir_all(directory).expect("a directory");
    for number in 0..windows {
        let received_ms = end_ms - (windows - 1 - number) * WINDOW_MS;
        let bytes = request(window(received_ms - WINDOW_MS, has_all_types));
        fs::write(directory.join(format!("{received_ms:013}-1-{number:06}.otlp.pb.gz")), bytes).expect("a window");
    }
}

/// Writes one profile of distinct stacks.
pub fn write_stacks(directory: &Path, stacks: u64, end_ms: u64) {
    fs::create_dir_all(directory).expect("a directory");
    let mut written = Stacks::new(20_000);
    let samples = (0..stacks).map(|number| Sample {
        stack: written.stack(number),
        values: vec![1 + (number % 7) as i64],
        ..Sample::default()
    });
    let samples = samples.collect();
    let profile = profile(end_ms - WINDOW_MS, ("samples", "count"), ("cpu", "nanoseconds"), samples);
    let bytes = request(with_resource(written.dictionary, vec![profile]));
    fs::write(directory.join(format!("{end_ms:013}-1-000000.otlp.pb.gz")), bytes).expect("a window");
}
