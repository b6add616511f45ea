//! The functions that the main program exports, sorted by address. The dynamic linker's own lookup searches all names
//! for every address, which takes 1 ms in a large program. Read through guarded loads. Used by `process`, on normal
//! threads; the main program is never unloaded.

use spanprof_signal::guarded;

const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const MAX_DYNAMIC: usize = 256;
const MAX_HEADERS: u64 = 256;
const SYMBOL_BYTES: usize = 24;
const FILE_HEADER_BYTES: u64 = 64;
/// ELF symbol types of code: STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC.
const CODE_SYMBOL_TYPES: [u8; 3] = [0, 2, 10];
const MAX_SYMBOLS: usize = 1 << 22;
const MAX_NAME_BYTES: usize = 4096;
/// Functions that begin before the nearest one and still contain an address are rare, and close to it.
const MAX_NESTED_RANGES: usize = 8;

/// The address range of one function, relative to the object's load address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymbolRange {
    pub start: u32,
    pub len: u32,
    /// Offset in the string table.
    pub name: u32,
}

impl SymbolRange {
    /// `None` for other symbol types, undefined symbols, and symbols without a length.
    pub fn of(kind: u8, section: u16, start: u64, len: u64, name: u32) -> Option<Self> {
        let (start, len) = (u32::try_from(start).ok()?, u32::try_from(len).ok()?);
        (CODE_SYMBOL_TYPES.contains(&kind) && section != 0 && len != 0).then_some(Self { start, len, name })
    }

    /// Sorts by address. Of several names for one range the first is kept.
    pub fn sort(ranges: &mut Vec<Self>) {
        ranges.sort_unstable_by_key(|range| (range.start, range.len));
        ranges.dedup_by_key(|range| (range.start, range.len));
        ranges.shrink_to_fit();
    }

    /// The last range to begin before `offset` that contains it, as the linker selects it. The nearest function is not enough:
    /// code without a symbol, such as a PLT, lies between functions.
    pub fn containing(ranges: &[Self], offset: u32) -> Option<Self> {
        let after = ranges.partition_point(|range| range.start <= offset);
        let before = ranges.get(after.saturating_sub(MAX_NESTED_RANGES)..after)?;
        before.iter().rev().find(|range| offset - range.start < range.len).copied()
    }
}

/// The exported symbols of one loaded object.
pub(crate) struct ExportedSymbols {
    /// Load bias: added to the addresses of the file.
    bias: usize,
    /// Loaded segments: first address and length.
    segments: Vec<(usize, usize)>,
    ranges: Vec<SymbolRange>,
    names: usize,
    names_bytes: usize,
}

/// A loaded object, by its program headers.
struct LoadedElf {
    bias: usize,
    segments: Vec<(usize, usize)>,
    dynamic: Option<usize>,
}

impl LoadedElf {
    fn new(bias: usize, headers: &[libc::Elf64_Phdr]) -> Self {
        let mut object = Self { bias, segments: Vec::new(), dynamic: None };
        for header in headers {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                libc::PT_LOAD => object.segments.push((start, header.p_memsz as usize)),
                libc::PT_DYNAMIC => object.dynamic = Some(start),
                _ => {}
            }
        }
        object
    }

    /// The main program, by the kernel's auxiliary vector. The linker is not queried: its lock may be held by the
    /// parent at a fork (`dl_iterate_phdr` in glibc 2.36).
    fn program() -> Option<Self> {
        // SAFETY: getauxval reads the auxiliary vector; returns 0 for missing entries.
        let (address, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
        if address == 0 || count > MAX_HEADERS {
            return None;
        }
        // SAFETY: the program's own headers, never unmapped, with the count from the kernel.
        let headers = unsafe { std::slice::from_raw_parts(address as *const libc::Elf64_Phdr, count as usize) };
        // Static programs of some linkers have no header of the headers, which follow that of the file.
        let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR).map(|own| own.p_vaddr);
        let at = own.or_else(|| {
            Some(headers.iter().find(|header| header.p_type == libc::PT_LOAD)?.p_vaddr + FILE_HEADER_BYTES)
        })?;
        Some(Self::new((address as usize).wrapping_sub(at as usize), headers))
    }
}

