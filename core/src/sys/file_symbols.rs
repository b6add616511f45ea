//! Functions that a loaded object does not export, by the symbol table of its file: `.symtab`, or the one that distributions
//! pack into `.gnu_debugdata` (GDB manual, "MiniDebugInfo"). Only addresses are kept; names are read from the file when a
//! sample needs them. Owned by the drain thread, without a lock: one that is held while the process forks would be held in
//! the child for ever. Not here: which object holds an address (`process`).

use std::collections::HashMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use lzma_rust2::XzReader;
use object::elf::{FileHeader64, PT_LOAD, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::ReadCache;
use object::{Endianness, ReadRef};

use super::exported::Function;
use super::process::LoadedObject;
use spanprof_signal::guarded;

/// Addresses of all objects together: libjvm has 60,000 functions, which take 0.7 MB.
const MAX_TABLE_BYTES: usize = 4 << 20;
/// An unpacked `.gnu_debugdata`; that of a C library is 0.3 MB.
const MAX_UNPACKED_BYTES: u64 = 16 << 20;
const MAX_OBJECTS: usize = 256;
/// Names kept per object.
const MAX_NAMES: usize = 8192;
/// Stands for the length of a function that has none, until the next function is known: longer than any.
const NO_LENGTH: u64 = u32::MAX as u64;
/// A function without a length reaches to the next one, and no further than this.
const MOST_WITHOUT_LENGTH: u32 = 4096;
const SYMBOL_BYTES: usize = 24;
const PIECE_SYMBOLS: usize = 2048;
const MAX_NAME_BYTES: usize = 4096;
/// The first page holds the headers and, as linkers lay files out, the build id.
const HEAD_BYTES: usize = 4096;

/// See the head of the module.
#[derive(Default)]
pub struct FileSymbols {
    /// By where the object lies in memory.
    objects: HashMap<u64, Object>,
    /// Counts look-ups, to find the object that was used longest ago.
    now: u64,
}

struct Object {
    table: Option<Table>,
    /// Of the object's first page in memory: another object there has another.
    head: u64,
    /// Whether the page was compared since libraries may have been unloaded.
    is_verified: bool,
    used: u64,
}

/// The functions of one file.
struct Table {
    functions: Vec<Function>,
    strings: Strings,
    names: HashMap<u32, Option<Arc<str>>>,
}

/// Where the names are.
enum Strings {
    /// In the file, from an offset on.
    InFile(u64),
    /// Unpacked.
    Held(Vec<u8>),
}

impl FileSymbols {
    /// The name of the function at an address of an object, as the compiler wrote it.
    pub fn name(&mut self, object: &LoadedObject, pc: u64) -> Option<Arc<str>> {
        self.now += 1;
        let now = self.now;
        if self.objects.get(&object.base).is_some_and(|known| !known.is_verified) {
            let head = head_in_memory(object.base);
            let known = self.objects.get_mut(&object.base).filter(|known| head == Some(known.head));
            match known {
                Some(known) => known.is_verified = true,
                None => drop(self.objects.remove(&object.base)),
            }
        }
        if !self.objects.contains_key(&object.base) {
            let head = head_in_memory(object.base)?;
            let table = Table::read(&object.path, object.base);
            self.make_room(table.as_ref().map_or(0, Table::bytes));
            self.objects.insert(object.base, Object { table, head, is_verified: true, used: now });
        }
        let known = self.objects.get_mut(&object.base)?;
        known.used = now;
        known.table.as_mut()?.name(&object.path, u32::try_from(pc.checked_sub(object.base)?).ok()?)
    }

    /// Libraries may have been unloaded, and others lie in their place.
    pub fn verify_again(&mut self) {
        self.objects.values_mut().for_each(|object| object.is_verified = false);
    }

    fn make_room(&mut self, bytes: usize) {
        let taken = |objects: &HashMap<u64, Object>| -> usize {
            objects.values().filter_map(|object| object.table.as_ref()).map(Table::bytes).sum()
        };
        while self.objects.len() >= MAX_OBJECTS || taken(&self.objects) + bytes > MAX_TABLE_BYTES {
            let oldest = self.objects.iter().min_by_key(|(_, object)| object.used).map(|(base, _)| *base);
            let Some(oldest) = oldest else { return };
            self.objects.remove(&oldest);
        }
    }
}

impl Table {
    /// `None` when the file has no table, is too large, or is not the one that is loaded at `base`.
    fn read(path: &Path, base: u64) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut head = [0; HEAD_BYTES];
        let len = file.read_at(&mut head, 0).ok()?;
        if Some(hash_of(head.get(..len)?)) != hash_in_memory(base, len) {
            return None;
        }
        Self::of_file(&file)
    }

    fn of_file(file: &File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let first = first_address(header, endian, &cache)?;
        if let Some((functions, strings)) =
            functions(header, endian, &cache, first, |offset, piece| file.read_exact_at(piece, offset).ok())
        {
            return Some(Self::new(functions, Strings::InFile(strings.0)));
        }
        let sections = header.sections(endian, &cache).ok()?;
        let (_, packed) = sections.section_by_name(endian, b".gnu_debugdata")?;
        let unpacked = unpack(packed.data(endian, &cache).ok()?)?;
        let data = &*unpacked;
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let copy = |offset: u64, piece: &mut [u8]| {
            piece.copy_from_slice(data.get(usize::try_from(offset).ok()?..)?.get(..piece.len())?);
            Some(())
        };
        let (functions, strings) = functions(header, header.endian().ok()?, data, first, copy)?;
        let held = data.get(strings.0 as usize..)?.get(..strings.1 as usize)?.to_vec();
        Some(Self::new(functions, Strings::Held(held)))
    }

    fn new(functions: Vec<Function>, strings: Strings) -> Self {
        Self { functions, strings, names: HashMap::new() }
    }

    fn bytes(&self) -> usize {
        let held = if let Strings::Held(strings) = &self.strings { strings.len() } else { 0 };
        self.functions.len() * size_of::<Function>() + held
    }

    fn name(&mut self, path: &Path, at: u32) -> Option<Arc<str>> {
        let name = Function::holding(&self.functions, at)?.name;
        if let Some(known) = self.names.get(&name) {
            return known.clone();
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        let read = self.read_name(path, name).map(Arc::from);
        self.names.insert(name, read.clone());
        read
    }

    fn read_name(&self, path: &Path, name: u32) -> Option<String> {
        let mut bytes = [0; MAX_NAME_BYTES];
        let bytes = match &self.strings {
            // Not kept open: programs close descriptors that they do not know, and take them for their own.
            Strings::InFile(offset) => {
                let read = File::open(path).ok()?.read_at(&mut bytes, offset + u64::from(name)).ok()?;
                bytes.get(..read)?
            }
            Strings::Held(strings) => strings.get(name as usize..)?,
        };
        let end = bytes.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0).filter(|end| *end > 0)?;
        Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
    }
}

