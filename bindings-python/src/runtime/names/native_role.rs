//! Tells the interpreter's functions that pass calls on from those that Python code calls, by name. Called by the drain thread.
//!
//! # Versions
//! Names are those of CPython 3.9–3.15: `Objects/call.c`, `Objects/methodobject.c`, `Objects/descrobject.c`, `Objects/typeobject.c`,
//! `Objects/classobject.c`, `Objects/genobject.c`, `Python/ceval.c`. Where a stripped interpreter has no names, its functions are not
//! told apart.

use std::path::Path;

use spanprof_aggregate::runtime::{Frame, NativeRole};

/// Beginnings of names of functions that pass calls on.
const CALL_GLUE: [&str; 37] = [
    "_PyEval_",
    "PyEval_",
    "_TAIL_CALL_",
    "_PyObject_Call",
    "PyObject_Call",
    "_PyObject_FastCall",
    "_PyObject_MakeTpCall",
    "_PyObject_Vectorcall",
    "PyObject_Vectorcall",
    "_PyFunction_",
    "PyVectorcall_",
    "_PyVectorcall_",
    "PyCFunction_Call",
    "cfunction_",
    "method_vectorcall",
    "method_call",
    "slot_",
    "type_call",
    "wrap_",
    "wrapper_call",
    "wrapperdescr_",
    "PyGen_am_send",
    "_PyGen_Send",
    "PyIter_Send",
    "gen_iternext",
    "gen_send",
    "gen_throw",
    "_gen_throw",
    "async_gen_asend_",
    "async_gen_athrow_",
    "coro_wrapper_",
    "_Py_CheckFunctionResult",
    "object_vacall",
    "do_call_core",
    "call_function",
    "function_code_fastcall",
    "trace_call_function",
];
/// Parts of such names.
const GLUE_PARTS: [&str; 2] = ["vectorcall", "GetAttr"];

/// The part of a native frame in Python stacks. `interpreter`: the file of the interpreter.
pub fn native_role(frame: &Frame, interpreter: &Path) -> NativeRole {
    let name = &*frame.function;
    if interpreter != Path::new(&*frame.file) {
        return NativeRole::Shown;
    }
    let is_glue =
        CALL_GLUE.iter().any(|begin| name.starts_with(begin)) || GLUE_PARTS.iter().any(|part| name.contains(part));
    if is_glue {
        NativeRole::CallGlue
    } else {
        NativeRole::RuntimeFunction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_interpreter_are_glue_or_called_by_python_code() {
        let role = |name: &str, file: &str| {
            let frame = Frame { function: name.into(), file: file.into(), ..Frame::default() };
            native_role(&frame, Path::new("/usr/lib/libpython3.11.so.1.0"))
        };
        let interpreter = |name: &str| role(name, "/usr/lib/libpython3.11.so.1.0");
        for glue in [
            "_PyEval_EvalFrameDefault",
            "cfunction_vectorcall_O",
            "_PyObject_MakeTpCall",
            "slot_tp_call",
            "PyGen_am_send",
        ] {
            assert_eq!(interpreter(glue), NativeRole::CallGlue, "{glue}");
        }
        for called in ["list_sort", "long_add", "_PyObject_Malloc", "[libpython3.11.so.1.0]", "scanstring_unicode"] {
            assert_eq!(interpreter(called), NativeRole::RuntimeFunction, "{called}");
        }
        assert_eq!(role("method_call", "/srv/_core.so"), NativeRole::Shown);
    }
}
