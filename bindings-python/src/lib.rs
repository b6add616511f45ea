//! The native half of the Python package: `spanprof._spanprof`.
//!
//! Conversion only: keyword arguments to the core's configuration, errors to exceptions, context ids to the context variable
//! that Python propagates. Not here: defaults, limits and messages (the core), the frame walk ([`runtime`]), Python-level
//! conveniences (`python/spanprof`). Called by the Python package, never by user code.
//!
//! Every binding has the same modules. Python also has [`ffi`]: CPython's C API beyond PyO3, with the C types of `tag_wrapper`.

mod api;
mod capture;
#[cfg(feature = "testing")]
mod conformance;
mod context;
mod convert;
pub mod ffi;
mod host_log;
mod objects;
pub mod runtime;
mod threads;

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;
use runtime::events::suspended_tasks;

// `std::time` is true in this library where a preloaded library alters the clocks of the program.
spanprof_signal::define_clock_gettime!();

/// Programs survive a failed allocation; the standard library does not.
#[global_allocator]
static ALLOCATOR: ::spanprof_profiler::binding::ReserveAllocator<std::alloc::System> =
    ::spanprof_profiler::binding::ReserveAllocator::new(std::alloc::System);

/// The extension module.
#[pymodule]
#[pyo3(name = "_spanprof")]
fn spanprof_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ffi::lifetime::begin()?;
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    module.add("outcome_prefix", ::spanprof_profiler::OUTCOME_PREFIX)?;
    module.add("variable", ffi::variable::create(module.py())?)?;
    objects::scope_calls::add_to(module)?;
    objects::lock_types::add_to(module)?;
    module.add_function(wrap_pyfunction!(objects::exit_function::exit_function, module)?)?;
    host_log::install();

    module.add_function(wrap_pyfunction!(api::start, module)?)?;
    module.add_function(wrap_pyfunction!(api::stop, module)?)?;
    module.add_function(wrap_pyfunction!(api::flush, module)?)?;
    module.add_function(wrap_pyfunction!(api::update, module)?)?;
    module.add_function(wrap_pyfunction!(api::stats, module)?)?;
    module.add_function(wrap_pyfunction!(api::is_running, module)?)?;
    module.add_function(wrap_pyfunction!(api::begin_root_span, module)?)?;
    module.add_function(wrap_pyfunction!(api::end_root_span, module)?)?;
    module.add_function(wrap_pyfunction!(api::begin_client_span, module)?)?;
    module.add_function(wrap_pyfunction!(api::end_client_span, module)?)?;
    module.add_function(wrap_pyfunction!(api::adopt_resource, module)?)?;
    module.add_function(wrap_pyfunction!(api::follows_requests, module)?)?;
    module.add_function(wrap_pyfunction!(api::begin_request, module)?)?;
    module.add_function(wrap_pyfunction!(api::in_request, module)?)?;
    module.add_function(wrap_pyfunction!(api::end_request, module)?)?;
    module.add_function(wrap_pyfunction!(api::inherits_threads, module)?)?;
    module.add_function(wrap_pyfunction!(api::setting, module)?)?;
    module.add_function(wrap_pyfunction!(api::serve_pulls, module)?)?;
    module.add_function(wrap_pyfunction!(api::pull, module)?)?;
    module.add_function(wrap_pyfunction!(api::config_keys, module)?)?;
    module.add_function(wrap_pyfunction!(api::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(threads::register_current_thread, module)?)?;
    module.add_function(wrap_pyfunction!(threads::name_thread, module)?)?;
    module.add_function(wrap_pyfunction!(api::hook_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(api::watch_greenlet_switches, module)?)?;
    module.add_function(wrap_pyfunction!(api::cli_main, module)?)?;

    module.add_function(wrap_pyfunction!(suspended_tasks::suspended_tasks_settings, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::wait_for_contexts, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::wake_tasks_thread, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::has_open_requests, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::open_requests_of, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::submit_awaiting_tasks, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::begin_storing_tasks, module)?)?;
    module.add_function(wrap_pyfunction!(suspended_tasks::store_suspended_tasks, module)?)?;

    module.add_function(wrap_pyfunction!(host_log::take_log_line, module)?)?;
    module.add_function(wrap_pyfunction!(host_log::log_fetch_failed, module)?)?;
    module.add_function(wrap_pyfunction!(host_log::forget_standard_error, module)?)?;
    module.add_function(wrap_pyfunction!(host_log::has_standard_error, module)?)?;
    module.add_function(wrap_pyfunction!(host_log::write_to_standard_error, module)?)?;
    module.add_function(wrap_pyfunction!(ffi::thread::start_thread, module)?)?;
    module.add_function(wrap_pyfunction!(host_log::close_log, module)?)?;
    module.add_function(wrap_pyfunction!(api::set_log_notifier, module)?)?;
    module.add_function(wrap_pyfunction!(api::set_settings_notifier, module)?)?;
    module.add_function(wrap_pyfunction!(api::follow_settings, module)?)?;

    module.add_class::<context::LinkToken>()?;
    module.add_class::<context::BoundCall>()?;
    module.add_class::<convert::LabelsObject>()?;
    module.add_class::<capture::CaptureObject>()?;
    module.add_class::<capture::ProfileObject>()?;
    module.add_function(wrap_pyfunction!(api::profile_types, module)?)?;
    module.add_function(wrap_pyfunction!(context::current, module)?)?;
    module.add_function(wrap_pyfunction!(context::describe, module)?)?;
    module.add_function(wrap_pyfunction!(objects::otel_calls::link_opentelemetry, module)?)?;
    module.add_function(wrap_pyfunction!(objects::otel_calls::name_root_spans, module)?)?;
    module.add_function(wrap_pyfunction!(context::is_linked, module)?)?;
    module.add_function(wrap_pyfunction!(context::add_labels, module)?)?;
    module.add_function(wrap_pyfunction!(context::remove_label, module)?)?;
    module.add_function(wrap_pyfunction!(context::set_current, module)?)?;
    module.add_function(wrap_pyfunction!(context::bind_context, module)?)?;
    module.add_function(wrap_pyfunction!(api::set_decorate, module)?)?;
    module.add_function(wrap_pyfunction!(ffi::interruption::set_interruption_test, module)?)?;
    module.add_function(wrap_pyfunction!(ffi::interruption::call_hook, module)?)?;
    #[cfg(feature = "testing")]
    {
        let testing = PyModule::new(module.py(), "_testing")?;
        runtime::testing::register(&testing)?;
        conformance::register(&testing)?;
        module.add_submodule(&testing)?;
    }
    #[cfg(any(test, feature = "record-stacks"))]
    {
        let recording = PyModule::new(module.py(), "_recording")?;
        runtime::record::register(&recording)?;
        module.add_submodule(&recording)?;
    }
    Ok(())
}
