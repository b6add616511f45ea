//! V8's exported C++ functions, found by mangled name. Signatures and structures are the same in Node.js 18 to 26, except for
//! the variants below. No policy.
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

use std::ffi::{c_char, c_void, CStr};
use std::sync::OnceLock;

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

/// The functions.
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

/// A function by its mangled names; `None` when this Node.js exports none of them.
macro_rules! function {
    ($($name:literal)+) => {
        // SAFETY: a non-null result is the function of that mangled name, whose C++ signature is the field's C type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<_>>($crate::runtime::v8::symbol(&[$($name),+])) }
    };
}

pub(super) use function;

pub fn symbol(names: &[&CStr]) -> *mut c_void {
    // SAFETY: the names end in NUL; looking a name up changes nothing.
    let find = |name: &&CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast::<c_char>()) };
    names.iter().map(find).find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut())
}

fn frame_offset(name: &CStr) -> Option<isize> {
    // SAFETY: V8 exports these constants as ints for debuggers.
    unsafe { symbol(&[name]).cast::<i32>().as_ref() }.map(|offset| *offset as isize)
}

/// The address of exported data.
pub fn data(name: &CStr) -> Option<usize> {
    Some(symbol(&[name]) as usize).filter(|address| *address != 0)
}

/// A constant that V8 exports for debuggers, by the first of its names that exists.
pub fn constant(names: &[&CStr]) -> Option<usize> {
    names.iter().find_map(|name| frame_offset(name)).and_then(|value| usize::try_from(value).ok())
}

/// V8's functions in this process, or the name of the first missing one.
pub fn v8() -> Result<&'static V8, String> {
    static FOUND: OnceLock<Result<V8, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<V8, String> {
    let missing = |what: &str| format!("this Node.js does not export {what}");
    let isolate: Option<extern "C" fn() -> usize> = function!(c"_ZN2v87Isolate10GetCurrentEv");
    let stack: Option<unsafe extern "C" fn(usize, *const RegisterState, *mut usize, usize, *mut SampleInfo)> =
        function!(c"_ZN2v87Isolate14GetStackSampleERKNS_13RegisterStateEPPvmPNS_10SampleInfoE");
    let code: Option<unsafe extern "C" fn(usize, i32, Option<CodeCallback>)> =
        function!(c"_ZN2v87Isolate22SetJitCodeEventHandlerENS_19JitCodeEventOptionsEPFvPKNS_12JitCodeEventEE");
    Ok(V8 {
        current_isolate: isolate.ok_or_else(|| missing("v8::Isolate::GetCurrent"))?,
        stack_sample: stack.ok_or_else(|| missing("v8::Isolate::GetStackSample"))?,
        set_code_callback: code.ok_or_else(|| missing("v8::Isolate::SetJitCodeEventHandler"))?,
        detailed_positions: function!(c"_ZN2v811CpuProfiler38UseDetailedSourcePositionsForProfilingEPNS_7IsolateE"),
        add_gc_prologue: function!(
            c"_ZN2v87Isolate21AddGCPrologueCallbackEPFvPS0_NS_6GCTypeENS_15GCCallbackFlagsEES2_"
        ),
        add_gc_epilogue: function!(
            c"_ZN2v87Isolate21AddGCEpilogueCallbackEPFvPS0_NS_6GCTypeENS_15GCCallbackFlagsEES2_"
        ),
        remove_gc_prologue: function!(
            c"_ZN2v87Isolate24RemoveGCPrologueCallbackEPFvPS0_NS_6GCTypeENS_15GCCallbackFlagsEE"
        ),
        remove_gc_epilogue: function!(
            c"_ZN2v87Isolate24RemoveGCEpilogueCallbackEPFvPS0_NS_6GCTypeENS_15GCCallbackFlagsEE"
        ),
        add_before_call: function!(c"_ZN2v87Isolate28AddBeforeCallEnteredCallbackEPFvPS0_E"),
        remove_before_call: function!(c"_ZN2v87Isolate31RemoveBeforeCallEnteredCallbackEPFvPS0_E"),
        embedded_range: function!(c"_ZN2v87Isolate20GetEmbeddedCodeRangeEPPKvPm"),
        code_range: function!(c"_ZN2v87Isolate12GetCodeRangeEPPvPm"),
        // 26 exports both; Node.js writes V2 there.
        continuation_data: function!(c"_ZN2v87Isolate38GetContinuationPreservedEmbedderDataV2Ev" c"_ZN2v87Isolate36GetContinuationPreservedEmbedderDataEv"),
        script_id: function!(c"_ZNK2v813UnboundScript5GetIdEv" c"_ZN2v813UnboundScript5GetIdEv"),
        source_mapping_url: function!(c"_ZN2v813UnboundScript19GetSourceMappingURLEv"),
        globalize_object: function!(c"_ZN2v812api_internal18GlobalizeReferenceEPNS_8internal7IsolateEm"),
        globalize_slot: function!(c"_ZN2v812api_internal18GlobalizeReferenceEPNS_8internal7IsolateEPm"),
        bytecode_array: frame_offset(c"v8dbg_off_fp_bytecode_array")
            .ok_or_else(|| missing("v8dbg_off_fp_bytecode_array"))?,
        bytecode_offset: frame_offset(c"v8dbg_off_fp_bytecode_offset")
            .ok_or_else(|| missing("v8dbg_off_fp_bytecode_offset"))?,
    })
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
    /// As for `script_id`, and with a handle scope open.
    pub unsafe fn source_mapping_url(&self, function: usize) -> Option<usize> {
        // SAFETY: as above; the handle returned is such an address too, or null.
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
    fn outside_node_the_first_missing_function_is_named() {
        assert_eq!(v8().err().as_deref(), Some("this Node.js does not export v8::Isolate::GetCurrent"));
    }

    #[test]
    fn three_vm_states_count_as_compiling() {
        let compiling = |vm_state| SampleInfo { vm_state, ..SampleInfo::default() }.is_compiling();
        let states: Vec<u32> = (0..10).filter(|state| compiling(*state)).collect();
        assert_eq!(states, [2, 3, 4]);
        assert!(compiling(0x7_0003));
    }
}
