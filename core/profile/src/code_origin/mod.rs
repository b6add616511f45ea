//! Separates a program's own code from libraries, the standard library and the runtime, by the paths and names of each language. pprof
//! files have no frame types, so the extension of the file names the language. Names libraries and the parts of runtimes too, for
//! folded stacks, and what threads wait for. Pure. Called by the queries, the diagnosis, the transformations and the encoders of flame graphs.

mod library_name;
mod own_code;
mod runtime_bucket;
mod wait_reason;

pub use library_name::{library_name, LibraryName};
pub use own_code::{recorded_origins, OwnCode};
pub use runtime_bucket::RuntimeBucket;
pub use wait_reason::WaitReason;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::FrameType;

/// Extensions of source files in which a program's own code is known.
const SOURCES: [&str; 10] = ["py", "js", "mjs", "cjs", "jsx", "ts", "mts", "tsx", "rs", "go"];
/// Those of languages with a runtime.
const SCRIPTS: &[&str] = SOURCES.split_at(8).0;
/// Those of the languages of the Java VM.
const JVM_SOURCES: [&str; 4] = ["java", "kt", "scala", "groovy"];

/// Files of Python programs from standard input, `-c`, and the prompt (its names begin so).
const PROMPTS: [&str; 4] = ["<stdin>", "<string>", "<python-input-", "<ipython-input-"];

/// Parts of paths of libraries and standard libraries, beside [`PACKAGE_DIRECTORIES`].
const LIBRARY_PATHS: [&str; 10] = [
    // CPython: the standard library, frozen modules.
    "/lib/python3",
    "/lib64/python3",
    "<frozen",
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

/// Directories of packages, whose native code is of a library too.
const PACKAGE_DIRECTORIES: [&str; 3] = ["/site-packages/", "/dist-packages/", "/node_modules/"];

/// Packages of the JDK, of its languages and of widespread frameworks. A class file does not name its origin.
const LIBRARY_PACKAGES: [&str; 72] = [
    "java.",
    "javax.",
    "jakarta.",
    "jdk.",
    "sun.",
    "com.sun.",
    "com.oracle.",
    "akka.",
    "android.",
    "ch.qos.",
    "com.amazonaws.",
    "com.fasterxml.",
    "com.github.benmanes.",
    "com.google.",
    "com.linecorp.",
    "com.microsoft.",
    "com.mongodb.",
    "com.mysql.",
    "com.rabbitmq.",
    "com.squareup.",
    "com.zaxxer.",
    "feign.",
    "groovy.",
    "io.dropwizard.",
    "io.grpc.",
    "io.helidon.",
    "io.javalin.",
    "io.lettuce.",
    "io.micrometer.",
    "io.micronaut.",
    "io.netty.",
    "io.opentelemetry.",
    "io.projectreactor.",
    "io.quarkus.",
    "io.r2dbc.",
    "io.reactivex.",
    "io.smallrye.",
    "io.undertow.",
    "io.vertx.",
    "kotlin.",
    "kotlinx.",
    "liquibase.",
    "net.bytebuddy.",
    "okhttp3.",
    "okio.",
    "oracle.",
    "org.apache.",
    "org.bouncycastle.",
    "org.codehaus.",
    "org.eclipse.",
    "org.elasticsearch.",
    "org.flywaydb.",
    "org.glassfish.",
    "org.h2.",
    "org.hibernate.",
    "org.jboss.",
    "org.jooq.",
    "org.mariadb.",
    "org.mybatis.",
    "org.opensearch.",
    "org.postgresql.",
    "org.reactivestreams.",
    "org.redisson.",
    "org.slf4j.",
    "org.springframework.",
    "org.wildfly.",
    "org.xnio.",
    "ratpack.",
    "reactor.",
    "retrofit2.",
    "scala.",
    "software.amazon.",
];

/// File of a frame that names the type of an object, not a function: the leaf of stacks of the heap, and of waits for a lock in Java.
pub const TYPE_FILE: &str = "<type>";

/// Where the code of a function comes from. The numbers are those of the flame graph's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    /// The program.
    Own = 0,
    /// A library, or the standard library of the language.
    Library = 1,
    /// The language runtime, native code, the kernel, or an activity such as garbage collection instead of a function.
    Runtime = 2,
    /// A function without file and frame type, as in folded stacks: nothing tells.
    Unknown = 3,
    /// This profiler: its libraries, its packages and its activities.
    Profiler = 4,
}

/// An origin that is stated, not derived. It is no part of the identity of a function: all values are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedOrigin(pub Option<CodeOrigin>);

