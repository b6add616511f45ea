//! Functions of loaded objects by the symbol tables of their files: `.symtab`, or that of the debug file that a distribution installs
//! beside it (`/usr/lib/debug/.build-id`, GDB manual, "Separate Debug Files"), or the compressed table in `.gnu_debugdata` (GDB
//! manual, "MiniDebugInfo"); and `.dynsym`. Only address ranges are kept; names are read from the file on demand. Owned by the drain
//! thread without a lock, since a lock held at a fork would stay held in the child. Not here: the object of an address
//! (`loaded_object`), the format of files (`elf_file`).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lzma_rust2::XzReader;
use object::elf::{SectionType, SHT_DYNSYM, SHT_SYMTAB};
use object::read::ReadCache;

use super::elf_file::ElfFile;
use super::exported_symbols::SymbolRange;
use super::object_history::{hash_of, LoadedObject, FIRST_PAGE_BYTES};

/// Limit of all address tables together: libjvm has 60,000 functions, which take 0.7 MB.
const MAX_TABLE_BYTES: usize = 4 << 20;
const MAX_SYMBOLS: usize = MAX_TABLE_BYTES / size_of::<SymbolRange>();
/// Limit of an unpacked `.gnu_debugdata`; that of a C library takes 0.3 MB.
const MAX_UNPACKED_BYTES: u64 = 16 << 20;
const MAX_OBJECTS: usize = 256;
/// Cached names per object.
const MAX_NAMES: usize = 8192;
const MAX_NAME_BYTES: usize = 4096;
/// Debug files by build id, as Debian, Fedora and GDB lay them out.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Symbol tables of loaded files, cached with LRU eviction.
#[derive(Default)]
pub struct FileSymbols {
    /// By load address and first page, which identify the object.
    objects: HashMap<(u64, u64), CachedObject>,
    /// Counts lookups, for LRU eviction.
    clock: u64,
}

struct CachedObject {
    symbols: Option<ObjectSymbols>,
    used: u64,
}

/// A function of a symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFunction {
    /// Its symbol, mangled.
    pub symbol: Arc<str>,
    /// Address of its first instruction in memory.
    pub start: u64,
}

/// The functions of one object.
pub(super) struct ObjectSymbols {
    tables: Vec<SymbolTable>,
    /// Whether there are more than the exported functions.
    has_local_functions: bool,
}

struct SymbolTable {
    functions: Vec<SymbolRange>,
    strings: StringTable,
    names: HashMap<u32, Option<Arc<str>>>,
}

/// The location of the names.
enum StringTable {
    InFile(FileStrings),
    /// In memory, from `.gnu_debugdata`.
    Unpacked(Vec<u8>),
}

/// Names in a file, which is not kept open: a host may close unknown descriptors and reuse their numbers.
struct FileStrings {
    path: PathBuf,
    offset: u64,
    /// Inode, size, and time of the last change in seconds and nanoseconds: an update may replace the file meanwhile.
    identity: (u64, u64, i64, i64),
}

impl FileSymbols {
    /// The function that contains `pc`.
    pub fn function(&mut self, object: &LoadedObject, pc: u64) -> Option<FileFunction> {
        self.clock += 1;
        let key = (object.base, object.first_page);
        if !self.objects.contains_key(&key) {
            let symbols = ObjectSymbols::read(object);
            self.evict_for(symbols.as_ref().map_or(0, ObjectSymbols::bytes));
            self.objects.insert(key, CachedObject { symbols, used: 0 });
        }
        let cached = self.objects.get_mut(&key)?;
        cached.used = self.clock;
        let offset = u32::try_from(pc.checked_sub(object.base)?).ok()?;
        let (symbol, start) = cached.symbols.as_mut()?.function(offset)?;
        Some(FileFunction { symbol, start: object.base + u64::from(start) })
    }

    /// Whether [`FileSymbols::function`] found no symbols beyond exported ones in the object's file.
    pub fn is_without_table(&self, object: &LoadedObject) -> bool {
        let cached = self.objects.get(&(object.base, object.first_page));
        cached.is_some_and(|cached| cached.symbols.as_ref().is_none_or(|symbols| !symbols.has_local_functions))
    }

