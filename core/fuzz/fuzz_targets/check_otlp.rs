//! The checks on the wire form: they go on where decoding stops, so they meet what it never sees.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::check::{check, CheckSettings, Severity};
use spanprof_profile::decode::{self, Limits};
use spanprof_profile::encode::otlp;

fuzz_target!(|bytes: &[u8]| {
    let settings = CheckSettings { now_unix_nano: Some(1_700_000_000_000_000_000), ..CheckSettings::default() };
    let Ok(findings) = check(bytes, &settings) else {
        // What cannot be checked cannot be decoded either.
        assert!(decode::otlp::decode(bytes, &Limits::default()).is_err());
        return;
    };
    assert!(findings.len() < 1000);
    if let Ok(data) = decode::otlp::decode(bytes, &Limits::default()) {
        // Whatever came in, the dictionary we write is in order.
        let body = otlp::encode(&data, otlp::Revision::One);
        for finding in check(&body, &settings).expect("what the encoder wrote is readable") {
            let own = finding.path.starts_with("dictionary") && finding.severity == Severity::Error;
            assert!(!own || finding.sentence.contains("key") || finding.sentence.contains("mapping"), "{finding:?}");
        }
    }
});
