//! Facts of the process: its memory, the library we were loaded from, the names of native code. Normal threads only.

use std::ffi::{c_void, CStr};
use std::path::PathBuf;

/// Resident memory of the process; 0 when /proc is hidden.
pub fn resident_bytes() -> u64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    pages.unwrap_or(0) * page
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

/// Names a native program counter; `None` outside every loaded object. Takes the linker's lock.
pub fn native_symbol(pc: u64) -> Option<NativeSymbol> {
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
    // SAFETY: getauxval reads the kernel's vector; 0 when there is none.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // The program headers of the main program lie just behind its first byte.
    headers.wrapping_sub(base as usize) < 4096
}

fn look_up(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: an all-zero Dl_info is a valid value to be written over.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr only compares the address with the loaded objects.
    let known = unsafe { libc::dladdr(address, &mut found) };
    (known != 0 && !found.dli_fname.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_running_program_has_resident_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
