//! Rule: in the runtime of a binding, code that runs in signal handlers stands in the folders `walk` and `capture`. It reaches
//! only those folders, the folder with the layout of the VM, and code of other crates that is safe in handlers. No module that it
//! reaches names a type that locks or allocates. Code that installs, controls or names stands outside.
//!
//! The types are an approximation: a call that allocates is not seen. The five rules of handler code are in CONTRIBUTING.md.

use std::collections::BTreeSet;

use super::rust_imports::Crate;
use super::rust_paths::{self, FilePaths, PlacedPath};
use super::Violation;

/// The source directory of each binding, and the folder with the layout of its VM.
const BINDINGS: [(&str, &str); 3] =
    [("bindings-python/src", "interpreter"), ("bindings-node/src", "v8"), ("bindings-java/src", "vm")];

/// Folders of handler code in a runtime.
const HANDLER_FOLDERS: [&str; 2] = ["walk", "capture"];

/// Names that handler code does not use, and the reason.
const FORBIDDEN: [(&str, &str); 14] = [
    ("Mutex", "it locks"),
    ("RwLock", "it locks"),
    ("Condvar", "it waits"),
    ("OnceLock", "its first use locks"),
    ("LazyLock", "its first use locks"),
    ("thread_local", "its first use on a thread allocates"),
    ("String", "it allocates"),
    ("Vec", "it allocates"),
    ("Box", "it allocates"),
    ("Arc", "its last owner frees memory"),
    ("format!", "it allocates"),
    ("vec!", "it allocates"),
    ("println!", "it locks the standard output"),
    ("eprintln!", "it locks the standard error"),
];

/// Paths of other crates that handler code uses, with all that is below them, and the reason.
const OUTSIDE: [(&str, &str); 19] = [
    ("core", "without memory management"),
    ("std", "atomics, cells, slices; `FORBIDDEN` excludes the rest"),
    ("libc", "types, constants and addresses of functions"),
    ("spanprof_signal", "handler code"),
    ("spanprof_unwind::UnwindTables", "walks without allocation or lock"),
    ("spanprof_unwind::shows_native_callees", "reads an atomic"),
    ("spanprof_unwind::shows_runtime", "reads an atomic"),
    ("spanprof_unwind::Walk", "see `UnwindTables`"),
    ("spanprof_unwind::WalkEnd", "see `UnwindTables`"),
    ("spanprof_unwind::Registers", "see `UnwindTables`"),
    ("spanprof_unwind::return_address", "arithmetic on one word"),
    ("spanprof_unwind::NativeFrame", "see `UnwindTables`"),
    ("spanprof_recorded_stack::Recorder", "saves words in fixed memory"),
    ("spanprof_recorded_stack::RecordingMemory", "saves words in fixed memory"),
    ("spanprof_recorded_stack::MAX_FRAMES", "a number"),
    ("spanprof_os::inbox_in_use", "reads an atomic"),
    ("spanprof_os::monotonic_ns", "a system call that is safe in handlers"),
    ("spanprof_os::thread_id", "a system call that is safe in handlers"),
    ("pyo3::ffi", "types of the interpreter's functions"),
];

/// Primitive types, whose functions have paths too.
const PRIMITIVES: [&str; 17] = [
    "bool", "char", "str", "slice", "f32", "f64", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32",
    "i64", "isize",
];

/// `files` are paths and texts of the work tree.
pub fn check(files: &[(String, String)]) -> Vec<Violation> {
    let unlisted = files.iter().filter_map(|(path, _)| {
        let source = path.strip_suffix("/runtime/mod.rs").filter(|source| source.starts_with("bindings-"))?;
        let is_listed = BINDINGS.iter().any(|(listed, _)| *listed == source);
        (!is_listed).then(|| Violation::new(path, 0, "a runtime that is not in the list of rule handler_folders"))
    });
    let reached = BINDINGS.into_iter().flat_map(|(source, layout)| check_binding(source, layout, files));
    unlisted.chain(reached).collect()
}

