//! Symbols that a loaded object does not export, from its file: `.symtab`, or the compressed table that distributions
//! put into `.gnu_debugdata` (GDB manual, "MiniDebugInfo"). Only addresses are kept; names are read from the file on
//! demand. Owned by the drain thread without a lock, since a lock held at a fork would stay held in the child. Not
//! here: the object of an address (`process`).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use lzma_rust2::XzReader;
use object::elf::{FileHeader64, PT_LOAD, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::ReadCache;
use object::{Endianness, ReadRef};

use super::exported_symbols::SymbolRange;
use super::object_history::{hash_of, LoadedObject, FIRST_PAGE_BYTES};

/// Limit of all address tables together: libjvm has 60,000 functions, which take 0.7 MB.
const MAX_TABLE_BYTES: usize = 4 << 20;
/// Limit of an unpacked `.gnu_debugdata`; that of a C library takes 0.3 MB.
const MAX_UNPACKED_BYTES: u64 = 16 << 20;
const MAX_OBJECTS: usize = 256;
/// Cached names per object.
const MAX_NAMES: usize = 8192;
/// Placeholder length of a function without a length, until the next function is known. Longer than any function.
const NO_LENGTH: u64 = u32::MAX as u64;
/// A function without a length extends to the next one, up to this length.
const MAX_UNSIZED_LENGTH: u32 = 4096;
const SYMBOL_BYTES: usize = 24;
const CHUNK_SYMBOLS: usize = 2048;
const MAX_NAME_BYTES: usize = 4096;

/// Symbol tables of loaded files, cached with LRU eviction.
#[derive(Default)]
pub struct FileSymbols {
    /// By load address and first page, which identify the object.
    objects: HashMap<(u64, u64), CachedObject>,
    /// Counts lookups, for LRU eviction.
    clock: u64,
}

struct CachedObject {
    table: Option<SymbolTable>,
    used: u64,
}

/// The symbol table of one file.
struct SymbolTable {
    functions: Vec<SymbolRange>,
    strings: StringTable,
    names: HashMap<u32, Option<Arc<str>>>,
}

/// The location of the names.
enum StringTable {
    /// In the file, at this offset.
    InFile(u64),
    /// In memory, from `.gnu_debugdata`.
    Unpacked(Vec<u8>),
}

impl FileSymbols {
    /// The name of the function that contains `pc`, as the compiler wrote it.
    pub fn name(&mut self, object: &LoadedObject, pc: u64) -> Option<Arc<str>> {
        self.clock += 1;
        let key = (object.base, object.first_page);
        if !self.objects.contains_key(&key) {
            let table = SymbolTable::read(object);
            self.evict_for(table.as_ref().map_or(0, SymbolTable::bytes));
            self.objects.insert(key, CachedObject { table, used: 0 });
        }
        let known = self.objects.get_mut(&key)?;
        known.used = self.clock;
        known.table.as_mut()?.name(&object.path, u32::try_from(pc.checked_sub(object.base)?).ok()?)
    }

    /// Whether [`FileSymbols::name`] found no symbols in the object's file.
    pub fn is_without_table(&self, object: &LoadedObject) -> bool {
        self.objects.get(&(object.base, object.first_page)).is_some_and(|file| file.table.is_none())
    }

    fn evict_for(&mut self, bytes: usize) {
        let used_bytes = |objects: &HashMap<(u64, u64), CachedObject>| -> usize {
            objects.values().filter_map(|object| object.table.as_ref()).map(SymbolTable::bytes).sum()
        };
        while self.objects.len() >= MAX_OBJECTS || used_bytes(&self.objects) + bytes > MAX_TABLE_BYTES {
            let oldest = self.objects.iter().min_by_key(|(_, object)| object.used).map(|(base, _)| *base);
            let Some(oldest) = oldest else { return };
            self.objects.remove(&oldest);
        }
    }
}

impl SymbolTable {
    /// `None` when the file has no table, is too large, or is another one than that of the object.
    fn read(object: &LoadedObject) -> Option<Self> {
        if !is_file_of(object) {
            return None;
        }
        Self::of_file(&File::open(&object.path).ok()?)
    }

    fn of_file(file: &File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let first = first_address(header, endian, &cache)?;
        if let Some((functions, strings)) =
            functions(header, endian, &cache, first, |offset, chunk| file.read_exact_at(chunk, offset).ok())
        {
            return Some(Self::new(functions, StringTable::InFile(strings.0)));
        }
        let sections = header.sections(endian, &cache).ok()?;
        let (_, packed) = sections.section_by_name(endian, b".gnu_debugdata")?;
        let unpacked = unpack(packed.data(endian, &cache).ok()?)?;
        let data = &*unpacked;
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let copy = |offset: u64, chunk: &mut [u8]| {
            chunk.copy_from_slice(data.get(usize::try_from(offset).ok()?..)?.get(..chunk.len())?);
            Some(())
        };
        let (functions, strings) = functions(header, header.endian().ok()?, data, first, copy)?;
        let held = data.get(strings.0 as usize..)?.get(..strings.1 as usize)?.to_vec();
        Some(Self::new(functions, StringTable::Unpacked(held)))
    }

    fn new(functions: Vec<SymbolRange>, strings: StringTable) -> Self {
        Self { functions, strings, names: HashMap::new() }
    }

    fn bytes(&self) -> usize {
        let held = if let StringTable::Unpacked(strings) = &self.strings { strings.len() } else { 0 };
        self.functions.len() * size_of::<SymbolRange>() + held
    }

    fn name(&mut self, path: &Path, at: u32) -> Option<Arc<str>> {
        let name = SymbolRange::containing(&self.functions, at)?.name;
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
            // Not kept open: a host may close unknown descriptors and reuse their numbers.
            StringTable::InFile(offset) => {
                let read = File::open(path).ok()?.read_at(&mut bytes, offset + u64::from(name)).ok()?;
                bytes.get(..read)?
            }
            StringTable::Unpacked(strings) => strings.get(name as usize..)?,
        };
        let end = bytes.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0).filter(|end| *end > 0)?;
        Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
    }
}

