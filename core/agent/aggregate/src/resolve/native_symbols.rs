//! Frames of native code: names of symbols, demangled. Not here: the search for a symbol (the profiler), the cache
//! (`locations`).

use std::path::PathBuf;
use std::sync::Arc;

use crate::runtime::{Frame, FrameType, NativeMapping};
use spanprof_signal::Ring;

/// The native function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeFunction {
    /// Its symbol, mangled; `None` without one.
    pub symbol: Option<Arc<str>>,
    /// Address of its first instruction, where its symbol states it.
    pub start: Option<u64>,
    /// Path of the shared object or program.
    pub file: PathBuf,
    /// Whether it belongs to the profiler's own library.
    pub is_own: bool,
}

/// Whether native code may be unloaded while its name is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeCode {
    /// Of the program, which is never unloaded.
    Program,
    /// Of a loaded library, or of no file.
    Loaded,
    /// Of a library that is no longer loaded.
    Unloaded,
    /// Of one of several libraries that had this address.
    Doubtful,
}

/// Finds native functions by the symbol tables of loaded files.
pub trait NativeSymbols: Send {
    /// The state of the code at `pc` when the sample at ring position `position` was taken.
    fn code(&self, pc: u64, position: u64) -> NativeCode;

    /// The function that was at `pc` then; `None` outside of loaded files.
    fn function(&mut self, pc: u64, position: u64) -> Option<NativeFunction>;

    /// Where that function is in its file: the mapping, and the address of `start`, or of the function's begin by the unwind table, or of
    /// `pc`. `None` outside of files that can be read.
    fn place(&mut self, pc: u64, position: u64, start: Option<u64>) -> Option<(Arc<NativeMapping>, u64)>;

    /// Notes the files that were loaded and unloaded; true if there were any.
    fn refresh(&mut self, ring: &Ring) -> bool;

    /// Whether `refresh` notices all loads and unloads in this process.
    fn notices_unloads(&self) -> bool;
}

/// Function name of every frame in this library.
const OWN_CODE: &str = "spanprof";
/// Suffixes of GCC and LLVM for clones and parts of a function.
const CLONE_SUFFIXES: [&str; 6] = [".part.", ".constprop.", ".isra.", ".cold", ".lto_priv.", ".llvm."];

/// The frame of a native function whose symbol is demangled. Uncached.
pub fn native_frame(mut function: NativeFunction) -> Frame {
    let symbol = function.symbol.take().map(|symbol| demangle(&symbol).map_or(symbol, Arc::from));
    frame_of_function(&function, symbol)
}

/// The frame of a native function; `symbol` is demangled.
pub(crate) fn frame_of_function(function: &NativeFunction, symbol: Option<Arc<str>>) -> Frame {
    let file = function.file.to_string_lossy();
    let name = match symbol {
        _ if function.is_own => OWN_CODE.into(),
        Some(symbol) => symbol,
        None => {
            let name = function.file.file_name().map_or(file.clone(), |name| name.to_string_lossy());
            format!("[{name}]").into()
        }
    };
    Frame { function: name, file: file.as_ref().into(), frame_type: FrameType::Native, ..Frame::default() }
}

/// Demangles a C++ or Rust symbol, without parameters, hash and clone suffixes (`.part.0`, `.cold`). `None` when the symbol
/// is already a plain name.
pub fn demangle(symbol: &str) -> Option<String> {
    let end = CLONE_SUFFIXES.iter().filter_map(|suffix| symbol.find(suffix)).min().unwrap_or(symbol.len());
    let base = symbol.get(..end)?;
    if let Ok(rust) = rustc_demangle::try_demangle(base) {
        return Some(format!("{rust:#}"));
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = base.starts_with("_Z").then(|| cpp_demangle::Symbol::new(base).ok()).flatten();
    let name = cpp.and_then(|cpp| cpp.demangle_with_options(&options).ok());
    name.or_else(|| (base.len() < symbol.len() && !base.is_empty()).then(|| base.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_symbols_are_demangled_and_plain_names_are_unchanged() {
        let name = demangle("_ZN2v88internal10HeapObject11SizeFromMapENS0_3MapE");
        assert_eq!(name.as_deref(), Some("v8::internal::HeapObject::SizeFromMap"));
        assert_eq!(["epoll_wait", "_Z", "_ZN4"].map(demangle), [None, None, None]);
    }

    #[test]
    fn demangled_names_have_no_clone_suffix_and_rust_names_no_hash() {
        let part = demangle("_ZN8PhaseIFG9re_insertEj.part.0.cold");
        assert_eq!(part.as_deref(), Some("PhaseIFG::re_insert"));
        assert_eq!(demangle("qsort_r.constprop.0").as_deref(), Some("qsort_r"));
        assert_eq!(demangle("runtime.mallocgc"), None, "Go's names contain dots");
        let rust = demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE");
        assert_eq!(rust.as_deref(), Some("core::fmt::Formatter::pad"));
    }
}
