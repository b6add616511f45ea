//! Names and lines of real code: this program, whose reference is the `backtrace` crate, and C libraries with their debug
//! information in each of its places.

use std::collections::HashSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runtime::debug_info::DebugSymbols;
use spanprof_aggregate::runtime::{set_ends_soon, Frame};
use spanprof_os::testing::{in_child, one_at_a_time};

/// Addresses spread over the functions of this program.
fn addresses() -> Vec<u64> {
    let program = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let code = maps.lines().filter(|line| line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap()));
    let ranges = code.map(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        [start, end].map(|address| u64::from_str_radix(address, 16).unwrap())
    });
    ranges.flat_map(|[start, end]| (start..end).step_by((end - start) as usize / 2_000)).collect()
}

fn frames(symbols: &mut DebugSymbols, address: u64) -> Vec<(String, String, u32, u32)> {
    let mut frames = Vec::new();
    symbols.frames(address, 0, &mut frames);
    let parts = |frame: Frame| (frame.function.to_string(), frame.file.to_string(), frame.line, frame.column);
    frames.into_iter().map(parts).collect()
}

fn frames_of_backtrace(address: u64) -> Vec<(String, String, u32, u32)> {
    let mut frames = Vec::new();
    // It takes return addresses.
    backtrace::resolve((address + 1) as usize as *mut _, |symbol| {
        let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
        let file = symbol.filename().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.is_empty() {
            frames.push((name, file, symbol.lineno().unwrap_or(0), symbol.colno().unwrap_or(0)));
        }
    });
    frames
}

#[test]
fn near_the_end_of_a_stop_functions_have_names_without_debug_information() {
    in_child(|| {
        set_ends_soon(true);
        let found = frames(&mut DebugSymbols::default(), frames_of_backtrace as *const () as u64 + 1);
        let [(name, file, line, _)] = &found[..] else { panic!("{found:?}") };
        assert!(name.ends_with("frames_of_backtrace") && file.is_empty() && *line == 0, "{found:?}");
    });
}

#[test]
fn functions_files_and_lines_are_those_of_the_backtrace_crate() {
    let mut symbols = DebugSymbols::default();
    let (mut inlined, mut different) = (0, Vec::new());
    for pc in addresses() {
        let (own, mut reference) = (frames(&mut symbols, pc), frames_of_backtrace(pc));
        // The path of the outermost function is in its symbol only.
        if let (Some((name, ..)), Some((part, ..))) = (own.last(), reference.last_mut()) {
            if part.starts_with('{') && name.ends_with("::{{closure}}") {
                part.clone_from(name);
            }
        }
        inlined += usize::from(reference.len() > 1);
        // C code has demangled names here and clone suffixes there.
        if own != reference && reference.iter().any(|(_, file, ..)| file.ends_with(".rs")) {
            different.push((own, reference));
        }
    }
    assert!(inlined > 50, "{inlined}");
    assert!(different.is_empty(), "{} different, first: {:#?}", different.len(), different.first());
}

/// Resident memory of the process, from anonymous memory and from files.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    value("RssAnon:") + value("RssFile:")
}

#[test]
fn resident_memory_does_not_grow_with_the_size_of_the_debug_information() {
    const MIB: u64 = 1024;
    let file = std::fs::metadata(std::env::current_exe().unwrap()).unwrap().len() / 1024;
    assert!(file > 40 * MIB, "{file} KiB have no more debug information than the limits below");
    // In a child: other tests allocate too.
    in_child(|| {
        let addresses = addresses();
        let mut symbols = DebugSymbols::default();
        let (before, mut peak, mut out) = (resident_kib(), 0, Vec::new());
        for (n, pc) in addresses.iter().enumerate() {
            out.clear();
            symbols.frames(*pc, 0, &mut out);
            if n % 50 == 0 {
                peak = peak.max(resident_kib().saturating_sub(before));
            }
        }
        // The `backtrace` crate takes more than the size of the file.
        assert!(peak < 24 * MIB, "{peak} KiB of {file} KiB for {} addresses", addresses.len());
    });
}

const LIBRARY: &str = "
static inline __attribute__((always_inline)) int inlined(int n) { return n / *(volatile int *)&n; }
int spanprof_outer(int n) { return inlined(n) + 1; }
";

/// A directory that is removed with its files.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("spanprof-debug-info-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, command: &str) {
        let status = Command::new("sh").args(["-ec", command]).current_dir(&self.0).status().unwrap();
        assert!(status.success(), "{command}: {status}");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The address of `spanprof_outer` in the library.
