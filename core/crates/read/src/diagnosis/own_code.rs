//! Separates a program's own code from libraries, the standard library and the runtime, by the paths and names of each language. pprof files have no frame types, so the extension of the file names the language.

use spanprof_profile::FrameType;

use crate::query::FunctionLine;

/// Extensions of source files in which a program's own code is known.
const SOURCES: [&str; 14] =
    ["py", "js", "mjs", "cjs", "jsx", "ts", "mts", "tsx", "java", "kt", "scala", "groovy", "rs", "go"];

/// Parts of paths of libraries and standard libraries.
const LIBRARY_PATHS: [&str; 13] = [
    // CPython: the standard library, Debian's and pip's packages, frozen modules.
    "/lib/python3",
    "/lib64/python3",
    "/site-packages/",
    "/dist-packages/",
    "<frozen",
    "/node_modules/",
    // Rust: the standard library as built, and as installed sources; crates.
    "/rustc/",
    "/rustlib/src/",
    "/.cargo/",
    // Go: modules and the standard library.
    "/pkg/mod/",
    "/vendor/",
    "/local/go/src/",
    "/lib/go-",
];

/// Packages of the JDK, of its languages and of widespread frameworks. A class file does not name its origin.
const LIBRARY_PACKAGES: [&str; 37] = [
    "java.",
    "javax.",
    "jakarta.",
    "jdk.",
    "sun.",
    "com.sun.",
    "com.oracle.",
    "kotlin.",
    "kotlinx.",
    "scala.",
    "groovy.",
    "akka.",
    "android.",
    "ch.qos.",
    "com.fasterxml.",
    "com.google.",
    "com.mysql.",
    "com.zaxxer.",
    "io.grpc.",
    "io.micrometer.",
    "io.micronaut.",
    "io.netty.",
    "io.opentelemetry.",
    "io.projectreactor.",
    "io.quarkus.",
    "io.spanprof.",
    "io.vertx.",
    "net.bytebuddy.",
    "okhttp3.",
    "oracle.",
    "org.apache.",
    "org.eclipse.",
    "org.hibernate.",
    "org.postgresql.",
    "org.slf4j.",
    "org.springframework.",
    "reactor.",
];

/// Whether a function is in the program's own code. A name without a source file is not: it is a class, a reason, or native code.
pub(super) fn is_own(at: &FunctionLine) -> bool {
    let FunctionLine { function, file, frame_type, .. } = at;
    if matches!(frame_type, FrameType::Native | FrameType::Kernel) || is_synthetic(at) {
        return false;
    }
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    if matches!(extension, "java" | "kt" | "scala" | "groovy") {
        return !LIBRARY_PACKAGES.iter().any(|package| function.starts_with(package));
    }
    SOURCES.contains(&extension) && !file.starts_with("node:") && !LIBRARY_PATHS.iter().any(|part| file.contains(part))
}

/// Whether a frame names an activity, a reason or a kind of thread instead of a function.
pub(super) fn is_synthetic(at: &FunctionLine) -> bool {
    at.file.is_empty() && at.function.starts_with(['[', '('])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(function: &str, file: &str, frame_type: FrameType) -> FunctionLine {
        FunctionLine { function: function.to_owned(), file: file.to_owned(), line: 1, frame_type }
    }

    #[test]
    fn own_code_of_each_language_is_separated_from_its_libraries() {
        use FrameType::{Cpython, Jvm, Native, Rust, Unspecified, V8js};
        for (own, library) in [
            (at("price", "/srv/shop/app.py", Cpython), at("get", "/usr/lib/python3.11/queue.py", Cpython)),
            (at("price", "shop/app.py", Unspecified), at("get", "/venv/lib64/python3.9/site-packages/a.py", Cpython)),
            (at("main", "app.py", Cpython), at("_find_spec", "<frozen importlib._bootstrap>", Cpython)),
            (at("(anonymous)", "file:///srv/a.mjs", V8js), at("emit", "node:events", V8js)),
            (at("serve", "/srv/shop.ts", V8js), at("next", "/srv/node_modules/express/lib/router.js", V8js)),
            (at("Shop.price", "Shop.java", Jvm), at("java.util.HashMap.put", "HashMap.java", Jvm)),
            (at("shop.Cart.sum", "Cart.kt", Jvm), at("org.springframework.web.Filter.run", "Filter.java", Unspecified)),
            (at("shop::price", "src/main.rs", Rust), at("alloc::vec::push", "/rustc/4d9/library/alloc/src/v.rs", Rust)),
            (
                at("shop::price", "src/main.rs", Unspecified),
                at("h2::poll", "/crates/.cargo/registry/src/h2/a.rs", Rust),
            ),
            (
                at("main.price", "/srv/main.go", Unspecified),
                at("runtime.gcBgMark", "/usr/local/go/src/runtime/mgc.go", Rust),
            ),
            (at("price", "/srv/a.js", V8js), at("v8::internal::Heap", "/usr/bin/node", Native)),
            (at("price", "/srv/a.py", Cpython), at("[lock]", "", Unspecified)),
            (at("Leak.run", "Leak.java", Jvm), at("byte[]", "", Jvm)),
            (at("Leak.run", "Leak.java", Jvm), at("shop.Cart", "", Jvm)),
            (at("price", "/srv/a.js", V8js), at("(garbage collector)", "", V8js)),
        ] {
            assert!(is_own(&own), "{own:?}");
            assert!(!is_own(&library), "{library:?}");
        }
    }
}
