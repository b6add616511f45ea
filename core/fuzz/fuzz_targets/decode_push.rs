//! Push requests of Pyroscope. Their profiles are decoded as pprof; together they are within the limit of bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_read::decode::pyroscope::for_each_pushed;
use spanprof_read::decode::{self, DecodeError, DecodeLimits};

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits::default();
    let mut total = 0;
    let _ = for_each_pushed(bytes, &limits, |pushed| {
        total += pushed.pprof.len();
        decode::pprof::decode(pushed.pprof, &limits).map(drop)?;
        Ok::<(), DecodeError>(())
    });
    assert!(total <= limits.decompressed_bytes);
});