/// The page-aligned address of the first segment in the file; 0 without segments.
fn first_address<'data>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
) -> Option<u64> {
    let headers = header.program_headers(endian, data).ok()?;
    let first =
        headers.iter().filter(|header| header.p_type(endian) == PT_LOAD).map(|header| header.p_vaddr(endian)).min();
    Some(first.map_or(0, |address| address & !(FIRST_PAGE_BYTES as u64 - 1)))
}

/// The functions of `.symtab`, relative to `first`, and the file range of their names. The table is read in chunks,
/// since it is larger than the result.
fn functions<'data>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
    first: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Option<()>,
) -> Option<(Vec<SymbolRange>, (u64, u64))> {
    let sections = header.sections(endian, data).ok()?;
    let table = sections.iter().find(|section| section.sh_type(endian) == SHT_SYMTAB)?;
    let strings = sections.section(object::SectionIndex(table.sh_link(endian) as usize)).ok()?.file_range(endian)?;
    let (offset, len) = table.file_range(endian)?;
    let count = usize::try_from(len).ok()? / SYMBOL_BYTES;
    if count > MAX_TABLE_BYTES / size_of::<SymbolRange>() {
        return None;
    }
    let mut functions = Vec::with_capacity(count);
    let mut chunk = vec![0; CHUNK_SYMBOLS * SYMBOL_BYTES];
    for from in (0..count).step_by(CHUNK_SYMBOLS) {
        let chunk = chunk.get_mut(..CHUNK_SYMBOLS.min(count - from) * SYMBOL_BYTES)?;
        read(offset + (from * SYMBOL_BYTES) as u64, chunk)?;
        functions.extend(chunk.chunks_exact(SYMBOL_BYTES).filter_map(|symbol| function(symbol, first)));
    }
    SymbolRange::sort(&mut functions);
    for at in 0..functions.len() {
        let next = functions.get(at + 1).map_or(u32::MAX, |next| next.start);
        if let Some(function) = functions.get_mut(at).filter(|function| u64::from(function.len) == NO_LENGTH) {
            function.len = (next - function.start).min(MAX_UNSIZED_LENGTH);
        }
    }
    (!functions.is_empty()).then_some((functions, strings))
}

