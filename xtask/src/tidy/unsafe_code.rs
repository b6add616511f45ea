//! Rule: `unsafe` only behind the fence, and each use names the fact it rests on.

use super::{source, Finding};

/// Folders in which `unsafe` may stand.
const FOLDERS: [&str; 5] = [
    "core/src/sys/",
    "core/crates/signal/",
    "bindings-python/src/runtime/",
    "bindings-node/src/runtime/",
    "bindings-java/src/runtime/",
];

/// The FFI doors of the bindings, and the attributes that export them; named one by one.
const DOORS: [&str; 12] = [
    "bindings-java/src/agent.rs",
    "bindings-java/src/entry_points.rs",
    "bindings-python/src/ffi/mod.rs",
    "bindings-python/src/ffi/pending_call.rs",
    "bindings-python/src/ffi/scope.rs",
    "bindings-python/src/ffi/scope_calls.rs",
    "bindings-python/src/ffi/otel_calls.rs",
    "bindings-python/src/ffi/scope_method.rs",
    "bindings-python/src/ffi/symbols.rs",
    "bindings-python/src/ffi/text.rs",
    "bindings-python/src/ffi/trace_id.rs",
    "bindings-python/src/ffi/variable.rs",
];

/// How far above a block its reason may stand: attributes and a comment of some lines lie between.
const REACH_LINES: usize = 8;

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let allowed = FOLDERS.iter().any(|folder| path.starts_with(folder)) || DOORS.contains(&path);
    let lines = source::rust(text);
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for position in uses(&line.code) {
            let after = line.code[position + "unsafe".len()..].trim_start();
            if !allowed {
                let message = "`unsafe` outside its places (core/src/sys, core/crates/signal, bindings-*/src/runtime, an FFI door)";
                findings.push(Finding::new(path, at + 1, message));
            } else if needs_reason(&line.code[..position], after) && !has_reason(&lines, at, after) {
                findings.push(Finding::new(
                    path,
                    at + 1,
                    "`unsafe` without a `// SAFETY:` line that names the fact it rests on",
                ));
            }
        }
    }
    findings
}

/// Where the word `unsafe` stands in a line of code; lint names and longer words do not count.
fn uses(code: &str) -> Vec<usize> {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("unsafe")
        .filter(|(at, word)| !code[..*at].ends_with(name) && !code[at + word.len()..].starts_with(name))
        .map(|(at, _)| at)
        .collect()
}

/// A function type (`unsafe fn(…)`) promises nothing itself; nor does a declaration that nobody outside its file can
/// call, since each operation inside it stands in a block with a reason of its own (`unsafe_op_in_unsafe_fn`).
fn needs_reason(before: &str, after: &str) -> bool {
    let is_type = ["fn(", "(", "extern \"", "extern  fn("].iter().any(|start| after.starts_with(start));
    let declares = ["fn ", "extern", "trait "].iter().any(|start| after.starts_with(start));
    !is_type && (!declares || before.trim_start().starts_with("pub"))
}

fn has_reason(lines: &[source::Line], at: usize, after: &str) -> bool {
    let declares = after.starts_with("fn ") || after.starts_with("extern") || after.starts_with("trait");
    let says = |comment: &str| comment.contains("SAFETY:") || (declares && comment.contains("# Safety"));
    if lines[at..lines.len().min(at + 2)].iter().any(|line| says(&line.comment)) {
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
            .any(|line| says(&line.comment));
    }
    above.iter().rev().take(REACH_LINES).any(|line| says(&line.comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: &str = "core/src/sys/timer.rs";

    #[test]
    fn unsafe_outside_the_fence_is_found() {
        let findings = check("core/src/drain.rs", "fn f() {\n    // SAFETY: x is alive\n    unsafe { g() }\n}\n");
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
    }

    #[test]
    fn unsafe_inside_the_fence_needs_a_reason() {
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
    fn the_word_in_a_comment_or_text_is_no_use() {
        assert!(check("core/src/drain.rs", "// unsafe is not here\nlet a = \"unsafe { }\";").is_empty());
    }
}
