//! Errors and panics at the FFI boundary: the core's error becomes an exception whose code is its kind, a panic becomes a
//! counted fallback. Not here: the text of an error (the core).

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use spanprof::config::in_camel_case;
use spanprof::{take_panic, Error, ErrorKind};

use crate::api::OPTIONS;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics caught at the FFI boundary, for `stats()`.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// FFI guard of calls that never throw: a panic becomes `fallback`.
pub fn ffi_guard<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        fallback
    })
}

/// FFI guard of calls that may throw. The exception's reason is JSON, `{kind, message, hint}`, which `lib/` parses.
pub fn ffi_guard_result<T>(body: impl FnOnce() -> Result<T, Error>) -> napi::Result<T> {
    let panicked = || {
        let text = take_panic().unwrap_or_else(|| "failed inside".to_owned());
        let message = format!("the profiler {text}; the program is not affected");
        Error::new(ErrorKind::System, message, "report this message")
    };
    let outcome = ffi_guard(None, || Some(body())).unwrap_or_else(|| Err(panicked()));
    outcome.map_err(|error| {
        let [message, hint] = [error.message, error.hint].map(|text| in_camel_case(&text, &OPTIONS));
        let reason = serde_json::json!({"kind": error.kind.name(), "message": message, "hint": hint});
        napi::Error::from_reason(reason.to_string())
    })
}