/// Decodes one `Elf64_Sym`.
fn function(symbol: &[u8], first: u64) -> Option<SymbolRange> {
    let word = |at: usize| symbol.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok();
    let (kind, section) = (symbol.get(4)? & 15, u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]));
    // Symbols from assembly often have no length.
    let size = match word(16)? {
        0 if kind == STT_FUNC.0 => NO_LENGTH,
        size => size,
    };
    let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
    SymbolRange::of(kind, section, word(8)?.checked_sub(first)?, size, name)
}

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    XzReader::new(packed, false).take(MAX_UNPACKED_BYTES + 1).read_to_end(&mut unpacked).ok()?;
    (unpacked.len() as u64 <= MAX_UNPACKED_BYTES).then_some(unpacked)
}

/// Whether the file at the object's path is the one that was loaded, and not a later version. That of the program does not change.
pub fn is_file_of(object: &LoadedObject) -> bool {
    let mut head = [0; FIRST_PAGE_BYTES];
    let mut read = || File::open(&object.path).and_then(|file| file.read_at(&mut head, 0));
    object.first_page == 0 || read().is_ok() && hash_of(&head) == object.first_page
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lzma_rust2::{XzOptions, XzWriter};
    use object::write::{Object as Written, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

    use super::*;
    use crate::symbols::loaded_object::native_symbol;

    #[inline(never)]
    fn not_exported(n: u64) -> u64 {
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

    /// A stripped file with a compressed symbol table.
    fn with_packed(inner: &[u8]) -> Vec<u8> {
        let mut packer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
        packer.write_all(inner).unwrap();
        let mut file = Written::new(BinaryFormat::Elf, Architecture::X86_64, object::Endianness::Little);
        let section = file.add_section(Vec::new(), b".gnu_debugdata".to_vec(), SectionKind::Other);
        file.append_section_data(section, &packer.finish().unwrap(), 1);
        file.write().unwrap()
    }

    fn table(content: &[u8]) -> (Option<SymbolTable>, std::path::PathBuf) {
        let name = format!("spanprof-symbols-{}-{:x}", std::process::id(), hash_of(content));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        (SymbolTable::of_file(&File::open(&path).unwrap()), path)
    }

    #[test]
    fn a_function_that_is_not_exported_has_its_name() {
        let pc = not_exported as *const () as u64;
        let found = native_symbol(pc, 0).expect("the program contains it");
        let mut symbols = FileSymbols::default();
        let name = symbols.name(&found.object(pc), pc).expect("the program has a symbol table");
        assert!(name.contains("not_exported"), "{name}");
        assert_eq!(symbols.name(&found.object(pc), pc), Some(name));
        assert_eq!(symbols.objects.len(), 1);
    }

    #[test]
    fn a_file_that_differs_from_memory_gives_no_name() {
        let pc = libc::getenv as *const () as u64;
        let mut object = native_symbol(pc, 0).expect("libc is loaded").object(pc);
        assert!(is_file_of(&object));
        object.path = "/bin/sh".into();
        assert!(!is_file_of(&object));
        assert_eq!(FileSymbols::default().name(&object, pc), None);
    }

    #[test]
    fn a_packed_symbol_table_also_gives_names() {
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
    fn a_function_without_a_length_extends_to_the_next_one() {
        let (table, path) = table(&with_function("pause", 16, 0));
        let mut table = table.expect("a table");
        assert_eq!([15, 16, 40].map(|at| table.name(&path, at).is_some()), [false, true, true]);
        assert_eq!(table.name(&path, 16 + MAX_UNSIZED_LENGTH), None);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn packed_data_that_is_not_an_elf_file_is_no_table() {
        for content in [with_packed(b"no file"), with_packed(&[]), b"no file".to_vec(), Vec::new()] {
            let (table, path) = table(&content);
            assert!(table.is_none());
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn the_least_recently_used_objects_are_evicted() {
        let mut symbols = FileSymbols::default();
        let functions = |count: usize| vec![SymbolRange { start: 0, len: 1, name: 1 }; count];
        let a_third = MAX_TABLE_BYTES / size_of::<SymbolRange>() / 3;
        for base in 0..4 {
            let table = SymbolTable::new(functions(a_third), StringTable::InFile(0));
            symbols.evict_for(table.bytes());
            symbols.objects.insert((base, 0), CachedObject { table: Some(table), used: base });
        }
        let mut left: Vec<u64> = symbols.objects.keys().map(|(base, _)| *base).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3]);
    }
}
