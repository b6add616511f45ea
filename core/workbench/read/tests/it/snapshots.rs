//! Text forms of a small profile, compared with literals.

use spanprof_profile::encode::{folded, text};
use spanprof_profile::transform::tree;
use spanprof_profile::*;
use spanprof_read::query::{top, Granularity, TopRow};

fn location(dictionary: &mut Dictionary, name: &str, file: &str, line: i64, frame_type: FrameType) -> LocationId {
    let (name, filename) = (dictionary.string(name), dictionary.string(file));
    let function = dictionary.function(Function { name, filename, start_line: 1, ..Function::default() });
    let attributes = dictionary.frame_type(frame_type);
    dictionary.location(Location { lines: &[Line { function, line, column: 0 }], attributes, ..Location::default() })
}

/// A handler that renders and reads; one sample has a span link.
fn small() -> ProfilesData {
    let mut data = ProfilesData::default();
    let d = &mut data.dictionary;
    let handle = location(d, "handle;cart", "app.py", 10, FrameType::Cpython);
    let render = location(d, "render", "app.py", 20, FrameType::Cpython);
    let read = location(d, "read", "libc.so.6", 0, FrameType::Native);
    let route = d.attribute("http.route", Value::String("/cart"), "");
    let samples = vec![
        Sample {
            stack: d.stack(&[render, handle]),
            attributes: d.attribute_set(&[route]),
            link: d.link(Link { trace_id: [0xab; 16], span_id: [0xcd; 8] }),
            values: vec![3],
            exact_value: 31_000_000,
            ..Sample::default()
        },
        Sample { stack: d.stack(&[read, handle]), values: vec![1], exact_value: 9_000_000, ..Sample::default() },
        Sample { values: vec![1], exact_value: 1_000_000, ..Sample::default() },
    ];
    let profile = Profile {
        sample_type: ValueType::new("samples", "count"),
        period_type: ValueType::new("cpu", "nanoseconds"),
        period: 10_000_000,
        exact_type: Some(ValueType::new("cpu", "nanoseconds")),
        time_unix_nano: 1_700_000_000_000_000_000,
        duration_nano: 10_000_000_000,
        profile_id: [7; 16],
        samples,
        ..Profile::default()
    };
    data.resources.push(ResourceProfiles {
        resource: vec![Attribute::string("service.name", "checkout"), Attribute::int("process.pid", 7)],
        scope: Scope { name: "spanprof".to_owned(), version: "0".to_owned() },
        profiles: vec![profile],
        ..ResourceProfiles::default()
    });
    data
}

#[test]
fn folded_lines_begin_at_the_root_and_replace_separators_in_names() {
    let expected = "[no stack] 1000000\nhandle:cart;read 9000000\nhandle:cart;render 31000000\n";
    assert_eq!(folded::encode(&tree(&small(), "cpu")), expected);
}

#[test]
fn the_text_contains_all_fields() {
    let expected = r#"profile samples/count exact cpu/nanoseconds period 10000000 cpu/nanoseconds
  window 1700000000000000000 + 10000000000 ns
  id 07070707070707070707070707070707
  scope "spanprof" "0"
  resource process.pid=7
  resource service.name="checkout"
  sample values [1] exact 1000000
  sample values [1] exact 9000000
    at "read" "libc.so.6":0 from 1
      attribute profile.frame.type="native"
    at "handle;cart" "app.py":10 from 1
      attribute profile.frame.type="cpython"
  sample values [3] exact 31000000
    link abababababababababababababababab cdcdcdcdcdcdcdcd
    label http.route="/cart"
    at "render" "app.py":20 from 1
      attribute profile.frame.type="cpython"
    at "handle;cart" "app.py":10 from 1
      attribute profile.frame.type="cpython"
"#;
    assert_eq!(text::encode(&small()), expected);
}

#[test]
fn the_table_is_sorted_by_flat_weight() {
    let table = top(&small(), "cpu", Granularity::Function);
    let row = |row: TopRow| (row.location.function, row.weight.flat, row.weight.cum);
    let rows: Vec<_> = table.rows.into_iter().map(row).collect();
    assert_eq!(
        rows,
        [("render", 31_000_000, 31_000_000), ("read", 9_000_000, 9_000_000), ("handle;cart", 0, 40_000_000)]
            .map(|(function, flat, cum)| (function.to_owned(), flat, cum))
    );
    assert_eq!((table.total, table.samples, &table.unit[..]), (41_000_000, 3, "nanoseconds"));
}
