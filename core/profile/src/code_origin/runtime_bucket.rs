//! The part of a language runtime that a native function belongs to, by file and name.
//!
//! Sources: HotSpot, JDK 17 to 25 (`hotspot/share/gc`, `compiler`, `opto`, `c1`, in `libjvm.so`); V8 10.2 to 13 (`src/heap`,
//! `src/compiler`, `src/maglev`, `src/baseline`, `src/interpreter`, in `node`); CPython 3.9 to 3.15 (`Modules/gcmodule.c`, since
//! 3.13 `Python/gc.c`, in `python3` or `libpython3`). The frames `GC`, `JIT compiler`, `(garbage collector)` and `(compiler)` are of
//! the bindings.

use super::{file_name, is_activity, is_of_profiler, CodeOrigin};
use crate::FrameType;

/// A part of the runtime. Later ones are more specific: they name a run of frames of which one is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuntimeBucket {
    /// Native code of another kind, such as the C library.
    Native,
    /// A byte code interpreter, or the C code of CPython.
    Interpreter,
    /// Other code of Node.js and V8.
    V8Runtime,
    /// Other code of the Java VM.
    JvmRuntime,
    /// A compiler of the runtime.
    JitCompiler,
    /// The collector.
    GarbageCollector,
    /// This profiler.
    Profiler,
    /// The operating system. Never the name of a run with other code.
    Kernel,
}

/// Prefixes of names of HotSpot's collectors: G1, Parallel, Serial, ZGC, Shenandoah.
const HOTSPOT_COLLECTORS: [&str; 15] = [
    "G1",
    "VM_G1",
    "VM_GC",
    "VM_Parallel",
    "PSScavenge",
    "PSParallel",
    "PSPromotion",
    "ParallelScavenge",
    "SerialHeap",
    "GenCollected",
    "DefNew",
    "GenMarkSweep",
    "ZCollected",
    "ZMark",
    "Shenandoah",
];
/// Prefixes of names of HotSpot's compilers C1 and C2.
const HOTSPOT_COMPILERS: [&str; 10] = [
    "CompileBroker",
    "C2Compiler",
    "Compile::",
    "Phase",
    "Parse::",
    "IndexSet",
    "Compiler::",
    "Compilation::",
    "GraphBuilder",
    "LinearScan",
];
/// Prefixes of names behind `v8::internal::`.
const V8_COLLECTORS: [&str; 15] = [
    "Scaveng",
    "MarkCompact",
    "MinorMarkSweep",
    "MinorMarkCompact",
    "ConcurrentMarking",
    "IncrementalMarking",
    "Sweeper",
    "ArrayBufferSweeper",
    "Evacuat",
    "PageEvacuationJob",
    "PointersUpdating",
    "MemoryAllocator::Unmapper",
    "Heap::CollectGarbage",
    "Heap::PerformGarbageCollection",
    "Heap::Scavenge",
];
const V8_COMPILERS: [&str; 9] = [
    "compiler::",
    "maglev::",
    "baseline::",
    "Compiler::",
    "OptimizingCompileDispatcher",
    "OptimizedCompilationJob",
    "Parser",
    "interpreter::Bytecode",
    "parsing::",
];
/// Prefixes of names of CPython's collector.
const CPYTHON_COLLECTOR: [&str; 6] =
    ["gc_collect", "_PyGC_", "PyGC_Collect", "_Py_RunGC", "deduce_unreachable", "collect_with_callback"];

impl RuntimeBucket {
    /// The bucket of a frame of the origin [`CodeOrigin::Runtime`] or [`CodeOrigin::Profiler`]. `None` for other activities and
    /// reasons, such as `[lock]`: they have a name of their own.
    pub fn of(function: &str, file: &str, frame_type: FrameType) -> Option<Self> {
        if is_of_profiler(function, file, frame_type) {
            return Some(Self::Profiler);
        }
        match function {
            "(garbage collector)" | "[GC]" => return Some(Self::GarbageCollector),
            "GC" if file.is_empty() => return Some(Self::GarbageCollector),
            "(compiler)" => return Some(Self::JitCompiler),
            "JIT compiler" if file.is_empty() => return Some(Self::JitCompiler),
            "[Interpreter]" => return Some(Self::Interpreter),
            _ if is_activity(function, file) => return None,
            _ if frame_type == FrameType::Kernel => return Some(Self::Kernel),
            _ => {}
        }
        let starts_with = |name: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let program = file_name(file);
        if program == "libjvm.so" {
            return Some(match function {
                name if starts_with(name, &HOTSPOT_COLLECTORS) => Self::GarbageCollector,
                name if starts_with(name, &HOTSPOT_COMPILERS) => Self::JitCompiler,
                _ => Self::JvmRuntime,
            });
        }
        if let Some(name) = function.strip_prefix("v8::internal::") {
            return Some(match name {
                name if starts_with(name, &V8_COLLECTORS) => Self::GarbageCollector,
                name if starts_with(name, &V8_COMPILERS) => Self::JitCompiler,
                _ => Self::V8Runtime,
            });
        }
        if let Some(name) = function.strip_prefix("Builtins_") {
            // A handler of a byte code, or the entry of the interpreter Ignition.
            let is_interpreter = name.ends_with("Handler") || name.starts_with("Interpreter");
            return Some(if is_interpreter { Self::Interpreter } else { Self::V8Runtime });
        }
        if program == "node" || starts_with(program, &["libnode.so"]) || starts_with(function, &["v8::", "node::"]) {
            return Some(Self::V8Runtime);
        }
        // Distributions link a part of the C modules into the interpreter.
        if starts_with(program, &["python", "libpython"]) || file.contains("/lib-dynload/") {
            let is_collector = starts_with(function, &CPYTHON_COLLECTOR);
            return Some(if is_collector { Self::GarbageCollector } else { Self::Interpreter });
        }
        Some(Self::Native)
    }

