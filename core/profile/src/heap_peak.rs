//! The file of the heap at its peak: the live objects at the last maximum of live bytes, which a process that is killed leaves
//! behind. Both directions are here, since the profiler reads the files of ended processes and links no reading crate. The
//! embedded profile is pprof; its decoder is in `spanprof-read`. It has resolved frames, since a
//! dead process resolves nothing, and is not compressed: gzip takes most of the time of an encoding.
//!
//! # Format
//! Little-endian. A page with the process, then two halves of equal size. A half is a record header and a profile.
//!
//! | offset | header page | offset | record header |
//! |---|---|---|---|
//! | 0 | magic, 8 bytes | 0 | sequence, 0: no record |
//! | 8 | version, 4 bytes | 8 | Unix time of the peak, ns |
//! | 12 | process id, 4 bytes | 16 | live bytes |
//! | 16 | start time of the process, clock ticks after boot | 24 | live objects |
//! | 24 | inode of its pid namespace | 32 | resident bytes |
//! | 32 | bytes of a half | 40 | memory limit of the cgroup, bytes; 0: none |
//! | 40 | length of the service name, 8 bytes | 48 | stacks that did not fit |
//! | 48 | service name, at most 1024 bytes | 56 | length of the profile |
//! | 4088 | checksum of the page | 64 | checksum of the header and the profile |
//!
//! # Write protocol
//! A record replaces the older half: its header is zeroed, the profile is written, the header is written. A process killed
//! between two bytes of this sequence leaves the other half. Readers take the valid half with the larger sequence.

use std::borrow::Cow;
use std::fmt;

const MAGIC: &[u8; 8] = b"spanpeak";
const VERSION: u32 = 1;
/// Size of the header page.
pub const PAGE_BYTES: usize = 4096;
/// Size of a record header.
pub const RECORD_BYTES: usize = 72;
const PAGE_CHECKSUM: usize = PAGE_BYTES - 8;
const RECORD_CHECKSUM: usize = RECORD_BYTES - 8;
const SERVICE_NAME: usize = 48;
const MAX_SERVICE_NAME: usize = 1024;

/// The process that wrote a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakProcess {
    /// Process id in its pid namespace.
    pub process_id: u32,
    /// Start time, clock ticks after the boot (field 22 of `/proc/<pid>/stat`).
    pub start_ticks: u64,
    /// Inode of the pid namespace.
    pub pid_namespace: u64,
    /// `service.name`, at most 1024 bytes.
    pub service_name: String,
}

/// The live objects at a maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakRecord<'a> {
    /// Number of the record in its file, from 1.
    pub sequence: u64,
    /// Time of the maximum, Unix time in ns.
    pub time_unix_ns: u64,
    /// Estimated bytes of the live objects.
    pub live_bytes: u64,
    /// Estimated number of live objects.
    pub live_objects: u64,
    /// Resident memory of the process, bytes.
    pub resident_bytes: u64,
    /// Memory limit of the process's cgroups, bytes.
    pub limit_bytes: Option<u64>,
    /// Stacks that did not fit into the file; their bytes have the stack `[too_many_stacks]`.
    pub omitted_stacks: u64,
    /// The live objects as pprof, plain or gzipped.
    pub profile: Cow<'a, [u8]>,
}

/// A file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakContent<'a> {
    /// The process that wrote it.
    pub process: PeakProcess,
    /// The last complete record; `None` before the first one.
    pub record: Option<PeakRecord<'a>>,
}

/// Reason why bytes are not a file of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakFormatError {
    /// The bytes do not begin with the magic.
    Magic,
    /// Written in another version of the format.
    Version(u32),
    /// The header page is truncated or damaged.
    Header,
}

impl fmt::Display for PeakFormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => formatter.write_str("not a file of the heap at its peak"),
            Self::Version(version) if *version > VERSION => {
                write!(formatter, "version {version} of the format, of a newer spanprof; this one reads {VERSION}")
            }
            Self::Version(version) => write!(formatter, "version {version} of the format; expected {VERSION}"),
            Self::Header => formatter.write_str("the header is truncated or damaged"),
        }
    }
}

impl std::error::Error for PeakFormatError {}

/// Bytes to store at an offset of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakStore<'a> {
    /// Offset from the start of the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// Size of a file with halves of `half_bytes`.
pub fn file_bytes(half_bytes: u64) -> u64 {
    PAGE_BYTES as u64 + 2 * half_bytes
}

/// The header page. A service name beyond its maximum is truncated.
pub fn header_page(process: &PeakProcess, half_bytes: u64) -> Vec<u8> {
    let mut name = process.service_name.as_str();
    while name.len() > MAX_SERVICE_NAME {
        name = name.char_indices().next_back().map_or("", |(end, _)| &name[..end]);
    }
    let mut page = Vec::with_capacity(PAGE_BYTES);
    page.extend_from_slice(MAGIC);
    page.extend_from_slice(&VERSION.to_le_bytes());
    page.extend_from_slice(&process.process_id.to_le_bytes());
    for word in [process.start_ticks, process.pid_namespace, half_bytes, name.len() as u64] {
        page.extend_from_slice(&word.to_le_bytes());
    }
    page.extend_from_slice(name.as_bytes());
    page.resize(PAGE_CHECKSUM, 0);
    let checksum = checksum(&[&page]);
    page.extend_from_slice(&checksum.to_le_bytes());
    page
}

