//! Names in pprof files: labels of the span link, and OpenTelemetry's attribute names for fields that only pprof has. Shared
//! with the decoder.

/// Label of the trace id, in hex digits.
pub const TRACE_ID: &str = "trace_id";
/// Label of the span id, in hex digits.
pub const SPAN_ID: &str = "span_id";
/// Label of the local root span's id, in hex digits, of a span below it; the name that other profilers use.
pub const LOCAL_ROOT: &str = "local root span id";
/// Numeric label of the time of a sample that was not aggregated, Unix nanoseconds; the name that other profilers use.
pub const END_TIMESTAMP: &str = "end_timestamp_ns";
/// Unit of that label.
pub const END_TIMESTAMP_UNIT: &str = "nanoseconds";
/// Attribute of a mapping's build id.
pub const BUILD_ID: &str = "process.executable.build_id.gnu";
/// Attribute of the hash of a mapping's file by OpenTelemetry. pprof has no field for it.
pub const HTLHASH: &str = "process.executable.build_id.htlhash";
/// Attribute of `Location.is_folded`.
pub const IS_FOLDED: &str = "pprof.location.is_folded";
/// Attribute of the comments, one per line.
pub const COMMENT: &str = "pprof.profile.comment";
/// Start of the comment on the longest block of an event loop, in nanoseconds: a block can have several samples.
pub const LONGEST_BLOCK: &str = "longest_block_ns=";
/// Start of the comment with the prefixes of own code, the last one of its line.
pub const OWN_CODE: &str = "own_code=";
/// Attribute of `Profile.doc_url`.
pub const DOC_URL: &str = "pprof.profile.doc_url";
/// Attribute of `Profile.drop_frames`.
pub const DROP_FRAMES: &str = "pprof.profile.drop_frames";
/// Attribute of `Profile.keep_frames`.
pub const KEEP_FRAMES: &str = "pprof.profile.keep_frames";
/// Attribute of `Profile.default_sample_type`.
pub const DEFAULT_SAMPLE_TYPE: &str = "pprof.scope.default_sample_type";
/// Attribute of the sample types of a file, in their order: `samples/count,cpu/nanoseconds`. OTLP has no profile for a type
/// without values, and no order. OpenTelemetry has no name for it.
pub const SAMPLE_TYPES: &str = "pprof.profile.sample_types";
/// Attributes of a mapping's flags, in the order of the message's fields.
pub const HAS: [&str; 4] = [
    "pprof.mapping.has_functions",
    "pprof.mapping.has_filenames",
    "pprof.mapping.has_line_numbers",
    "pprof.mapping.has_inline_frames",
];