    fn evict_for(&mut self, bytes: usize) {
        let used_bytes = |objects: &HashMap<(u64, u64), CachedObject>| -> usize {
            objects.values().filter_map(|object| object.symbols.as_ref()).map(ObjectSymbols::bytes).sum()
        };
        while self.objects.len() >= MAX_OBJECTS || used_bytes(&self.objects) + bytes > MAX_TABLE_BYTES {
            let oldest = self.objects.iter().min_by_key(|(_, object)| object.used).map(|(base, _)| *base);
            let Some(oldest) = oldest else { return };
            self.objects.remove(&oldest);
        }
    }
}

impl ObjectSymbols {
    /// `None` when the file has no table, is too large, or is another one than that of the object.
    fn read(object: &LoadedObject) -> Option<Self> {
        is_file_of(object).then(|| Self::of_file(&object.path, Some(Path::new(DEBUG_FILES)), MAX_SYMBOLS))?
    }

    /// The functions of a file, relative to the page of its first segment, from tables of at most `max_symbols`.
    pub(super) fn of_file(path: &Path, debug_files: Option<&Path>, max_symbols: usize) -> Option<Self> {
        let file = File::open(path).ok()?;
        let cache = ReadCache::new(&file);
        let elf = ElfFile::parse(&cache)?;
        let first = elf.first_address();
        let limits = (first, max_symbols);
        let local = SymbolTable::of_file(&file, path, SHT_SYMTAB, limits)
            .or_else(|| {
                let build_id = elf.build_id()?;
                SymbolTable::of_debug_file(&debug_file(debug_files?, &build_id)?, &build_id, limits)
            })
            .or_else(|| SymbolTable::unpacked(elf.section(b".gnu_debugdata")?, first));
        let has_local_functions = local.is_some();
        let exported = SymbolTable::of_file(&file, path, SHT_DYNSYM, limits);
        let mut tables: Vec<_> = local.into_iter().chain(exported).collect();
        if let [local, exported] = &mut *tables {
            let is_exported = |range: &SymbolRange| {
                let key = |range: &SymbolRange| (range.start, range.len);
                exported.functions.binary_search_by_key(&key(range), key).is_ok()
            };
            // The names that programs call, rather than aliases.
            local.functions.retain(|range| !is_exported(range));
            local.functions.shrink_to_fit();
        }
        (!tables.is_empty()).then_some(Self { tables, has_local_functions })
    }

    fn bytes(&self) -> usize {
        self.tables.iter().map(SymbolTable::bytes).sum()
    }

    /// Symbol and start of the innermost function that contains an offset in the object.
    pub(super) fn function(&mut self, offset: u32) -> Option<(Arc<str>, u32)> {
        let containing = |table: &SymbolTable| SymbolRange::containing(&table.functions, offset);
        let ranges = self.tables.iter_mut().filter_map(|table| Some((containing(table)?, table)));
        let (range, table) = ranges.max_by_key(|(range, _)| range.start)?;
        Some((table.name(range.name)?, range.start))
    }
}

impl SymbolTable {
    fn of_file(file: &File, path: &Path, table_type: SectionType, limits: (u64, usize)) -> Option<Self> {
        let cache = ReadCache::new(file);
        let read = |offset: u64, chunk: &mut [u8]| file.read_exact_at(chunk, offset).ok();
        let (functions, strings) = ElfFile::parse(&cache)?.functions(table_type, limits.0, limits.1, read)?;
        let strings = FileStrings { path: path.into(), offset: strings.0, identity: identity_of(file)? };
        Some(Self::new(functions, StringTable::InFile(strings)))
    }

    fn of_debug_file(path: &Path, build_id: &str, limits: (u64, usize)) -> Option<Self> {
        let file = File::open(path).ok()?;
        let is_of_object = ElfFile::parse(&ReadCache::new(&file))?.build_id().as_deref() == Some(build_id);
        is_of_object.then(|| Self::of_file(&file, path, SHT_SYMTAB, limits))?
    }

