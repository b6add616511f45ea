//! What identifies a loaded file to receivers that name its functions later: build ids, and the addresses of its code in the file; and
//! where a function begins by the unwind table, which a stripped file has too. Normal threads only.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::read::ReadCache;
use sha2::{Digest, Sha256};

use super::elf_file::{CodeSegment, ElfFile};
use super::exported_symbols::read_u32;
use super::file_symbols::is_file_of;
use super::object_history::LoadedObject;

/// Bytes at each end of a file in its hash.
const HASHED_BYTES: u64 = 4096;
/// Encodings of `.eh_frame_hdr` version 1 with a sorted table of offsets (LSB core specification, "DWARF Extensions"):
/// `DW_EH_PE_pcrel|sdata4`, `DW_EH_PE_udata4`, `DW_EH_PE_datarel|sdata4`. All linkers write these.
const UNWIND_INDEX: u32 = u32::from_le_bytes([1, 0x1b, 0x03, 0x3b]);
const MAX_UNWIND_ENTRIES: u32 = 1 << 24;

/// The file of a loaded object. Addresses in a file are those of its symbols, which are equal in all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFile {
    /// The segments with code.
    pub code: Vec<CodeSegment>,
    /// `process.executable.build_id.gnu`: hex digits; `None` where the linker wrote none.
    pub build_id: Option<String>,
    /// `process.executable.build_id.htlhash`: hex digits.
    pub htlhash: String,
    /// Address in the file of the object's first byte.
    first: u64,
    /// Address in the file of the index of the unwind table.
    unwind_index: Option<u64>,
}

impl ObjectFile {
    /// Reads headers and 8 KiB. `None` if the file cannot be read, or is another one than that of the object.
    pub fn read(object: &LoadedObject) -> Option<Self> {
        if !is_file_of(object) {
            return None;
        }
        let file = File::open(&object.path).ok()?;
        let cache = ReadCache::new(&file);
        let elf = ElfFile::parse(&cache)?;
        Some(Self {
            code: elf.code_segments(),
            build_id: elf.build_id(),
            htlhash: htlhash(&file)?,
            first: elf.first_address(),
            unwind_index: elf.unwind_index(),
        })
    }

    /// The address in the file of `pc` in an object that is loaded at `base`.
    pub fn address(&self, base: u64, pc: u64) -> u64 {
        pc.wrapping_sub(base).wrapping_add(self.first)
    }

    /// Where the function of `pc` begins in memory, in an object that is loaded at `base`; `None` where the unwind table has none.
    pub fn function_start(&self, base: u64, pc: u64) -> Option<u64> {
        let index = base.wrapping_add(self.unwind_index?.wrapping_sub(self.first));
        let word = |address: u64| read_u32(address as usize);
        let offset = |address: u64| Some(word(address)? as i32 as i64 as u64);
        if word(index)? != UNWIND_INDEX {
            return None;
        }
        let entry = |number: u32| index.wrapping_add(12 + u64::from(number) * 8);
        let start = |number: u32| Some(index.wrapping_add(offset(entry(number))?));
        let (mut low, mut high) = (0, word(index.wrapping_add(8))?.min(MAX_UNWIND_ENTRIES));
        while low < high {
            let middle = low + (high - low) / 2;
            if start(middle)? <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let number = low.checked_sub(1)?;
        let start = start(number)?;
        // The entry of the function: its length and that of its header, then where it begins and how long it is.
        let entry = index.wrapping_add(offset(entry(number).wrapping_add(4))?).wrapping_add(8);
        let is_of_function = entry.wrapping_add(offset(entry)?) == start;
        (is_of_function && pc.wrapping_sub(start) < u64::from(word(entry.wrapping_add(4))?)).then_some(start)
    }
}

/// The hash by which OpenTelemetry's eBPF profiler identifies files (`process.executable.build_id.htlhash`, semantic conventions
/// 1.44): SHA-256 of head, tail and length, cut to 16 bytes.
fn htlhash(file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    let mut hash = Sha256::new();
    let mut bytes = [0; HASHED_BYTES as usize];
    let bytes = bytes.get_mut(..length.min(HASHED_BYTES) as usize)?;
    for offset in [0, length - bytes.len() as u64] {
        file.read_exact_at(bytes, offset).ok()?;
        hash.update(&*bytes);
    }
    hash.update(length.to_be_bytes());
    Some(hex::encode(hash.finalize().get(..16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::file_symbols::FileSymbols;
    use crate::symbols::loaded_object::native_object;

    fn object_and_file(pc: u64) -> (LoadedObject, ObjectFile) {
        let object = native_object(pc, 0).expect("an object").object(pc);
        let file = ObjectFile::read(&object).expect("its file");
        (object, file)
    }

    #[test]
    fn a_function_begins_where_its_symbol_does_in_the_program_and_in_libraries() {
        for start in [htlhash as *const () as u64, libc::getenv as *const () as u64] {
            let (object, file) = object_and_file(start);
            let function = FileSymbols::default().function(&object, start + 4).expect("a symbol");
            assert_eq!((function.start, file.function_start(object.base, start + 4)), (start, Some(start)));
        }
        let (object, file) = object_and_file(libc::getenv as *const () as u64);
        assert_eq!([object.base, 16].map(|pc| file.function_start(object.base, pc)), [None, None]);
    }

    #[test]
    fn an_address_in_the_file_is_in_a_segment_and_leads_to_the_code_in_the_file() {
        for pc in [htlhash as *const () as u64, libc::getenv as *const () as u64] {
            let (object, file) = object_and_file(pc);
            let address = file.address(object.base, pc);
            let segment = file.code.iter().find(|segment| segment.addresses.contains(&address)).expect("a segment");
            let mut in_file = [0; 16];
            let offset = address - segment.addresses.start + segment.file_offset;
            File::open(&object.path).unwrap().read_exact_at(&mut in_file, offset).unwrap();
            // SAFETY: code of a loaded object that is never unloaded, at least 16 bytes long.
            let in_memory = unsafe { std::slice::from_raw_parts(pc as *const u8, 16) };
            assert_eq!(in_file, in_memory);
        }
    }

    #[test]
    fn the_hash_of_a_file_is_that_of_the_ebpf_profiler() {
        let path = std::env::temp_dir().join(format!("spanprof-htlhash-{}", std::process::id()));
        let hash_of = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            htlhash(&File::open(&path).unwrap()).unwrap()
        };
        // Computed with another implementation of libpf/fileid.go at 2026-08.
        assert_eq!(hash_of(b"short"), "44a7e1d2bd59d26f377a8dd07d0461ac");
        assert_eq!(
            hash_of(&(0..10_000).map(|n| (n % 251) as u8).collect::<Vec<_>>()),
            "29e3194e821b97b5565d43a5156ad97a"
        );
        assert_eq!(hash_of(b""), "af5570f5a1810b7af78caf4bc70a660f");
        std::fs::remove_file(path).unwrap();
    }
}