impl LoadedElf {
    fn symbols(self) -> Option<ExportedSymbols> {
        let entries = (0..MAX_DYNAMIC).map_while(|index| {
            let address = self.dynamic?.wrapping_add(index * 16);
            Some((guarded::read_u64(address)?, guarded::read_u64(address.wrapping_add(8))? as usize))
        });
        let entries: Vec<(u64, usize)> = entries.take_while(|(tag, _)| *tag != 0).collect();
        let value = |wanted: u64| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
        // Some linkers do not relocate the addresses in the dynamic section.
        let address = |tag| value(tag).map(|value| if value < self.bias { value + self.bias } else { value });
        let count = match (address(DT_HASH), address(DT_GNU_HASH)) {
            (Some(table), _) => read_u32(table.wrapping_add(4))? as usize,
            (None, Some(table)) => count_by_gnu_hash(table)?,
            // A static program exports nothing.
            (None, None) => 0,
        };
        let ranges = if count == 0 { Vec::new() } else { ranges(address(DT_SYMTAB)?, count)? };
        let (names, names_bytes) = (address(DT_STRTAB).unwrap_or(0), value(DT_STRSZ).unwrap_or(0));
        Some(ExportedSymbols { bias: self.bias, segments: self.segments, ranges, names, names_bytes })
    }
}

impl ExportedSymbols {
    /// The exported symbols of the main program; `None` when unreadable.
    pub fn of_program() -> Option<Self> {
        LoadedElf::program()?.symbols()
    }

    /// The address of its first byte.
    pub fn start(&self) -> Option<usize> {
        self.segments.iter().map(|(start, _)| start & !4095).min()
    }

    /// Whether an address lies in this object.
    pub fn contains(&self, pc: usize) -> bool {
        self.segments.iter().any(|(start, len)| pc.wrapping_sub(*start) < *len)
    }

    /// The name of the function that contains `pc`.
    pub fn name(&self, pc: usize) -> Option<String> {
        let offset = u32::try_from(pc.checked_sub(self.bias)?).ok()?;
        let name = SymbolRange::containing(&self.ranges, offset)?.name as usize;
        let max_bytes = self.names_bytes.checked_sub(name)?.min(MAX_NAME_BYTES);
        text(self.names.wrapping_add(name), max_bytes)
    }
}

/// The function ranges among `count` symbols.
fn ranges(table: usize, count: usize) -> Option<Vec<SymbolRange>> {
    const CHUNK: usize = 1024;
    let mut ranges = Vec::new();
    for first in (0..count.min(MAX_SYMBOLS)).step_by(CHUNK) {
        let bytes = read(table.wrapping_add(first * SYMBOL_BYTES), CHUNK.min(count - first) * SYMBOL_BYTES)?;
        ranges.extend(bytes.chunks_exact(SYMBOL_BYTES).filter_map(range));
    }
    SymbolRange::sort(&mut ranges);
    Some(ranges)
}

fn range(symbol: &[u8]) -> Option<SymbolRange> {
    let word = |field: usize| symbol.get(field..field + 8)?.try_into().map(u64::from_le_bytes).ok();
    let (kind, section) = (symbol.get(4)? & 15, u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]));
    let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
    SymbolRange::of(kind, section, word(8)?, word(16)?, name)
}