    fn unpacked(packed: &[u8], first: u64) -> Option<Self> {
        let unpacked = unpack(packed)?;
        let data = &*unpacked;
        let copy = |offset: u64, chunk: &mut [u8]| {
            chunk.copy_from_slice(data.get(usize::try_from(offset).ok()?..)?.get(..chunk.len())?);
            Some(())
        };
        let (functions, strings) = ElfFile::parse(data)?.functions(SHT_SYMTAB, first, MAX_SYMBOLS, copy)?;
        let strings = data.get(strings.0 as usize..)?.get(..strings.1 as usize)?.to_vec();
        Some(Self::new(functions, StringTable::Unpacked(strings)))
    }

    fn new(functions: Vec<SymbolRange>, strings: StringTable) -> Self {
        Self { functions, strings, names: HashMap::new() }
    }

    fn bytes(&self) -> usize {
        let strings = if let StringTable::Unpacked(strings) = &self.strings { strings.len() } else { 0 };
        self.functions.len() * size_of::<SymbolRange>() + strings
    }

    fn name(&mut self, name: u32) -> Option<Arc<str>> {
        if let Some(cached) = self.names.get(&name) {
            return cached.clone();
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        let text = self.read_name(name).map(Arc::from);
        self.names.insert(name, text.clone());
        text
    }

    fn read_name(&self, name: u32) -> Option<String> {
        let mut bytes = [0; MAX_NAME_BYTES];
        let bytes = match &self.strings {
            StringTable::InFile(strings) => {
                let file = File::open(&strings.path).ok().filter(|file| identity_of(file) == Some(strings.identity))?;
                let read = file.read_at(&mut bytes, strings.offset.checked_add(u64::from(name))?).ok()?;
                bytes.get(..read)?
            }
            StringTable::Unpacked(strings) => strings.get(name as usize..)?,
        };
        let end = bytes.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0).filter(|end| *end > 0)?;
        let name = String::from_utf8_lossy(bytes.get(..end)?);
        // The version of an exported function, as in `pthread_join@@GLIBC_2.34`, is no part of its name.
        let unversioned = name.split_once('@').map_or(&*name, |(name, _)| name);
        Some(if unversioned.is_empty() { name.into_owned() } else { unversioned.to_owned() })
    }
}

/// The path of the debug file of a build id; `None` if it is too short.
pub(super) fn debug_file(debug_files: &Path, build_id: &str) -> Option<PathBuf> {
    let (directory, name) = build_id.split_at_checked(2).filter(|(_, name)| !name.is_empty())?;
    Some(debug_files.join(directory).join(format!("{name}.debug")))
}

