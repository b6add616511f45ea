//! Files of the heap at its peak. An intact record is written again and read back; its profile is hostile input of its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_profile::heap_peak;
use spanprof_read::decode::{self, DecodeLimits};

fuzz_target!(|bytes: &[u8]| {
    let Ok(content) = heap_peak::decode(bytes) else { return };
    let Some(record) = content.record else { return };
    let kept = heap_peak::compact(&content.process, &record);
    let again = heap_peak::decode(&kept).expect("a written file is readable");
    assert_eq!(again.process, content.process);
    let again = again.record.expect("a written record is readable");
    assert_eq!(again.profile, record.profile);
    let _ = decode::pprof::decode(&record.profile, &DecodeLimits::default());
});
