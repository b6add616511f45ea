//! The functions that a loaded object exports, sorted by address. The dynamic linker's own search looks at every name for
//! every address, which takes a millisecond in a large program. Read through guarded loads. Made by `process`, on normal
//! threads, for the main program, which is never unloaded.

use spanprof_signal::guarded;

const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const MAX_DYNAMIC: usize = 256;
const MAX_HEADERS: u64 = 256;
const SYMBOL_BYTES: usize = 24;
/// Kinds of symbols: no type, function, function chosen at load time.
const CODE_KINDS: [u8; 3] = [0, 2, 10];
const MAX_SYMBOLS: usize = 1 << 22;
const MAX_NAME_BYTES: usize = 4096;
/// Functions that begin before the nearest one and still reach an address are rare, and close.
const NESTED: usize = 8;

/// One function, by offsets from where the object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub start: u32,
    pub len: u32,
    /// Offset in the table of names.
    pub name: u32,
}

impl Function {
    /// `None` for symbols of other kinds, of other objects, and without a length.
    pub fn of(kind: u8, section: u16, start: u64, len: u64, name: u32) -> Option<Self> {
        let (start, len) = (u32::try_from(start).ok()?, u32::try_from(len).ok()?);
        (CODE_KINDS.contains(&kind) && section != 0 && len != 0).then_some(Self { start, len, name })
    }

    /// By address. Of several names for one place the first is as good as any.
    pub fn sort(functions: &mut Vec<Self>) {
        functions.sort_unstable_by_key(|function| (function.start, function.len));
        functions.dedup_by_key(|function| (function.start, function.len));
        functions.shrink_to_fit();
    }

    /// The last to begin before `at` that reaches it, as the linker finds it.
    pub fn holding(functions: &[Self], at: u32) -> Option<Self> {
        let after = functions.partition_point(|function| function.start <= at);
        let before = functions.get(after.saturating_sub(NESTED)..after)?;
        before.iter().rev().find(|function| at - function.start < function.len).copied()
    }
}

/// The names of one loaded object.
pub(super) struct ObjectSymbols {
    /// What is added to the file's addresses.
    bias: usize,
    /// Where it lies in memory: first address and length.
    segments: Vec<(usize, usize)>,
    functions: Vec<Function>,
    names: usize,
    names_bytes: usize,
}

/// A loaded object, by its program headers.
struct Object {
    bias: usize,
    segments: Vec<(usize, usize)>,
    dynamic: Option<usize>,
}

impl Object {
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

    /// The main program, from what the kernel gave it. The linker is not asked: it would take a lock that a forked child may
    /// inherit held (`dl_iterate_phdr` in glibc 2.36).
    fn program() -> Option<Self> {
        // SAFETY: getauxval reads the kernel's vector; 0 when it does not say.
        let (address, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
        if address == 0 || count > MAX_HEADERS {
            return None;
        }
        // SAFETY: the program's own headers, in memory that is never unmapped, as many as the kernel says.
        let headers = unsafe { std::slice::from_raw_parts(address as *const libc::Elf64_Phdr, count as usize) };
        let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR)?;
        Some(Self::new((address as usize).wrapping_sub(own.p_vaddr as usize), headers))
    }
}

impl Object {
    fn symbols(self) -> Option<ObjectSymbols> {
        let entries = (0..MAX_DYNAMIC).map_while(|at| {
            let place = self.dynamic?.wrapping_add(at * 16);
            Some((guarded::read_u64(place)?, guarded::read_u64(place.wrapping_add(8))? as usize))
        });
        let entries: Vec<(u64, usize)> = entries.take_while(|(tag, _)| *tag != 0).collect();
        let value = |wanted: u64| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
        // Some linkers leave addresses as they are in the file.
        let address = |tag| value(tag).map(|value| if value < self.bias { value + self.bias } else { value });
        let count = match address(DT_HASH) {
            Some(table) => read_u32(table.wrapping_add(4))? as usize,
            None => count_by_gnu_hash(address(DT_GNU_HASH)?)?,
        };
        let functions = functions(address(DT_SYMTAB)?, count)?;
        let (names, names_bytes) = (address(DT_STRTAB)?, value(DT_STRSZ)?);
        Some(ObjectSymbols { bias: self.bias, segments: self.segments, functions, names, names_bytes })
    }
}

impl ObjectSymbols {
    /// Those of the main program; `None` when they cannot be read.
    pub fn of_program() -> Option<Self> {
        Object::program()?.symbols()
    }

    /// Whether an address lies in this object.
    pub fn holds(&self, pc: usize) -> bool {
        self.segments.iter().any(|(start, len)| pc.wrapping_sub(*start) < *len)
    }

    /// The name of the function that holds `pc`.
    pub fn name(&self, pc: usize) -> Option<String> {
        let at = u32::try_from(pc.checked_sub(self.bias)?).ok()?;
        let name = Function::holding(&self.functions, at)?.name as usize;
        let most = self.names_bytes.checked_sub(name)?.min(MAX_NAME_BYTES);
        text(self.names.wrapping_add(name), most)
    }
}

