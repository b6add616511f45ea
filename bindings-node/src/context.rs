//! Context ids for the addon's API: converts flat lists of labels and hex ids into rows of the core's table. Stateless.

use napi_derive::napi;
use spanprof_aggregate::context as table;
use spanprof_aggregate::context::{ContextRow, LabelSetId, Link};

/// The contents of a context: labels flat, ids in hex, empty when absent.
#[napi(object)]
pub struct DescribedContext {
    pub label_set: u32,
    pub labels: Vec<String>,
    pub trace_id: String,
    pub span_id: String,
    pub local_root_span_id: String,
    /// Number of the capture; 0 for none.
    pub capture: u32,
}

fn pairs(keys_and_values: &[String]) -> Vec<(&str, &str)> {
    keys_and_values.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect()
}

pub fn open(
    label_set: u32,
    trace_id: Option<&str>,
    span_id: Option<&str>,
    local_root: Option<&str>,
    capture: u32,
) -> u64 {
    table::open_context(ContextRow {
        label_set: LabelSetId(label_set),
        link: Link {
            trace_id: trace_id.and_then(table::parse_id).unwrap_or_default(),
            span_id: span_id.and_then(table::parse_id).unwrap_or_default(),
        },
        local_root_span_id: local_root.and_then(table::parse_id).unwrap_or_default(),
        capture,
    })
}

pub fn child(parent: u64, keys_and_values: &[String]) -> u64 {
    let row = table::context_row(parent).unwrap_or_default();
    table::open_context(table::with_labels(row, &pairs(keys_and_values)))
}

pub fn describe(id: u64) -> DescribedContext {
    let row = table::context_row(id).unwrap_or_default();
    DescribedContext {
        label_set: row.label_set.0,
        labels: table::labels_of(row.label_set).into_iter().flat_map(|(key, value)| [key, value]).collect(),
        trace_id: table::format_id(&row.link.trace_id),
        span_id: table::format_id(&row.link.span_id),
        local_root_span_id: table::format_id(&row.local_root_span_id),
        capture: row.capture,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_described_as_it_was_opened() {
        let labels = ["route".to_owned(), "/cart".to_owned()];
        let set = describe(child(0, &labels)).label_set;
        let id = open(set, Some("4bf92f3577b34da6a3ce929d0e0e4736"), Some("00f067aa0ba902b7"), None, 0);
        let described = describe(id);
        assert_eq!(described.labels, labels);
        assert_eq!(
            (described.trace_id.as_str(), described.span_id.as_str()),
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
        );
        assert_eq!(described.local_root_span_id, "");
        assert_eq!(describe(child(id, &["b".into(), "2".into()])).trace_id, described.trace_id);
    }
}
