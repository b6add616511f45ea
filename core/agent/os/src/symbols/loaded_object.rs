//! The loaded object of an address, its exported symbols, and our own library among the objects. Normal threads only.

use std::ffi::{c_void, CStr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::exported_symbols::ExportedSymbols;
use super::object_history::{first_page_hash, linker_address, object_at, state_at, CodeState, LoadedObject};

/// The object of a program counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeObject {
    /// Path of the shared object or program.
    pub file: PathBuf,
    /// Offset of the program counter in that file's image.
    pub offset: u64,
    /// Whether the file is the main program, which is never unloaded.
    pub is_of_program: bool,
    /// Whether it was not unloaded since the sample was taken.
    pub is_loaded: bool,
    first_page: u64,
}

impl NativeObject {
    /// The object that contains the program counter.
    pub fn object(&self, pc: u64) -> LoadedObject {
        // The linker stores the program's name as it was started, which may not be a path.
        let path = if self.is_of_program { PathBuf::from("/proc/self/exe") } else { self.file.clone() };
        LoadedObject { base: pc.wrapping_sub(self.offset), path, first_page: self.first_page }
    }

    /// The exported function that contains the program counter. Searches all exported symbols of a library, and holds the linker's
    /// lock for that time.
    pub fn exported_symbol(&self, pc: u64) -> Option<String> {
        if self.is_of_program {
            return program_at(pc)?.symbols.name(pc as usize);
        }
        // It may have been unloaded meanwhile. glibc compares the size of symbols (`DL_ADDR_SYM_MATCH`).
        let (object, symbol) = symbol_by_linker(pc)?;
        symbol.filter(|_| self.is_loaded && object.offset == self.offset)
    }
}

/// The object of a native program counter when the sample at ring position `position` was taken; `None` outside every object
/// that was loaded then, and where it is not known. May take the linker's lock.
///
/// Walks store the return address minus 1 for a caller, so that its object and its function are those of the call even where that
/// is the last instruction of the function.
pub fn native_object(pc: u64, position: u64) -> Option<NativeObject> {
    if let Some(program) = program_at(pc) {
        let (file, offset) = (program.file.clone(), pc.wrapping_sub(program.start));
        return Some(NativeObject { file, offset, is_of_program: true, is_loaded: true, first_page: 0 });
    }
    let Some(listed) = object_at(pc, position) else { return Some(symbol_by_linker(pc)?.0) };
    let (object, is_loaded) = listed?;
    Some(NativeObject {
        file: object.path.clone(),
        offset: pc - object.addresses.start,
        is_of_program: object.is_program,
        is_loaded,
        first_page: object.first_page,
    })
}

/// The state of the code at `pc` when the sample at ring position `position` was taken.
pub fn code_state(pc: u64, position: u64) -> CodeState {
    program_at(pc).map_or_else(|| state_at(pc, position), |_| CodeState::Program)
}

fn program_at(pc: u64) -> Option<&'static MainProgram> {
    program().filter(|program| program.symbols.contains(pc as usize))
}

/// The main program: its address as the linker reports it, and its symbols.
struct MainProgram {
    symbols: ExportedSymbols,
    file: PathBuf,
    start: u64,
}

/// Read once, without a lock: a lock held at a fork would stay held in the child.
fn program() -> Option<&'static MainProgram> {
    static READ: AtomicPtr<Option<MainProgram>> = AtomicPtr::new(std::ptr::null_mut());
    let mut program = READ.load(Ordering::Acquire);
    if program.is_null() {
        let found = ExportedSymbols::of_program().and_then(|symbols| {
            // A static program has no linker.
            let by_linker = symbol_by_linker(program_headers() as u64).map(|(object, _)| object.file);
            let file = by_linker.or_else(|| std::fs::read_link("/proc/self/exe").ok())?;
            Some(MainProgram { start: symbols.start()? as u64, symbols, file })
        });
        // A concurrent second caller leaks its own copy; no thread waits.
        let own = Box::into_raw(Box::new(found));
        let first = READ.compare_exchange(program, own, Ordering::AcqRel, Ordering::Acquire);
        program = first.map_or_else(|theirs| theirs, |_| own);
    }
    // SAFETY: only leaked boxes are ever stored there.
    unsafe { program.as_ref() }.and_then(Option::as_ref)
}

/// Address of the main program's headers, just after its first byte.
fn program_headers() -> usize {
    // SAFETY: getauxval reads the auxiliary vector; returns 0 for missing entries.
    unsafe { libc::getauxval(libc::AT_PHDR) as usize }
}

