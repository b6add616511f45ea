//! Names in pprof files and their attributes: labels of the span link, OpenTelemetry's attribute names for fields that only
//! pprof has, and comments with resource attributes.

use super::pprof::Mapping;

pub(crate) const TRACE_ID: &str = "trace_id";
pub(crate) const SPAN_ID: &str = "span_id";
pub(crate) const BUILD_ID: &str = "process.executable.build_id.gnu";
pub(crate) const IS_FOLDED: &str = "pprof.location.is_folded";
pub(crate) const COMMENT: &str = "pprof.profile.comment";
pub(crate) const DOC_URL: &str = "pprof.profile.doc_url";
pub(crate) const DROP_FRAMES: &str = "pprof.profile.drop_frames";
pub(crate) const KEEP_FRAMES: &str = "pprof.profile.keep_frames";
pub(crate) const DEFAULT_SAMPLE_TYPE: &str = "pprof.scope.default_sample_type";
pub(crate) const HAS: [&str; 4] = [
    "pprof.mapping.has_functions",
    "pprof.mapping.has_filenames",
    "pprof.mapping.has_line_numbers",
    "pprof.mapping.has_inline_frames",
];

/// The flags of a mapping by their attribute names.
pub(crate) fn flags(mapping: &Mapping) -> [(&'static str, bool); 4] {
    let set = [mapping.has_functions, mapping.has_filenames, mapping.has_line_numbers, mapping.has_inline_frames];
    std::array::from_fn(|nth| (HAS[nth], set[nth]))
}

/// `service.name=checkout` as (key, value): a comment whose left side is a dotted attribute name.
pub(crate) fn resource_attribute(comment: &str) -> Option<(&str, &str)> {
    let (key, value) = comment.split_once('=')?;
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    (key.contains('.') && key.split('.').all(part)).then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_comment_with_a_dotted_name_is_a_resource_attribute() {
        assert_eq!(resource_attribute("service.name=checkout=1"), Some(("service.name", "checkout=1")));
        for comment in ["service.name", "service=x", "see a.b =x", ".=x", "Built with go=1", "=x", "a..b=x"] {
            assert_eq!(resource_attribute(comment), None, "{comment}");
        }
    }
}
