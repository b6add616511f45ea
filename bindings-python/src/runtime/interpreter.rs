//! Properties of the running interpreter that the handler requires: layout, types, entry points. Determined once at start and
//! never freed. Read by all modules of `runtime`.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.12 | offsets are not published | `layout`, `self_check` |
//! | 3.13 | `_PyRuntime` begins with `_Py_DebugOffsets` (`Include/internal/pycore_runtime.h`); free-threaded builds exist | `check_published`, `detect` |
//! | 3.14 | the fields of `_Py_DebugOffsets` moved (`Include/internal/pycore_debug_offsets.h`) | `InterpreterLayout::published` |

use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::ffi::{PyInterpreterState, PyThreadState};
use pyo3::prelude::*;

use super::context_probe::ContextProbe;
use super::error::{RuntimeError, RuntimeErrorKind};
use super::layout::{self, InterpreterLayout, PublishedOffset};
use super::version::InterpreterVersion;

type CurrentThreadState = unsafe extern "C" fn() -> *mut PyThreadState;
type FirstThreadState = unsafe extern "C" fn(*mut PyInterpreterState) -> *mut PyThreadState;

/// Properties of the running interpreter.
pub struct Interpreter {
    /// Offsets of fields.
    pub layout: InterpreterLayout,
    /// `PyGILState_GetThisThreadState`: only reads a pthread key and is therefore safe in a handler.
    pub current_thread: CurrentThreadState,
    /// `PyInterpreterState_ThreadHead`; without it there is no wall profile.
    pub first_thread: Option<FirstThreadState>,
    /// The main interpreter's state.
    pub main: usize,
    /// Entry of the interpreter loop; 0 when it is not exported.
    pub loop_entry: usize,
    /// Address of the type of code objects.
    pub code_type: usize,
    /// Address of the type of frame objects.
    pub frame_type: usize,
    /// Address of the type `int`.
    pub int_type: usize,
    /// Offset of the kernel's thread id in the C library's thread descriptor; 0 while unknown. Used up to 3.10.
    pub descriptor_id: AtomicUsize,
    /// Parameters of the context variable's lookup.
    pub context: ContextProbe,
}

static CURRENT: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());

/// The interpreter, once published. Safe in handlers.
#[inline]
pub fn current() -> Option<&'static Interpreter> {
    // SAFETY: null, or a box leaked by `publish` and never freed. Acquire pairs with the Release there.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Publishes `interpreter` to the handler.
pub fn publish(interpreter: Interpreter) -> &'static Interpreter {
    let leaked: &'static mut Interpreter = Box::leak(Box::new(interpreter));
    CURRENT.store(leaked, Ordering::Release);
    leaked
}

/// Withdraws the interpreter after a failed self-check.
pub fn withdraw() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
}

/// Address of a symbol of the process; `None` when it does not exist.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string; RTLD_DEFAULT searches the loaded libraries and loads nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

impl Interpreter {
    /// Determines the properties of this process's interpreter, or returns why it cannot be profiled.
    pub fn detect(py: Python<'_>, version: &InterpreterVersion) -> Result<Self, RuntimeError> {
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
        Ok(Self {
            layout,
            current_thread: pyo3::ffi::PyGILState_GetThisThreadState,
            first_thread: symbol(c"PyInterpreterState_ThreadHead").map(|function| {
                // SAFETY: CPython 3.9 to 3.15 declare the function with exactly this C type.
                unsafe { std::mem::transmute::<*mut c_void, FirstThreadState>(function) }
            }),
            main,
            loop_entry: symbol(c"_PyEval_EvalFrameDefault").map_or(0, |function| function as usize),
            code_type: type_address("CodeType")?,
            frame_type: type_address("FrameType")?,
            int_type: &raw const pyo3::ffi::PyLong_Type as usize,
            descriptor_id: AtomicUsize::new(0),
            context: ContextProbe::new(),
        })
    }
}

#[cfg(test)]
impl Interpreter {
    /// CPython 3.`minor` of no process: addresses that no object has.
    pub fn without_process(minor: u8) -> Self {
        unsafe extern "C" fn no_thread() -> *mut PyThreadState {
            std::ptr::null_mut()
        }
        Self {
            layout: *layout::for_version((3, minor)).unwrap(),
            current_thread: no_thread,
            first_thread: None,
            main: 0,
            loop_entry: 0,
            code_type: 1,
            frame_type: 1,
            int_type: 1,
            descriptor_id: AtomicUsize::new(0),
            context: ContextProbe::new(),
        }
    }
}

/// The state of the current interpreter, if it is the main one.
pub(super) fn require_main(_py: Python<'_>) -> Result<usize, RuntimeError> {
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
        let found = word(at);
        if found != Some(offset) {
            let (major, minor) = layout.version;
            return Err(mismatch(format!(
                "expected {name} of CPython {major}.{minor} to be {offset}, the interpreter publishes {found:?}"
            )));
        }
    }
    Ok(())
}
