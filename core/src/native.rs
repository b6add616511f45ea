//! The runtime of native Rust programs: frame pointers in the handler, debug information on the drain thread. Needs
//! `-C force-frame-pointers=yes` for whole stacks and debug information for names and lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::config::Config;
use crate::runtime::{Frame, FrameType, Runtime};
use crate::{sys, Error, Profiler};
use spanprof_signal::{CaptureFn, RawFrame};

/// See the head of the module.
#[derive(Debug, Default)]
pub struct NativeRuntime;

impl Profiler {
    /// Starts the profiler for a native program.
    ///
    /// ```no_run
    /// let config = spanprof::Config::builder().service_name("checkout").load()?;
    /// let profiler = spanprof::Profiler::start(config)?;
    /// spanprof::tag_wrapper([("route", "/cart")], || { /* work */ });
    /// profiler.stop();
    /// # Ok::<(), spanprof::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Profiler::start_with_runtime`].
    pub fn start(config: Config) -> Result<Profiler, Error> {
        Self::start_with_runtime(config, Arc::new(NativeRuntime))
    }
}

impl Runtime for NativeRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![
            ("process.runtime.name".to_owned(), "rust".to_owned()),
            ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ]
    }

    fn capture(&self) -> CaptureFn {
        sys::capture_native
    }

    fn register_thread(&self) {
        sys::thread_context::current();
    }

    fn resolve(&self, raw: RawFrame, _position: u64, out: &mut Vec<Frame>) {
        let in_library = InLibrary::enter();
        // Code of the program and of libraries stays where it is; one that was unloaded is named by what lies there now.
        let named = |symbol: &backtrace::Symbol| {
            let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
            let file = symbol.filename().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
            if !name.is_empty() {
                out.push(Frame {
                    function: name.into(),
                    file: file.into(),
                    start_line: 0,
                    line: symbol.lineno().unwrap_or(0),
                    column: symbol.colno().unwrap_or(0),
                    frame_type: FrameType::Rust,
                });
            }
        };
        if in_library.is_some() {
            backtrace::resolve(raw.code as usize as *mut std::ffi::c_void, named);
        }
        drop(in_library);
        if out.is_empty() {
            let object = sys::native_symbol(raw.code);
            let file = object.map(|found| found.file.to_string_lossy().into_owned()).unwrap_or_default();
            let name = file.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("native").to_owned();
            let function = format!("[{name}]").into();
            out.push(Frame { function, file: file.into(), frame_type: FrameType::Native, ..Frame::default() });
        }
    }
}

/// A thread inside the library that reads debug information, which holds a lock of its own meanwhile. In a process that was
/// forked then, nobody will release it: the library is not entered there, and frames bear the name of their file.
struct InLibrary;

/// How many threads are inside, and above it the fork generation of the process they belong to.
static INSIDE: AtomicU64 = AtomicU64::new(0);

impl InLibrary {
    /// `None` where a thread of the parent was inside.
    fn enter() -> Option<Self> {
        let mine = u64::from(sys::fork_generation()) << 32;
        let entered = INSIDE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |inside| {
            let threads = inside & !GENERATION;
            let is_ours = inside & GENERATION == mine;
            (is_ours || threads == 0).then_some(mine + threads + 1)
        });
        entered.is_ok().then(|| Self)
    }
}

const GENERATION: u64 = 0xffff_ffff << 32;

impl Drop for InLibrary {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::AcqRel);
    }
}
