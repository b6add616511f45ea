//! The module's functions: start, stop, flush, update, stats and those that the package's hooks call. Each converts its
//! arguments, calls the core with the GIL released and converts the result. Not here: contexts and labels
//! ([`crate::context`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use spanprof_aggregate::context::{self as core_context, link_of_hex, ContextRow, Link};
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::StatValue;
use spanprof_config::{process_environment, Error, ErrorKind};
use spanprof_profiler::binding::{self, ffi_guard, HttpRequest, HttpResponse, NOT_CHANGED, NOT_PROFILED};
use spanprof_profiler::{LogLevel, ProfilerHandle, RequestEnd, RootSpanEnd, Stats};

use crate::context;
use crate::convert::{self, ffi_guard_argument, LabelsObject, BINDING};
use crate::ffi::symbols::symbols;
use crate::ffi::trace_id::trace_id_bytes;
use crate::ffi::{context_value, interruption, pending_call, variable};
use crate::objects::scope_calls;
use crate::runtime::events::{array_handler, gc_pauses};
use crate::runtime::{ContextSource, PythonRuntime};
use crate::threads;

/// Starts the profiler. True when samples are being taken afterwards; false when `enabled` or a kill switch disables it; None when
/// this process or interpreter cannot be profiled, which is logged.
#[pyfunction]
pub fn start(py: Python<'_>, config: &Bound<'_, PyDict>) -> PyResult<Option<bool>> {
    ffi_guard_argument(py, NOT_PROFILED, None, || {
        let code = convert::config_from(config);
        // The environment is read with the GIL held, so that no `os.environ` write runs meanwhile.
        let config = BINDING.load(&code, &process_environment(), || convert::program_name(py))?;
        let runtime = (!config.is_disabled()).then(|| python_runtime(py, config.signals)).transpose()?;
        if interruption::is_kept() {
            return Ok(None); // Raised instead.
        }
        let started = py.detach(|| binding::start(config, runtime));
        threads::profiler_started();
        apply_settings(py);
        started.map(Some)
    })
}

/// Stops the profiler and sends the last window within `stop_timeout`, or `at_most` seconds where that is shorter. True when
/// everything was delivered.
#[pyfunction]
#[pyo3(signature = (at_most=None))]
pub fn stop(py: Python<'_>, at_most: Option<f64>) -> bool {
    let at_most = at_most.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(Duration::MAX);
    ffi_guard(false, || {
        let delivered = py.detach(|| binding::stop(at_most));
        apply_settings(py);
        delivered
    })
}

/// Closes the open window and sends it; true when everything was delivered within `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (timeout=None))]
pub fn flush(py: Python<'_>, timeout: Option<f64>) -> bool {
    let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    ffi_guard(false, || py.detach(|| binding::flush(timeout)))
}

/// Changes keys of the running profiler; false when none runs.
#[pyfunction]
pub fn update(py: Python<'_>, config: &Bound<'_, PyDict>) -> PyResult<bool> {
    ffi_guard_argument(py, NOT_CHANGED, false, || {
        let changes = convert::config_from(config);
        let updated = py.detach(|| binding::update(changes));
        apply_settings(py);
        updated
    })
}

/// Statistics by dotted name; empty when the profiler does not run.
#[pyfunction]
pub fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = ffi_guard(Stats::default(), || {
        let own = vec![
            ("unreadable_labels", StatValue::Count(convert::unreadable_labels())),
            ("missing_functions", StatValue::Text(symbols().missing().join(", "))),
        ];
        py.detach(|| BINDING.stats(own))
    });
    convert::stats_into(py, &stats)
}

/// The profiles that are on, by their keys; empty when no profiler runs.
#[pyfunction]
pub fn profile_types() -> Vec<&'static str> {
    ffi_guard(Vec::new(), binding::profile_types)
}

/// A local root span with a span processor begins in the current context: ids as OpenTelemetry's integers. Never raises.
#[pyfunction]
pub fn begin_root_span(trace_id: &Bound<'_, PyAny>, span_id: u64) {
    ffi_guard((), || {
        let link = Link { trace_id: trace_id_bytes(trace_id).unwrap_or_default(), span_id: span_id.to_be_bytes() };
        binding::begin_root_span(&context::row(variable::get().id()), link);
    });
}

