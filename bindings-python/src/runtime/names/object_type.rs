//! The type of a live object, from the header at its address, without the GIL: the leaf frame of objects in use. Called on the drain
//! thread, which checks before and after that the object was not freed meanwhile; a live object keeps its type alive.
//!
//! An allocation may be a buffer instead of an object, such as the items of a list, or an object that is not initialized yet. A
//! header is accepted if its parts agree: the type is a type, the reference count is one, the garbage collector's links point
//! back, the size is that of the type. Otherwise the type is unknown.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 to 3.15 | `tp_name`, `tp_basicsize`, `tp_itemsize`, `tp_flags` of `PyTypeObject` (`Include/cpython/object.h`) | the constants, verified by `ObjectTypes::find` |
//! | 3.9 to 3.15 | `PyGC_Head` has two words, with flags in the low bits (`Include/internal/pycore_gc.h`, since 3.14 `pycore_interp_structs.h`) | `is_collectable` |
//! | 3.11 | `Py_TPFLAGS_MANAGED_DICT`: two words before the head of the garbage collector (`_PyType_PreHeaderSize`, `Objects/typeobject.c`) | `MANAGED` |
//! | 3.12 | `Py_TPFLAGS_MANAGED_WEAKREF` too; `lv_tag` of `int` | `MANAGED`, `has_size_of_type` |
//! | 3.14 | flags beside the reference count | `is_reference_count` |

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use spanprof_signal::{guarded, USER_SPACE_END};

use super::code_info::text;
use crate::runtime::interpreter::layout::{fixed, IntegerForm, InterpreterLayout};

const TYPE_NAME: usize = 24;
const BASIC_SIZE: usize = 32;
const ITEM_SIZE: usize = 40;
const FLAGS: usize = 168;
/// `Py_TPFLAGS_HEAPTYPE`, `Py_TPFLAGS_HAVE_GC`, `Py_TPFLAGS_TYPE_SUBCLASS`.
const IS_HEAP_TYPE: u64 = 1 << 9;
const HAS_GC: u64 = 1 << 14;
const IS_METATYPE: u64 = 1 << 31;
/// `Py_TPFLAGS_MANAGED_WEAKREF` and `Py_TPFLAGS_MANAGED_DICT`.
const MANAGED: u64 = 1 << 3 | 1 << 4;
/// Bytes of a type object that are searched for its qualified name.
const TYPE_OBJECT_BYTES: usize = 1280;
/// Longer names of static types are unknown.
const MAX_NAME_BYTES: usize = 128;

/// How objects of the running interpreter are read.
#[derive(Clone, Copy, Debug)]
pub struct ObjectTypes {
    layout: InterpreterLayout,
    /// Addresses of the types `type` and `str`.
    metatype: usize,
    text: usize,
    integer: usize,
    /// `ht_qualname` of a class.
    qualified_name: usize,
}

impl ObjectTypes {
    /// Verifies the offsets with types of known properties; `None` where they do not agree.
    pub fn find(py: Python<'_>, layout: &InterpreterLayout) -> Option<Self> {
        let metatype = py.get_type::<PyType>();
        let attributes = PyDict::new(py);
        attributes.set_item("__qualname__", "spanprof.probe.of.a.class").ok()?;
        let class = metatype.call1(("probe", (py.get_type::<PyAny>(),), attributes)).ok()?;
        let name = class.getattr("__qualname__").ok()?.as_ptr() as u64;
        let qualified_name = (FLAGS..TYPE_OBJECT_BYTES)
            .step_by(8)
            .find(|offset| guarded::read_u64(class.as_ptr() as usize + offset) == Some(name))?;
        let verified = Self {
            layout: *layout,
            metatype: metatype.as_ptr() as usize,
            text: &raw const ffi::PyUnicode_Type as usize,
            integer: &raw const ffi::PyLong_Type as usize,
            qualified_name,
        };
        let types = [class.cast::<PyType>().ok()?.clone(), py.get_type::<PyDict>(), metatype];
        types
            .iter()
            .all(|class| {
                let word = |offset| guarded::read_u64(class.as_ptr() as usize + offset);
                let size = |name| class.getattr(name).ok()?.extract::<u64>().ok();
                // SAFETY: a live type object.
                let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
                word(FLAGS) == Some(flags as u64)
                    && word(BASIC_SIZE) == size("__basicsize__")
                    && word(ITEM_SIZE) == size("__itemsize__")
                    && verified.is_type(class.as_ptr() as usize) == Some(true)
                    && verified.type_name(class.as_ptr() as usize).is_some()
            })
            .then_some(verified)
    }