    /// The name of folded frames.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Interpreter => "interpreter",
            Self::V8Runtime => "V8 runtime",
            Self::JvmRuntime => "JVM runtime",
            Self::JitCompiler => "JIT compiler",
            Self::GarbageCollector => "garbage collector",
            Self::Profiler => "profiler",
            Self::Kernel => "kernel",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Native => "Native code",
            Self::Interpreter => "Interpreter",
            Self::V8Runtime => "V8 runtime",
            Self::JvmRuntime => "JVM runtime",
            Self::JitCompiler => "JIT compiler",
            Self::GarbageCollector => "Garbage collector",
            Self::Profiler => "Profiler",
            Self::Kernel => "Kernel",
        }
    }

    /// The frame type of folded frames.
    pub fn frame_type(self) -> FrameType {
        if self == Self::Kernel {
            FrameType::Kernel
        } else {
            FrameType::Native
        }
    }

    /// The origin of folded frames.
    pub fn origin(self) -> CodeOrigin {
        if self == Self::Profiler {
            CodeOrigin::Profiler
        } else {
            CodeOrigin::Runtime
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameType::{Jvm, Kernel, Native, Unspecified, V8js};

    #[test]
    fn parts_of_each_runtime_have_their_bucket() {
        use RuntimeBucket as Bucket;
        const JVM: &str = "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so";
        for (function, file, frame_type, bucket) in [
            ("JIT compiler", "", Native, Bucket::JitCompiler),
            ("PhaseIFG::re_insert", JVM, Native, Bucket::JitCompiler),
            ("GC", "", Native, Bucket::GarbageCollector),
            ("G1ParScanThreadState::trim_queue", JVM, Native, Bucket::GarbageCollector),
            ("SymbolTable::do_lookup", JVM, Native, Bucket::JvmRuntime),
            ("[Interpreter]", "", Jvm, Bucket::Interpreter),
            ("(garbage collector)", "", Native, Bucket::GarbageCollector),
            ("v8::internal::ScavengerCollector::CollectGarbage", "/usr/bin/node", Native, Bucket::GarbageCollector),
            ("v8::internal::PageEvacuationJob::Run", "/usr/bin/node", Native, Bucket::GarbageCollector),
            ("v8::internal::compiler::Pipeline::Run", "/usr/bin/node", Native, Bucket::JitCompiler),
            ("v8::internal::JsonParser::Parse", "/usr/bin/node", Native, Bucket::V8Runtime),
            ("Builtins_LdaNamedPropertyHandler", "/usr/bin/node", Native, Bucket::Interpreter),
            ("uv__io_poll", "/usr/bin/node", Native, Bucket::V8Runtime),
            ("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", Native, Bucket::Interpreter),
            ("gc_collect_main", "/usr/lib/libpython3.11.so.1.0", Native, Bucket::GarbageCollector),
            ("scanstring", "/usr/lib/python3.11/lib-dynload/_json.cpython-311.so", Native, Bucket::Interpreter),
            ("do_syscall_64", "", Kernel, Bucket::Kernel),
            ("malloc", "/lib/x86_64-linux-gnu/libc.so.6", Unspecified, Bucket::Native),
            ("spanprof", "/srv/node_modules/@spanprof/linux-x64/spanprof.node", Native, Bucket::Profiler),
            ("(profiler lists code)", "", Native, Bucket::Profiler),
        ] {
            assert_eq!(RuntimeBucket::of(function, file, frame_type), Some(bucket), "{function}");
        }
    }

    #[test]
    fn reasons_and_kinds_of_threads_keep_their_names() {
        for function in ["[lock]", "[truncated]", "(idle)", "[thread V8Worker]", "[scavenge]"] {
            assert_eq!(RuntimeBucket::of(function, "", V8js), None, "{function}");
        }
    }
}