/// The end of a local root span: ids as OpenTelemetry's integers, the duration in nanoseconds. Never raises.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Python passes the parts of the span.
pub fn end_root_span(
    trace_id: &Bound<'_, PyAny>,
    span_id: u64,
    duration_ns: i64,
    name: &str,
    method: &str,
    route: &str,
    is_error: bool,
) {
    ffi_guard((), || {
        binding::end_root_span(&RootSpanEnd {
            trace_id: trace_id_bytes(trace_id).unwrap_or_default(),
            span_id: span_id.to_be_bytes(),
            duration: Duration::from_nanos(duration_ns.try_into().unwrap_or(0)),
            name,
            method,
            route,
            is_error,
        });
    });
}

/// A call to another service, a client span, begins in the current context. Never raises.
#[pyfunction]
pub fn begin_client_span(span_id: u64) {
    ffi_guard((), || binding::begin_client_span(&context::row(variable::get().id()), span_id.to_be_bytes()));
}

/// The end of a client span; the duration in nanoseconds. Never raises.
#[pyfunction]
pub fn end_client_span(span_id: u64, name: &str, duration_ns: i64) {
    let duration = Duration::from_nanos(duration_ns.try_into().unwrap_or(0));
    ffi_guard((), || binding::end_client_span(span_id.to_be_bytes(), name, duration));
}

/// Adopts the attributes of the SDK's resource, a mapping: those with one value. Never raises.
#[pyfunction]
pub fn adopt_resource(py: Python<'_>, attributes: &Bound<'_, PyAny>) {
    ffi_guard((), || {
        let pairs = interruption::ok(py, convert::resource_attributes(attributes)).unwrap_or_default();
        py.detach(|| binding::adopt_resource(pairs));
    });
}

/// Whether the package follows the tracer provider and the web frameworks of the program.
#[pyfunction]
pub fn follows_requests() -> bool {
    ffi_guard(false, binding::follows_requests)
}

/// A request begins in a middleware, with the trace of its caller in hex: the id for [`in_request`] and
/// [`end_request`]; 0 if its end is not to be reported.
#[pyfunction]
#[pyo3(signature = (trace_id = ""))]
pub fn begin_request(trace_id: &str) -> u64 {
    ffi_guard(0, || {
        let row = context::row(variable::get().id());
        binding::begin_request(&row, link_of_hex(trace_id, "")).map_or(0, u64::from_be_bytes)
    })
}

/// Prepared labels for the scope of a request that [`begin_request`] returned.
#[pyfunction]
pub fn in_request(labels: &Bound<'_, PyAny>, request: u64) -> LabelsObject {
    LabelsObject::of_row(ffi_guard(ContextRow::default(), || {
        let row = convert::prepared_labels(labels);
        let is_linked = row.link != Link::default();
        let link = if is_linked { row.link } else { context::row(variable::get().id()).link };
        core_context::in_request(ContextRow { link, ..row }, request.to_be_bytes())
    }))
}

/// The end of a request that [`begin_request`] returned. Never raises.
#[pyfunction]
pub fn end_request(request: u64, duration_ns: i64, endpoint: &str, is_error: bool) {
    ffi_guard((), || {
        binding::end_request(&RequestEnd {
            trace_id: [0; 16],
            local_root_span_id: request.to_be_bytes(),
            duration: Duration::from_nanos(duration_ns.try_into().unwrap_or(0)),
            endpoint,
            is_error,
        });
    });
}

/// Whether samples are being taken.
#[pyfunction]
pub fn is_running() -> bool {
    ffi_guard(false, binding::is_running)
}

/// Whether new threads inherit the labels of the thread that created them.
#[pyfunction]
pub fn inherits_threads() -> bool {
    ffi_guard(false, || ProfilerHandle::running().is_some_and(|profiler| profiler.config().inherit_threads))
}

/// The running configuration's value of `key` as text, secrets masked; None when no profiler runs or the key is unknown.
#[pyfunction]
pub fn setting(key: &str) -> Option<String> {
    ffi_guard(None, || binding::setting(key))
}

/// A handler of pulls was created.
#[pyfunction]
pub fn serve_pulls() {
    ffi_guard((), binding::serve_pulls);
}