fn check_binding(source: &str, layout: &str, files: &[(String, String)]) -> Vec<Violation> {
    let binding = Crate::read(source, files);
    let mut violations = Vec::new();
    for folder in HANDLER_FOLDERS.into_iter().chain([layout]) {
        let (runtime, folder) = (format!("{source}/runtime/mod.rs"), format!("{source}/runtime/{folder}/"));
        let is_missing = !files.iter().any(|(path, _)| path.starts_with(&folder));
        if is_missing && files.iter().any(|(path, _)| *path == runtime) {
            violations.push(Violation::new(&runtime, 0, format!("rule handler_folders expects the folder {folder}")));
        }
    }
    let mut left: Vec<String> = binding.modules.keys().filter(|module| is_handler_code(module)).cloned().collect();
    let mut reached: BTreeSet<String> = left.iter().cloned().collect();
    while let Some(module) = left.pop() {
        let (path, file) = &binding.modules[&module];
        violations.extend(files.iter().filter(|(name, _)| name == path).flat_map(|(_, text)| forbidden(path, text)));
        for import in &file.paths {
            match binding.target(&module, import).or_else(|| through_glob(&binding, &module, file, import)) {
                Some(target) if target == module => {}
                Some(target) if is_handler_code(&target) || folder(&target) == Some(layout) => {
                    if reached.insert(target.clone()) {
                        left.push(target);
                    }
                }
                Some(target) => violations.push(Violation::new(
                    path,
                    import.line,
                    format!(
                        "handler code reaches `{target}`; move what it uses to runtime/{layout}, runtime/walk or \
                         runtime/capture"
                    ),
                )),
                None => violations.extend(outside(path, file, import)),
            }
        }
    }
    violations.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    violations.dedup();
    violations
}

/// The child module of a glob import that a path leads to.
fn through_glob(binding: &Crate<'_>, module: &str, file: &FilePaths, path: &PlacedPath) -> Option<String> {
    let glob = file.imports.get(&path.inside)?.get("*")?.split_last()?.1;
    let target = |segments: Vec<String>| binding.target(module, &PlacedPath { segments, ..path.clone() });
    let imported = target(glob.to_vec())?;
    target([glob, &path.segments].concat()).filter(|target| *target != imported)
}

fn is_handler_code(module: &str) -> bool {
    folder(module).is_some_and(|folder| HANDLER_FOLDERS.contains(&folder))
}

/// The folder of a module in the runtime.
fn folder(module: &str) -> Option<&str> {
    module.strip_prefix("runtime::").and_then(|inside| inside.split("::").next())
}

/// The names outside tests that handler code does not use.
fn forbidden(path: &str, text: &str) -> Vec<Violation> {
    let tokens = rust_paths::tokens_outside_tests(text);
    let after = tokens.iter().skip(1).map(|token| token.text.as_str()).chain([""]);
    let uses = tokens.iter().zip(after).filter_map(|(token, after)| {
        let is_named = |name: &str| match name.strip_suffix('!') {
            Some(name) => token.text == name && after == "!",
            None => token.text == name,
        };
        let (name, reason) = FORBIDDEN.into_iter().find(|(name, _)| is_named(name))?;
        Some(Violation::new(
            path,
            token.line,
            format!("handler code uses `{name}`: {reason}; move it out of the handler"),
        ))
    });
    uses.collect()
}

