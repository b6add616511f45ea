//! The checks of wire messages, which continue beyond the errors at which decoding stops.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::encode::otlp;
use spanprof_read::check::{check, CheckSettings, Severity};
use spanprof_read::decode::{self, DecodeLimits};

fuzz_target!(|bytes: &[u8]| {
    let settings = CheckSettings { now_unix_nano: Some(1_700_000_000_000_000_000), ..CheckSettings::default() };
    let Ok(findings) = check(bytes, &settings) else {
        // Input that cannot be checked cannot be decoded either.
        assert!(decode::otlp::decode(bytes, &DecodeLimits::default()).is_err());
        return;
    };
    assert!(findings.len() < 1000);
    if let Ok(data) = decode::otlp::decode(bytes, &DecodeLimits::default()) {
        // The encoder writes a valid dictionary for any input.
        let body = otlp::encode(&data, otlp::Revision::One);
        for finding in check(&body, &settings).expect("encoded profiles are decodable") {
            let is_dictionary_error = finding.path.starts_with("dictionary") && finding.severity == Severity::Error;
            let is_copied = finding.sentence.contains("key") || finding.sentence.contains("mapping");
            assert!(!is_dictionary_error || is_copied, "{finding:?}");
        }
    }
});
