//! Properties of the running interpreter that the handler requires: layout, types, entry points. Determined once at start and
//! never freed. Read by all modules of `runtime`.

pub mod context_probe;
pub mod layout;

use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::ffi::{PyInterpreterState, PyThreadState};

use context_probe::ContextProbe;
use layout::InterpreterLayout;

/// `PyGILState_GetThisThreadState`.
pub type CurrentThreadState = unsafe extern "C" fn() -> *mut PyThreadState;
/// `PyInterpreterState_ThreadHead`.
pub type FirstThreadState = unsafe extern "C" fn(*mut PyInterpreterState) -> *mut PyThreadState;

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
    /// Size of its exported part; 0 when it is not exported. Used in 3.9.
    pub loop_bytes: u64,
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
    // SAFETY: null, or the reference of static lifetime that `publish` stored. Acquire pairs with the Release there.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Publishes `interpreter` to the handler.
pub fn publish(interpreter: &'static Interpreter) {
    CURRENT.store(std::ptr::from_ref(interpreter).cast_mut(), Ordering::Release);
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
            loop_bytes: 0,
            code_type: 1,
            frame_type: 1,
            int_type: 1,
            descriptor_id: AtomicUsize::new(0),
            context: ContextProbe::new(),
        }
    }
}
