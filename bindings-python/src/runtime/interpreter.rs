//! The facts about the running interpreter that the handler needs, found once at start and never freed: layout, types,
//! entry points. Read by everything in `runtime`. Not here: what is done with them.

use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{PyInterpreterState, PyThreadState};
use pyo3::prelude::*;

use super::context_signal::ContextProbe;
use super::error::{RuntimeError, RuntimeErrorKind};
use super::layout::{self, Layout, Published};
use super::version::InterpreterVersion;

type CurrentThreadState = unsafe extern "C" fn() -> *mut PyThreadState;
type FirstThreadState = unsafe extern "C" fn(*mut PyInterpreterState) -> *mut PyThreadState;

/// What is known of the interpreter.
pub struct Interpreter {
    /// Where things are.
    pub layout: Layout,
    /// `PyGILState_GetThisThreadState`: reads a pthread key, nothing else, and is therefore safe in a handler.
    pub current_thread: CurrentThreadState,
    /// `PyInterpreterState_ThreadHead`; without it there is no wall profile.
    pub first_thread: Option<FirstThreadState>,
    /// The main interpreter's state.
    pub main: usize,
    /// Where the interpreter loop begins; 0 when it is not exported.
    pub loop_entry: usize,
    /// Address of the type of code objects.
    pub code_type: usize,
    /// Address of the type of frame objects.
    pub frame_type: usize,
    /// Address of the type `int`.
    pub int_type: usize,
    /// How the context variable is found.
    pub context: ContextProbe,
}

static CURRENT: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());

/// The interpreter, once recognised. Safe in handlers.
#[inline]
pub fn current() -> Option<&'static Interpreter> {
    // SAFETY: null, or a box leaked by `publish` and never freed. Acquire pairs with the Release there.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Makes `interpreter` the one the handler reads.
pub fn publish(interpreter: Interpreter) -> &'static Interpreter {
    let leaked: &'static mut Interpreter = Box::leak(Box::new(interpreter));
    CURRENT.store(leaked, Ordering::Release);
    leaked
}

/// Takes the interpreter away again: it failed its self-check.
pub fn withdraw() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
}

/// Address of a symbol of the process; `None` when this interpreter has none of that name.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string; RTLD_DEFAULT searches what is loaded and loads nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

impl Interpreter {
    /// Finds the facts about the interpreter of this process, or says why it cannot be profiled.
    pub fn recognise(py: Python<'_>, version: &InterpreterVersion) -> Result<Self, RuntimeError> {
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
                "use a version of spanprof that knows this interpreter, or an interpreter from that range",
            )
        })?;
        let main = require_main(py)?;
        check_published(&layout)?;
        let types = py.import("types").map_err(|error| RuntimeError::interpreter("importing types", &error))?;
        let type_address = |name: &str| {
            types
                .getattr(name)
                .map(|found| found.as_ptr() as usize)
                .map_err(|error| RuntimeError::interpreter("looking for its own types", &error))
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
            context: ContextProbe::new(),
        })
    }
}

/// The state of the interpreter we run in, if it is the main one.
pub(super) fn require_main(_py: Python<'_>) -> Result<usize, RuntimeError> {
    // SAFETY: the GIL is held, as `Python` says; both only read the current interpreter.
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

/// Compares the layout with what `_PyRuntime` says of itself (3.13 and later).
fn check_published(layout: &Layout) -> Result<(), RuntimeError> {
    if layout.published.is_empty() {
        return Ok(());
    }
    let runtime = symbol(c"_PyRuntime").ok_or_else(|| {
        RuntimeError::new(
            RuntimeErrorKind::MissingSymbol,
            "the interpreter does not export _PyRuntime, which says where its structures are",
            "run on an interpreter that exports its symbols (the default of every build)",
        )
    })? as usize;
    let word = |at: usize| spanprof_signal::guarded::read_u64(runtime + at);
    let mismatch = |what: String| {
        RuntimeError::new(
            RuntimeErrorKind::LayoutMismatch,
            what,
            "report this with the full version of the interpreter; profiling stays off, the program is not affected",
        )
    };
    if word(0) != Some(u64::from_ne_bytes(*b"xdebugpy")) {
        return Err(mismatch("expected the mark 'xdebugpy' at the head of _PyRuntime, got something else".into()));
    }
    for &Published { name, at, offset } in layout.published {
        let found = word(at);
        if found != Some(offset) {
            let (major, minor) = layout.version;
            return Err(mismatch(format!(
                "expected {name} of CPython {major}.{minor} to be {offset}, the interpreter says {found:?}"
            )));
        }
    }
    Ok(())
}
