//! The library that a function belongs to, by the layout of packages of each language: Python's `site-packages` and standard
//! library, `node_modules`, packages of Java, crates of Rust, modules and packages of Go.

use crate::FrameType;

/// The parts of a Java package that name a library: `org.springframework.web`.
const PACKAGE_PARTS: usize = 3;

/// The name of a library, such as `fastapi`, `express`, `org.springframework.web`, `std`; `None` where none can be told.
pub fn library_name(function: &str, file: &str, frame_type: FrameType) -> Option<String> {
    let after_last = |part: &str| file.rsplit_once(part).map(|(_, rest)| rest);
    let name = if file == "v8:builtin" {
        "V8 builtins"
    } else if file.starts_with("node:") {
        "node"
    } else if let Some(module) = file.strip_prefix("<frozen ") {
        module.split(['.', '>']).next()?
    } else if let Some(path) = after_last("/site-packages/").or_else(|| after_last("/dist-packages/")) {
        return Some(python_module(path).to_owned()).filter(|name| !name.is_empty());
    } else if let Some(path) = after_last("/node_modules/") {
        let parts = if path.starts_with('@') { 2 } else { 1 };
        path.match_indices('/').nth(parts - 1).map_or(path, |(end, _)| &path[..end])
    } else if let Some(path) = after_last("/lib/python3").or_else(|| after_last("/lib64/python3")) {
        // Behind the rest of the version.
        python_module(path.split_once('/')?.1)
    } else if let Some(path) = after_last("/.cargo/registry/src/") {
        // The index, then the crate with its version.
        let directory = path.split('/').nth(1)?;
        directory.rsplit_once('-').map_or(directory, |(name, _)| name)
    } else if let Some(path) = after_last("/pkg/mod/").or_else(|| after_last("/vendor/")) {
        path.split_once('@')
            .map_or_else(|| path.rsplit_once('/').map_or(path, |(directory, _)| directory), |(name, _)| name)
    } else if let Some(path) =
        after_last("/local/go/src/").or_else(|| after_last("/lib/go-")?.split_once("/src/").map(|(_, path)| path))
    {
        path.rsplit_once('/').map_or(path, |(directory, _)| directory)
    } else if frame_type == FrameType::Jvm || is_java(file) {
        return java_package(function);
    } else if frame_type == FrameType::Rust || file.ends_with(".rs") {
        rust_crate(function)?
    } else {
        return None;
    };
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

fn is_java(file: &str) -> bool {
    [".java", ".kt", ".scala", ".groovy"].iter().any(|extension| file.ends_with(extension))
}

/// The top-level module of a path below a directory of modules: `queue` for `queue.py`, `numpy` for `numpy/core/_multiarray.so`.
fn python_module(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or_default();
    first.split('.').next().unwrap_or_default()
}

/// The package of a method, at most [`PACKAGE_PARTS`] of its parts.
fn java_package(function: &str) -> Option<String> {
    let is_package = |part: &&str| part.starts_with(|letter: char| letter.is_ascii_lowercase());
    let parts: Vec<&str> = function.split('.').collect();
    // The last part is the method.
    let package = parts[..parts.len() - 1].iter().copied().take_while(is_package);
    let name = package.take(PACKAGE_PARTS).collect::<Vec<_>>().join(".");
    Some(name).filter(|name| !name.is_empty())
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
            assert_eq!(library_name(function, file, frame_type).as_deref(), Some(name), "{file}");
        }
        for (function, file, frame_type) in
            [("parse", "", V8js), ("Main.run", "", Jvm), ("f", "/opt/x.lua", Unspecified)]
        {
            assert_eq!(library_name(function, file, frame_type), None, "{function}");
        }
    }
}
