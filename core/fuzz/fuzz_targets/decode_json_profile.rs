//! speedscope files, detected by content. Decoded profiles can be encoded as pprof and as speedscope, and decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::encode::pprof;
use spanprof_profile::transform;
use spanprof_read::decode::{self, DecodeLimits, Format};
use spanprof_view::speedscope;

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits::default();
    let Ok((Format::Speedscope, data)) = decode::any(bytes, &limits) else { return };
    let file = pprof::encode_uncompressed(&data);
    decode::pprof::decode(&file, &limits).expect("encoded profiles are decodable");
    let types = data.profiles().map(|(_, profile)| profile.type_name().to_owned());
    let trees: Vec<_> = types.map(|name| transform::tree(&data, &name)).collect();
    let text = speedscope::encode(&trees, "fuzz");
    decode::any(text.as_bytes(), &DecodeLimits::of_files()).expect("encoded files are decodable");
});
