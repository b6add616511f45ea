//! Finds V8's exported functions and constants by mangled name, once per process. Not for signal handlers.

use std::ffi::{c_char, c_void, CStr};
use std::sync::OnceLock;

use super::{CodeCallback, RegisterState, SampleInfo, V8};

/// A function by its mangled names; `None` when this Node.js exports none of them.
macro_rules! function {
    ($($name:literal)+) => {
        // SAFETY: a non-null result is the function of that mangled name, whose C++ signature is the field's C type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<_>>($crate::runtime::v8::lookup::symbol(&[$($name),+])) }
    };
}

pub(crate) use function;

pub fn symbol(names: &[&CStr]) -> *mut c_void {
    // SAFETY: the names end in NUL; looking a name up changes nothing.
    let find = |name: &&CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast::<c_char>()) };
    names.iter().map(find).find(|address| !address.is_null()).unwrap_or(std::ptr::null_mut())
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
    static RESULT: OnceLock<Result<V8, String>> = OnceLock::new();
    RESULT.get_or_init(find).as_ref().map_err(Clone::clone)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_node_the_first_missing_function_is_named() {
        assert_eq!(v8().err().as_deref(), Some("this Node.js does not export v8::Isolate::GetCurrent"));
    }
}
