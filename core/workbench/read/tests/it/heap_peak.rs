//! Files of the heap at its peak that were damaged in any way: the reader returns a record that was written, or none.

use proptest::prelude::*;
use spanprof_profile::heap_peak::{
    decode, file_bytes, header_page, record_stores, PeakProcess, PeakRecord, PAGE_BYTES,
};

const HALF: u64 = 600;

fn records() -> [PeakRecord<'static>; 2] {
    [1, 2].map(|sequence| PeakRecord {
        sequence,
        time_unix_ns: 100 + sequence,
        live_bytes: 1 << (20 * sequence),
        live_objects: 7,
        resident_bytes: 1 << 30,
        limit_bytes: Some(1 << 31),
        omitted_stacks: 0,
        profile: vec![sequence as u8; 200 + 100 * sequence as usize].into(),
    })
}

fn file() -> Vec<u8> {
    let process = PeakProcess { process_id: 3, start_ticks: 4, pid_namespace: 5, service_name: "shop".to_owned() };
    let mut file = header_page(&process, HALF);
    file.resize(file_bytes(HALF) as usize, 0);
    for record in records() {
        for store in record_stores(&record, HALF) {
            let offset = store.offset as usize;
            file[offset..offset + store.bytes.len()].copy_from_slice(&store.bytes);
        }
    }
    file
}

fn assert_written_or_absent(file: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(content) = decode(file) {
        prop_assert_eq!((content.process.process_id, content.process.service_name.as_str()), (3, "shop"));
        if let Some(record) = content.record {
            prop_assert!(records().contains(&record), "{:?}", record);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_truncated_file_has_a_written_record_or_none(length in 0..=file_bytes(HALF) as usize) {
        let file = file();
        assert_written_or_absent(&file[..length])?;
        // The older record is in the second half.
        prop_assert_eq!(decode(&file[..length]).is_ok(), length >= PAGE_BYTES);
    }

    #[test]
    fn a_file_with_replaced_bytes_has_a_written_record_or_none(
        replaced in proptest::collection::vec((0..file_bytes(HALF) as usize, any::<u8>()), 1..40),
    ) {
        let mut file = file();
        for (at, byte) in replaced {
            file[at] = byte;
        }
        assert_written_or_absent(&file)?;
    }

    #[test]
    fn a_file_with_moved_parts_has_a_written_record_or_none(
        from in 0..file_bytes(HALF) as usize,
        to in 0..file_bytes(HALF) as usize,
        length in 1..700_usize,
    ) {
        let mut file = file();
        let length = length.min(file.len() - from.max(to));
        file.copy_within(from..from + length, to);
        assert_written_or_absent(&file)?;
    }

    #[test]
    fn any_bytes_behind_the_header_are_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        let mut file = file();
        file.truncate(PAGE_BYTES);
        file.extend(bytes);
        prop_assert_eq!(decode(&file).unwrap().record, None);
    }
}
