//! Rule: `unsafe` only in the listed places, each with the fact that makes it sound.

use super::{source, Violation};

/// Directories that may contain `unsafe`.
const DIRECTORIES: [&str; 6] = [
    "core/crates/os/",
    "core/src/runtime/",
    "core/crates/signal/",
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

/// Distance of a SAFETY comment above its block, in lines: attributes and further comment lines may lie between.
const SAFETY_DISTANCE_LINES: usize = 8;

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let allowed = DIRECTORIES.iter().any(|directory| path.starts_with(directory)) || FFI_FILES.contains(&path);
    let lines = source::rust(text);
    let mut violations = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for position in uses(&line.code) {
            let after = line.code[position + "unsafe".len()..].trim_start();
            if !allowed {
                let message = "`unsafe` outside its places (core/crates/os, core/crates/signal, core/src/runtime, bindings-*/src/runtime, the files of an FFI boundary)";
                violations.push(Violation::new(path, at + 1, message));
            } else if needs_reason(&line.code[..position], after) && !has_reason(&lines, at, after) {
                violations.push(Violation::new(
                    path,
                    at + 1,
                    "`unsafe` without a `// SAFETY:` line that names the fact that makes it sound",
                ));
            }
        }
    }
    violations
}

/// Positions of the keyword `unsafe` in a line of code; lint names and longer words do not count.
fn uses(code: &str) -> Vec<usize> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("unsafe")
        .filter(|(at, word)| !code[..*at].ends_with(name) && !code[at + word.len()..].starts_with(name))
        .map(|(at, _)| at)
        .collect()
}

/// A function type (`unsafe fn(…)`) needs no reason. A private declaration needs none either: each unsafe operation in its
/// body has a block with its own reason (`unsafe_op_in_unsafe_fn`).
fn needs_reason(before: &str, after: &str) -> bool {
    let is_type = ["fn(", "(", "extern \"", "extern  fn("].iter().any(|start| after.starts_with(start));
    let declares = ["fn ", "extern", "trait "].iter().any(|start| after.starts_with(start));
    !is_type && (!declares || before.trim_start().starts_with("pub"))
}

fn has_reason(lines: &[source::SourceLine], at: usize, after: &str) -> bool {
    let declares = after.starts_with("fn ") || after.starts_with("extern") || after.starts_with("trait");
    let states = |comment: &str| comment.contains("SAFETY:") || (declares && comment.contains("# Safety"));
    if lines[at..lines.len().min(at + 2)].iter().any(|line| states(&line.comment)) {
        return true;
    }
    let above = &lines[..at];
    if declares {
        // The doc comment and the attributes right above, however long.
        return above
            .iter()
            .rev()
            .take_while(|line| {
                line.code.trim().is_empty() && !line.comment.is_empty() || line.code.trim().starts_with('#')
            })
            .any(|line| states(&line.comment));
    }
    above.iter().rev().take(SAFETY_DISTANCE_LINES).any(|line| states(&line.comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: &str = "core/crates/os/src/timer.rs";

    #[test]
    fn unsafe_outside_the_listed_places_is_found() {
        let violations =
            check("core/crates/aggregate/src/drain.rs", "fn f() {\n    // SAFETY: x is alive\n    unsafe { g() }\n}\n");
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].line, 3);
    }

    #[test]
    fn unsafe_in_a_listed_place_needs_a_reason() {
        assert_eq!(check(INSIDE, "unsafe { g() }").len(), 1);
        assert_eq!(check(INSIDE, "unsafe impl Send for X {}").len(), 1);
        assert!(check(INSIDE, "// SAFETY: the slot belongs to this thread.\nunsafe { g() }").is_empty());
    }

    #[test]
    fn an_unsafe_function_states_its_contract() {
        assert_eq!(check(INSIDE, "pub unsafe fn f() {}").len(), 1);
        assert!(check(INSIDE, "unsafe fn f() {}").is_empty(), "its blocks have reasons of their own");
        assert!(check(INSIDE, "/// Reads.\n///\n/// # Safety\n/// `at` is mapped.\n#[inline]\npub unsafe fn f() {}")
            .is_empty());
    }

    #[test]
    fn a_function_type_and_a_lint_name_need_none() {
        assert!(check(INSIDE, "pub type F = unsafe fn(u64);\n#![deny(unsafe_op_in_unsafe_fn)]").is_empty());
    }

    #[test]
    fn the_word_in_a_comment_or_string_is_no_use() {
        assert!(
            check("core/crates/aggregate/src/drain.rs", "// unsafe is not here\nlet a = \"unsafe { }\";").is_empty()
        );
    }
}
