//! pprof messages with the field numbers of google/pprof's `profile.proto`. Strings are bytes, since real files contain names
//! that are not UTF-8, and one such name must not make a file undecodable.

use super::messages::{messages, NUMBER_BYTES};

/// Field number of the samples in [`Profile`].
pub(crate) const SAMPLE: u32 = 2;

messages! { protobuf;
    /// The samples are most of a file, so [`super::scan::for_each_message`] decodes them one at a time.
    Profile {
        [1 message, repeated] sample_type: Vec<ValueType>, 1000;
        [3 message, repeated] mapping: Vec<Mapping>, 400;
        [4 message, repeated] location: Vec<Location>, 260;
        [5 message, repeated] function: Vec<Function>, 200;
        [6 bytes, repeated] string_table: Vec<Vec<u8>>, 140;
        [7 int64] drop_frames: i64;
        [8 int64] keep_frames: i64;
        [9 int64] time_nanos: i64;
        [10 int64] duration_nanos: i64;
        [11 message, optional] period_type: Option<ValueType>, 64;
        [12 int64] period: i64;
        [13 int64, repeated] comment: Vec<i64>, NUMBER_BYTES;
        [14 int64] default_sample_type: i64;
        [15 int64] doc_url: i64;
        scanned only
        [2 message, repeated] sample: Vec<Sample>, 60;
    }

    #[derive(Copy)]
    ValueType {
        [1 int64] kind: i64;
        [2 int64] unit: i64;
    }

    /// Decoded one at a time, so only the model's copy is counted. Each value becomes a sample in another profile.
    Sample {
        [1 uint64, repeated] location_id: Vec<u64>, 8, StackDepth;
        [2 int64, repeated] value: Vec<i64>, 220;
        [3 message, repeated] label: Vec<Label>, 120;
    }

    Label {
        [1 int64] key: i64;
        [2 int64] str: i64;
        [3 int64] num: i64;
        [4 int64] num_unit: i64;
    }

    Mapping {
        [1 uint64] id: u64;
        [2 uint64] memory_start: u64;
        [3 uint64] memory_limit: u64;
        [4 uint64] file_offset: u64;
        [5 int64] filename: i64;
        [6 int64] build_id: i64;
        [7 bool] has_functions: bool;
        [8 bool] has_filenames: bool;
        [9 bool] has_line_numbers: bool;
        [10 bool] has_inline_frames: bool;
    }

    Location {
        [1 uint64] id: u64;
        [2 uint64] mapping_id: u64;
        [3 uint64] address: u64;
        [4 message, repeated] line: Vec<Line>, 100;
        [5 bool] is_folded: bool;
    }

    Line {
        [1 uint64] function_id: u64;
        [2 int64] line: i64;
        [3 int64] column: i64;
    }

    Function {
        [1 uint64] id: u64;
        [2 int64] name: i64;
        [3 int64] system_name: i64;
        [4 int64] filename: i64;
        [5 int64] start_line: i64;
    }
}
