//! Frames of native code: names of symbols, demangled. Not here: the search for a symbol (the profiler), the cache
//! (`locations`).

use std::path::PathBuf;
use std::sync::Arc;

use crate::runtime::{Frame, FrameType, NativeMapping};
use spanprof_profile::demangle;
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
pub const OWN_CODE: &str = "spanprof";

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