/// The violation of a path into another crate.
fn outside(path: &str, file: &FilePaths, import: &PlacedPath) -> Option<Violation> {
    let first = import.segments.first()?;
    let imported =
        (0..=import.inside.len()).rev().find_map(|depth| file.imports.get(&import.inside[..depth])?.get(first));
    let is_use = imported == Some(&import.segments);
    let whole = match imported.filter(|_| !is_use) {
        Some(imported) => [&imported[..], &import.segments[1..]].concat(),
        None => import.segments.clone(),
    };
    let crate_name = whole.first()?;
    let is_inline_module = file.paths.iter().any(|path| path.inside.contains(crate_name));
    if crate_name.starts_with(char::is_uppercase)
        || ["crate", "super", "self"].contains(&crate_name.as_str())
        || PRIMITIVES.contains(&crate_name.as_str())
        || is_inline_module
    {
        return None;
    }
    let is_allowed = OUTSIDE.iter().any(|(allowed, _)| {
        let allowed = allowed.split("::");
        // The import of a module is checked where the module is used.
        allowed.zip(&whole).all(|(allowed, segment)| allowed == segment)
    });
    let message = format!("handler code uses `{}`, which is not in the list of rule handler_folders", whole.join("::"));
    (!is_allowed).then(|| Violation::new(path, import.line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let in_runtime = |&(path, text): &(&str, &str)| (format!("bindings-java/src/runtime/{path}"), text.to_owned());
        let root = ("bindings-java/src/lib.rs".to_owned(), String::new());
        let folders = ["mod.rs", "walk/mod.rs", "capture/mod.rs", "vm/mod.rs", "names/mod.rs"].map(|path| (path, ""));
        let folders = folders.iter().filter(|(path, _)| files.iter().all(|(other, _)| other != path)).map(in_runtime);
        let files: Vec<_> = [root].into_iter().chain(folders).chain(files.iter().map(in_runtime)).collect();
        check(&files).iter().map(|violation| format!("{violation}")).collect()
    }

    fn walker(text: &str) -> Vec<String> {
        messages(&[("walk/walker.rs", text), ("vm/layout.rs", ""), ("names/methods.rs", "")])
    }

    #[test]
    fn a_handler_folder_reaches_itself_the_other_one_and_the_layout() {
        assert!(walker("use super::frame::F;\nuse crate::runtime::vm::layout::VmLayout;").is_empty());
        let files =
            [("capture/mod.rs", "use super::walk::walker;\nfn f() { walker::walk(); }"), ("walk/walker.rs", "")];
        assert!(messages(&files).is_empty());
    }

    #[test]
    fn names_of_a_glob_import_are_followed() {
        let layout = [("walk/mod.rs", "use super::vm::v2;"), ("vm/v1.rs", "")];
        let with = |text: &'static str| messages(&[&layout[..], &[("vm/v2.rs", text)]].concat());
        assert!(with("use super::*;\nconst L: Layout = v1::LAYOUT;").is_empty());
        assert_eq!(with("use super::*;\nconst L: Layout = other::LAYOUT;").len(), 1);
    }

    #[test]
    fn a_module_outside_is_reported_with_its_line() {
        let reports = walker("use std::fmt;\nuse crate::runtime::names::methods;");
        assert_eq!(reports.len(), 1);
        assert!(reports[0].starts_with("bindings-java/src/runtime/walk/walker.rs:2: "), "{reports:?}");
        assert!(reports[0].contains("`runtime::names::methods`"), "{reports:?}");
        assert_eq!(walker("fn f() { super::super::helper(); }").len(), 1, "the runtime itself");
    }

    #[test]
    fn a_layout_module_that_handlers_reach_follows_the_rule_and_another_one_does_not() {
        let layout = [("walk/mod.rs", "use super::vm::layout;"), ("vm/reader.rs", "use std::sync::Mutex;")];
        let with = |text: &'static str| messages(&[&layout[..], &[("vm/layout.rs", text)]].concat());
        assert!(with("").is_empty());
        assert_eq!(with("use super::reader;").len(), 1);
        assert_eq!(with("use super::super::names;").len(), 1);
        assert_eq!(with("fn f() -> String { todo() }").len(), 1);
    }

    #[test]
    fn types_that_lock_or_allocate_are_reported_outside_tests_only() {
        assert_eq!(walker("fn f(a: Vec<u8>) {\n    format!(\"\");\n}").len(), 2);
        assert!(walker("/// A `String`.\nfn format(a: &str) { let b = \"Vec<u8>\"; }").is_empty());
        assert!(walker("#[cfg(test)]\nmod tests { fn f() { let a = vec![Box::new(1)]; } }").is_empty());
    }

    #[test]
    fn another_crate_is_reported_unless_it_is_safe_in_handlers() {
        assert!(
            walker("use spanprof_signal::{RawFrame, RawStack};\nfn f() { u64::from(1); RawStack::new(); }").is_empty()
        );
        assert_eq!(walker("use jni::sys::jint;").len(), 1);
        assert!(walker("use spanprof_os as os;\nfn f() { os::thread_id(); }").is_empty());
        assert_eq!(walker("use spanprof_os as os;\nfn f() { os::thread_name(1); }").len(), 1);
        assert_eq!(walker("fn f() { spanprof_profiler::binding::log(); }").len(), 1);
    }

    #[test]
    fn a_runtime_without_a_folder_of_the_rule_is_reported() {
        let file = |path: &str| (path.to_owned(), String::new());
        let java =
            ["mod.rs", "walk/mod.rs", "vm/mod.rs"].map(|path| file(&format!("bindings-java/src/runtime/{path}")));
        let violations = check(&[&java[..], &[file("bindings-java/src/lib.rs")]].concat());
        assert!(violations[0].message.ends_with("bindings-java/src/runtime/capture/"), "{violations:?}");
        assert_eq!(check(&[file("bindings-ruby/src/runtime/mod.rs")]).len(), 1);
    }

    #[test]
    fn code_outside_of_the_folders_is_free() {
        assert!(messages(&[("names/methods.rs", "use std::sync::Mutex;\nuse jni::sys::jint;")]).is_empty());
    }
}
