//! The runtime of native Rust programs: unwind tables in the handler, debug information on the drain thread. Needs debug information
//! for lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::runtime::debug_info::DebugSymbols;
use spanprof_aggregate::runtime::{
    EventRuntime, Frame, FrameType, HeapRuntime, ReportedEvents, Runtime, RuntimeThread, WallRuntime,
};
use spanprof_os::PerProcess;
use spanprof_profiler::binding::{set_lock_waits_reported, SelfWalks};
use spanprof_profiler::{log, LogLevel};
use spanprof_signal::{CaptureFn, CaptureOtherFn, RawFrame, SampleKind};

pub(crate) mod allocator_hook;
#[cfg(test)]
pub mod allocator_run_testing;
#[cfg(test)]
mod allocator_tests;
#[cfg(feature = "tower")]
pub(crate) mod await_waker;
pub(crate) mod debug_info;
#[cfg(test)]
mod fork_delivery_tests;
#[cfg(test)]
mod fork_live_tests;
mod object_type;
pub(crate) mod threads;
#[cfg(test)]
mod threads_tests;
pub(crate) mod walk;

/// The runtime of this program's native code.
#[derive(Debug, Default)]
pub struct NativeRuntime;

impl Runtime for NativeRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![
            ("process.runtime.name".to_owned(), "rust".to_owned()),
            ("process.runtime.version".to_owned(), env!("RUSTC_VERSION_OF_BUILD").to_owned()),
            ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ]
    }

    fn capture(&self) -> CaptureFn {
        walk::capture_native
    }

    fn delayed_termination(&self) -> Option<libc::sighandler_t> {
        Some(libc::SIG_DFL)
    }

    fn register_thread(&self) {
        spanprof_os::thread_context::current();
    }

    fn native_pc(&self, raw: RawFrame) -> Option<u64> {
        (raw.code >= RawFrame::FIRST_RUNTIME_CODE).then_some(raw.code).or(raw.native_pc())
    }

    fn resolve(&self, raw: RawFrame, position: u64, out: &mut Vec<Frame>) {
        if !with_symbols(|symbols| symbols.frames(raw.code, position, out)) {
            let object = spanprof_os::native_object(raw.code, position);
            let file = object.map(|object| object.file.to_string_lossy().into_owned()).unwrap_or_default();
            let name = file.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("native").to_owned();
            let function = format!("[{name}]").into();
            out.push(Frame { function, file: file.into(), frame_type: FrameType::Native, ..Frame::default() });
        }
    }

    fn end_batch(&self) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let is_program_stripped = with_symbols(|symbols| {
            symbols.end_batch();
            symbols.is_program_stripped
        });
        if is_program_stripped && !WARNED.swap(true, Ordering::Relaxed) {
            let line = "spanprof: this program has no symbols, so its functions have no names in profiles; build it without `strip`, \
                        and with `debug = \"line-tables-only\"` for lines";
            log(LogLevel::Warning, line);
        }
    }

    spanprof_aggregate::every_part_of_runtime!();
}

impl WallRuntime for NativeRuntime {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        threads::begin(self.fallback_signal()).then_some(threads::capture_other as CaptureOtherFn)
    }

    fn uses_self_walks(&self) -> bool {
        true
    }

    fn wait_for_responses(&self, timeout: Duration) -> bool {
        SelfWalks::of_process().wait(timeout);
        true
    }

    /// Code stays at its address, except for that of an unloaded library.
    fn are_frames_stable(&self) -> bool {
        true
    }

    fn has_context(&self, thread: RuntimeThread) -> bool {
        spanprof_os::thread_context::context_of(thread.thread_id) != 0
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        let mut ids = Vec::new();
        spanprof_os::host_thread_ids(&mut ids);
        out.extend(ids.into_iter().map(|thread_id| RuntimeThread { thread_id, handle: 0 }));
    }
}

impl HeapRuntime for NativeRuntime {
    fn install_hooks(&self) -> Result<(), String> {
        // Walks read the stack by direct loads.
        spanprof_os::install_fault_guard();
        walk::build_first_tables();
        if allocator_hook::probe_allocator() {
            Ok(())
        } else {
            Err("the global allocator is not spanprof::alloc::Profiled (see docs/reference/rust.md)".to_owned())
        }
    }

    fn is_of_allocator(&self, frame: &Frame) -> bool {
        is_between_program_and_allocator(frame)
    }

    fn allocated_type(&self, functions: &[Frame]) -> Option<Frame> {
        Some(Frame::of_type(object_type::named_by(functions)?, FrameType::Rust))
    }
}

impl EventRuntime for NativeRuntime {
    fn submits(&self, kind: SampleKind) -> bool {
        kind == SampleKind::Lock
    }

    fn set_reported(&self, events: ReportedEvents) {
        if events.lock || events.off_cpu {
            spanprof_os::install_fault_guard();
            walk::build_first_tables();
        }
        set_lock_waits_reported(events);
    }

