//! The schemas for [`super::scan`], with the cost of each entry in memory. One row per field of the messages in
//! [`super::otlp`] and [`super::pprof`]; a field without a row is skipped without a limit.

use super::scan::FieldKind::{Bytes, Fixed64, Fixed64s, Message, Text, Varint, Varints};
use super::scan::ListLimit::{Entries, StackDepth};
use super::scan::{FieldKind, Schema, SchemaField};

/// Bytes per element of an integer list: message with growth, and the model's copy.
const INDEX_BYTES: usize = 12;
const NUMBER_BYTES: usize = 24;

const fn field(number: u32, name: &'static str, kind: FieldKind, memory_bytes: usize) -> SchemaField {
    SchemaField { number, name, kind, memory_bytes }
}

pub(crate) static OTLP: Schema = Schema {
    fields: &[
        field(1, "resource_profiles", Message(&RESOURCE_PROFILES), 400),
        field(2, "dictionary", Message(&DICTIONARY), 400),
    ],
};

static DICTIONARY: Schema = Schema {
    fields: &[
        field(1, "mapping_table", Message(&MAPPING), 260),
        field(2, "location_table", Message(&LOCATION), 260),
        field(3, "function_table", Message(&FUNCTION), 120),
        field(4, "link_table", Message(&LINK), 200),
        field(5, "string_table", Text, 120),
        field(6, "attribute_table", Message(&KEY_VALUE_AND_UNIT), 220),
        field(7, "stack_table", Message(&STACK), 130),
    ],
};

static RESOURCE_PROFILES: Schema = Schema {
    fields: &[
        field(1, "resource", Message(&RESOURCE), 120),
        field(2, "scope_profiles", Message(&SCOPE_PROFILES), 500),
        field(3, "schema_url", Text, 0),
    ],
};

static RESOURCE: Schema = Schema {
    fields: &[field(1, "attributes", Message(&KEY_VALUE), 320), field(2, "dropped_attributes_count", Varint, 0)],
};

static SCOPE_PROFILES: Schema = Schema {
    fields: &[
        field(1, "scope", Message(&SCOPE), 200),
        field(2, "profiles", Message(&PROFILE), 800),
        field(3, "schema_url", Text, 0),
    ],
};

static SCOPE: Schema = Schema {
    fields: &[
        field(1, "name", Text, 50),
        field(2, "version", Text, 50),
        field(3, "attributes", Message(&KEY_VALUE), 320),
        field(4, "dropped_attributes_count", Varint, 0),
    ],
};

static PROFILE: Schema = Schema {
    fields: &[
        field(1, "sample_type", Message(&VALUE_TYPE), 64),
        field(2, "samples", Message(&SAMPLE), 320),
        field(3, "time_unix_nano", Fixed64, 0),
        field(4, "duration_nano", Varint, 0),
        field(5, "period_type", Message(&VALUE_TYPE), 64),
        field(6, "period", Varint, 0),
        field(7, "profile_id", Bytes, 50),
        field(8, "dropped_attributes_count", Varint, 0),
        field(9, "original_payload_format", Text, 50),
        field(10, "original_payload", Bytes, 50),
        field(11, "attribute_indices", Varints(Entries), INDEX_BYTES),
    ],
};

static VALUE_TYPE: Schema =
    Schema { fields: &[field(1, "type_strindex", Varint, 0), field(2, "unit_strindex", Varint, 0)] };

static SAMPLE: Schema = Schema {
    fields: &[
        field(1, "stack_index", Varint, 0),
        field(2, "attribute_indices", Varints(Entries), INDEX_BYTES),
        field(3, "link_index", Varint, 0),
        field(4, "values", Varints(Entries), NUMBER_BYTES),
        field(5, "timestamps_unix_nano", Fixed64s, NUMBER_BYTES),
    ],
};

static STACK: Schema = Schema { fields: &[field(1, "location_indices", Varints(StackDepth), INDEX_BYTES)] };

static LOCATION: Schema = Schema {
    fields: &[
        field(1, "mapping_index", Varint, 0),
        field(2, "address", Varint, 0),
        field(3, "lines", Message(&LINE), 100),
        field(4, "attribute_indices", Varints(Entries), INDEX_BYTES),
    ],
};

static LINE: Schema = Schema {
    fields: &[field(1, "function_index", Varint, 0), field(2, "line", Varint, 0), field(3, "column", Varint, 0)],
};

static FUNCTION: Schema = Schema {
    fields: &[
        field(1, "name_strindex", Varint, 0),
        field(2, "system_name_strindex", Varint, 0),
        field(3, "filename_strindex", Varint, 0),
        field(4, "start_line", Varint, 0),
    ],
};

static MAPPING: Schema = Schema {
    fields: &[
        field(1, "memory_start", Varint, 0),
        field(2, "memory_limit", Varint, 0),
        field(3, "file_offset", Varint, 0),
        field(4, "filename_strindex", Varint, 0),
        field(5, "attribute_indices", Varints(Entries), INDEX_BYTES),
    ],
};