fn identity_of(file: &File) -> Option<(u64, u64, i64, i64)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec()))
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
    use object::write::{Object as Written, StandardSection, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

    use super::*;
    use crate::symbols::loaded_object::native_object;

    #[inline(never)]
    fn not_exported(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }

    /// A file with one function in its symbol table.
    fn written_function(name: &str, start: u64, size: u64) -> Written<'static> {
        let mut file = Written::new(BinaryFormat::Elf, Architecture::X86_64, object::Endianness::Little);
        let text = file.section_id(StandardSection::Text);
        file.append_section_data(text, &[0xc3; 64], 16);
        add_function(&mut file, name, start, size);
        file
    }

    fn add_function(file: &mut Written<'_>, name: &str, start: u64, size: u64) {
        let text = file.section_id(StandardSection::Text);
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
    }

    fn with_function(name: &str, start: u64, size: u64) -> Vec<u8> {
        written_function(name, start, size).write().unwrap()
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

    /// A note section with a build id.
    fn add_build_id(file: &mut Written<'_>, build_id: [u8; 4]) {
        let section = file.add_section(Vec::new(), b".note.gnu.build-id".to_vec(), SectionKind::Note);
        let note = [&4_u32.to_le_bytes()[..], &4_u32.to_le_bytes(), &3_u32.to_le_bytes(), b"GNU\0", &build_id].concat();
        file.append_section_data(section, &note, 4);
    }

    /// A directory of one test.
    struct TestDirectory(PathBuf);

    impl TestDirectory {
        fn new(test: &str) -> Self {
            Self(std::env::temp_dir().join(format!("spanprof-{test}-{}", std::process::id())))
        }

        fn write(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn symbols_of(path: &Path) -> Option<ObjectSymbols> {
        ObjectSymbols::of_file(path, Some(&path.with_file_name("debug")), MAX_SYMBOLS)
    }

    fn named(symbols: &mut ObjectSymbols, offset: u32) -> Option<String> {
        symbols.function(offset).map(|(symbol, _)| symbol.to_string())
    }

    #[test]
    fn a_function_that_is_not_exported_has_its_name() {
        let pc = not_exported as *const () as u64;
        let object = native_object(pc, 0).expect("the program contains it").object(pc);
        let mut symbols = FileSymbols::default();
        let function = symbols.function(&object, pc + 1).expect("the program has a symbol table");
        assert!(function.symbol.contains("not_exported") && function.start == pc, "{function:?}");
        assert_eq!(symbols.function(&object, pc), Some(function));
        assert_eq!((symbols.objects.len(), symbols.is_without_table(&object)), (1, false));
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn a_file_that_differs_from_memory_gives_no_name() {
        let pc = libc::getenv as *const () as u64;
        let mut object = native_object(pc, 0).expect("libc is loaded").object(pc);
        assert!(is_file_of(&object));
        object.path = "/bin/sh".into();
        assert!(!is_file_of(&object));
        assert_eq!(FileSymbols::default().function(&object, pc), None);
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn an_exported_function_of_a_library_has_its_exported_name_with_and_without_a_debug_file() {
        for pc in [libc::getenv as *const () as u64, libc::pthread_join as *const () as u64] {
            let native = native_object(pc, 0).expect("libc is loaded");
            let object = native.object(pc);
            for debug_files in [None, Some(DEBUG_FILES)] {
                let mut symbols =
                    ObjectSymbols::of_file(&object.path, debug_files.map(Path::new), MAX_SYMBOLS).expect("a table");
                let name = named(&mut symbols, (pc - object.base) as u32);
                assert!(name.is_some() && name == native.exported_symbol(pc), "{name:?} with {debug_files:?}");
            }
        }
    }

    #[test]
    fn a_packed_symbol_table_also_gives_names() {
        for content in [with_function("compute", 16, 8), with_packed(&with_function("compute@@LIBRARY_1", 16, 8))] {
            let directory = TestDirectory::new("packed-symbols");
            let path = directory.write("library.so", &content);
            let mut symbols = symbols_of(&path).expect("a table");
            let name = Some("compute".to_owned());
            assert_eq!([15, 16, 23, 24].map(|offset| named(&mut symbols, offset)), [None, name.clone(), name, None]);
        }
    }

    #[test]
    fn a_stripped_file_has_the_names_of_the_debug_file_with_its_build_id() {
        let stripped = |build_id| {
            let mut file = Written::new(BinaryFormat::Elf, Architecture::X86_64, object::Endianness::Little);
            add_build_id(&mut file, build_id);
            file.write().unwrap()
        };
        let directory = TestDirectory::new("debug-file");
        let path = directory.write("library.so", &stripped([0xab, 0xcd, 0xef, 1]));
        assert!(symbols_of(&path).is_none());
        let mut debug = written_function("compute", 16, 8);
        add_build_id(&mut debug, [0xab, 0xcd, 0xef, 1]);
        directory.write("debug/ab/cdef01.debug", &debug.write().unwrap());
        let mut symbols = symbols_of(&path).expect("a table");
        assert_eq!(named(&mut symbols, 20).as_deref(), Some("compute"));
        // Installed for another version of the library.
        let mut other = written_function("other", 16, 8);
        add_build_id(&mut other, [0xab, 0xcd, 0xef, 2]);
        directory.write("debug/ab/cdef01.debug", &other.write().unwrap());
        assert!(symbols_of(&path).is_none());
        assert_eq!(named(&mut symbols, 21).as_deref(), Some("compute"), "the name that was read");
    }

    #[test]
    fn names_are_not_read_from_a_file_that_replaced_the_one_of_the_table() {
        let directory = TestDirectory::new("replaced-symbols");
        let path = directory.write("library.so", &with_function("compute", 16, 8));
        let mut symbols = symbols_of(&path).expect("a table");
        std::fs::rename(directory.write("later", &with_function("another", 16, 8)), &path).unwrap();
        assert_eq!(named(&mut symbols, 16), None);
    }

    #[test]
    fn a_function_without_a_length_ends_at_the_next_one_or_with_its_section() {
        let directory = TestDirectory::new("unsized-symbol");
        let mut file = written_function("SpinPause", 16, 0);
        add_function(&mut file, "next", 32, 8);
        // `_init` of the C runtime, after whose section the PLT begins; a label in a function.
        add_function(&mut file, "_init", 48, 0);
        add_function(&mut file, "label", 36, 0);
        let mut symbols = symbols_of(&directory.write("library.so", &file.write().unwrap())).unwrap();
        let names = [15, 16, 31, 32, 39, 40, 48, 63, 64].map(|offset| named(&mut symbols, offset));
        let (assembly, next, init) = (Some("SpinPause"), Some("next"), Some("_init"));
        let expected = [None, assembly, assembly, next, next, None, init, init, None];
        assert_eq!(names.each_ref().map(|name| name.as_deref()), expected);
    }

    #[test]
    fn packed_data_that_is_not_an_elf_file_is_no_table() {
        let contents = [with_packed(b"no file"), with_packed(&[]), b"no file".to_vec(), Vec::new()];
        let directory = TestDirectory::new("broken-symbols");
        for content in contents {
            assert!(symbols_of(&directory.write("library.so", &content)).is_none());
        }
    }

    #[test]
    fn files_with_changed_bytes_end_in_no_panic() {
        let mut with_build_id = written_function("compute", 16, 8);
        add_build_id(&mut with_build_id, [1, 2, 3, 4]);
        // Headers of segments, which the other file has not.
        let mut program = vec![0; 4096];
        File::open("/proc/self/exe").unwrap().read_exact(&mut program).unwrap();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for mut content in [with_build_id.write().unwrap(), program] {
            for _ in 0..20_000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let index = random as usize % content.len();
                let before = std::mem::replace(&mut content[index], (random >> 32) as u8);
                let data = &*content;
                if let Some(elf) = ElfFile::parse(data) {
                    let copy = |offset: u64, chunk: &mut [u8]| {
                        chunk.copy_from_slice(data.get(usize::try_from(offset).ok()?..)?.get(..chunk.len())?);
                        Some(())
                    };
                    elf.functions(SHT_SYMTAB, elf.first_address(), MAX_SYMBOLS, copy);
                    elf.section(b".gnu_debugdata");
                    let _ = (elf.build_id(), elf.code_segments(), elf.has_code(), elf.unwind_index());
                }
                // One of 16 changes stays.
                if random >> 40 & 15 != 0 {
                    content[index] = before;
                }
            }
        }
    }

    #[test]
    fn the_least_recently_used_objects_are_evicted() {
        let mut symbols = FileSymbols::default();
        let functions = |count: usize| vec![SymbolRange { start: 0, len: 1, name: 1 }; count];
        for base in 0..4 {
            let table = SymbolTable::new(functions(MAX_SYMBOLS / 3), StringTable::Unpacked(Vec::new()));
            let of_object = ObjectSymbols { tables: vec![table], has_local_functions: true };
            symbols.evict_for(of_object.bytes());
            symbols.objects.insert((base, 0), CachedObject { symbols: Some(of_object), used: base });
        }
        let mut left: Vec<u64> = symbols.objects.keys().map(|(base, _)| *base).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3]);
    }
}
