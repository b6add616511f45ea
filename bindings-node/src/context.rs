//! Context ids for the addon's API: converts flat lists of labels and hex ids into rows of the core's table. Stateless.

use napi_derive::napi;
use spanprof_aggregate::context as table;
use spanprof_aggregate::context::{ContextRow, LabelSetId};

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

/// The id of `parent` under a span; ids in hex, empty without a span. `parent` itself if that span is its link.
pub fn under_span(parent: u64, trace_id: &str, span_id: &str, is_remote: bool) -> u64 {
    let row = table::context_row(parent).unwrap_or_default();
    let link = table::link_of_hex(trace_id, span_id);
    if row.link == link {
        return parent;
    }
    // A span of another process is no local root. Of the others, the first one is.
    table::open_context(table::under_span(row, link, is_remote.then_some(false)))
}

/// The id of a context in a request, whose local root is in hex.
pub fn in_request(id: u64, local_root: &str) -> u64 {
    let row = table::context_row(id).unwrap_or_default();
    table::open_context(table::in_request(row, table::parse_id(local_root).unwrap_or_default()))
}

/// The id of a context without its labels.
pub fn without_labels(id: u64) -> u64 {
    let row = table::context_row(id).unwrap_or_default();
    table::open_context(ContextRow { label_set: LabelSetId::EMPTY, ..row })
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

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_context_is_described_as_it_was_opened() {
        let labels = ["route".to_owned(), "/cart".to_owned()];
        let id = under_span(child(0, &labels), TRACE, "00f067aa0ba902b7", true);
        let described = describe(id);
        assert_eq!(described.labels, labels);
        assert_eq!((described.trace_id.as_str(), described.span_id.as_str()), (TRACE, "00f067aa0ba902b7"));
        assert_eq!(described.local_root_span_id, "", "the span of another process");
        assert_eq!(describe(child(id, &["b".into(), "2".into()])).trace_id, described.trace_id);
        assert_eq!(under_span(id, TRACE, "00f067aa0ba902b7", false), id);
        let bare = describe(without_labels(id));
        assert!(bare.labels.is_empty() && bare.trace_id == TRACE);
    }

    #[test]
    fn the_first_span_of_a_trace_is_the_local_root_of_the_spans_in_it() {
        let first = under_span(0, TRACE, "00f067aa0ba902b7", false);
        let second = describe(under_span(first, TRACE, "b7ad6b7169203331", false));
        assert_eq!(
            (second.span_id.as_str(), second.local_root_span_id.as_str()),
            ("b7ad6b7169203331", "00f067aa0ba902b7")
        );
        let request = in_request(0, "aaaaaaaaaaaaaaaa");
        let inside = describe(under_span(request, TRACE, "b7ad6b7169203331", false));
        assert_eq!(inside.local_root_span_id, "aaaaaaaaaaaaaaaa", "the request of a middleware");
        assert_eq!(describe(under_span(first, "", "", false)).local_root_span_id, "");
    }
}
