//! Compressed input, as it comes and packed by us, under small limits so that they are met.
#![no_main]

use std::io::Write;

use flate2::{write::GzEncoder, Compression};
use libfuzzer_sys::fuzz_target;
use spanprof_profile::decode::{self, Limits};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { decompressed_bytes: 4096, memory_bytes: 65_536, table_entries: 64, stack_depth: 16 };
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).expect("a vector takes every write");
    let packed = packed.finish().expect("a vector takes every write");
    for input in [bytes, &packed] {
        let _ = decode::any(input, &limits);
        let _ = decode::pprof::decode(input, &limits);
        let _ = decode::otlp::decode(input, &limits);
    }
});