fn loaded(path: &Path) -> u64 {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a library without constructors; it stays loaded.
    let address = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), c"spanprof_outer".as_ptr()) };
    assert!(!address.is_null());
    address as u64
}

#[test]
fn inlined_calls_and_lines_are_found_wherever_the_debug_information_is() {
    let _turn = one_at_a_time();
    spanprof_os::forget_objects();
    let cases = [
        ("full", "cc -shared -fPIC -O2 -g library.c -o library.so"),
        ("version-4", "cc -shared -fPIC -O2 -gdwarf-4 library.c -o library.so"),
        ("compressed", "cc -shared -fPIC -O2 -g -gz=zlib library.c -o library.so"),
        (
            "zstd",
            "cc -shared -fPIC -O2 -g library.c -o plain.so; objcopy --compress-debug-sections=zstd plain.so library.so",
        ),
        ("split", "cc -shared -fPIC -O2 -g -gsplit-dwarf library.c -o library.so"),
        (
            "linked",
            "cc -shared -fPIC -O2 -g library.c -o library.so; objcopy --only-keep-debug library.so library.debug;
             objcopy --strip-debug --add-gnu-debuglink=library.debug library.so",
        ),
    ];
    for (case, command) in cases {
        let directory = Directory::new(case);
        std::fs::write(directory.0.join("library.c"), LIBRARY).unwrap();
        directory.run(command);
        let start = loaded(&directory.0.join("library.so"));
        let mut symbols = DebugSymbols::default();
        let stacks: Vec<_> = (start + 1..start + 24).map(|pc| frames(&mut symbols, pc)).collect();
        let file = directory.0.join("library.c").to_str().unwrap().to_owned();
        let is_inlined = |stack: &Vec<(String, String, u32, u32)>| {
            let [inner, outer] = &**stack else { return false };
            (&*inner.0, &*inner.1, inner.2) == ("inlined", &file, 2)
                && (&*outer.0, &*outer.1, outer.2) == ("spanprof_outer", &file, 3)
        };
        assert!(stacks.iter().any(is_inlined), "{case}: {stacks:#?}");
    }
}

#[test]
fn a_library_without_debug_information_is_named_by_its_symbols() {
    let _turn = one_at_a_time();
    spanprof_os::forget_objects();
    let directory = Directory::new("none");
    std::fs::write(directory.0.join("library.c"), LIBRARY).unwrap();
    directory.run("cc -shared -fPIC -O2 library.c -o library.so");
    let start = loaded(&directory.0.join("library.so"));
    let outer = ("spanprof_outer".to_owned(), String::new(), 0, 0);
    let mut symbols = DebugSymbols::default();
    assert_eq!([0, 4].map(|offset| frames(&mut symbols, start + offset)), [[outer.clone()], [outer]]);
}

#[test]
fn samples_of_an_unloaded_library_keep_its_names_when_another_one_is_loaded_at_its_address() {
    let _turn = one_at_a_time();
    let directory = Directory::new("replaced");
    let listed_at = |head: u64| assert!(spanprof_os::refresh_objects(0, &|| head));
    spanprof_os::forget_objects();
    listed_at(1);
    let libraries = [("first", 10), ("second", 20)].map(|(name, position)| {
        std::fs::write(directory.0.join("library.c"), LIBRARY.replace("inlined", name)).unwrap();
        directory.run(&format!("cc -shared -fPIC -O2 -g library.c -o {name}.so"));
        let path = CString::new(directory.0.join(format!("{name}.so")).to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors, of which nothing runs.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: the library is loaded.
        let address = unsafe { libc::dlsym(library, c"spanprof_outer".as_ptr()) } as u64;
        listed_at(position);
        // SAFETY: the library is loaded, and closed once.
        unsafe { libc::dlclose(library) };
        listed_at(position + 5);
        (name, position, address)
    });
    let mut symbols = DebugSymbols::default();
    for (name, position, address) in libraries {
        let mut frames = Vec::new();
        (0..24).for_each(|offset| _ = symbols.frames(address + offset, position, &mut frames));
        let names = frames.iter().map(|frame| &*frame.function);
        let inlined: HashSet<_> = names.filter(|name| ["first", "second"].contains(name)).collect();
        assert_eq!(inlined, HashSet::from([name]));
    }
    assert_eq!(libraries[0].2, libraries[1].2, "the kernel reuses the address");
}

#[test]
fn an_address_outside_of_loaded_files_has_no_name() {
    assert!(!DebugSymbols::default().frames(1 << 40, 0, &mut Vec::new()));
}
