//! The profiles to send: small, with every feature of the signal that spanprof uses. Built without the code under test.

use std::time::{SystemTime, UNIX_EPOCH};

use spanprof_profile::{
    Attribute, AttributeId, AttributeValue, Dictionary, FrameType, Function, Line, Link, Location, LocationId, Profile,
    ProfilesData, ResourceProfiles, Sample, Scope, Value, ValueType,
};

/// One request of the service `service`: CPU with labels, links and a shared stack, wall with kept timestamps.
pub fn of_service(service: &str) -> ProfilesData {
    let mut dictionary = Dictionary::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let start = now - 10_000_000_000;
    let handle = location(&mut dictionary, "handle", "shop/app.py", 41, FrameType::Cpython);
    let parse = location(&mut dictionary, "Parser.parse", "shop/parser.py", 7, FrameType::Cpython);
    let native = location(&mut dictionary, "memcpy", "", 0, FrameType::Native);
    let shallow = dictionary.stack(&[handle]);
    let deep = dictionary.stack(&[native, parse, handle]);
    let cart = dictionary.attribute("endpoint", Value::String("/cart"), "");
    let umlaut = dictionary.attribute("customer", Value::String("Jürgen 🚲 \"quoted\""), "");
    let thread = dictionary.attribute("thread.id", Value::Int(4711), "");
    let shield = dictionary.attribute("service.name", Value::String(service), "");
    let first = dictionary.link(Link { trace_id: [0xab; 16], span_id: [0x01; 8] });
    let second = dictionary.link(Link { trace_id: [0xcd; 16], span_id: [0x02; 8] });
    let mut sample = |stack, attributes: &[AttributeId], link, values: &[i64], timestamps: &[u64]| Sample {
        stack,
        attributes: dictionary.attribute_set(attributes),
        link,
        values: values.to_vec(),
        timestamps_unix_nano: timestamps.to_vec(),
        exact_value: 0,
    };
    let cpu = vec![
        sample(shallow, &[shield, cart], first, &[37], &[]),
        sample(shallow, &[shield, cart], second, &[5], &[]),
        sample(deep, &[shield, cart, umlaut, thread], first, &[i64::from(u32::MAX) + 1], &[]),
        sample(deep, &[shield], Default::default(), &[1], &[]),
    ];
    let wall = vec![sample(deep, &[shield, thread], second, &[10, 20], &[start + 1, start + 2_000_000_000])];
    let profiles =
        vec![profile("samples", "count", "cpu", start, 1, cpu), profile("wall", "nanoseconds", "wall", start, 2, wall)];
    let text = |value: &str| AttributeValue::String(value.to_owned());
    let resource = [
        ("service.name", text(service)),
        ("service.version", text("1.2.3")),
        ("process.pid", AttributeValue::Int(42)),
        ("telemetry.sdk.language", text("python")),
    ];
    let resource = resource.map(|(key, value)| Attribute { key: key.into(), value, unit: String::new() }).to_vec();
    let resource_profiles =
        ResourceProfiles { resource, scope: Scope::spanprof(), profiles, ..ResourceProfiles::default() };
    ProfilesData { dictionary, resources: vec![resource_profiles] }
}

fn profile(kind: &str, unit: &str, period: &str, start: u64, id: u8, samples: Vec<Sample>) -> Profile {
    Profile {
        sample_type: ValueType { kind: kind.into(), unit: unit.into() },
        period_type: ValueType { kind: period.into(), unit: "nanoseconds".into() },
        period: 10_000_000,
        time_unix_nano: start,
        duration_nano: 10_000_000_000,
        profile_id: [id; 16],
        samples,
        ..Profile::default()
    }
}

fn location(dictionary: &mut Dictionary, name: &str, file: &str, line: i64, frame_type: FrameType) -> LocationId {
    let function = Function {
        name: dictionary.string(name),
        system_name: dictionary.string(name),
        filename: dictionary.string(file),
        start_line: line.saturating_sub(3),
    };
    let function = dictionary.function(function);
    let attributes = dictionary.frame_type(frame_type);
    dictionary.location(Location { lines: &[Line { function, line, column: 0 }], attributes, ..Location::default() })
}