impl RecordedOrigin {
    /// The stated origin, else the derived one.
    pub fn or(self, derive: impl FnOnce() -> CodeOrigin) -> CodeOrigin {
        self.0.unwrap_or_else(derive)
    }
}

impl PartialEq for RecordedOrigin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RecordedOrigin {}

impl PartialOrd for RecordedOrigin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RecordedOrigin {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl Hash for RecordedOrigin {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl CodeOrigin {
    /// Its word in a profile.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Library => "library",
            Self::Runtime => "runtime",
            Self::Unknown => "unknown",
            Self::Profiler => "profiler",
        }
    }

    /// The origin of a word in a profile.
    pub fn from_wire(word: &str) -> Option<Self> {
        [Self::Own, Self::Library, Self::Runtime, Self::Unknown, Self::Profiler]
            .into_iter()
            .find(|origin| origin.as_str() == word)
    }

    /// The origin of a function. A name without a source file is not own code: it is a reason, or native code.
    pub fn of(function: &str, file: &str, frame_type: FrameType) -> Self {
        if is_of_profiler(function, file, frame_type) {
            return Self::Profiler;
        }
        let is_native = frame_type == FrameType::Native || is_binary(file, frame_type);
        if is_native && PACKAGE_DIRECTORIES.iter().any(|part| file.contains(part)) {
            return Self::Library;
        }
        // Threads of HotSpot, as the Java package names them.
        let is_group = || file.is_empty() && matches!(function, "GC" | "JIT compiler");
        if is_native || frame_type == FrameType::Kernel || is_activity(function, file) || is_group() {
            return Self::Runtime;
        }
        let is_own = if is_jvm_source(file) {
            !LIBRARY_PACKAGES.iter().any(|package| function.starts_with(package))
        } else {
            PROMPTS.iter().any(|name| file.starts_with(name))
                || SOURCES.contains(&extension(file))
                    && !file.starts_with("node:")
                    && !PACKAGE_DIRECTORIES.iter().chain(&LIBRARY_PATHS).any(|part| file.contains(part))
        };
        match (is_own, frame_type) {
            (true, _) => Self::Own,
            (false, FrameType::Unspecified) if file.is_empty() => Self::Unknown,
            (false, _) => Self::Library,
        }
    }
}

/// Who executes a function. The time of native code is also that of the managed code that called it, whose lines people know. The numbers
/// are those of the script of exported pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionKind {
    /// A language runtime: Python, JavaScript, a language of the Java VM.
    Managed = 0,
    /// The processor: a shared library, a program without the names of its source files, the kernel.
    Native = 1,
    /// Other code with lines, such as Rust; activities and reasons, such as `[lock]`; types of objects.
    Other = 2,
}

impl ExecutionKind {
    /// The kind of a function. Files without frame types (pprof, folded stacks) tell it by the name of the file.
    pub fn of(function: &str, file: &str, frame_type: FrameType) -> Self {
        // `[native]` is code of no known file.
        if file == TYPE_FILE || is_activity(function, file) && function != "[native]" {
            return Self::Other;
        }
        let is_script = || {
            ["<frozen", "node:", "v8:"].iter().chain(&PROMPTS).any(|start| file.starts_with(start))
                || SCRIPTS.contains(&extension(file))
                || is_jvm_source(file)
        };
        match frame_type {
            FrameType::Native | FrameType::Kernel => Self::Native,
            FrameType::Cpython | FrameType::V8js | FrameType::Jvm => Self::Managed,
            FrameType::Unspecified if is_binary(file, frame_type) => Self::Native,
            FrameType::Unspecified if is_script() => Self::Managed,
            _ => Self::Other,
        }
    }
}