/// The page on which an object's first segment begins, as the file has it; 0 without segments.
fn first_address<'data>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
) -> Option<u64> {
    let headers = header.program_headers(endian, data).ok()?;
    let first =
        headers.iter().filter(|header| header.p_type(endian) == PT_LOAD).map(|header| header.p_vaddr(endian)).min();
    Some(first.map_or(0, |address| address & !(HEAD_BYTES as u64 - 1)))
}

/// The functions of `.symtab`, by their distance from `first`, and where the file has their names. The table is read in
/// pieces: as a whole it is larger than what is kept of it.
fn functions<'data>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
    first: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Option<()>,
) -> Option<(Vec<Function>, (u64, u64))> {
    let sections = header.sections(endian, data).ok()?;
    let table = sections.iter().find(|section| section.sh_type(endian) == SHT_SYMTAB)?;
    let strings = sections.section(object::SectionIndex(table.sh_link(endian) as usize)).ok()?.file_range(endian)?;
    let (offset, len) = table.file_range(endian)?;
    let count = usize::try_from(len).ok()? / SYMBOL_BYTES;
    if count > MAX_TABLE_BYTES / size_of::<Function>() {
        return None;
    }
    let mut functions = Vec::with_capacity(count);
    let mut piece = vec![0; PIECE_SYMBOLS * SYMBOL_BYTES];
    for from in (0..count).step_by(PIECE_SYMBOLS) {
        let piece = piece.get_mut(..PIECE_SYMBOLS.min(count - from) * SYMBOL_BYTES)?;
        read(offset + (from * SYMBOL_BYTES) as u64, piece)?;
        functions.extend(piece.chunks_exact(SYMBOL_BYTES).filter_map(|symbol| function(symbol, first)));
    }
    Function::sort(&mut functions);
    for at in 0..functions.len() {
        let next = functions.get(at + 1).map_or(u32::MAX, |next| next.start);
        if let Some(function) = functions.get_mut(at).filter(|function| u64::from(function.len) == NO_LENGTH) {
            function.len = (next - function.start).min(MOST_WITHOUT_LENGTH);
        }
    }
    (!functions.is_empty()).then_some((functions, strings))
}

/// One row of a symbol table (`Elf64_Sym`).
fn function(symbol: &[u8], first: u64) -> Option<Function> {
    let word = |at: usize| symbol.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok();
    let (kind, section) = (symbol.get(4)? & 15, u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]));
    // Assembly often leaves the length out.
    let size = match word(16)? {
        0 if kind == STT_FUNC.0 => NO_LENGTH,
        size => size,
    };
    let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
    Function::of(kind, section, word(8)?.checked_sub(first)?, size, name)
}

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    XzReader::new(packed, false).take(MAX_UNPACKED_BYTES + 1).read_to_end(&mut unpacked).ok()?;
    (unpacked.len() as u64 <= MAX_UNPACKED_BYTES).then_some(unpacked)
}