/// The stores of a record, in their order. The profile must fit into a half, less [`RECORD_BYTES`].
pub fn record_stores<'a>(record: &'a PeakRecord<'_>, half_bytes: u64) -> [PeakStore<'a>; 3] {
    let offset = PAGE_BYTES as u64 + record.sequence % 2 * half_bytes;
    [
        PeakStore { offset, bytes: vec![0; RECORD_BYTES].into() },
        PeakStore { offset: offset + RECORD_BYTES as u64, bytes: Cow::Borrowed(&record.profile) },
        PeakStore { offset, bytes: record_header(record).into() },
    ]
}

fn record_header(record: &PeakRecord<'_>) -> Vec<u8> {
    let words = [
        record.sequence,
        record.time_unix_ns,
        record.live_bytes,
        record.live_objects,
        record.resident_bytes,
        record.limit_bytes.unwrap_or(0),
        record.omitted_stacks,
        record.profile.len() as u64,
    ];
    let mut header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let checksum = checksum(&[&header, &record.profile]);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

/// A file with one record and without free space, to be kept.
pub fn compact(process: &PeakProcess, record: &PeakRecord<'_>) -> Vec<u8> {
    // An even sequence is in the first half.
    let half_bytes = (RECORD_BYTES + record.profile.len()) as u64;
    let record = PeakRecord { sequence: 2, ..record.clone() };
    let mut file = header_page(process, half_bytes);
    file.extend_from_slice(&record_header(&record));
    file.extend_from_slice(&record.profile);
    file
}

/// Reads a file. Input is untrusted: a damaged record is no record.
///
/// # Errors
/// When the header page is not valid.
pub fn decode(bytes: &[u8]) -> Result<PeakContent<'_>, PeakFormatError> {
    let (process, half_bytes) = decode_header(bytes)?;
    let halves = [0, 1].map(|index: u64| {
        let offset = half_bytes.checked_mul(index)?.checked_add(PAGE_BYTES as u64)?;
        let half = bytes.get(usize::try_from(offset).ok()?..)?;
        let half = half.get(..usize::try_from(half_bytes).ok()?).unwrap_or(half);
        decode_record(half).filter(|record| record.sequence % 2 == index)
    });
    let record = halves.into_iter().flatten().max_by_key(|record| record.sequence);
    Ok(PeakContent { process, record })
}

/// Reads the process from the header page, the first [`PAGE_BYTES`] of a file.
///
/// # Errors
/// As [`decode`].
pub fn decode_process(page: &[u8]) -> Result<PeakProcess, PeakFormatError> {
    decode_header(page).map(|(process, _)| process)
}

fn decode_header(bytes: &[u8]) -> Result<(PeakProcess, u64), PeakFormatError> {
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(PeakFormatError::Magic);
    }
    let version = u32_at(bytes, 8).ok_or(PeakFormatError::Header)?;
    if version != VERSION {
        return Err(PeakFormatError::Version(version));
    }
    let fields = || {
        let page = bytes.get(..PAGE_CHECKSUM)?;
        if u64_at(bytes, PAGE_CHECKSUM)? != checksum(&[page]) {
            return None;
        }
        let length = usize::try_from(u64_at(page, 40)?).ok().filter(|length| *length <= MAX_SERVICE_NAME)?;
        let service_name = std::str::from_utf8(page.get(SERVICE_NAME..SERVICE_NAME + length)?).ok()?.to_owned();
        let process = PeakProcess {
            process_id: u32_at(page, 12)?,
            start_ticks: u64_at(page, 16)?,
            pid_namespace: u64_at(page, 24)?,
            service_name,
        };
        Some((process, u64_at(page, 32)?))
    };
    fields().ok_or(PeakFormatError::Header)
}

fn decode_record(half: &[u8]) -> Option<PeakRecord<'_>> {
    let word = |index: usize| u64_at(half, 8 * index);
    let sequence = word(0).filter(|sequence| *sequence > 0)?;
    let length = usize::try_from(word(7)?).ok()?;
    let profile = half.get(RECORD_BYTES..)?.get(..length)?;
    let header = half.get(..RECORD_CHECKSUM)?;
    let is_valid = u64_at(half, RECORD_CHECKSUM)? == checksum(&[header, profile]);
    is_valid.then_some(PeakRecord {
        sequence,
        time_unix_ns: word(1)?,
        live_bytes: word(2)?,
        live_objects: word(3)?,
        resident_bytes: word(4)?,
        limit_bytes: word(5).filter(|limit| *limit > 0),
        omitted_stacks: word(6)?,
        profile: Cow::Borrowed(profile),
    })
}

