//! Parses names as V8 logs them: `JS:*fn file:line:column`, `LazyCompile:~fn file:1:2`, `Builtin:ArrayMap`, `RegExp:a+`. Pure.

use std::sync::Arc;

/// Name of functions without one. Their frames add file and line, which distinguish them.
pub const ANONYMOUS: &str = "(anonymous)";

/// The name of a code object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeName {
    pub function: Arc<str>,
    /// Empty for code without a file.
    pub file: Arc<str>,
    pub start_line: u32,
    pub start_column: u32,
    /// JavaScript or WebAssembly, not V8's own code.
    pub is_script: bool,
}

/// Parses a logged name.
pub fn parse(logged: &str) -> CodeName {
    let (tag, rest) = logged.split_once(':').unwrap_or(("", logged));
    let own = |function: String| CodeName {
        function: function.into(),
        file: "".into(),
        start_line: 0,
        start_column: 0,
        is_script: false,
    };
    match tag {
        "JS" | "LazyCompile" | "Function" | "Script" | "Eval" => {
            script(rest.trim_start_matches(['~', '^', '+', '*', '\'']), tag)
        }
        "wasm-function" | "WasmFunction" => CodeName { is_script: true, ..own(rest.to_owned()) },
        "RegExp" => own(format!("(regexp) {rest}")),
        "Builtin" | "BytecodeHandler" | "Stub" | "Handler" => own(rest.to_owned()),
        _ => own(logged.to_owned()),
    }
}

/// The logged name of a WebAssembly function without its index and its tier, which change with each build and while it runs:
/// `JS:name-3-liftoff`. A function without a name has its index in brackets.
pub fn of_wasm(logged: &str) -> String {
    let (_, name) = logged.split_once(':').unwrap_or(("", logged));
    let function = name.rsplit_once('-').and_then(|(indexed, _)| indexed.rsplit_once('-'));
    let is_index = |index: &str| !index.is_empty() && index.bytes().all(|digit| digit.is_ascii_digit());
    format!("wasm-function:{}", function.filter(|(_, index)| is_index(index)).map_or(name, |(function, _)| function))
}

fn script(text: &str, tag: &str) -> CodeName {
    // Maglev code has the marker `o+`, after on-stack replacement `o*`.
    let text = text.strip_prefix("o+").or(text.strip_prefix("o*")).unwrap_or(text);
    // Baseline code of version 10 is logged with its line alone.
    let (function_and_file, line, column) = match trailing_number(text) {
        (before, Some(last)) => match trailing_number(before) {
            (function_and_file, Some(line)) => (function_and_file, line, last),
            (function_and_file, None) => (function_and_file, last, 0),
        },
        (function_and_file, None) => (function_and_file, 0, 0),
    };
    // A name has blanks only after `get`, `set` and the like; a file may have them anywhere.
    let start = ["get ", "set ", "static ", "async ", "bound "]
        .iter()
        .find(|word| function_and_file.starts_with(**word))
        .map_or(0, |word| word.len());
    let (function, file) = match function_and_file[start..].split_once(' ') {
        Some((name, file)) => (&function_and_file[..start + name.len()], file),
        None => (function_and_file, ""),
    };
    // Top-level code is logged with its file alone.
    let (function, file) = if file.is_empty() && (tag == "Script" || function.contains(['/', ':'])) {
        ("", function)
    } else {
        (function, file)
    };
    let anonymous = if tag == "Script" { "(top level)" } else { ANONYMOUS };
    CodeName {
        function: if function.is_empty() { anonymous } else { function }.into(),
        file: file.into(),
        start_line: line,
        start_column: column,
        is_script: true,
    }
}

/// `text` without its last `:number`, and the number.
fn trailing_number(text: &str) -> (&str, Option<u32>) {
    let parts = text.rsplit_once(':').and_then(|(before, digits)| Some((before, digits.parse().ok()?)));
    parts.map_or((text, None), |(before, number)| (before, Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(logged: &str) -> (String, String, u32, u32) {
        let name = parse(logged);
        (name.function.to_string(), name.file.to_string(), name.start_line, name.start_column)
    }

    #[test]
    fn a_function_has_its_file_line_and_column_in_every_tier() {
        let expected = ("hot".to_owned(), "/srv/my app/a.js".to_owned(), 3, 14);
        for mark in ["", "~", "^", "+", "*", "o+", "'"] {
            assert_eq!(parts(&format!("JS:{mark}hot /srv/my app/a.js:3:14")), expected);
        }
        assert_eq!(parts("LazyCompile:*hot /srv/my app/a.js:3:14"), expected);
        assert_eq!(parts("Function:^hot /srv/my app/a.js:3"), (expected.0, expected.1, 3, 0));
    }

    #[test]
    fn accessors_anonymous_functions_and_top_level_code_have_names() {
        assert_eq!(parts("JS:~get size node:internal/x:1:2").0, "get size");
        assert_eq!(parts("JS:* file:///a.mjs:1:2"), ("(anonymous)".into(), "file:///a.mjs".into(), 1, 2));
        assert_eq!(parts("Script:~ /a.js:1:1"), ("(top level)".into(), "/a.js".into(), 1, 1));
    }

    #[test]
    fn a_webassembly_function_has_its_name_alone() {
        let name = |logged| parts(&of_wasm(logged));
        for logged in ["JS:heavy_work-3-liftoff", "Function:heavy_work-12-turbofan", "JS:heavy_work-3-turboshaft"] {
            assert_eq!(name(logged), ("heavy_work".into(), String::new(), 0, 0), "{logged}");
        }
        assert_eq!(name("JS:wasm-function[17]-17-liftoff").0, "wasm-function[17]");
        assert_eq!(name("JS:a::f<b-1>(int, c:2)-4-liftoff").0, "a::f<b-1>(int, c:2)");
        assert_eq!(name("JS:js-to-wasm:i:i").0, "js-to-wasm:i:i");
        assert!(parse(&of_wasm("JS:f-1-liftoff")).is_script);
    }

    #[test]
    fn code_of_v8_is_named_without_a_file() {
        assert_eq!(parts("Builtin:ArrayForEach"), ("ArrayForEach".into(), String::new(), 0, 0));
        assert!(!parse("RegExp:a+").is_script);
    }
}