/// The object, and its exported symbol.
fn symbol_by_linker(pc: u64) -> Option<(NativeObject, Option<String>)> {
    let info = dladdr(pc as usize as *const c_void)?;
    // SAFETY: dladdr returns a NUL-terminated path that is valid while the object is loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let symbol = (!info.dli_sname.is_null()).then(|| {
        // SAFETY: dladdr returns a NUL-terminated name in the object's string table.
        unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy().into_owned()
    });
    let is_of_program = is_main_program(info.dli_fbase);
    let object = NativeObject {
        file: PathBuf::from(std::ffi::OsStr::new(&*file.to_string_lossy())),
        offset: pc.wrapping_sub(info.dli_fbase as u64),
        is_of_program,
        is_loaded: true,
        first_page: if is_of_program { 0 } else { first_page_hash(info.dli_fbase as u64)? },
    };
    Some((object, symbol))
}

/// Whether a program counter lies in our own library; false if we are linked into the main program.
pub fn is_own_code(object: &NativeObject, pc: u64) -> bool {
    static OWN: AtomicU64 = AtomicU64::new(0);
    let mut own = OWN.load(Ordering::Relaxed);
    if own == 0 {
        own = dladdr(is_own_code as *const c_void).map_or(u64::MAX, |info| info.dli_fbase as u64);
        OWN.store(own, Ordering::Relaxed);
    }
    !object.is_of_program && pc.wrapping_sub(object.offset) == own
}

/// Keeps our code loaded for the life of the process: a signal may arrive after the library was closed. True once it
/// cannot be unloaded.
pub fn pin_library() -> bool {
    // In a static program of musl, `dladdr` finds nothing, and all code is of the program.
    let Some(info) = dladdr(pin_library as *const c_void) else { return linker_address() == 0 };
    // SAFETY: the path is the linker's; RTLD_NOLOAD loads nothing, RTLD_NODELETE only marks the loaded object.
    let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    // The main program has no path to find it by; it is never unloaded.
    !handle.is_null() || is_main_program(info.dli_fbase)
}

/// Size in bytes of the exported function that begins at `address`; `None` for another address, and where the C library has no `dladdr1`.
#[cfg(target_env = "gnu")]
pub fn exported_function_bytes(address: usize) -> Option<u64> {
    /// `RTLD_DL_SYMENT` (`dlfcn.h`, glibc 2.3.3 and later).
    const SYMBOL: std::ffi::c_int = 1;
    let mut symbol: *mut c_void = std::ptr::null_mut();
    // SAFETY: an all-zero Dl_info is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr1 only compares the address with the loaded objects, and writes to the two locals.
    let is_in_object = unsafe { libc::dladdr1(address as *const c_void, &mut info, &mut symbol, SYMBOL) } != 0;
    // SAFETY: null, or the linker's own entry of the symbol table of a loaded object.
    let symbol = unsafe { symbol.cast::<libc::Elf64_Sym>().as_ref() }?;
    (is_in_object && info.dli_saddr as usize == address).then_some(symbol.st_size)
}

/// `None`: the C library has no `dladdr1`.
#[cfg(not(target_env = "gnu"))]
pub fn exported_function_bytes(_address: usize) -> Option<u64> {
    None
}

fn is_main_program(base: *mut c_void) -> bool {
    program_headers().wrapping_sub(base as usize) < 4096
}

fn dladdr(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: an all-zero Dl_info is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr only compares the address with the loaded objects.
    let is_in_object = unsafe { libc::dladdr(address, &mut info) } != 0;
    (is_in_object && !info.dli_fname.is_null()).then_some(info)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn name_by_linker(pc: u64) -> Option<String> {
        symbol_by_linker(pc)?.1
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn a_symbol_of_the_program_is_the_same_with_and_without_the_linker() {
        let pc = native_object as *const () as u64;
        let object = native_object(pc, 0).expect("the program contains it");
        assert!(object.is_of_program);
        let symbol = object.exported_symbol(pc);
        assert_eq!(Some((object, symbol)), symbol_by_linker(pc));
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn the_size_of_an_exported_function_is_known_at_its_begin_only() {
        let function = libc::qsort as *const () as usize;
        assert!(exported_function_bytes(function).is_some_and(|bytes| (4..4096).contains(&bytes)));
        assert_eq!([function + 1, 16].map(exported_function_bytes), [None; 2]);
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn an_exported_function_of_the_c_library_is_found_by_its_address() {
        let pc = libc::getenv as *const () as u64;
        let object = native_object(pc, 0).expect("libc is loaded");
        assert_eq!(object.exported_symbol(pc).as_deref(), Some("getenv"));
        assert!(object.file.to_string_lossy().contains("libc"), "{:?}", object.file);
        assert!(object.offset > 0);
    }

    #[test]
    fn an_address_outside_every_object_has_no_object() {
        assert_eq!(native_object(16, 0), None);
    }

    #[test]
    fn our_library_can_be_pinned() {
        assert!(pin_library());
    }
}
