//! Determines the properties of the running interpreter once at start, and rejects one that cannot be profiled. Not here: the
//! comparison of the walk with the interpreter's own frames (`self_check`).
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.12 | offsets are not published | `layout`, `self_check` |
//! | 3.13 | `_PyRuntime` begins with `_Py_DebugOffsets` (`Include/internal/pycore_runtime.h`); free-threaded builds exist | `check_published`, `detect_interpreter` |
//! | 3.14 | the fields of `_Py_DebugOffsets` moved (`Include/internal/pycore_debug_offsets.h`) | `InterpreterLayout::published` |

use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;

use pyo3::prelude::*;

use super::error::{RuntimeError, RuntimeErrorKind};
use super::interpreter::context_probe::ContextProbe;
use super::interpreter::layout::{self, InterpreterLayout, PublishedOffset};
use super::interpreter::{symbol, FirstThreadState, Interpreter};
use super::version::InterpreterVersion;

/// Determines the properties of this process's interpreter, or returns why it cannot be profiled.
pub fn detect_interpreter(py: Python<'_>, version: &InterpreterVersion) -> Result<Interpreter, RuntimeError> {
    if version.free_threaded {
        return Err(RuntimeError::new(
            RuntimeErrorKind::FreeThreaded,
            format!("CPython {} is a free-threaded build; spanprof reads builds with the GIL only", version.text),
            "run the program on the standard build of the same version",
        ));
    }
    let (major, minor) = version.major_minor;
    let layout = *layout::for_version(version.major_minor).ok_or_else(|| {
        RuntimeError::new(
            RuntimeErrorKind::UnknownVersion,
            format!("expected CPython 3.9 to 3.15, got {major}.{minor} ({})", version.text),
            "use a version of spanprof that supports this interpreter, or an interpreter from that range",
        )
    })?;
    let main = require_main(py)?;
    check_published(&layout)?;
    let types = py.import("types").map_err(|error| RuntimeError::interpreter(py, "importing types", error))?;
    let type_address = |name: &str| {
        types
            .getattr(name)
            .map(|object| object.as_ptr() as usize)
            .map_err(|error| RuntimeError::interpreter(py, "looking up its types", error))
    };
    let loop_entry = symbol(c"_PyEval_EvalFrameDefault").map_or(0, |function| function as usize);
    Ok(Interpreter {
        layout,
        current_thread: pyo3::ffi::PyGILState_GetThisThreadState,
        first_thread: symbol(c"PyInterpreterState_ThreadHead").map(|function| {
            // SAFETY: CPython 3.9 to 3.15 declare the function with exactly this C type.
            unsafe { std::mem::transmute::<*mut c_void, FirstThreadState>(function) }
        }),
        main,
        loop_entry,
        loop_bytes: spanprof_os::exported_function_bytes(loop_entry).unwrap_or(0),
        code_type: type_address("CodeType")?,
        frame_type: type_address("FrameType")?,
        int_type: &raw const pyo3::ffi::PyLong_Type as usize,
        descriptor_id: AtomicUsize::new(0),
        context: ContextProbe::new(),
    })
}

/// The state of the current interpreter, if it is the main one.
pub fn require_main(_py: Python<'_>) -> Result<usize, RuntimeError> {
    // SAFETY: `Python` proves that the GIL is held; both only read the current interpreter.
    let (state, id) = unsafe {
        let state = pyo3::ffi::PyInterpreterState_Get();
        (state as usize, pyo3::ffi::PyInterpreterState_GetID(state))
    };
    if id == 0 {
        return Ok(state);
    }
    Err(RuntimeError::new(
        RuntimeErrorKind::Subinterpreter,
        format!("start() was called in subinterpreter {id}; spanprof profiles the main interpreter only"),
        "call start() in the main interpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
    ))
}

/// Compares the layout with the offsets that `_PyRuntime` publishes (3.13 and later).
fn check_published(layout: &InterpreterLayout) -> Result<(), RuntimeError> {
    if layout.published.is_empty() {
        return Ok(());
    }
    let runtime = symbol(c"_PyRuntime").ok_or_else(|| {
        RuntimeError::new(
            RuntimeErrorKind::MissingSymbol,
            "the interpreter does not export _PyRuntime, which holds the offsets of its structures",
            "run on an interpreter that exports its symbols (the default of every build)",
        )
    })? as usize;
    let word = |at: usize| spanprof_signal::guarded::read_u64(runtime + at);
    let mismatch = |message: String| {
        RuntimeError::new(
            RuntimeErrorKind::LayoutMismatch,
            message,
            "report this with the full version of the interpreter; profiling stays off, the program is not affected",
        )
    };
    if word(0) != Some(u64::from_ne_bytes(*b"xdebugpy")) {
        return Err(mismatch("expected the cookie 'xdebugpy' at the start of _PyRuntime, got other bytes".into()));
    }
    for &PublishedOffset { name, at, offset } in layout.published {
        let published = word(at);
        if published != Some(offset) {
            let (major, minor) = layout.version;
            return Err(mismatch(format!(
                "expected {name} of CPython {major}.{minor} to be {offset}, the interpreter publishes {published:?}"
            )));
        }
    }
    Ok(())
}