    fn is_of_lock(&self, frame: &Frame) -> bool {
        is_of_lock(frame)
    }
}

fn with_symbols<R>(body: impl FnOnce(&mut DebugSymbols) -> R) -> R {
    static SYMBOLS: PerProcess<Mutex<DebugSymbols>> = PerProcess::empty();
    SYMBOLS.with(|symbols| body(&mut symbols.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Functions that the compiler generates for `#[global_allocator]`: `__rust_alloc_zeroed`, `__rg_alloc` and their kind.
const ENTRY_POINTS: [&str; 3] = ["__rust_alloc", "__rust_realloc", "__rg_"];
/// Crates of the standard library, and parts of them, that allocate for their caller: containers, iterators, formatters.
const STANDARD_CONTAINERS: [(&str, &str); 4] = [
    ("alloc::", "/library/alloc/src/"),
    ("core::", "/library/core/src/"),
    ("std::collections::", "/library/std/src/collections/"),
    ("hashbrown::", "/rust/deps/hashbrown-"),
];

/// Whether a function is one of `spanprof::sync`, which the stacks of waits leave out. Names of inlined functions lack their path.
fn is_of_lock(frame: &Frame) -> bool {
    let source = file!().trim_end_matches("runtime/mod.rs");
    let (path, _) = frame.file.rsplit_once('/').unwrap_or_default();
    frame.function.trim_start_matches('<').starts_with("spanprof::sync::")
        || path.strip_suffix("sync").is_some_and(|before| before.ends_with(source))
}

/// Whether a function lies between the program and its allocator. In an optimized program these are inlined, and with line
/// tables only, the names of inlined functions lack their path, so that their file decides.
fn is_between_program_and_allocator(frame: &Frame) -> bool {
    let name = frame.function.trim_start_matches('<');
    let last = name.rsplit("::").next().unwrap_or_default();
    let implements = trait_of_library(&frame.function).unwrap_or_default();
    let is_in = |path: &str| name.starts_with(path) || implements.starts_with(path);
    frame.file.ends_with(allocator_hook::ALLOCATOR_HOOK_FILE)
        || ENTRY_POINTS.iter().any(|prefix| last.starts_with(prefix))
        || STANDARD_CONTAINERS.iter().any(|(path, file)| is_in(path) || frame.file.contains(file))
}

/// The trait of `<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem`, if its crate has the implementation: for types of the
/// language, which have no path, and for its private traits.
fn trait_of_library(function: &str) -> Option<&str> {
    let (implementing, implemented) = function.strip_prefix('<')?.split_once(" as ")?;
    (!implementing.contains("::") || implemented.contains("::spec_")).then_some(implemented)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_hidden(function: &str, file: &str) -> bool {
        let frame = Frame { function: function.into(), file: file.into(), ..Frame::default() };
        is_between_program_and_allocator(&frame)
    }

    #[test]
    fn heap_stacks_begin_in_the_program_whether_or_not_the_allocator_is_inlined() {
        let hook = "/service/core/src/runtime/allocator_hook.rs";
        let library = |path: &str| format!("/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/{path}");
        // Full debug information, then line tables only.
        assert!(is_hidden(
            "<spanprof::sys::profiled_allocator_signal::Profiled<A> as core::alloc::global::GlobalAlloc>::alloc",
            hook
        ));
        assert!(is_hidden("alloc_zeroed<std::alloc::System>", hook));
        assert!(is_hidden("__rustc::__rust_alloc_zeroed", "/service/src/main.rs"));
        assert!(is_hidden("__rust_realloc", "/service/src/main.rs"));
        assert!(is_hidden("alloc::vec::from_elem", ""));
        assert!(is_hidden("<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", ""));
        assert!(is_hidden("<shop::Order as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", ""));
        assert!(!is_hidden("<shop::Order as core::clone::Clone>::clone", ""));
        assert!(!is_hidden("<u8 as shop::Price>::price", ""));
        assert!(is_hidden("push<u64, alloc::alloc::Global>", &library("alloc/src/vec/mod.rs")));
        assert!(is_hidden("write_fmt", &library("core/src/fmt/mod.rs")));
        assert!(is_hidden("<u64 as core::fmt::Display>::fmt", &library("core/src/fmt/num.rs")));
        assert!(is_hidden(
            "insert<usize, u64, std::hash::random::RandomState>",
            &library("std/src/collections/hash/map.rs")
        ));
        assert!(is_hidden("reserve_rehash", "/rust/deps/hashbrown-0.16.0/src/raw/mod.rs"));
        // The program, and parts of the standard library that allocate for themselves.
        assert!(!is_hidden("<shop::Cart as core::fmt::Display>::fmt", "/service/src/cart.rs"));
        assert!(!is_hidden("shop::alloc::reserve", "/service/src/alloc.rs"));
        assert!(!is_hidden("std::thread::Builder::spawn_unchecked", &library("std/src/thread/mod.rs")));
    }
}
