//! Folded stacks, detected by content. Decoded profiles can be encoded as folded stacks and as pprof, and decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::encode::{folded, pprof};
use spanprof_profile::transform;
use spanprof_read::decode::{self, DecodeLimits, Format};

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits::default();
    let Ok((Format::Folded, data)) = decode::any(bytes, &limits) else { return };
    let file = pprof::encode_uncompressed(&data);
    decode::pprof::decode(&file, &limits).expect("encoded profiles are decodable");
    folded::encode(&transform::tree(&data, "samples"));
});
