//! Errors and panics at the door: the core's error becomes an exception whose code is its kind, a panic becomes a counted
//! fallback. Not here: what an error says (the core).

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use spanprof::config::in_camel_case;
use spanprof::{take_panic, Error, ErrorKind};

use crate::door::OPTIONS;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics stopped at the door, for `stats()`.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// The catching door of calls that never throw: a panic becomes `fallback`.
pub fn quiet<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        fallback
    })
}

/// The catching door of calls that may throw. The reason is JSON, `{kind, message, hint}`, which `js/` makes an error of.
pub fn raising<T>(body: impl FnOnce() -> Result<T, Error>) -> napi::Result<T> {
    let panicked = || {
        let text = take_panic().unwrap_or_else(|| "failed inside".to_owned());
        let message = format!("the profiler {text}; the program is not affected");
        Error::new(ErrorKind::System, message, "report this message")
    };
    let outcome = quiet(None, || Some(body())).unwrap_or_else(|| Err(panicked()));
    outcome.map_err(|error| {
        let [message, hint] = [error.message, error.hint].map(|text| in_camel_case(&text, &OPTIONS));
        let reason = serde_json::json!({"kind": error.kind.name(), "message": message, "hint": hint});
        napi::Error::from_reason(reason.to_string())
    })
}