/// The number of symbols, which DT_GNU_HASH does not store: the last chain ends with the last symbol.
fn count_by_gnu_hash(table: usize) -> Option<usize> {
    let [buckets, first, bloom] = [0, 4, 8].map(|field| read_u32(table.wrapping_add(field)));
    let (buckets, first, bloom) = (buckets? as usize, first? as usize, bloom? as usize);
    if buckets.max(bloom) > MAX_SYMBOLS {
        return None;
    }
    let address = table.wrapping_add(16 + bloom * 8);
    let heads = read(address, buckets * 4)?;
    let heads = heads.as_chunks::<4>().0.iter().map(|head| u32::from_le_bytes(*head) as usize);
    let Some(mut last) = heads.max().filter(|head| *head >= first) else { return Some(first) };
    let chains = address.wrapping_add(buckets * 4);
    while read_u32(chains.wrapping_add((last - first) * 4))? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

fn read(address: usize, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: the destination is a local vector of `len` bytes; the guarded source may be any address.
    unsafe { guarded::copy(bytes.as_mut_ptr(), address, len) }.then_some(bytes)
}

pub(super) fn read_u32(address: usize) -> Option<u32> {
    guarded::read_u64(address & !7).map(|word| (word >> (address % 8 * 8)) as u32)
}

/// A NUL-terminated string of at most `max_bytes` bytes.
fn text(address: usize, max_bytes: usize) -> Option<String> {
    const CHUNK: usize = 64;
    let mut bytes = Vec::new();
    while bytes.len() < max_bytes {
        let part = read(address.wrapping_add(bytes.len()), CHUNK.min(max_bytes - bytes.len()))?;
        match part.iter().position(|byte| *byte == 0) {
            Some(end) => {
                bytes.extend_from_slice(part.get(..end)?);
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            None => bytes.extend(part),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};

    use super::*;
    use crate::symbols::loaded_object::tests::name_by_linker;

    /// The symbols of the object that contains `address`.
    fn symbols_around(address: usize) -> Option<ExportedSymbols> {
        unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _size: usize, objects: *mut c_void) -> c_int {
            // SAFETY: the linker lends its description and headers; the vector belongs to the caller, which waits.
            let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<LoadedElf>>()) };
            // SAFETY: the linker's description has `dlpi_phnum` headers at `dlpi_phdr`, valid during this callback.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
            objects.push(LoadedElf::new(info.dlpi_addr as usize, headers));
            0
        }
        let mut objects: Vec<LoadedElf> = Vec::new();
        // SAFETY: the callback uses the vector only during this call.
        unsafe { crate::fork_exclusion::iterate_loaded_objects(take, &mut objects) };
        let contains =
            |object: &LoadedElf| object.segments.iter().any(|(start, len)| address.wrapping_sub(*start) < *len);
        objects.into_iter().find(contains)?.symbols()
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn symbols_of_a_library_are_those_that_the_linker_finds() {
        let address = libc::getenv as *const () as usize;
        let symbols = symbols_around(address).expect("the C library");
        assert!(symbols.ranges.len() > 1000, "{}", symbols.ranges.len());
        // Two names may have the same range; IFUNC targets have no name of their own.
        let mut same = 0;
        let step = symbols.ranges.len() / 200;
        for range in symbols.ranges.iter().step_by(step) {
            let pc = symbols.bias + range.start as usize + range.len as usize / 2;
            let name = symbols.name(pc).expect("the library contains it");
            same += usize::from(name_by_linker(pc as u64) == Some(name));
        }
        assert!(same > 100, "{same} of 200");
        assert!(symbols.contains(address) && !symbols.contains(16));
        assert_eq!(symbols.name(16), None);
    }

    #[test]
    fn a_static_program_contains_its_code_and_exports_nothing() {
        let static_program = LoadedElf { bias: 0, segments: vec![(0x10_0040, 0x1000)], dynamic: None };
        let symbols = static_program.symbols().expect("symbols");
        assert!(symbols.contains(0x10_0800) && !symbols.contains(0x10_1040));
        assert_eq!((symbols.start(), symbols.name(0x10_0800)), (Some(0x10_0000), None));
    }

    #[test]
    fn the_load_address_of_the_program_is_that_of_the_linker() {
        let address = symbols_around as *const () as usize;
        let (own, by_linker) = (LoadedElf::program().unwrap(), symbols_around(address).unwrap());
        assert_eq!((own.bias, own.segments), (by_linker.bias, by_linker.segments));
    }

    #[test]
    fn the_innermost_range_that_contains_an_address_names_it() {
        let names = b"\0outer\0inner\0".to_vec();
        let outer = SymbolRange { start: 100, len: 50, name: 1 };
        let inner = SymbolRange { start: 110, len: 5, name: 7 };
        let symbols = ExportedSymbols {
            bias: 0x1000,
            segments: vec![(0x1000, 4096)],
            ranges: vec![outer, inner],
            names: names.as_ptr() as usize,
            names_bytes: names.len(),
        };
        let named = |offset: usize| symbols.name(0x1000 + offset);
        assert_eq!([named(99), named(150), named(115)], [None, None, Some("outer".to_owned())]);
        assert_eq!([named(100), named(114)], [Some("outer".to_owned()), Some("inner".to_owned())]);
    }
}
