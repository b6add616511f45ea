//! Tests of the decoder: known maps, random maps written and read back, index maps against a flat model, malformed text.

use proptest::prelude::*;

use super::*;
use crate::source_map::Origin;

fn read(text: &str) -> Result<SourceMap, MapError> {
    decode(text.as_bytes(), "/srv/dist/a.js.map", &SourceMapLimits::default())
}

fn at(map: &SourceMap, line: u32, column: u32) -> Option<(String, u32, u32)> {
    map.origin(line, column).map(|Origin { source, line, column }| (source.to_string(), line, column))
}

fn vlq(out: &mut String, value: i64) {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut rest = if value < 0 { (-value << 1) | 1 } else { value << 1 };
    loop {
        let digit = rest & 31;
        rest >>= 5;
        out.push(DIGITS[(digit | if rest > 0 { 32 } else { 0 }) as usize] as char);
        if rest == 0 {
            break;
        }
    }
}

/// A generated location, and its source index, line and column.
type Row = (u32, u32, Option<(u32, u32, u32)>);

fn mappings(rows: &[Row]) -> String {
    let (mut out, mut line, mut column, mut last) = (String::new(), 0, 0, [0i64; 3]);
    let mut first = true;
    for (at_line, at_column, origin) in rows {
        while line < *at_line {
            out.push(';');
            (line, column, first) = (line + 1, 0, true);
        }
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        vlq(&mut out, *at_column as i64 - column);
        column = *at_column as i64;
        if let Some((source, source_line, source_column)) = origin {
            let now = [*source as i64, *source_line as i64, *source_column as i64];
            (0..3).for_each(|field| vlq(&mut out, now[field] - last[field]));
            last = now;
        }
    }
    out
}

/// Resolves a location by a scan of all rows.
fn model(rows: &[Row], line: u32, column: u32) -> Option<(u32, u32, u32)> {
    let before = rows.iter().rev().find(|row| row.0 == line && row.1 <= column)?;
    before.2
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let origin = proptest::option::weighted(0.8, (0u32..4, 0u32..5000, 0u32..300));
    proptest::collection::btree_map((0u32..30, 0u32..200), origin, 0..80)
        .prop_map(|rows| rows.into_iter().map(|((line, column), origin)| (line, column, origin)).collect())
}

const SOURCES: [Option<&str>; 4] = [Some("/a.ts"), None, Some("/c.ts"), Some("/d.ts")];

fn named(origin: Option<(u32, u32, u32)>) -> Option<(String, u32, u32)> {
    let (source, line, column) = origin?;
    SOURCES[source as usize].map(|source| (source.to_owned(), line, column))
}

fn json(mappings: &str) -> serde_json::Value {
    serde_json::json!({"version": 3, "sources": SOURCES, "names": [], "mappings": mappings})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_written_map_is_read_back(rows in rows()) {
        let map = read(&json(&mappings(&rows)).to_string()).unwrap();
        for line in 0..31 {
            for column in (0..210).step_by(7).chain(rows.iter().map(|row| row.1)) {
                prop_assert_eq!(at(&map, line, column), named(model(&rows, line, column)));
            }
        }
    }

    #[test]
    fn an_index_map_resolves_as_its_sections_do(parts in proptest::collection::vec((rows(), 0u32..40, 0u32..50), 1..5)) {
        // Each section starts after the start of the previous one, whose later segments are dropped.
        let (mut line, mut column, mut sections, mut flat) = (0, 0, Vec::new(), Vec::<Row>::new());
        for (rows, lines, columns) in &parts {
            (line, column) = (line + lines, if *lines == 0 { column + columns } else { *columns });
            sections.push(serde_json::json!({"offset": {"line": line, "column": column}, "map": json(&mappings(rows))}));
            flat.retain(|row| (row.0, row.1) < (line, column));
            flat.push((line, column, None));
            let moved = |row: &Row| (row.0 + line, row.1 + if row.0 == 0 { column } else { 0 }, row.2);
            flat.extend(rows.iter().map(moved));
        }
        let map = read(&serde_json::json!({"version": 3, "sections": sections}).to_string()).unwrap();
        for (line, column, _) in &flat {
            for column in [*column, *column + 1, *column + 60, column.saturating_sub(1)] {
                prop_assert_eq!(at(&map, *line, column), named(model(&flat, *line, column)));
            }
        }
    }

    #[test]
    fn malformed_mappings_are_refused_or_read_but_never_panic(mappings in "[A-Za-z0-9+/,;!]{0,80}") {
        if let Ok(map) = read(&json(&mappings).to_string()) {
            let _ = map.origin(0, 3);
            prop_assert!(map.segments.len() <= mappings.len());
        }
    }
}

