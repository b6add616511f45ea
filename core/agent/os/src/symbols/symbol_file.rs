//! Files with symbols that name addresses of profiles after they were sampled, on any machine. Called by the command line.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::read::ReadCache;

use super::elf_file::{CodeSegment, ElfFile};
use super::file_symbols::{debug_file, ObjectSymbols};

/// The size of a symbol in a file, which limits their number.
const SYMBOL_BYTES: u64 = 24;

/// The symbols of one file.
pub struct SymbolFile {
    symbols: ObjectSymbols,
    code: Vec<CodeSegment>,
    /// Whether the file has its code. Offsets of segments in a debug file are meaningless.
    has_code: bool,
    first: u64,
}

impl SymbolFile {
    /// The build id of an ELF file; `None` of other files.
    pub fn build_id_of(path: &Path) -> Option<String> {
        ElfFile::parse(&ReadCache::new(File::open(path).ok()?))?.build_id()
    }

    /// The debug file of a build id below `directory`, as Debian, Fedora and GDB lay them out.
    pub fn debug_file(directory: &Path, build_id: &str) -> Option<PathBuf> {
        debug_file(&directory.join(".build-id"), build_id)
    }

    /// `None` if the file has no functions with a name and a size.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let max_symbols = usize::try_from(file.metadata().ok()?.len() / SYMBOL_BYTES).ok()?;
        let cache = ReadCache::new(&file);
        let elf = ElfFile::parse(&cache)?;
        let (code, has_code, first) = (elf.code_segments(), elf.has_code(), elf.first_address());
        let symbols = ObjectSymbols::of_file(path, None, max_symbols)?;
        Some(Self { symbols, code, has_code, first })
    }

    /// The symbol of the function at `address` in a mapping that begins at `start` with `file_offset`, as a profile states them: addresses
    /// of the process or of the file.
    pub fn symbol(&mut self, address: u64, start: u64, file_offset: u64) -> Option<Arc<str>> {
        let address = self.file_address(address, start, file_offset)?;
        let offset = u32::try_from(address.checked_sub(self.first)?).ok()?;
        Some(self.symbols.function(offset)?.0)
    }

    fn file_address(&self, address: u64, start: u64, file_offset: u64) -> Option<u64> {
        let by_start = self.code.iter().find(|segment| segment.addresses.start == start);
        let by_offset = || self.code.iter().find(|segment| self.has_code && segment.file_offset == file_offset);
        if let Some(segment) = by_start.or_else(by_offset) {
            return address.checked_sub(start)?.checked_add(segment.addresses.start);
        }
        let [segment] = &*self.code else { return None };
        if self.has_code {
            // The mapping begins before the code.
            let offset = address.checked_sub(start)?.checked_add(file_offset)?;
            return offset.checked_sub(segment.file_offset)?.checked_add(segment.addresses.start);
        }
        // The first mapping of a file has offset 0, that of code behind other segments has not.
        let is_code = (file_offset == 0) == (segment.addresses.start == self.first);
        is_code.then(|| address.checked_sub(start)?.checked_add(segment.addresses.start))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::loaded_object::native_object;
    use crate::symbols::object_file::ObjectFile;

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn addresses_of_the_file_and_of_a_process_have_the_symbol_of_their_function() {
        let pc = libc::pthread_join as *const () as u64;
        let object = native_object(pc, 0).expect("libc is loaded").object(pc);
        let file = ObjectFile::read(&object).expect("its file");
        let address = file.address(object.base, pc);
        let segment = file.code.iter().find(|segment| segment.addresses.contains(&address)).expect("a segment").clone();
        let mut symbols = SymbolFile::open(&object.path).expect("symbols");
        let (start, offset) = (segment.addresses.start, segment.file_offset);
        let loaded = 0x7f00_0000_0000;
        let whole_file = loaded - offset;
        let places = [
            (address, start, offset),
            (address - start + loaded, loaded, offset),
            (address - start + loaded, whole_file, 0),
        ];
        for (address, start, offset) in places {
            let symbol = |symbols: &mut SymbolFile, address| symbols.symbol(address, start, offset);
            assert_eq!(symbol(&mut symbols, address).as_deref(), Some("pthread_join"), "{start:x}");
            assert_ne!(symbol(&mut symbols, address - 1).as_deref(), Some("pthread_join"));
        }
        assert_eq!(SymbolFile::build_id_of(&object.path), file.build_id);
        assert_eq!(SymbolFile::build_id_of(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn a_mapping_that_does_not_fit_a_debug_file_gives_no_address() {
        let code = CodeSegment { addresses: 0x5000..0x9000, file_offset: 0 };
        let symbols = ObjectSymbols::of_file(Path::new("/proc/self/exe"), None, usize::MAX);
        let debug = SymbolFile { symbols: symbols.expect("symbols"), code: vec![code], has_code: false, first: 0 };
        let address = |start, offset| debug.file_address(0x7f00_0000_0100, start, offset);
        assert_eq!(address(0x7f00_0000_0000, 0x4000), Some(0x5100));
        assert_eq!(address(0x7f00_0000_0000, 0), None, "the code may be at any offset");
        assert_eq!(address(0x7f00_0000_0200, 0x4000), None);
    }
}
