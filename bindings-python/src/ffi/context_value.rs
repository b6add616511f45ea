//! Values of the context variable: objects with a context id, which the signal handler reads, and with the open scopes below it. A
//! scope is found by its value, not by its labels, because another request may have equal ones. Not here: the variable itself
//! (`variable`), labels without an ended scope (`crate::context`).
//!
//! The values below a value are kept only while their scopes are open, so that tasks that inherit values from each other keep no
//! growing list of them.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_aggregate::context::{LabelSetId, PinnedContext};
use spanprof_profiler::binding::ffi_guard;

use super::heap_type::{new_type, slot};

#[repr(C)]
struct ContextValueObject {
    head: ffi::PyObject,
    id: u64,
    value: ContextValue,
}

/// As `CONTEXT_ID` of the runtime's layout, where the handler reads the id.
const _: () = assert!(std::mem::offset_of!(ContextValueObject, id) == 16);

/// The parts of a value.
#[derive(Default)]
pub struct ContextValue {
    /// Number of the scope that made it and is open; 0 for other values.
    pub scope: Cell<u64>,
    /// Index of the scope's record of it.
    pub index: Cell<usize>,
    /// All labels.
    pub labels: LabelSetId,
    /// Of a scope: its own labels. Of other values: all labels of the value below.
    pub base: Cell<LabelSetId>,
    /// Those of the labels that came with the span.
    pub span_labels: LabelSetId,
    /// The value that was current before, if this one is of an open scope; else the nearest below that is of a scope.
    pub below: RefCell<VariableValue>,
    pub pin: Cell<PinnedContext>,
}

static VALUE_TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());

/// Creates the type; called once when the module is imported.
pub fn create_type(py: Python<'_>) -> PyResult<()> {
    let mut slots = [
        slot(ffi::Py_nb_index, index as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let class = new_type(py, c"spanprof._spanprof.ContextValue", size_of::<ContextValueObject>(), 0, &mut slots)?;
    VALUE_TYPE.store(class.into_ptr().cast(), Ordering::Release);
    Ok(())
}

/// Address of the type; immortal.
pub fn type_address() -> usize {
    VALUE_TYPE.load(Ordering::Acquire) as usize
}

/// An owned reference to a value of the variable, or to any other object, which has no context; null means "unset".
///
/// Cloning and dropping change the reference count: both require the GIL, which every caller in `ffi` holds.
pub struct VariableValue(pub(super) *mut ffi::PyObject);

impl VariableValue {
    pub const UNSET: Self = Self(ptr::null_mut());

    /// A new value; `UNSET` when Python is out of memory.
    pub fn new(id: u64, value: ContextValue) -> Self {
        // SAFETY: the type is immortal; the new instance is initialized before it is returned. Null comes with an exception.
        unsafe {
            let object = ffi::PyType_GenericAlloc(VALUE_TYPE.load(Ordering::Acquire), 0);
            if object.is_null() {
                ffi::PyErr_Clear();
                return Self::UNSET;
            }
            let fields = object.cast::<ContextValueObject>();
            (*fields).id = id;
            ptr::write(&mut (*fields).value, value);
            Self(object)
        }
    }

    pub fn of(object: &Bound<'_, PyAny>) -> Self {
        Self(object.clone().into_ptr())
    }

    /// The object; `None` when unset.
    pub fn as_object<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: an owned reference to a live object, or null.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, self.0) }
    }

    fn object(&self) -> Option<&ContextValueObject> {
        let is_value = !self.0.is_null() && self.class() == VALUE_TYPE.load(Ordering::Acquire);
        // SAFETY: an owned reference to an instance of the type, which was initialized when it was created.
        is_value.then(|| unsafe { &*self.0.cast::<ContextValueObject>() })
    }

    fn class(&self) -> *mut ffi::PyTypeObject {
        // SAFETY: the callers have checked that it is not null; an owned reference to a live object.
        unsafe { ffi::Py_TYPE(self.0) }
    }

    /// Its parts; `None` when it has no context.
    pub fn parts(&self) -> Option<&ContextValue> {
        self.object().map(|object| &object.value)
    }

    /// The context id; 0 when unset.
    pub fn id(&self) -> u64 {
        self.object().map_or(0, |object| object.id)
    }

    /// All labels.
    pub fn labels(&self) -> LabelSetId {
        self.parts().map_or(LabelSetId::EMPTY, |value| value.labels)
    }

    /// The labels that came with the span.
    pub fn span_labels(&self) -> LabelSetId {
        self.parts().map_or(LabelSetId::EMPTY, |value| value.span_labels)
    }

    /// See [`ContextValue::below`].
    pub fn below(&self) -> Self {
        self.parts().map_or(Self::UNSET, |value| value.below.borrow().clone())
    }

    /// Whether an open scope made it.
    pub fn is_of_open_scope(&self) -> bool {
        self.parts().is_some_and(|value| value.scope.get() != 0)
    }

    /// The values from this one down, as far as their scopes are open.
    pub fn chain(&self) -> impl Iterator<Item = Self> {
        let first = self.parts().is_some().then(|| self.clone());
        std::iter::successors(first, |value| Some(value.below()).filter(|below| below.parts().is_some()))
    }

    /// The scope has ended: contexts that inherited the value keep its labels.
    pub fn end_scope(&self) {
        if let Some(value) = self.parts() {
            value.scope.set(0);
            value.base.set(LabelSetId::EMPTY);
            drop(value.below.take());
            drop(value.pin.take());
        }
    }

    /// Visits the object for the garbage collector.
    ///
    /// # Safety
    /// `visit` and `argument` come from the interpreter's `tp_traverse`.
    pub unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
        if self.0.is_null() {
            return 0;
        }
        // SAFETY: caller's contract; an owned reference.
        unsafe { visit(self.0, argument) }
    }

    /// Whether both are the same object (or both unset).
    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: the pointer is only used while the GIL is held (type's contract), by any thread.
unsafe impl Send for VariableValue {}
// SAFETY: the pointer is only used while the GIL is held (type's contract), which orders all accesses.
unsafe impl Sync for VariableValue {}

impl Default for VariableValue {
    fn default() -> Self {
        Self::UNSET
    }
}

impl Clone for VariableValue {
    fn clone(&self) -> Self {
        // SAFETY: owned reference or null; the GIL is held (type's contract).
        unsafe { ffi::Py_XINCREF(self.0) };
        Self(self.0)
    }
}

impl Drop for VariableValue {
    fn drop(&mut self) {
        // SAFETY: owned reference or null; the GIL is held (type's contract).
        unsafe { ffi::Py_XDECREF(self.0) };
    }
}

unsafe extern "C" fn index(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with an instance of the type.
    unsafe { ffi::PyLong_FromUnsignedLongLong((*object.cast::<ContextValueObject>()).id) }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    ffi_guard((), || {
        // SAFETY: the last reference is gone. Instances of a heap type own a reference to it, and were allocated by
        // PyType_GenericAlloc without the GC flag.
        let mut below = unsafe {
            let object_type = ffi::Py_TYPE(object);
            let fields = object.cast::<ContextValueObject>();
            let below = (*fields).value.below.take();
            ptr::drop_in_place(&mut (*fields).value);
            ffi::PyObject_Free(object.cast());
            ffi::Py_DECREF(object_type.cast());
            below
        };
        // Not recursive: the list may be long.
        // SAFETY: an owned reference to a live object.
        while below.parts().is_some() && unsafe { ffi::Py_REFCNT(below.0) } == 1 {
            let next = below.parts().map(|value| value.below.take()).unwrap_or_default();
            below = next;
        }
    });
}