/// Answers a request for a profile that a web framework received: status, headers and body. Blocks for the duration that it
/// requests. `has_left` is called four times per second and returns whether the client has left.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Python passes the parts of the request.
pub fn pull<'py>(
    py: Python<'py>,
    method: &str,
    mount: &str,
    rest: &str,
    query: &str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    has_left: Py<PyAny>,
) -> (u16, Vec<(&'static str, String)>, Bound<'py, PyBytes>) {
    let request = HttpRequest::mounted(method, mount, rest, query, headers, body);
    // An exception ends the pull.
    let has_left = || {
        Python::attach(|py| {
            interruption::ok(py, has_left.call0(py).and_then(|left| left.is_truthy(py))).unwrap_or(true)
        })
    };
    let failed = HttpResponse { status: 500, ..HttpResponse::default() };
    let response = ffi_guard(failed, || py.detach(|| binding::pull(&request, &has_left)));
    (response.status, response.headers, PyBytes::new(py, &response.body))
}

/// Every configuration key: name, type of its value, description.
#[pyfunction]
pub fn config_keys() -> Vec<(String, String, String)> {
    binding::config_keys().map(|key| key.map(Cow::into_owned).into()).collect()
}

/// In a forked child, on its only thread: restarts the profiler if it ran in the parent.
#[pyfunction]
pub fn after_fork_in_child(py: Python<'_>) {
    ffi_guard((), || py.detach(|| drop(ProfilerHandle::after_fork_in_child())));
    threads::profiler_started();
}

/// Lets the heap profile see numpy's arrays in the calling context, while it runs and numpy is loaded.
#[pyfunction]
pub fn hook_arrays(py: Python<'_>) {
    ffi_guard((), || {
        if let Some(error) = array_handler::install(py).err().and_then(|error| interruption::keep(py, error)) {
            binding::log(
                LogLevel::Warning,
                &format!("spanprof: the heap profile does not see numpy's arrays: {error}"),
            );
        }
    });
}

/// Sets the function that the main thread calls when log lines are queued; called once when the package is imported.
#[pyfunction]
pub fn set_log_notifier(function: Bound<'_, PyAny>) {
    pending_call::set_function(function);
}

/// Sets the function that the main thread calls after the control endpoint or the watched file changed the settings; called
/// once when the package is imported.
#[pyfunction]
pub fn set_settings_notifier(function: Bound<'_, PyAny>) {
    pending_call::set_settings_function(function);
}

/// Installs or removes the hooks of the interpreter that the settings require.
#[pyfunction]
pub fn follow_settings(py: Python<'_>) {
    ffi_guard((), || apply_settings(py));
}

/// Sets the function that a scope calls when used as a decorator; called once when the package is imported.
#[pyfunction]
pub fn set_decorate(decorate: Bound<'_, PyAny>) {
    scope_calls::set_decorate(decorate);
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

/// Installs or removes what measures in the interpreter, as the running profiler requires it.
fn apply_settings(py: Python<'_>) {
    let reports_gc = ProfilerHandle::running().is_some_and(|profiler| profiler.is_running() && profiler.config().gc);
    let reported = gc_pauses::set_reported(py, reports_gc);
    if let Some(error) = reported.err().and_then(|error| interruption::keep(py, error)) {
        binding::log(LogLevel::Warning, &format!("spanprof: pauses for garbage collection are not reported: {error}"));
    }
    hook_arrays(py);
}

fn python_runtime(py: Python<'_>, signals: bool) -> Result<Arc<dyn Runtime>, Error> {
    // The self-check reads memory; without the fault guard each word costs a system call.
    if signals {
        spanprof_os::install_fault_guard();
    }
    let unsupported = |message: String, hint: String| Error::new(ErrorKind::UnsupportedRuntime, message, hint);
    let runtime = PythonRuntime::new(py).map_err(|error| unsupported(error.message, error.hint))?;
    // These two run no Python code: the variable was created when the package was imported.
    let variable = variable::create(py).map_err(|error| unsupported(error.to_string(), String::new()))?;
    let source = runtime.set_context_variable(&variable, context_value::type_address());
    if source == ContextSource::ThreadTable {
        let table = Arc::clone(&runtime);
        variable::on_change(move |py, id| _ = table.set_thread_context(py, id));
    }
    Ok(runtime)
}
