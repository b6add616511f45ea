//! V8's exported C++ functions and their structures, readable in handlers. Signatures and structures are the same in Node.js 18 to
//! 26, except for the variants below. No policy. Not here: finding the functions (`lookup`).
//!
//! # Changes in V8
//! Upstream: `include/v8-unwinder.h` (`RegisterState`, `SampleInfo`), `include/v8-callbacks.h` (`JitCodeEvent`),
//! `include/v8-isolate.h`, `include/v8-persistent-handle.h`, `tools/gen-postmortem-metadata.py` (`v8dbg_*`).
//! Compared with the symbols of 18.20, 20.20, 22.23, 24.21 and 26.10.
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 12.4 (22) | `GlobalizeReference` takes the object, not the address of its slot | `V8::globalize` |
//! | 12.4 (22) | `GetContinuationPreservedEmbedderData` exists | `V8::continuation_data` |
//! | 12.4 (22) | `StateTag` has 16 bits: the upper half of `SampleInfo::vm_state` is not the state | `SampleInfo::is_compiling` |
//! | 14.6 (26) | `GetContinuationPreservedEmbedderDataV2`, which Node.js writes | `V8::continuation_data` |

pub mod lookup;
pub mod node_versions;

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `v8::RegisterState`.
#[repr(C)]
pub struct RegisterState {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    pub lr: usize,
    pub callee_saved: usize,
}

/// `v8::SampleInfo`.
#[repr(C)]
#[derive(Default)]
pub struct SampleInfo {
    pub frames: usize,
    pub external_callback: usize,
    pub context: usize,
    pub embedder_context: usize,
    pub vm_state: u32,
    pub embedder_state: u32,
}

/// `v8::JitCodeEvent`; the union as three words.
#[repr(C)]
pub struct JitCodeEvent {
    pub kind: i32,
    pub code_kind: i32,
    pub start: usize,
    pub len: usize,
    pub script: *mut usize,
    pub user_data: *mut c_void,
    pub wasm: *mut c_void,
    pub union: [usize; 3],
    pub isolate: usize,
}

impl SampleInfo {
    /// V8's states `PARSER`, `BYTECODE_COMPILER` and `COMPILER`; only the low half is the state since 22.
    pub fn is_compiling(&self) -> bool {
        (2..=4).contains(&(self.vm_state & 0xffff))
    }
}

pub type CodeCallback = extern "C" fn(*mut JitCodeEvent);
pub type GcCallback = extern "C" fn(usize, i32, i32);
pub type CallCallback = extern "C" fn(usize);

/// V8's functions in this process.
pub struct V8 {
    pub current_isolate: extern "C" fn() -> usize,
    pub stack_sample: unsafe extern "C" fn(usize, *const RegisterState, *mut usize, usize, *mut SampleInfo),
    pub set_code_callback: unsafe extern "C" fn(usize, i32, Option<CodeCallback>),
    pub detailed_positions: Option<unsafe extern "C" fn(usize)>,
    pub add_gc_prologue: Option<unsafe extern "C" fn(usize, GcCallback, i32)>,
    pub add_gc_epilogue: Option<unsafe extern "C" fn(usize, GcCallback, i32)>,
    pub remove_gc_prologue: Option<unsafe extern "C" fn(usize, GcCallback)>,
    pub remove_gc_epilogue: Option<unsafe extern "C" fn(usize, GcCallback)>,
    pub add_before_call: Option<unsafe extern "C" fn(usize, CallCallback)>,
    pub remove_before_call: Option<unsafe extern "C" fn(usize, CallCallback)>,
    embedded_range: Option<unsafe extern "C" fn(usize, *mut usize, *mut usize)>,
    code_range: Option<unsafe extern "C" fn(usize, *mut usize, *mut usize)>,
    pub continuation_data: Option<unsafe extern "C" fn(usize) -> *const usize>,
    script_id: Option<unsafe extern "C" fn(*const usize) -> i32>,
    source_mapping_url: Option<unsafe extern "C" fn(*const usize) -> *const usize>,
    globalize_object: Option<unsafe extern "C" fn(usize, usize) -> *const usize>,
    globalize_slot: Option<unsafe extern "C" fn(usize, *const usize) -> *const usize>,
    /// From a frame pointer to the interpreter's bytecode array and offset.
    pub bytecode_array: isize,
    pub bytecode_offset: isize,
}

