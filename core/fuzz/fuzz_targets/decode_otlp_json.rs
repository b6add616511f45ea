//! OTLP in JSON lines. The input gets an opening brace, so that the decoder treats it as JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::encode::otlp;
use spanprof_read::check::{check, CheckSettings};
use spanprof_read::decode::{self, DecodeLimits};

fuzz_target!(|bytes: &[u8]| {
    let text = if bytes.starts_with(b"{") { bytes.to_vec() } else { [b"{".as_slice(), bytes].concat() };
    let _ = check(&text, &CheckSettings::default());
    if let Ok(data) = decode::otlp::decode(&text, &DecodeLimits::default()) {
        let body = otlp::encode(&data, otlp::Revision::One);
        decode::otlp::decode(&body, &DecodeLimits::default()).expect("encoded profiles are decodable");
    }
});
