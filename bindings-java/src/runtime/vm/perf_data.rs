//! Finds entries in the VM's performance data, the memory that `jstat` reads (`-XX:+UsePerfData`, on by default). Not for
//! signal handlers.
//!
//! Upstream: `hotspot/share/runtime/perfMemory.hpp`, JDK 8 to 25: a prologue, then entries of varying length, each with its
//! name and its value. Entries are never moved. The memory is unmapped when the VM ends, so all reads are guarded.

use super::memory::{int, pointer, word};
use super::structs::VmStructs;

/// Upper bounds of the number of entries and of the bytes of a text.
const MAX_ENTRIES: usize = 10_000;
const MAX_TEXT_BYTES: usize = 128;

/// Addresses of values by name.
pub struct PerfData {
    values: Vec<(String, usize)>,
}

impl PerfData {
    /// The entries that exist now; `None` without performance data.
    pub fn read(structures: &VmStructs) -> Option<Self> {
        let start = pointer(structures.address("PerfMemory", "_start").ok()?)?;
        let prologue = |field: &str| int(start + structures.offset("PerfDataPrologue", field).ok()?);
        let [length_at, name_at, data_at] =
            ["entry_length", "name_offset", "data_offset"].map(|field| structures.offset("PerfDataEntry", field).ok());
        let (length_at, name_at, data_at) = (length_at?, name_at?, data_at?);
        let count = (prologue("num_entries")?.max(0) as usize).min(MAX_ENTRIES);
        let mut entry = start + prologue("entry_offset")?.max(0) as usize;
        let mut values = Vec::new();
        for _ in 0..count {
            let length = int(entry + length_at).filter(|length| *length > 0)?;
            let (name, data) = (int(entry + name_at)?.max(0) as usize, int(entry + data_at)?.max(0) as usize);
            values.push((text(entry + name), entry + data));
            entry += length as usize;
        }
        Some(Self { values })
    }

    /// The address of a value.
    pub fn address(&self, name: &str) -> Option<usize> {
        self.values.iter().find(|(other, _)| other == name).map(|(_, address)| *address)
    }
}

/// The text at an address, up to its NUL; empty if the address is unmapped.
pub fn text(address: usize) -> String {
    let words = (0..MAX_TEXT_BYTES).step_by(8).map_while(|at| word(address + at));
    let bytes = words.flat_map(usize::to_ne_bytes).take_while(|letter| *letter != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}
