//! Rule: `unsafe` only in the listed places. Clippy requires the reason of each.

use super::{source, Violation};

/// Directories that may contain `unsafe`.
const DIRECTORIES: [&str; 7] = [
    "core/agent/os/",
    "core/agent/unwind/",
    "core/src/runtime/",
    "core/agent/signal/",
    "bindings-python/src/runtime/",
    "bindings-node/src/runtime/",
    "bindings-java/src/runtime/",
];

/// Files of the bindings' FFI boundary, which declare and export functions.
const FFI_FILES: [&str; 22] = [
    "bindings-java/src/agent.rs",
    "bindings-java/src/api.rs",
    "bindings-java/src/natives.rs",
    "bindings-python/src/objects/acquire_arguments.rs",
    "bindings-python/src/ffi/context_value.rs",
    "bindings-python/src/objects/exit_function.rs",
    "bindings-python/src/ffi/heap_type.rs",
    "bindings-python/src/ffi/interruption.rs",
    "bindings-python/src/ffi/lifetime.rs",
    "bindings-python/src/objects/lock_type.rs",
    "bindings-python/src/ffi/pending_call.rs",
    "bindings-python/src/objects/recursive_lock_type.rs",
    "bindings-python/src/objects/scope.rs",
    "bindings-python/src/objects/scope_calls.rs",
    "bindings-python/src/objects/otel_calls.rs",
    "bindings-python/src/objects/scope_method.rs",
    "bindings-python/src/ffi/symbols.rs",
    "bindings-python/src/ffi/text.rs",
    "bindings-python/src/ffi/thread.rs",
    "bindings-python/src/objects/thread_lock.rs",
    "bindings-python/src/ffi/trace_id.rs",
    "bindings-python/src/ffi/variable.rs",
];

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    if DIRECTORIES.iter().any(|directory| path.starts_with(directory)) || FFI_FILES.contains(&path) {
        return Vec::new();
    }
    let lines = source::rust(text).into_iter().enumerate().filter(|(_, line)| is_used(&line.code));
    let message = "`unsafe` outside its places (core/agent/os, core/agent/signal, core/agent/unwind, core/src/runtime, bindings-*/src/runtime, the files of an FFI boundary)";
    lines.map(|(line, _)| Violation::new(path, line + 1, message)).collect()
}

/// Whether a line of code has the keyword `unsafe`; lint names and longer words do not count.
fn is_used(code: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("unsafe")
        .any(|(position, word)| !code[..position].ends_with(name) && !code[position + word.len()..].starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTSIDE: &str = "core/agent/aggregate/src/drain.rs";

    #[test]
    fn unsafe_outside_the_listed_places_is_found() {
        let code = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(check(OUTSIDE, code)[0].line, 2);
        assert!(check("core/agent/os/src/timer.rs", code).is_empty());
    }

    #[test]
    fn a_lint_name_a_comment_and_a_text_are_no_use() {
        assert!(check(OUTSIDE, "#![deny(unsafe_op_in_unsafe_fn)]\n// unsafe\nlet a = \"unsafe { }\";").is_empty());
    }
}