static LINK: Schema = Schema { fields: &[field(1, "trace_id", Bytes, 32), field(2, "span_id", Bytes, 32)] };

static KEY_VALUE_AND_UNIT: Schema = Schema {
    fields: &[
        field(1, "key_strindex", Varint, 0),
        field(2, "value", Message(&ANY_VALUE), 0),
        field(3, "unit_strindex", Varint, 0),
    ],
};

static KEY_VALUE: Schema = Schema {
    fields: &[
        field(1, "key", Text, 50),
        field(2, "value", Message(&ANY_VALUE), 0),
        field(3, "key_strindex", Varint, 0),
    ],
};

/// Text that field 8 refers to is copied from the string table; the decoder limits the sum (`CopyBudget`).
static ANY_VALUE: Schema = Schema {
    fields: &[
        field(1, "string_value", Text, 64),
        field(2, "bool_value", Varint, 0),
        field(3, "int_value", Varint, 0),
        field(4, "double_value", Fixed64, 0),
        field(5, "array_value", Message(&ARRAY_VALUE), 64),
        field(6, "kvlist_value", Message(&KEY_VALUE_LIST), 64),
        field(7, "bytes_value", Bytes, 64),
        field(8, "string_value_strindex", Varint, 0),
    ],
};

static ARRAY_VALUE: Schema = Schema { fields: &[field(1, "values", Message(&ANY_VALUE), 160)] };

static KEY_VALUE_LIST: Schema = Schema { fields: &[field(1, "values", Message(&KEY_VALUE), 320)] };

pub(crate) static PPROF: Schema = Schema {
    fields: &[
        field(1, "sample_type", Message(&PPROF_VALUE_TYPE), 1000),
        field(2, "sample", Message(&PPROF_SAMPLE), 60),
        field(3, "mapping", Message(&PPROF_MAPPING), 400),
        field(4, "location", Message(&PPROF_LOCATION), 260),
        field(5, "function", Message(&PPROF_FUNCTION), 200),
        field(6, "string_table", Bytes, 140),
        field(7, "drop_frames", Varint, 0),
        field(8, "keep_frames", Varint, 0),
        field(9, "time_nanos", Varint, 0),
        field(10, "duration_nanos", Varint, 0),
        field(11, "period_type", Message(&PPROF_VALUE_TYPE), 64),
        field(12, "period", Varint, 0),
        field(13, "comment", Varints(Entries), NUMBER_BYTES),
        field(14, "default_sample_type", Varint, 0),
        field(15, "doc_url", Varint, 0),
    ],
};

static PPROF_VALUE_TYPE: Schema = Schema { fields: &[field(1, "type", Varint, 0), field(2, "unit", Varint, 0)] };

/// Decoded one at a time, so only the model's copy is counted. Each value becomes a sample in another profile.
static PPROF_SAMPLE: Schema = Schema {
    fields: &[
        field(1, "location_id", Varints(StackDepth), 8),
        field(2, "value", Varints(Entries), 220),
        field(3, "label", Message(&PPROF_LABEL), 120),
    ],
};

static PPROF_LABEL: Schema = Schema {
    fields: &[
        field(1, "key", Varint, 0),
        field(2, "str", Varint, 0),
        field(3, "num", Varint, 0),
        field(4, "num_unit", Varint, 0),
    ],
};

static PPROF_MAPPING: Schema = Schema {
    fields: &[
        field(1, "id", Varint, 0),
        field(2, "memory_start", Varint, 0),
        field(3, "memory_limit", Varint, 0),
        field(4, "file_offset", Varint, 0),
        field(5, "filename", Varint, 0),
        field(6, "build_id", Varint, 0),
        field(7, "has_functions", Varint, 0),
        field(8, "has_filenames", Varint, 0),
        field(9, "has_line_numbers", Varint, 0),
        field(10, "has_inline_frames", Varint, 0),
    ],
};

static PPROF_LOCATION: Schema = Schema {
    fields: &[
        field(1, "id", Varint, 0),
        field(2, "mapping_id", Varint, 0),
        field(3, "address", Varint, 0),
        field(4, "line", Message(&PPROF_LINE), 100),
        field(5, "is_folded", Varint, 0),
    ],
};

static PPROF_LINE: Schema = Schema {
    fields: &[field(1, "function_id", Varint, 0), field(2, "line", Varint, 0), field(3, "column", Varint, 0)],
};

static PPROF_FUNCTION: Schema = Schema {
    fields: &[
        field(1, "id", Varint, 0),
        field(2, "name", Varint, 0),
        field(3, "system_name", Varint, 0),
        field(4, "filename", Varint, 0),
        field(5, "start_line", Varint, 0),
    ],
};
