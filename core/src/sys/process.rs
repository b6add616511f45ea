//! Facts of the process: its memory, the library we were loaded from, the names of native code. Normal threads only.

use std::ffi::{c_void, CStr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::exported::ObjectSymbols;

/// Resident memory of the process; 0 when /proc is hidden.
pub fn resident_bytes() -> u64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    pages.unwrap_or(0) * page
}

/// The kernel's version, major and minor; zeros when it does not say.
pub(super) fn kernel_version() -> (u32, u32) {
    // SAFETY: an all-zero utsname is a valid value to be written over.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: writes one utsname to a local.
    unsafe { libc::uname(&mut names) };
    // SAFETY: the kernel ends the name with NUL, and so do the zeros.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) }.to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// What the dynamic linker knows of a program counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeSymbol {
    /// Name of the nearest exported symbol below; `None` when the object exports none there.
    pub symbol: Option<String>,
    /// Path of the shared object or program.
    pub file: PathBuf,
    /// Offset of the program counter in that file's image.
    pub offset: u64,
    /// Whether that is the program itself, which is never unloaded.
    pub is_of_program: bool,
}

/// A file that is loaded: where it lies, and where it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedObject {
    /// Address of its first byte.
    pub base: u64,
    /// Its path.
    pub path: PathBuf,
}

impl NativeSymbol {
    /// The object that holds the program counter.
    pub fn object(&self, pc: u64) -> LoadedObject {
        // The linker knows the program by the name that it was started with, which may be no path.
        let path = if self.is_of_program { PathBuf::from("/proc/self/exe") } else { self.file.clone() };
        LoadedObject { base: pc.wrapping_sub(self.offset), path }
    }
}

/// Names a native program counter; `None` outside every loaded object. Takes the linker's lock.
pub fn native_symbol(pc: u64) -> Option<NativeSymbol> {
    let Some(program) = program().filter(|program| program.symbols.holds(pc as usize)) else {
        return native_symbol_by_linker(pc);
    };
    let (file, offset) = (program.file.clone(), pc.wrapping_sub(program.start));
    Some(NativeSymbol { symbol: program.symbols.name(pc as usize), file, offset, is_of_program: true })
}

/// The main program: where the linker says that it lies, and its names.
struct Program {
    symbols: ObjectSymbols,
    file: PathBuf,
    start: u64,
}

/// Read once. Without a lock: one that is held while the process forks would be held in the child for ever.
fn program() -> Option<&'static Program> {
    static READ: AtomicPtr<Option<Program>> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = READ.load(Ordering::Acquire);
    if known.is_null() {
        let headers = program_headers();
        let found = native_symbol_by_linker(headers as u64).zip(ObjectSymbols::of_program());
        let program = found.map(|(found, symbols)| {
            let start = (headers as u64).wrapping_sub(found.offset);
            Program { symbols, file: found.file, start }
        });
        // Who comes second leaks his own; nobody waits.
        let own = Box::into_raw(Box::new(program));
        let first = READ.compare_exchange(known, own, Ordering::AcqRel, Ordering::Acquire);
        known = first.map_or_else(|theirs| theirs, |_| own);
    }
    // SAFETY: only leaked boxes are ever stored there.
    unsafe { known.as_ref() }.and_then(Option::as_ref)
}

/// Where the main program's headers lie: just behind its first byte.
fn program_headers() -> usize {
    // SAFETY: getauxval reads the kernel's vector; 0 when there is none.
    unsafe { libc::getauxval(libc::AT_PHDR) as usize }
}

fn native_symbol_by_linker(pc: u64) -> Option<NativeSymbol> {
    let found = look_up(pc as usize as *const c_void)?;
    // SAFETY: dladdr gives a NUL-terminated path that lives as long as the object is loaded.
    let file = unsafe { CStr::from_ptr(found.dli_fname) };
    let symbol = (!found.dli_sname.is_null()).then(|| {
        // SAFETY: dladdr gives a NUL-terminated name inside the object's string table.
        unsafe { CStr::from_ptr(found.dli_sname) }.to_string_lossy().into_owned()
    });
    Some(NativeSymbol {
        symbol,
        file: PathBuf::from(std::ffi::OsStr::new(&*file.to_string_lossy())),
        offset: pc.wrapping_sub(found.dli_fbase as u64),
        is_of_program: is_main_program(found.dli_fbase),
    })
}

/// Whether a program counter lies in the library that we are; a program that we are a part of is not ours alone.
pub fn is_own_code(found: &NativeSymbol, pc: u64) -> bool {
    static OWN: AtomicU64 = AtomicU64::new(0);
    let mut own = OWN.load(Ordering::Relaxed);
    if own == 0 {
        own = look_up(is_own_code as *const c_void).map_or(u64::MAX, |found| found.dli_fbase as u64);
        OWN.store(own, Ordering::Relaxed);
    }
    !found.is_of_program && pc.wrapping_sub(found.offset) == own
}

/// Keeps our own code loaded for the life of the process: a signal may come after everybody closed the library. True
/// when it cannot go away any more.
pub fn pin_library() -> bool {
    let Some(found) = look_up(pin_library as *const c_void) else { return false };
    // SAFETY: the path came from the linker; RTLD_NOLOAD loads nothing new, RTLD_NODELETE only marks what is there.
    let handle = unsafe { libc::dlopen(found.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    // The main program is not found by path; it never goes away either.
    !handle.is_null() || is_main_program(found.dli_fbase)
}

fn is_main_program(base: *mut c_void) -> bool {
    program_headers().wrapping_sub(base as usize) < 4096
}

fn look_up(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: an all-zero Dl_info is a valid value to be written over.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr only compares the address with the loaded objects.
    let known = unsafe { libc::dladdr(address, &mut found) };
    (known != 0 && !found.dli_fname.is_null()).then_some(found)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn name_by_linker(pc: u64) -> Option<String> {
        native_symbol_by_linker(pc)?.symbol
    }

    #[test]
    fn code_of_the_program_is_found_without_the_linker_as_with_it() {
        let place = native_symbol as *const () as u64;
        let found = native_symbol(place).expect("the program holds it");
        assert!(found.is_of_program);
        assert_eq!(Some(found), native_symbol_by_linker(place));
    }

    #[test]
    fn an_exported_function_of_the_c_library_is_found_by_its_address() {
        let found = native_symbol(libc::getenv as *const () as u64).expect("libc is loaded");
        assert_eq!(found.symbol.as_deref(), Some("getenv"));
        assert!(found.file.to_string_lossy().contains("libc"), "{:?}", found.file);
        assert!(found.offset > 0);
    }

    #[test]
    fn an_address_outside_every_object_has_no_symbol() {
        assert_eq!(native_symbol(16), None);
    }

    #[test]
    fn the_library_we_live_in_can_be_pinned() {
        assert!(pin_library());
    }

    #[test]
    fn the_kernel_says_which_it_is() {
        assert!(kernel_version() >= (3, 0), "{:?}", kernel_version());
    }

    #[test]
    fn a_running_program_has_resident_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
