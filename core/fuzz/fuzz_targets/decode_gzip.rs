//! The input itself and its gzip form, with limits that are small enough to be reached.
#![no_main]

use std::io::Write;

use flate2::{write::GzEncoder, Compression};
use libfuzzer_sys::fuzz_target;
use spanprof_read::decode::{self, DecodeLimits};

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits { decompressed_bytes: 4096, memory_bytes: 65_536, table_entries: 64, stack_depth: 16 };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).expect("writing to a vector cannot fail");
    let gzipped = gzip.finish().expect("writing to a vector cannot fail");
    for input in [bytes, &gzipped] {
        let _ = decode::any(input, &limits);
        let _ = decode::pprof::decode(input, &limits);
        let _ = decode::otlp::decode(input, &limits);
    }
});
