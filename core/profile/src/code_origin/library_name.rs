//! The library that a function belongs to, by the layout of packages of each language: Python's `site-packages` and standard
//! library, `node_modules`, packages of Java, crates of Rust, modules and packages of Go.

use super::is_jvm_source;
use crate::FrameType;

/// The parts of a Java package that name a library: `org.springframework.web`.
const PACKAGE_PARTS: usize = 3;

/// The name of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryName {
    /// Such as `fastapi`, `express`, `org.springframework.web`, `std`.
    pub name: String,
    /// Whether it comes with the language.
    pub is_standard: bool,
}

/// The library of a function; `None` where none can be told.
pub fn library_name(function: &str, file: &str, frame_type: FrameType) -> Option<LibraryName> {
    let after_last = |parts: &[&str]| parts.iter().find_map(|part| Some(file.rsplit_once(part)?.1));
    let standard = |name: &str| named(name, true);
    let package = |name: &str| named(name, false);
    if file == "v8:builtin" {
        return standard("V8 builtins");
    }
    if file.starts_with("node:") {
        return standard("node");
    }
    if let Some(module) = file.strip_prefix("<frozen ") {
        return standard(module.split(['.', '>']).next()?);
    }
    if let Some(path) = after_last(&["/site-packages/", "/dist-packages/"]) {
        return package(python_module(path));
    }
    if let Some(path) = after_last(&["/node_modules/"]) {
        let parts = if path.starts_with('@') { 2 } else { 1 };
        return package(path.match_indices('/').nth(parts - 1).map_or(path, |(end, _)| &path[..end]));
    }
    if let Some(path) = after_last(&["/lib/python3", "/lib64/python3"]) {
        // Behind the rest of the version.
        return standard(python_module(path.split_once('/')?.1));
    }
    if let Some(path) = after_last(&["/.cargo/registry/src/"]) {
        // The index, then the crate with its version.
        let directory = path.split('/').nth(1)?;
        return package(directory.rsplit_once('-').map_or(directory, |(name, _)| name));
    }
    if let Some(path) = after_last(&["/pkg/mod/", "/vendor/"]) {
        return package(path.split_once('@').map_or_else(|| directory(path), |(name, _)| name));
    }
    if let Some(path) =
        after_last(&["/local/go/src/"]).or_else(|| Some(after_last(&["/lib/go-"])?.split_once("/src/")?.1))
    {
        return standard(directory(path));
    }
    if frame_type == FrameType::Jvm || is_jvm_source(file) {
        let is_standard = ["java.", "javax.", "jdk.", "sun."].iter().any(|start| function.starts_with(start));
        return named(&java_package(function), is_standard);
    }
    if frame_type == FrameType::Rust || file.ends_with(".rs") {
        let name = rust_crate(function)?;
        return named(name, name == "std");
    }
    None
}

fn named(name: &str, is_standard: bool) -> Option<LibraryName> {
    (!name.is_empty()).then(|| LibraryName { name: name.to_owned(), is_standard })
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(directory, _)| directory)
}

/// The top-level module of a path below a directory of modules: `queue` for `queue.py`, `numpy` for `numpy/core/_multiarray.so`.
fn python_module(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or_default();
    first.split('.').next().unwrap_or_default()
}

/// The package of a method, at most [`PACKAGE_PARTS`] of its parts.
fn java_package(function: &str) -> String {
    let is_package = |part: &&str| part.starts_with(|letter: char| letter.is_ascii_lowercase());
    let parts: Vec<&str> = function.split('.').collect();
    // The last part is the method.
    let package = parts[..parts.len() - 1].iter().copied().take_while(is_package);
    package.take(PACKAGE_PARTS).collect::<Vec<_>>().join(".")
}

/// The crate in a path such as `<alloc::vec::Vec<T> as Drop>::drop`; the crates of the standard library are `std`.
fn rust_crate(function: &str) -> Option<&str> {
    let path = function.trim_start_matches(['<', '&', '*', '(']);
    let path = path.strip_prefix("dyn ").or_else(|| path.strip_prefix("mut ")).unwrap_or(path);
    let (name, _) = path.split_once("::")?;
    let is_crate = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    match name {
        "core" | "alloc" => Some("std"),
        _ => is_crate.then_some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameType::{Cpython, Jvm, Native, Rust, Unspecified, V8js};

    #[test]
    fn the_library_of_each_language_is_named_by_its_package() {
        for (function, file, frame_type, name) in [
            ("run", "/venv/lib/python3.11/site-packages/fastapi/routing.py", Cpython, "fastapi"),
            ("add", "/venv/lib/python3.11/site-packages/numpy/core/_multiarray.cpython-311.so", Native, "numpy"),
            ("six", "/usr/lib/python3/dist-packages/six.py", Unspecified, "six"),
            ("loads", "/usr/lib/python3.11/json/decoder.py", Cpython, "json"),
            ("get", "/usr/lib64/python3.9/queue.py", Cpython, "queue"),
            ("_find_spec", "<frozen importlib._bootstrap>", Cpython, "importlib"),
            ("next", "/srv/node_modules/express/lib/router.js", V8js, "express"),
            ("route", "/srv/node_modules/a/node_modules/@hapi/hapi/lib/core.js", V8js, "@hapi/hapi"),
            ("emit", "node:events", V8js, "node"),
            ("JSON.parse", "v8:builtin", V8js, "V8 builtins"),
            ("org.springframework.web.servlet.Filter.run", "Filter.java", Jvm, "org.springframework.web"),
            ("java.util.HashMap$Node.get", "HashMap.java", Unspecified, "java.util"),
            ("alloc::vec::Vec<T>::push", "/rustc/4d9/library/alloc/src/vec.rs", Rust, "std"),
            ("<core::iter::Map<I> as Iterator>::next", "/rustc/4d9/library/core/src/iter.rs", Rust, "std"),
            ("h2::poll", "/build/.cargo/registry/src/index.crates.io-6f1/h2-0.4.7/src/a.rs", Rust, "h2"),
            (
                "gin.Next",
                "/go/pkg/mod/github.com/gin-gonic/gin@v1.9.1/context.go",
                Unspecified,
                "github.com/gin-gonic/gin",
            ),
            ("net/http.serve", "/usr/local/go/src/net/http/server.go", Unspecified, "net/http"),
            ("runtime.main", "/usr/lib/go-1.19/src/runtime/proc.go", Unspecified, "runtime"),
        ] {
            assert_eq!(library_name(function, file, frame_type).expect(file).name, name);
        }
        for (function, file, frame_type) in
            [("parse", "", V8js), ("Main.run", "", Jvm), ("f", "/opt/x.lua", Unspecified)]
        {
            assert_eq!(library_name(function, file, frame_type), None, "{function}");
        }
    }

    #[test]
    fn the_standard_library_of_a_language_is_known_as_such() {
        let is_standard =
            |function, file, frame_type| library_name(function, file, frame_type).expect(file).is_standard;
        assert!(is_standard("loads", "/usr/lib/python3.11/json/decoder.py", Cpython));
        assert!(is_standard("java.util.HashMap.get", "HashMap.java", Jvm));
        assert!(!is_standard("loads", "/usr/lib/python3.11/site-packages/orjson/a.py", Cpython));
        assert!(!is_standard("org.apache.catalina.core.A.run", "A.java", Jvm));
    }
}