#[test]
fn a_map_of_the_typescript_compiler_resolves_line_and_column() {
    // function add(a: number, b: number) {\n    return a + b\n} of src/a.ts, as tsc writes it.
    let map = read(
        r#"{"version":3,"file":"a.js","sourceRoot":"","sources":["../src/a.ts"],"names":[],"mappings":"AAAA,SAAS,GAAG,CAAC,CAAS,EAAE,CAAS;IAC7B,OAAO,CAAC,GAAG,CAAC,CAAA;AAChB,CAAC"}"#,
    )
    .unwrap();
    assert_eq!(at(&map, 0, 9), Some(("/srv/src/a.ts".to_owned(), 0, 9)));
    assert_eq!(at(&map, 0, 16), Some(("/srv/src/a.ts".to_owned(), 0, 24)));
    assert_eq!(at(&map, 1, 11), Some(("/srv/src/a.ts".to_owned(), 1, 11)));
    assert_eq!(at(&map, 1, 3), None, "before the first segment of the line");
    assert_eq!(at(&map, 7, 0), None, "after the last line");
}

#[test]
fn a_source_without_a_name_and_a_segment_without_a_source_have_no_origin() {
    let map = read(r#"{"version":3,"sources":[null,"b.ts"],"mappings":"AAAA,IACA,I"}"#).unwrap();
    assert_eq!([at(&map, 0, 0), at(&map, 0, 9)], [None, None]);
    assert_eq!(at(&map, 0, 5), None);
    let named = read(r#"{"version":3,"sources":[null,"b.ts"],"mappings":"AAAA,ICAA,I"}"#).unwrap();
    assert_eq!(at(&named, 0, 5), Some(("/srv/dist/b.ts".to_owned(), 0, 0)));
    assert_eq!(at(&named, 0, 8), None);
}

#[test]
fn unsorted_columns_on_a_line_are_sorted() {
    let map = read(r#"{"version":3,"sources":["b.ts"],"mappings":"UAAA,LACA"}"#).unwrap();
    assert_eq!(at(&map, 0, 6).map(|found| found.1), Some(1));
    assert_eq!(at(&map, 0, 11).map(|found| found.1), Some(0));
}

#[test]
fn a_guard_line_and_a_byte_order_mark_are_skipped() {
    let plain = r#"{"version":3,"sources":["b.ts"],"mappings":"AAAA"}"#;
    for text in [format!(")]}}'\n{plain}"), format!(")]}}\n{plain}"), format!("\u{feff}{plain}")] {
        assert_eq!(read(&text), read(plain), "{text}");
    }
}

#[test]
fn each_malformed_map_is_refused_with_its_reason() {
    let wrong = |text: &str| read(text).unwrap_err().to_string();
    assert!(wrong("{").contains("malformed"));
    assert!(wrong(r#"{"version":2,"sources":[],"mappings":""}"#).contains("version is not 3"));
    assert!(wrong(r#"{"version":3,"sources":[]}"#).contains("neither mappings nor sections"));
    assert!(wrong(r#"{"version":3,"sources":[],"mappings":"AAAA"}"#).contains("not listed"));
    assert!(wrong(r#"{"version":3,"sources":["a"],"mappings":"AA"}"#).contains("2 or 3 fields"));
    assert!(wrong(r#"{"version":3,"sources":["a"],"mappings":"AAAAAA"}"#).contains("more than 5"));
    assert!(wrong(r#"{"version":3,"sources":["a"],"mappings":"A!"}"#).contains("not a digit"));
    assert!(wrong(r#"{"version":3,"sources":["a"],"mappings":"g"}"#).contains("middle"));
    assert!(wrong(r#"{"version":3,"sources":["a"],"mappings":"gggggggggA"}"#).contains("32 bits"));
    assert!(wrong(r#"{"version":3,"sources":["a"],"mappings":"D"}"#).contains("outside of any file"));
    let apart = r#"{"version":3,"sections":[{"offset":{"line":2,"column":0}},{"offset":{"line":1,"column":0}}]}"#;
    assert!(wrong(apart).contains("not in order"));
}

#[test]
fn a_map_beyond_a_limit_is_refused_completely() {
    let small = SourceMapLimits { segments: 2, sources: 1, sections: 1, nesting: 1, text_bytes: 4096 };
    let refused = |text: &str| decode(text.as_bytes(), "/a.map", &small).unwrap_err();
    assert_eq!(refused(r#"{"version":3,"sources":["a"],"mappings":"A,A,A"}"#), MapError::TooLarge("segments"));
    assert_eq!(refused(r#"{"version":3,"sources":["a","b"],"mappings":""}"#), MapError::TooLarge("sources"));
    let section = r#"{"offset":{"line":0,"column":0},"map":{"version":3,"sections":[]}}"#;
    assert_eq!(refused(&format!(r#"{{"version":3,"sections":[{section}]}}"#)), MapError::TooLarge("nested sections"));
    assert_eq!(
        refused(&format!(r#"{{"version":3,"sections":[{section},{section}]}}"#)),
        MapError::TooLarge("sections")
    );
    assert_eq!(refused(&" ".repeat(5000)), MapError::TooLarge("bytes"));
    let deep = r#"{"version":3,"sections":[{"offset":{"line":0,"column":0},"map":"#.repeat(5000);
    assert!(matches!(read(&deep), Err(MapError::Malformed(_))), "the JSON parser limits the nesting");
}