/// The functions among so many symbols.
fn functions(table: usize, count: usize) -> Option<Vec<Function>> {
    const AT_ONCE: usize = 1024;
    let mut functions = Vec::new();
    for first in (0..count.min(MAX_SYMBOLS)).step_by(AT_ONCE) {
        let bytes = read(table.wrapping_add(first * SYMBOL_BYTES), AT_ONCE.min(count - first) * SYMBOL_BYTES)?;
        functions.extend(bytes.chunks_exact(SYMBOL_BYTES).filter_map(function));
    }
    Function::sort(&mut functions);
    Some(functions)
}

fn function(symbol: &[u8]) -> Option<Function> {
    let word = |at: usize| symbol.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok();
    let (kind, section) = (symbol.get(4)? & 15, u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]));
    let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
    Function::of(kind, section, word(8)?, word(16)?, name)
}

/// How many symbols there are, which this kind of table does not say: the last chain ends with the last symbol.
fn count_by_gnu_hash(table: usize) -> Option<usize> {
    let [buckets, first, bloom] = [0, 4, 8].map(|at| read_u32(table.wrapping_add(at)));
    let (buckets, first, bloom) = (buckets? as usize, first? as usize, bloom? as usize);
    if buckets.max(bloom) > MAX_SYMBOLS {
        return None;
    }
    let place = table.wrapping_add(16 + bloom * 8);
    let heads = read(place, buckets * 4)?;
    let heads = heads.as_chunks::<4>().0.iter().map(|head| u32::from_le_bytes(*head) as usize);
    let Some(mut last) = heads.max().filter(|head| *head >= first) else { return Some(first) };
    let chains = place.wrapping_add(buckets * 4);
    while read_u32(chains.wrapping_add((last - first) * 4))? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

fn read(address: usize, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: the destination is ours and that long; the source may be anything.
    unsafe { guarded::copy(bytes.as_mut_ptr(), address, len) }.then_some(bytes)
}

fn read_u32(address: usize) -> Option<u32> {
    guarded::read_u64(address & !7).map(|word| (word >> (address % 8 * 8)) as u32)
}

/// A text that ends within `most` bytes.
fn text(address: usize, most: usize) -> Option<String> {
    const AT_ONCE: usize = 64;
    let mut bytes = Vec::new();
    while bytes.len() < most {
        let part = read(address.wrapping_add(bytes.len()), AT_ONCE.min(most - bytes.len()))?;
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
    use crate::sys::process::tests::name_by_linker;

    /// Those that hold `place`.
    fn symbols_around(place: usize) -> Option<ObjectSymbols> {
        unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _size: usize, objects: *mut c_void) -> c_int {
            // SAFETY: the linker lends its description and headers; the vector is the caller's, which waits.
            let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Object>>()) };
            // SAFETY: as above.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
            objects.push(Object::new(info.dlpi_addr as usize, headers));
            0
        }
        let mut objects: Vec<Object> = Vec::new();
        // SAFETY: the callback gets the vector back while this call lasts.
        unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut objects).cast()) };
        let holds = |object: &Object| object.segments.iter().any(|(start, len)| place.wrapping_sub(*start) < *len);
        objects.into_iter().find(holds)?.symbols()
    }

    #[test]
    fn functions_of_a_library_have_the_names_that_the_linker_finds() {
        let place = libc::getenv as *const () as usize;
        let symbols = symbols_around(place).expect("the C library");
        assert!(symbols.functions.len() > 1000, "{}", symbols.functions.len());
        // Where two names stand for one place, either will do; and what was chosen at load time has no name of its own.
        let mut same = 0;
        let step = symbols.functions.len() / 200;
        for function in symbols.functions.iter().step_by(step) {
            let pc = symbols.bias + function.start as usize + function.len as usize / 2;
            let found = symbols.name(pc).expect("it is in there");
            same += usize::from(name_by_linker(pc as u64) == Some(found));
        }
        assert!(same > 100, "{same} of 200");
        assert!(symbols.holds(place) && !symbols.holds(16));
        assert_eq!(symbols.name(16), None);
    }

    #[test]
    fn the_program_lies_where_the_linker_says() {
        let place = symbols_around as *const () as usize;
        let (own, linkers) = (Object::program().unwrap(), symbols_around(place).unwrap());
        assert_eq!((own.bias, own.segments), (linkers.bias, linkers.segments));
    }

    #[test]
    fn the_innermost_function_that_reaches_an_address_names_it() {
        let names = b"\0outer\0inner\0".to_vec();
        let outer = Function { start: 100, len: 50, name: 1 };
        let inner = Function { start: 110, len: 5, name: 7 };
        let symbols = ObjectSymbols {
            bias: 0x1000,
            segments: vec![(0x1000, 4096)],
            functions: vec![outer, inner],
            names: names.as_ptr() as usize,
            names_bytes: names.len(),
        };
        let named = |at: usize| symbols.name(0x1000 + at);
        assert_eq!([named(99), named(150), named(115)], [None, None, Some("outer".to_owned())]);
        assert_eq!([named(100), named(114)], [Some("outer".to_owned()), Some("inner".to_owned())]);
    }
}