/// 64 bits, a word at a time. Each step is a bijection of the state, so a change of one word always changes the result.
/// Not private: the fuzz target includes this file.
pub(crate) fn checksum(parts: &[&[u8]]) -> u64 {
    let step = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        product ^ product >> 29
    };
    parts.iter().fold(0x7370_616e_7065_616b, |hash, part| {
        let words = part.chunks_exact(8);
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        let hash = words.fold(hash, |hash, word| step(hash, u64_at(word, 0).unwrap_or(0)));
        step(step(hash, u64::from_le_bytes(last)), part.len() as u64)
    })
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 512;

    fn process() -> PeakProcess {
        PeakProcess { process_id: 7, start_ticks: 99, pid_namespace: 4_026_531_836, service_name: "cart".to_owned() }
    }

    fn record(sequence: u64, profile: &[u8]) -> PeakRecord<'_> {
        PeakRecord {
            sequence,
            time_unix_ns: 1_000 * sequence,
            live_bytes: 11 * sequence,
            live_objects: 13,
            resident_bytes: 17,
            limit_bytes: sequence.is_multiple_of(2).then_some(19),
            omitted_stacks: 23,
            profile: profile.into(),
        }
    }

    fn new_file() -> Vec<u8> {
        let mut file = header_page(&process(), HALF);
        file.resize(file_bytes(HALF) as usize, 0);
        file
    }

    fn apply(file: &mut [u8], store: &PeakStore<'_>, bytes: usize) {
        let offset = store.offset as usize;
        file[offset..offset + bytes].copy_from_slice(&store.bytes[..bytes]);
    }

    fn write(file: &mut [u8], record: &PeakRecord<'_>) {
        for store in record_stores(record, HALF) {
            apply(file, &store, store.bytes.len());
        }
    }

    #[test]
    fn a_file_holds_its_process_and_its_last_record() {
        let mut file = new_file();
        assert_eq!(decode(&file), Ok(PeakContent { process: process(), record: None }));
        for sequence in 1..6 {
            let written = record(sequence, &b"a profile of some length"[..4 * sequence as usize]);
            write(&mut file, &written);
            assert_eq!(decode(&file).unwrap().record, Some(written));
        }
        assert_eq!(decode_process(&file[..PAGE_BYTES]), Ok(process()));
    }

    #[test]
    fn a_compact_file_has_the_same_content() {
        let kept = record(5, b"profile");
        let file = compact(&process(), &kept);
        let content = decode(&file).unwrap();
        assert_eq!((content.process, content.record), (process(), Some(PeakRecord { sequence: 2, ..kept })));
    }

    #[test]
    fn a_kill_after_any_byte_of_a_write_leaves_a_complete_record() {
        for (old, new) in [(1, 2), (2, 3), (8, 9)] {
            let mut file = new_file();
            // The half of the new record holds an older one of another length.
            if old > 1 {
                write(&mut file, &record(old - 1, b"a profile that is replaced"));
            }
            let (old, new) = (record(old, b"the old profile"), record(new, b"the new and longer profile"));
            write(&mut file, &old);
            for store in record_stores(&new, HALF) {
                for bytes in 0..=store.bytes.len() {
                    apply(&mut file, &store, bytes);
                    let read = decode(&file).unwrap().record.expect("a record is always complete");
                    assert!(read == old || read == new, "{read:?}");
                }
            }
            assert_eq!(decode(&file).unwrap().record, Some(new));
        }
    }

    #[test]
    fn stores_that_reach_the_file_in_any_order_leave_a_complete_record() {
        let (old, new) = (record(1, b"the old profile"), record(2, b"the new profile"));
        let stores = record_stores(&new, HALF);
        for subset in 0..8_usize {
            let mut file = new_file();
            write(&mut file, &old);
            for index in (0..3).filter(|index| subset >> index & 1 != 0) {
                apply(&mut file, &stores[index], stores[index].bytes.len());
            }
            let read = decode(&file).unwrap().record.expect("a record is always complete");
            assert!(read == old || (read == new && subset >= 6), "{subset:b}: {read:?}");
        }
    }

    #[test]
    fn a_flipped_bit_is_detected_wherever_it_is() {
        let mut file = new_file();
        let (first, second) = (record(1, b"the first profile"), record(2, b"the second profile"));
        write(&mut file, &first);
        write(&mut file, &second);
        let used = |offset: usize| (offset, offset + RECORD_BYTES + 32);
        let (second_at, first_at) = (used(PAGE_BYTES), used(PAGE_BYTES + HALF as usize));
        for (from, to) in [(0, PAGE_BYTES), second_at, first_at] {
            for bit in 8 * from..8 * to {
                file[bit / 8] ^= 1 << (bit % 8);
                match decode(&file) {
                    Ok(content) => {
                        let read = content.record.expect("the other half is intact");
                        assert!(from > 0 && (read == first || read == second), "bit {bit}: {read:?}");
                    }
                    Err(_) => assert_eq!(from, 0, "bit {bit}"),
                }
                file[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_long_service_name_is_truncated_between_characters() {
        let long = PeakProcess { service_name: "é".repeat(600), ..process() };
        assert_eq!(decode_process(&header_page(&long, HALF)).unwrap().service_name, "é".repeat(512));
    }
}
