//! The module's functions: start, stop, flush, update, stats and those that the package's hooks call. Each converts its
//! arguments, calls the core with the GIL released and converts the result. Not here: contexts and labels
//! ([`crate::context_calls`]).

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use spanprof::binding::{ffi_guard, panics};
use spanprof::config::{process_environment, KEYS};
use spanprof::runtime::{DisabledRuntime, Runtime};
use spanprof::{Config, ConfigPatch, Error, ErrorKind, Profiler, StatValue, Stats};

use crate::convert;
use crate::error::ffi_guard_or_raise;
use crate::ffi::pending_call;
use crate::ffi::symbols::symbols;
use crate::ffi::variable;
use crate::runtime::PythonRuntime;

/// Starts the profiler. True when samples are being taken afterwards; false when `enabled` or a kill switch disables it.
#[pyfunction]
pub fn start(py: Python<'_>, config: &Bound<'_, PyDict>) -> PyResult<bool> {
    let code = convert::config_from(config);
    ffi_guard_or_raise(py, || {
        // The environment is read with the GIL held, so that no `os.environ` write runs meanwhile.
        let mut config = Config::load(&code, &process_environment())?;
        if config.service_name.is_empty() && !config.resource_attributes.contains_key("service.name") {
            config.service_name = convert::program_name(py);
        }
        // A disabled profiler does not inspect the interpreter.
        let is_disabled = !config.enabled || config.disabled_by.is_some();
        let runtime = if is_disabled { Arc::new(DisabledRuntime) } else { python_runtime(py, config.signals)? };
        py.detach(|| Profiler::start_with_runtime(config, runtime)).map(|profiler| profiler.is_running())
    })
}

/// Stops the profiler and sends the last window within `stop_timeout`, or `at_most` seconds where that is shorter. True when
/// everything was delivered.
#[pyfunction]
#[pyo3(signature = (at_most=None))]
pub fn stop(py: Python<'_>, at_most: Option<f64>) -> bool {
    let at_most = at_most.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(Duration::MAX);
    ffi_guard(false, || py.detach(|| Profiler::running().is_none_or(|profiler| profiler.stop_within(at_most))))
}

/// Closes the open window and sends it; true when everything was delivered within `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (timeout=None))]
pub fn flush(py: Python<'_>, timeout: Option<f64>) -> bool {
    ffi_guard(false, || {
        let Some(profiler) = Profiler::running() else { return true };
        let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        py.detach(|| profiler.flush(timeout.unwrap_or_else(|| profiler.config().stop_timeout)))
    })
}

/// Changes keys of the running profiler; false when none runs.
#[pyfunction]
pub fn update(py: Python<'_>, config: &Bound<'_, PyDict>) -> PyResult<bool> {
    let patch = ConfigPatch(convert::config_from(config));
    ffi_guard_or_raise(py, || match Profiler::running() {
        Some(profiler) => py.detach(|| profiler.update(&patch)).map(|()| true),
        None => Ok(false),
    })
}

/// Statistics by dotted name; empty when the profiler does not run.
#[pyfunction]
pub fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = ffi_guard(Stats::default(), || {
        let Some(profiler) = Profiler::running() else { return Stats::default() };
        let mut stats = py.detach(|| profiler.stats());
        let missing = symbols().missing().join(", ");
        for (name, value) in [
            ("python.panics", StatValue::Count(panics())),
            ("python.unreadable_labels", StatValue::Count(convert::unreadable_labels())),
            ("python.missing_functions", StatValue::Text(missing)),
        ] {
            stats.entries.push((name.to_owned(), value));
        }
        stats
    });
    convert::stats_into(py, &stats)
}

/// Whether samples are being taken.
#[pyfunction]
pub fn is_running() -> bool {
    ffi_guard(false, || Profiler::running().is_some_and(|profiler| profiler.is_running()))
}

/// Whether new threads inherit the labels of the thread that created them.
#[pyfunction]
pub fn inherits_threads() -> bool {
    ffi_guard(false, || Profiler::running().is_some_and(|profiler| profiler.config().inherit_threads))
}

/// The running configuration's value of `key` as text, secrets masked; None when no profiler runs or the key is unknown.
#[pyfunction]
pub fn setting(key: &str) -> Option<String> {
    ffi_guard(None, || {
        let entries = Profiler::running()?.config().entries();
        entries.into_iter().find(|(name, _, _)| *name == key).map(|(_, text, _)| text)
    })
}

/// Every configuration key: name, type of its value, description.
#[pyfunction]
pub fn config_keys() -> Vec<(&'static str, &'static str, &'static str)> {
    KEYS.iter().map(|key| (key.name, key.type_name, key.doc.trim())).collect()
}

/// In a forked child, on its only thread: restarts the profiler if it ran in the parent.
#[pyfunction]
pub fn after_fork_in_child(py: Python<'_>) {
    ffi_guard((), || py.detach(|| drop(Profiler::after_fork_in_child())));
}

/// Registers the calling thread before it runs code of the program.
#[pyfunction]
pub fn register_current_thread() {
    ffi_guard((), || {
        if let Some(profiler) = Profiler::running() {
            profiler.register_current_thread();
        }
    });
}

/// Disarms the CPU clock of the calling thread, which is about to call `exec`.
#[pyfunction]
pub fn suspend_current_thread(py: Python<'_>) {
    ffi_guard((), || {
        if let Some(profiler) = Profiler::running() {
            py.detach(|| profiler.suspend_current_thread());
        }
    });
}

/// Arms the CPU clock of the calling thread again.
#[pyfunction]
pub fn resume_current_thread(py: Python<'_>) {
    ffi_guard((), || {
        if let Some(profiler) = Profiler::running() {
            py.detach(|| profiler.resume_current_thread());
        }
    });
}

/// Sets the function that the main thread calls when log lines are queued; called once when the package is imported.
#[pyfunction]
pub fn set_log_notifier(function: Bound<'_, PyAny>) {
    pending_call::set_function(function);
}

/// Registers the library of `function` (greenlet). It replaces frames and context in separate steps, so samples taken inside it
/// get no labels. False when the library is not found.
#[pyfunction]
pub fn watch_greenlet_switches(function: &Bound<'_, PyAny>) -> bool {
    ffi_guard(false, || crate::runtime::watch_greenlet_switches(function))
}

/// Runs the command line; returns its exit code.
#[pyfunction]
pub fn cli_main(py: Python<'_>, arguments: Vec<String>) -> i32 {
    // The command line has no log: the default hook prints panics.
    drop(std::panic::take_hook());
    ffi_guard(70, || py.detach(|| spanprof_cli::run(&arguments)))
}

fn python_runtime(py: Python<'_>, signals: bool) -> Result<Arc<dyn Runtime>, Error> {
    // The self-check reads memory; without the fault guard each word costs a system call.
    if signals {
        spanprof::sys::install_fault_guard();
    }
    let unsupported = |message: String, hint: String| Error::new(ErrorKind::UnsupportedRuntime, message, hint);
    let runtime = PythonRuntime::new(py).map_err(|error| unsupported(error.message, error.hint))?;
    let variable = variable::create(py).map_err(|error| unsupported(error.to_string(), String::new()))?;
    let source = runtime.set_context_variable(&variable);
    variable::publish_to(source, Arc::clone(&runtime));
    Ok(runtime)
}
