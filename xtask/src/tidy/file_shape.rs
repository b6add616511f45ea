//! Rules: a source file has at most 500 lines, and a Rust file begins with a module comment.

use super::{has_extension, Violation};

const LONGEST_FILE_LINES: usize = 500;

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let lines = text.lines().count();
    if has_extension(path, &["rs", "py", "ts", "js", "mjs", "java", "go"]) && lines > LONGEST_FILE_LINES {
        let message = format!("{lines} lines, {LONGEST_FILE_LINES} are allowed: move a part to a module of its own");
        violations.push(Violation::new(path, 0, message));
    }
    if path.ends_with(".rs") && !opens_with_doc(text) {
        violations.push(Violation::new(
            path,
            1,
            "no module comment `//!`: state its purpose, its limits and its callers",
        ));
    }
    violations
}

fn opens_with_doc(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    first.is_none_or(|line| line.starts_with("//!"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_501_lines_is_too_long_and_one_of_500_is_not() {
        let lines = |count: usize| format!("//! Doc.\n{}", "x\n".repeat(count - 1));
        assert_eq!(check("core/src/a.rs", &lines(501)).len(), 1);
        assert!(check("core/src/a.rs", &lines(500)).is_empty());
    }

    #[test]
    fn the_limit_applies_to_sources_only() {
        assert!(check("Cargo.lock", &"x\n".repeat(5000)).is_empty());
    }

    #[test]
    fn a_rust_file_needs_a_module_comment() {
        assert_eq!(check("core/src/a.rs", "use std::fs;\n").len(), 1);
        assert!(check("core/src/a.rs", "#![no_main]\n//! A fuzz target.\n").is_empty());
    }
}