/// Whether a frame is of this profiler. Its native code has one name.
fn is_of_profiler(function: &str, file: &str, frame_type: FrameType) -> bool {
    let program = file_name(file);
    let is_library = || {
        program.starts_with("libspanprof_") && is_shared_object(program)
            || program.starts_with("_spanprof.") && is_shared_object(program)
            || program == "spanprof.node"
    };
    let is_package = || {
        PACKAGE_DIRECTORIES.iter().filter_map(|part| file.rsplit_once(part)).any(|(_, path)| {
            path.strip_prefix("spanprof")
                .or_else(|| path.strip_prefix("@spanprof"))
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    match frame_type {
        FrameType::Native if function == "spanprof" => true,
        FrameType::Rust if function.trim_start_matches('<').starts_with("spanprof::") => true,
        _ if file.is_empty() && !function.starts_with("io.spanprof.") => {
            ["(profiler ", "[spanprof", "[thread spanprof"].iter().any(|start| function.starts_with(start))
        }
        _ => function.starts_with("io.spanprof.") || is_library() || is_package(),
    }
}

/// Whether a frame is of a package of this profiler, not of its native code: it stands between the frames of a library and those that
/// the library calls.
pub(crate) fn is_of_profiler_package(function: &str, file: &str, frame_type: FrameType) -> bool {
    frame_type != FrameType::Native
        && !file.is_empty()
        && !is_shared_object(file)
        && is_of_profiler(function, file, frame_type)
}

fn extension(file: &str) -> &str {
    file.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn is_jvm_source(file: &str) -> bool {
    JVM_SOURCES.contains(&extension(file))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn is_shared_object(path: &str) -> bool {
    let name = file_name(path);
    name.ends_with(".so") || name.contains(".so.") || name.ends_with(".node")
}

/// Whether a file is machine code. A file of a frame without a type is one if it is a shared library or an absolute path without
/// extension: a program.
fn is_binary(path: &str, frame_type: FrameType) -> bool {
    let is_program = || {
        let name = file_name(path);
        path.starts_with('/') && !name.is_empty() && (!name.contains('.') || name.starts_with("python3."))
    };
    is_shared_object(path) || frame_type == FrameType::Unspecified && is_program()
}

/// Whether a frame names an activity, a reason or a kind of thread instead of a function.
pub fn is_activity(function: &str, file: &str) -> bool {
    file.is_empty() && function.starts_with(['[', '('])
}

/// Whether a frame is a regular expression: Node.js compiles each to machine code, whose frame has its text.
pub fn is_regular_expression(function: &str, file: &str) -> bool {
    file.is_empty() && function.starts_with("(regexp) ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_of_each_language_is_separated_from_its_libraries() {
        use FrameType::{Cpython, Jvm, Native, Rust, Unspecified, V8js};
        for (own, library) in [
            (("price", "/srv/shop/app.py", Cpython), ("get", "/usr/lib/python3.11/queue.py", Cpython)),
            (("price", "shop/app.py", Unspecified), ("get", "/venv/lib64/python3.9/site-packages/a.py", Cpython)),
            (("main", "<stdin>", Cpython), ("__init__", "<frozen abc>", Unspecified)),
            (("main", "<string>", Unspecified), ("__init__", "<attrs generated init shop.Cart>", Cpython)),
            (("main", "app.py", Cpython), ("_find_spec", "<frozen importlib._bootstrap>", Cpython)),
            (("(anonymous)", "file:///srv/a.mjs", V8js), ("emit", "node:events", V8js)),
            (("serve", "/srv/shop.ts", V8js), ("next", "/srv/node_modules/express/lib/router.js", V8js)),
            (("Shop.price", "Shop.java", Jvm), ("java.util.HashMap.put", "HashMap.java", Jvm)),
            (("shop.Cart.sum", "Cart.kt", Jvm), ("org.springframework.web.Filter.run", "Filter.java", Unspecified)),
            (("shop::price", "src/main.rs", Rust), ("alloc::vec::push", "/rustc/4d9/library/alloc/src/v.rs", Rust)),
            (("shop::price", "src/main.rs", Unspecified), ("h2::poll", "/crates/.cargo/registry/src/h2/a.rs", Rust)),
            (
                ("main.price", "/srv/main.go", Unspecified),
                ("runtime.gcBgMark", "/usr/local/go/src/runtime/mgc.go", Rust),
            ),
            (("price", "/srv/a.js", V8js), ("v8::internal::Heap", "/usr/bin/node", Native)),
            (("price", "/srv/a.py", Cpython), ("[lock]", "", Unspecified)),
            (("Leak.run", "Leak.java", Jvm), ("byte[]", TYPE_FILE, Jvm)),
            (("Leak.run", "Leak.java", Jvm), ("shop.Cart", TYPE_FILE, Unspecified)),
            (("price", "/srv/a.js", V8js), ("(garbage collector)", "", V8js)),
        ] {
            let [of_own, of_library] =
                [own, library].map(|(function, file, kind)| CodeOrigin::of(function, file, kind));
            assert_eq!(of_own, CodeOrigin::Own, "{own:?}");
            assert_ne!(of_library, CodeOrigin::Own, "{library:?}");
        }
    }

    #[test]
    fn native_code_and_activities_are_the_runtime_and_plain_names_are_unknown() {
        use FrameType::{Kernel, Native, Unspecified, V8js};
        for (function, file, frame_type, origin) in [
            ("v8::internal::Heap", "/usr/bin/node", Native, CodeOrigin::Runtime),
            ("do_syscall_64", "", Kernel, CodeOrigin::Runtime),
            ("(garbage collector)", "", V8js, CodeOrigin::Runtime),
            ("[lock]", "", Unspecified, CodeOrigin::Runtime),
            ("GC", "", Unspecified, CodeOrigin::Runtime),
            ("parse", "", V8js, CodeOrigin::Library),
            ("main", "", Unspecified, CodeOrigin::Unknown),
            ("malloc", "/lib/x86_64-linux-gnu/libc.so.6", Unspecified, CodeOrigin::Runtime),
            ("add", "/venv/lib/python3.11/site-packages/numpy/_core.so", Native, CodeOrigin::Library),
            ("list_sort", "/usr/bin/python3.11", Unspecified, CodeOrigin::Runtime),
        ] {
            assert_eq!(CodeOrigin::of(function, file, frame_type), origin, "{function}");
        }
    }

    #[test]
    fn code_of_language_runtimes_is_told_from_native_code_with_and_without_frame_types() {
        use FrameType::{Cpython, Jvm, Kernel, Native, Rust, Unspecified, V8js};
        for (function, file, frame_type, kind) in [
            ("price", "/srv/app.py", Cpython, ExecutionKind::Managed),
            ("price", "/srv/app.py", Unspecified, ExecutionKind::Managed),
            ("main", "<stdin>", Unspecified, ExecutionKind::Managed),
            ("price", "", V8js, ExecutionKind::Managed),
            ("JSON.parse", "v8:builtin", Unspecified, ExecutionKind::Managed),
            ("shop.Cart.sum", "Cart.kt", Unspecified, ExecutionKind::Managed),
            ("shop.Cart.sum", "", Jvm, ExecutionKind::Managed),
            ("dgemm", "/lib/libopenblas.so.0", Unspecified, ExecutionKind::Native),
            ("list_sort", "/usr/bin/python3.11", Unspecified, ExecutionKind::Native),
            ("uv__io_poll", "/usr/bin/node", Unspecified, ExecutionKind::Native),
            ("[libfoo.so]", "/srv/libfoo.so", Native, ExecutionKind::Native),
            ("[native]", "", Native, ExecutionKind::Native),
            ("do_syscall_64", "", Kernel, ExecutionKind::Native),
            ("price", "src/main.rs", Rust, ExecutionKind::Other),
            ("price", "/srv/main.go", Unspecified, ExecutionKind::Other),
            ("(garbage collector)", "", Native, ExecutionKind::Other),
            ("[lock]", "", Unspecified, ExecutionKind::Other),
            ("byte[]", TYPE_FILE, Jvm, ExecutionKind::Other),
        ] {
            assert_eq!(ExecutionKind::of(function, file, frame_type), kind, "{function} {file}");
        }
    }

    #[test]
    fn the_profiler_is_recognized_by_its_libraries_packages_and_activities() {
        use FrameType::{Cpython, Jvm, Native, Rust, Unspecified, V8js};
        for (function, file, frame_type) in [
            ("<spanprof::tower::ProfiledBody<B> as http_body::Body>::poll_frame", "/src/tower/requests.rs", Rust),
            ("spanprof", "/venv/lib/python3.11/site-packages/spanprof/_spanprof.abi3.so", Native),
            ("drain", "/tmp/libspanprof_java.so", Unspecified),
            ("spanprof", "/app/spanprof", Native),
            ("__call__", "/venv/lib/python3.11/site-packages/spanprof/asgi.py", Cpython),
            ("onRequest", "/srv/node_modules/spanprof/lib/express.js", V8js),
            ("io.spanprof.servlet.Filter.doFilter", "Filter.java", Jvm),
            ("(profiler lists code)", "", Native),
            ("[spanprof-names]", "", Native),
        ] {
            assert_eq!(CodeOrigin::of(function, file, frame_type), CodeOrigin::Profiler, "{function} {file}");
        }
        for (function, file, frame_type) in [
            ("spanprof", "/srv/spanprof.py", Cpython),
            ("run", "/venv/lib/python3.11/site-packages/spanprofiler/a.py", Cpython),
            ("io.spanprofile.Main.main", "Main.java", Jvm),
            ("shop::spanprof::start", "/srv/shop/src/spanprof.rs", Rust),
        ] {
            assert_ne!(CodeOrigin::of(function, file, frame_type), CodeOrigin::Profiler, "{function} {file}");
        }
    }
}
