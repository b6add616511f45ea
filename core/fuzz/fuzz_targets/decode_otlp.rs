//! OTLP in protobuf, with and without length prefixes. Decoded profiles can be encoded in every format and split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::encode::{folded, otlp, pprof, text};
use spanprof_profile::transform;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{self, Granularity};
use spanprof_view::page;

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits::default();
    let _ = decode::detect(bytes, &limits);
    otlp::split_encoded(bytes);
    let Ok(data) = decode::otlp::decode(bytes, &limits) else { return };
    let body = otlp::encode(&data, otlp::Revision::One);
    let again = decode::otlp::decode(&body, &limits).expect("encoded profiles are decodable");
    assert_eq!(otlp::encode(&again, otlp::Revision::One).len(), body.len());
    otlp::split_encoded(&body);
    decode::pprof::decode(&pprof::encode_uncompressed(&data), &limits).expect("encoded profiles are decodable");
    text::encode(&transform::merge([&data, &again]));
    for summary in query::types(&data) {
        for by in [Granularity::Function, Granularity::Line] {
            query::top(&data, &summary.type_name, by);
        }
        let tree = transform::tree(&data, &summary.type_name);
        folded::encode(&tree);
        page::html(&data, &summary.type_name, &summary.service);
    }
});
