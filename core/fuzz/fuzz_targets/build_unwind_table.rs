//! Tables of `.eh_frame`, which any loaded file has, and walks by them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_unwind::walks_by_table_of;

fuzz_target!(|bytes: &[u8]| {
    let Some((seed, section)) = bytes.split_first_chunk() else { return };
    // The functions of a seed lie before its section.
    walks_by_table_of(section, 0x50_0000, &(0x40_0000..0x50_0000), u64::from_ne_bytes(*seed));
});
