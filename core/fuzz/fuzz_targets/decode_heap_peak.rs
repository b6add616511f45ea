//! Files of the heap at its peak, with their checksums corrected: chance finds no valid one. An intact record is written again
//! and read back; its profile is hostile input of its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spanprof_read::decode::{self, DecodeLimits};

#[allow(dead_code, reason = "the target needs the private checksum of the format")]
#[path = "../../profile/src/heap_peak.rs"]
mod heap_peak;

use heap_peak::{checksum, PAGE_BYTES, RECORD_BYTES};

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    correct_checksums(&mut file);
    let Ok(content) = heap_peak::decode(&file) else { return };
    let Some(record) = content.record else { return };
    let kept = heap_peak::compact(&content.process, &record);
    let again = heap_peak::decode(&kept).expect("a written file is readable");
    assert_eq!(again.process, content.process);
    let again = again.record.expect("a written record is readable");
    assert_eq!(again.profile, record.profile);
    let _ = decode::pprof::decode(&record.profile, &DecodeLimits::default());
});

/// Writes the checksum of the header page and of each record that lies within the file.
fn correct_checksums(file: &mut [u8]) -> Option<()> {
    let (page, halves) = file.split_at_mut_checked(PAGE_BYTES)?;
    let (content, stored) = page.split_last_chunk_mut()?;
    *stored = checksum(&[content]).to_le_bytes();
    let half_bytes = usize::try_from(u64_at(content, 32)?).ok()?;
    for offset in [0, half_bytes] {
        let half = halves.get_mut(offset..)?;
        let length = usize::try_from(u64_at(half, 56)?).ok()?;
        let (header, profile) = half.split_at_mut_checked(RECORD_BYTES)?;
        let (content, stored) = header.split_last_chunk_mut()?;
        *stored = checksum(&[content, profile.get(..length)?]).to_le_bytes();
    }
    Some(())
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
