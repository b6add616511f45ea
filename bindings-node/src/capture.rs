//! The native part of `capture`: begins and ends a capture, and converts its profile. Not here: the scope (`lib/capture.js`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::{AsyncTask, Buffer};
use napi::{Env, Result, Task};
use napi_derive::napi;
use spanprof_aggregate::context::{context_row, merge, open_context, ContextRow};
use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::{CapturedProfile, RunningCapture};

use crate::api::{BlockingOperation, BlockingTask};
use crate::convert::ffi_guard_or_throw;

/// The open captures, by number.
fn open_captures() -> MutexGuard<'static, HashMap<u32, RunningCapture>> {
    static OPEN: LazyLock<Mutex<HashMap<u32, RunningCapture>>> = LazyLock::new(Mutex::default);
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a capture; returns its number, 0 without a profiler.
#[napi]
pub fn begin_capture() -> u32 {
    ffi_guard(0, || {
        let open = RunningCapture::begin();
        let number = open.number();
        if number != 0 {
            open_captures().insert(number, open);
        }
        number
    })
}

/// The context `parent` inside a capture.
#[napi]
pub fn capture_context(parent: f64, capture: u32) -> f64 {
    ffi_guard(parent, || {
        let row = context_row(parent as u64).unwrap_or_default();
        open_context(merge(row, ContextRow { capture, ..ContextRow::default() })) as f64
    })
}

/// Ends a capture on another thread, which waits for the last samples, at most 2 s.
#[napi]
pub fn end_capture(capture: u32) -> AsyncTask<CaptureEnd> {
    AsyncTask::new(CaptureEnd(capture))
}

/// Ends a capture without its profile.
#[napi]
pub fn discard_capture(capture: u32) {
    ffi_guard((), || {
        let open = open_captures().remove(&capture);
        // After the lock is released.
        drop(open);
    });
}

/// See [`end_capture`].
pub struct CaptureEnd(u32);

impl Task for CaptureEnd {
    type Output = CapturedProfile;
    type JsValue = CaptureProfileObject;

    fn compute(&mut self) -> Result<Self::Output> {
        Ok(ffi_guard(Self::Output::default(), || {
            let open = open_captures().remove(&self.0);
            open.map(RunningCapture::end).unwrap_or_default()
        }))
    }

    fn resolve(&mut self, _env: Env, captured: Self::Output) -> Result<CaptureProfileObject> {
        Ok(CaptureProfileObject(captured.into()))
    }
}

/// The samples of a capture.
#[napi]
pub struct CaptureProfileObject(Arc<CapturedProfile>);

#[napi]
impl CaptureProfileObject {
    /// Gzip-compressed pprof.
    #[napi]
    pub fn pprof(&self) -> Buffer {
        ffi_guard(Vec::new(), || self.0.pprof()).into()
    }

    /// A flame graph as an HTML page.
    #[napi]
    pub fn flamegraph(&self) -> String {
        ffi_guard(String::new(), || self.0.flamegraph())
    }

    /// Writes a file; its extension selects the format.
    #[napi]
    pub fn save(&self, path: String) -> Result<()> {
        ffi_guard_or_throw(|| self.0.save(path))
    }

    /// Sends the profile on another thread. True when it was delivered within `timeout_ms`.
    #[napi]
    pub fn send(&self, timeout_ms: Option<f64>) -> AsyncTask<BlockingTask> {
        AsyncTask::new(BlockingTask(BlockingOperation::SendCapture(self.0.clone(), timeout_ms)))
    }

    /// Names of the profile types that have samples.
    #[napi]
    pub fn types(&self) -> Vec<String> {
        self.0.types()
    }
}