fn head_in_memory(base: u64) -> Option<u64> {
    hash_in_memory(base, HEAD_BYTES)
}

fn hash_in_memory(base: u64, len: usize) -> Option<u64> {
    let mut bytes = [0; HEAD_BYTES];
    let bytes = bytes.get_mut(..len)?;
    // SAFETY: the destination is ours and that long; the source may be anything.
    unsafe { guarded::copy(bytes.as_mut_ptr(), base as usize, bytes.len()) }.then(|| hash_of(bytes))
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lzma_rust2::{XzOptions, XzWriter};
    use object::write::{Object as Written, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

    use super::super::process::native_symbol;
    use super::*;

    #[inline(never)]
    fn nobody_exports_this(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }

    /// A file with one function in its symbol table.
    fn with_function(name: &str, start: u64, size: u64) -> Vec<u8> {
        let mut file = Written::new(BinaryFormat::Elf, Architecture::X86_64, object::Endianness::Little);
        let text = file.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
        file.append_section_data(text, &[0xc3; 64], 16);
        file.add_symbol(Symbol {
            name: name.into(),
            value: start,
            size,
            kind: SymbolKind::Text,
            scope: SymbolScope::Compilation,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
        file.write().unwrap()
    }

    /// A stripped file whose symbol table is packed into it.
    fn with_packed(inner: &[u8]) -> Vec<u8> {
        let mut packer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
        packer.write_all(inner).unwrap();
        let mut file = Written::new(BinaryFormat::Elf, Architecture::X86_64, object::Endianness::Little);
        let section = file.add_section(Vec::new(), b".gnu_debugdata".to_vec(), SectionKind::Other);
        file.append_section_data(section, &packer.finish().unwrap(), 1);
        file.write().unwrap()
    }

    fn table(content: &[u8]) -> (Option<Table>, std::path::PathBuf) {
        let name = format!("spanprof-symbols-{}-{:x}", std::process::id(), hash_of(content));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        (Table::of_file(&File::open(&path).unwrap()), path)
    }

    #[test]
    fn a_function_that_the_program_does_not_export_has_its_name() {
        let pc = nobody_exports_this as *const () as u64;
        let found = native_symbol(pc).expect("the program holds it");
        let mut symbols = FileSymbols::default();
        let name = symbols.name(&found.object(pc), pc).expect("the program has a symbol table");
        assert!(name.contains("nobody_exports_this"), "{name}");
        symbols.verify_again();
        assert_eq!(symbols.name(&found.object(pc), pc), Some(name));
        assert_eq!(symbols.objects.len(), 1);
    }

    #[test]
    fn a_file_that_is_not_the_one_in_memory_names_nothing() {
        let pc = nobody_exports_this as *const () as u64;
        let mut object = native_symbol(pc).expect("the program holds it").object(pc);
        object.path = "/bin/sh".into();
        assert_eq!(FileSymbols::default().name(&object, pc), None);
    }

    #[test]
    fn a_packed_symbol_table_names_functions_too() {
        for content in [with_function("compute", 16, 8), with_packed(&with_function("compute", 16, 8))] {
            let (table, path) = table(&content);
            let mut table = table.expect("a table");
            let named = [15, 16, 23, 24].map(|at| table.name(&path, at));
            assert_eq!(named.map(|name| name.as_deref().map(str::to_owned)), {
                let name = Some("compute".to_owned());
                [None, name.clone(), name, None]
            });
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_function_without_a_length_reaches_to_the_next_one() {
        let (table, path) = table(&with_function("pause", 16, 0));
        let mut table = table.expect("a table");
        assert_eq!([15, 16, 40].map(|at| table.name(&path, at).is_some()), [false, true, true]);
        assert_eq!(table.name(&path, 16 + MOST_WITHOUT_LENGTH), None);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_packed_and_is_no_file_is_no_table() {
        for content in [with_packed(b"no file"), with_packed(&[]), b"no file".to_vec(), Vec::new()] {
            let (table, path) = table(&content);
            assert!(table.is_none());
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn the_objects_used_longest_ago_make_room() {
        let mut symbols = FileSymbols::default();
        let functions = |count: usize| vec![Function { start: 0, len: 1, name: 1 }; count];
        let a_third = MAX_TABLE_BYTES / size_of::<Function>() / 3;
        for base in 0..4 {
            let table = Table::new(functions(a_third), Strings::InFile(0));
            symbols.make_room(table.bytes());
            symbols.objects.insert(base, Object { table: Some(table), head: 0, is_verified: true, used: base });
        }
        let mut left: Vec<u64> = symbols.objects.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3]);
    }
}
