//! pprof. Decoded profiles can be encoded as pprof and as OTLP, and decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::encode::{otlp, pprof};
use spanprof_profile::transform;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{self, Granularity};

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits::default();
    let Ok(data) = decode::pprof::decode(bytes, &limits) else { return };
    let file = pprof::encode_uncompressed(&data);
    decode::pprof::decode(&file, &limits).expect("encoded profiles are decodable");
    let body = otlp::encode(&data, otlp::Revision::One);
    decode::otlp::decode(&body, &limits).expect("encoded profiles are decodable");
    for summary in query::types(&data) {
        for by in [Granularity::Function, Granularity::Line] {
            query::top(&data, &summary.type_name, by);
        }
        transform::tree(&data, &summary.type_name);
    }
});
