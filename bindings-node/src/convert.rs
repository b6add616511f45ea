//! The description of this binding, and its errors as exceptions. Not here: the text of an error, and the guard of calls that
//! never throw (the core).

use spanprof_config::{BindingOption, Error, OptionValues};
use spanprof_profiler::binding::{self, ffi_guard_result, Binding, KeyCase};

pub static BINDING: Binding = Binding { name: "node", options: &OPTIONS, key_case: KeyCase::Camel };

static OPTIONS: [BindingOption; 3] = [
    BindingOption {
        name: "event_loop_block",
        values: OptionValues::Number { min: 0.0, max: 3_600_000.0, unit: "ms" },
        default: "50",
        doc: "milliseconds; a turn of an event loop that takes longer is reported with its stacks, 0 for none",
    },
    BindingOption {
        name: "worker_threads",
        values: OptionValues::Flag,
        default: "true",
        doc: "whether worker threads are profiled by their JavaScript stacks",
    },
    BindingOption {
        name: "stack_walk",
        values: OptionValues::Choice(&["auto", "own", "v8"]),
        default: "auto",
        doc: "the first walk method to try; leave it out for the first that works",
    },
];

/// FFI guard of calls that may throw. The exception's reason is JSON, `{kind, message, hint}`, which `lib/` parses.
pub fn ffi_guard_or_throw<T>(body: impl FnOnce() -> Result<T, Error>) -> napi::Result<T> {
    ffi_guard_result(body).map_err(exception)
}

/// As [`ffi_guard_or_throw`], for calls that throw impossible arguments only: another error is logged.
pub fn ffi_guard_argument<T>(outcome: &str, fallback: T, body: impl FnOnce() -> Result<T, Error>) -> napi::Result<T> {
    binding::ffi_guard_argument(outcome, fallback, body).map_err(exception)
}

fn exception(error: Error) -> napi::Error {
    let [kind, message, hint] = BINDING.error_texts(&error);
    let reason = serde_json::json!({"kind": kind, "message": message, "hint": hint});
    napi::Error::from_reason(reason.to_string())
}