    /// The name of the type of the object in the allocation of `bytes` at `address`.
    pub fn name(&self, address: usize, bytes: u64) -> Option<String> {
        let before_object =
            [0, 16, 32].into_iter().find(|before| self.is_object(address, *before, bytes) == Some(true))?;
        self.type_name(word(address + before_object, fixed::TYPE)? as usize)
    }

    /// Whether an object begins after `before` bytes of the allocation.
    fn is_object(&self, address: usize, before: usize, bytes: u64) -> Option<bool> {
        let object = address.checked_add(before)?;
        let available = bytes.checked_sub(before as u64).filter(|available| *available >= 16)?;
        let class = word(object, fixed::TYPE)? as usize;
        if !self.is_type(class)? {
            return Some(false);
        }
        let flags = word(class, FLAGS)?;
        let managed = if self.layout.version >= (3, 11) { flags & MANAGED } else { 0 };
        let expected = if flags & HAS_GC != 0 { 16 } else { 0 } + if managed != 0 { 16 } else { 0 };
        Some(
            before == expected
                && is_reference_count(word(object, 0)?)
                && match flags & HAS_GC {
                    0 => self.has_size_of_type(object, class, available)?,
                    _ => is_collectable(object)? && available >= word(class, BASIC_SIZE)?,
                },
        )
    }

    /// Whether a word of an allocation is the address of a type.
    fn is_type(&self, class: usize) -> Option<bool> {
        let metatype = type_of_unknown(class)?;
        let is_metatype =
            || Some(type_of_unknown(metatype)? == self.metatype && word(metatype, FLAGS)? & IS_METATYPE != 0);
        Some(metatype == self.metatype || is_metatype()?)
    }

    /// Whether an object without a head of the garbage collector has this size.
    fn has_size_of_type(&self, object: usize, class: usize, bytes: u64) -> Option<bool> {
        if class == self.text {
            let state = word(object, fixed::TEXT_STATE)? as u32;
            let text = &self.layout.text;
            let header = if state >> 6 & 1 != 0 { text.ascii_bytes } else { text.compact_bytes } as u64;
            let width = u64::from(state >> 2 & 7);
            return Some(
                word(object, fixed::TEXT_LENGTH)?.checked_add(1)?.checked_mul(width)?.checked_add(header)? == bytes,
            );
        }
        let (basic, item) = (word(class, BASIC_SIZE)?, word(class, ITEM_SIZE)?);
        if item == 0 {
            return Some(basic.next_multiple_of(8) == bytes.next_multiple_of(8));
        }
        let count = match self.layout.integer {
            _ if class != self.integer => word(object, fixed::SIZE)?,
            IntegerForm::SignedSize => (word(object, fixed::SIZE)? as i64).unsigned_abs(),
            IntegerForm::Tag => word(object, fixed::SIZE)? >> 3,
        };
        let exact = item.checked_mul(count)?.checked_add(basic)?;
        Some((exact..=exact + item + 8).contains(&bytes))
    }

    /// Name of a static type, with its module; qualified name of a class.
    fn type_name(&self, class: usize) -> Option<String> {
        if word(class, FLAGS)? & IS_HEAP_TYPE != 0 {
            return text::read(&self.layout.text, word(class, self.qualified_name)? as usize);
        }
        let name = word(class, TYPE_NAME)? as usize;
        let mut bytes = Vec::new();
        while bytes.len() < MAX_NAME_BYTES {
            let eight = guarded::read_u64(name.checked_add(bytes.len())?)?.to_ne_bytes();
            if let Some(end) = eight.iter().position(|byte| *byte == 0) {
                bytes.extend(&eight[..end]);
                return String::from_utf8(bytes).ok().filter(|name| !name.is_empty());
            }
            bytes.extend(eight);
        }
        None
    }
}

/// The type of an object, if there is one at this address: the contents of a buffer may be any number, and no read may fault.
fn type_of_unknown(object: usize) -> Option<usize> {
    let may_be_address = object & 7 == 0 && (4096..USER_SPACE_END).contains(&object);
    may_be_address.then(|| guarded::read_u64_of_unknown(object + fixed::TYPE).map(|class| class as usize))?
}

fn word(object: usize, offset: usize) -> Option<u64> {
    guarded::read_u64(object.checked_add(offset)?)
}

/// A pointer has other upper bits. From 3.14 on, the uppermost 16 are flags.
fn is_reference_count(word: u64) -> bool {
    word as u32 != 0 && word >> 32 & 0xffff == 0
}

/// Whether the head before the object is that of an object that is tracked, or not.
fn is_collectable(object: usize) -> Option<bool> {
    let (head, link) = (object.checked_sub(16)?, |word: u64| word as usize & !3);
    let next = link(word(head, 0)?);
    Some(match next {
        0 => link(word(head, 8)?) == 0,
        next => link(guarded::read_u64_of_unknown(next.checked_add(8)?)?) == head,
    })
}