static PUBLISHED: AtomicPtr<V8> = AtomicPtr::new(std::ptr::null_mut());

/// Publishes V8's functions to the handler.
pub fn publish(v8: &'static V8) {
    PUBLISHED.store(std::ptr::from_ref(v8).cast_mut(), Ordering::Release);
}

/// V8's functions for the handler; `None` before the first thread is enrolled.
pub fn published() -> Option<&'static V8> {
    // SAFETY: only references of static lifetime are stored there.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}

impl V8 {
    /// V8's id of the script of a function.
    ///
    /// # Safety
    /// On the isolate's own thread while no object moves; `function` is a function object that has a script.
    pub unsafe fn script_id(&self, function: usize) -> Option<i32> {
        // SAFETY: a v8::UnboundScript is the address of a word that holds the function object.
        self.script_id.map(|script_id| unsafe { script_id(&function) })
    }

    /// The string object with the source map URL of a function's script.
    ///
    /// # Safety
    /// On the isolate's own thread with a handle scope open, while no object moves; `function` is a function object that has a
    /// script.
    pub unsafe fn source_mapping_url(&self, function: usize) -> Option<usize> {
        // SAFETY: a v8::UnboundScript is the address of a word that holds the function object. The returned handle is the address
        // of a word that holds a string, or null.
        unsafe { self.source_mapping_url.and_then(|url| url(&function).as_ref().copied()) }
    }

    /// See `node_versions`.
    pub fn globalizes_object(&self) -> bool {
        self.globalize_object.is_some()
    }

    /// Whether callbacks around collections can be added and removed.
    pub fn has_gc_callbacks(&self) -> bool {
        self.add_gc_prologue.is_some() && self.add_gc_epilogue.is_some() && self.remove_gc_prologue.is_some()
    }

    /// First address and length of the embedded builtins in the program's image.
    pub fn embedded_range(&self, isolate: usize) -> Option<(usize, usize)> {
        let (mut start, mut len) = (0, 0);
        // SAFETY: on the isolate's thread; V8 writes the two words.
        unsafe { self.embedded_range?(isolate, &mut start, &mut len) };
        (start != 0 && len != 0).then_some((start, len))
    }

    /// First address of the memory that is reserved for the isolate's machine code.
    pub fn code_range(&self, isolate: usize) -> Option<usize> {
        let (mut start, mut len) = (0, 0);
        // SAFETY: on the isolate's thread; V8 writes the two words.
        unsafe { self.code_range?(isolate, &mut start, &mut len) };
        (start != 0).then_some(start)
    }

    /// A global handle on the object of a local one: a slot that the collector updates, never freed.
    ///
    /// # Safety
    /// On the isolate's own thread; `local` is a live `napi_value`.
    pub unsafe fn globalize(&self, isolate: usize, local: usize) -> Option<usize> {
        // SAFETY: a napi_value is a v8::Local, the address of the object's slot; each signature is its symbol's.
        let handle = unsafe {
            match (self.globalize_object, self.globalize_slot) {
                (Some(globalize), _) => globalize(isolate, *(local as *const usize)),
                (None, Some(globalize)) => globalize(isolate, local as *const usize),
                (None, None) => std::ptr::null(),
            }
        };
        (!handle.is_null()).then_some(handle as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_vm_states_count_as_compiling() {
        let compiling = |vm_state| SampleInfo { vm_state, ..SampleInfo::default() }.is_compiling();
        let states: Vec<u32> = (0..10).filter(|state| compiling(*state)).collect();
        assert_eq!(states, [2, 3, 4]);
        assert!(compiling(0x7_0003));
    }
}
