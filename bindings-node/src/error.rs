//! Errors at the FFI boundary: the core's error becomes an exception. Not here: the text of an error, and the guard of calls
//! that never throw (the core).

use spanprof::binding::ffi_guard_result;
use spanprof::config::in_camel_case;
use spanprof::Error;

use crate::api::OPTIONS;

/// FFI guard of calls that may throw. The exception's reason is JSON, `{kind, message, hint}`, which `lib/` parses.
pub fn ffi_guard_or_throw<T>(body: impl FnOnce() -> Result<T, Error>) -> napi::Result<T> {
    ffi_guard_result(body).map_err(|error| {
        let [message, hint] = [error.message, error.hint].map(|text| in_camel_case(&text, &OPTIONS));
        let reason = serde_json::json!({"kind": error.kind.name(), "message": message, "hint": hint});
        napi::Error::from_reason(reason.to_string())
    })
}
