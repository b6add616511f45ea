//! The native part of `capture`: begins and ends a capture, and converts its profile. Not here: the scope (`tag_wrapper` with
//! the capture's labels), coroutines (`capture.py`).

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use spanprof_aggregate::context::ContextRow;
use spanprof_profiler::binding::{self, ffi_guard};
use spanprof_profiler::{CapturedProfile, RunningCapture};

use crate::convert::{ffi_guard_or_raise, LabelsObject};

/// An open capture; without one, after its end.
#[pyclass(frozen, name = "OpenCapture", module = "spanprof._spanprof")]
pub struct CaptureObject(Mutex<Option<RunningCapture>>);

#[pymethods]
impl CaptureObject {
    #[new]
    fn new(py: Python<'_>) -> Self {
        Self(Mutex::new(ffi_guard(None, || py.detach(|| Some(RunningCapture::begin())))))
    }

    /// The labels of its scope, for `tag_wrapper`.
    fn labels(&self) -> LabelsObject {
        let number = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, RunningCapture::number);
        LabelsObject::of_row(ContextRow { capture: number, ..ContextRow::default() })
    }

    /// Waits for the last samples with the GIL released, at most 2 s.
    fn end(&self, py: Python<'_>) -> ProfileObject {
        let captured = ffi_guard(CapturedProfile::default(), || {
            py.detach(|| {
                let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                open.map(RunningCapture::end).unwrap_or_default()
            })
        });
        ProfileObject(captured)
    }
}

/// The samples of a capture.
#[pyclass(frozen, name = "CapturedProfile", module = "spanprof._spanprof")]
pub struct ProfileObject(CapturedProfile);

#[pymethods]
impl ProfileObject {
    /// Gzip-compressed pprof.
    fn pprof<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &ffi_guard(Vec::new(), || py.detach(|| self.0.pprof())))
    }

    /// A flame graph as an HTML page.
    fn flamegraph(&self, py: Python<'_>) -> String {
        ffi_guard(String::new(), || py.detach(|| self.0.flamegraph()))
    }

    /// Writes a file; its extension selects the format.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        ffi_guard_or_raise(py, || py.detach(|| self.0.save(path)))
    }

    /// Sends the profile with the GIL released; true when it was delivered within `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn send(&self, py: Python<'_>, timeout: Option<f64>) -> bool {
        let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        ffi_guard(false, || py.detach(|| binding::send_capture(&self.0, timeout)))
    }

    /// Names of the profile types that have samples.
    #[getter]
    fn types(&self) -> Vec<String> {
        self.0.types()
    }
}
