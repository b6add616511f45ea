//! The sums of the spans of a roll-up as the JSON of its file `.spans.gz`.

use std::path::Path;

use serde_json::{json, Value};
use spanprof_profile::Link;
use spanprof_read::query::{SpanPart, SpanParts, TypeTotal};

use super::directory;
use super::file_names::SPANS_SUFFIX;

/// Bytes of a link: trace and span.
const LINK_BYTES: usize = 24;

pub(crate) fn to_json(parts: &SpanParts) -> Value {
    let links = parts.spans.iter().flat_map(|span| [&span.link.trace_id[..], &span.link.span_id].concat());
    let spans = parts.spans.iter().map(|span| {
        let mut row = vec![
            span.endpoint.into(),
            span.named_by.0.into(),
            span.named_by.1.into(),
            span.first_unix_nano.unwrap_or(0).into(),
        ];
        row.extend(numbers(&span.totals));
        Value::Array(row)
    });
    let unlinked = parts.unlinked.iter().map(|(endpoint, totals)| {
        let mut row = vec![(*endpoint).into()];
        row.extend(numbers(totals));
        Value::Array(row)
    });
    json!({
        "types": parts.types, "endpoints": parts.endpoints, "links": hex::encode(links.collect::<Vec<u8>>()),
        "spans": spans.collect::<Value>(), "unlinked": unlinked.collect::<Value>(), "durations": parts.durations,
        "left_out": parts.left_out,
    })
}

/// The sums of the spans of a roll-up; `None` for a window, and if the file is missing or corrupt.
pub(crate) fn read(rollup: &Path) -> Option<SpanParts> {
    from_json(&directory::read_json_beside(rollup, SPANS_SUFFIX)?)
}

/// `None` for another form.
pub(crate) fn from_json(value: &Value) -> Option<SpanParts> {
    let links = hex::decode(value["links"].as_str()?).ok()?;
    let (rows, links) = (value["spans"].as_array()?, links.chunks_exact(LINK_BYTES));
    if rows.len() != links.len() {
        return None;
    }
    let endpoints = pairs(&value["endpoints"])?;
    let index =
        |value: &Value| value.as_u64().filter(|index| *index < endpoints.len() as u64).map(|index| index as u32);
    let spans = rows.iter().zip(links).map(|(row, link)| {
        let first_unix_nano = row[3].as_u64()?;
        Some(SpanPart {
            link: Link { trace_id: link[..16].try_into().ok()?, span_id: link[16..].try_into().ok()? },
            endpoint: index(&row[0])?,
            named_by: (row[1].as_u64()?.try_into().ok()?, row[2].as_i64()?),
            totals: totals(row.as_array()?.get(4..)?)?,
            first_unix_nano: (first_unix_nano > 0).then_some(first_unix_nano),
        })
    });
    let unlinked = value["unlinked"].as_array()?.iter();
    let unlinked = unlinked.map(|row| Some((index(&row[0])?, totals(row.as_array()?.get(1..)?)?)));
    let counts = |value: &Value| {
        let pair = |pair: &Value| Some((pair[0].as_i64()?, pair[1].as_i64()?));
        value.as_array()?.iter().map(pair).collect::<Option<Vec<_>>>()
    };
    let durations = value["durations"].as_array()?.iter().map(|row| Some((index(&row[0])?, counts(&row[1])?)));
    Some(SpanParts {
        types: pairs(&value["types"])?,
        spans: spans.collect::<Option<_>>()?,
        unlinked: unlinked.collect::<Option<_>>()?,
        durations: durations.collect::<Option<_>>()?,
        left_out: value["left_out"].as_u64()? as usize,
        endpoints,
    })
}

fn numbers(totals: &[TypeTotal]) -> impl Iterator<Item = Value> + '_ {
    totals.iter().flat_map(|total| [total.weight.into(), total.samples.into()])
}

fn totals(numbers: &[Value]) -> Option<Vec<TypeTotal>> {
    let total = |pair: &[Value]| Some(TypeTotal { weight: pair.first()?.as_i64()?, samples: pair.get(1)?.as_f64()? });
    numbers.chunks(2).map(total).collect()
}

fn pairs(value: &Value) -> Option<Vec<(String, String)>> {
    let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
    value.as_array()?.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_as_they_were_written_and_other_indices_are_refused() {
        let total = TypeTotal { weight: i64::MIN, samples: 0.1 };
        let span = SpanPart {
            link: Link { trace_id: [7; 16], span_id: [9; 8] },
            endpoint: 1,
            named_by: (3, -5),
            totals: vec![TypeTotal::default(), total],
            first_unix_nano: Some(u64::MAX),
        };
        let parts = SpanParts {
            types: vec![("cpu".to_owned(), "nanoseconds".to_owned()), ("wall".to_owned(), "nanoseconds".to_owned())],
            endpoints: vec![("shop".to_owned(), String::new()), ("shop".to_owned(), "GET /\"cart\"".to_owned())],
            spans: vec![span.clone(), SpanPart { first_unix_nano: None, ..span }],
            unlinked: vec![(0, vec![total])],
            durations: vec![(1, vec![(1_000, 3), (i64::MAX, 1)])],
            left_out: 4,
        };
        let read = |parts: &SpanParts| from_json(&serde_json::from_str(&to_json(parts).to_string()).unwrap());
        assert_eq!(read(&parts), Some(parts.clone()));
        assert_eq!(read(&SpanParts { endpoints: Vec::new(), ..parts }), None);
    }
}
