//! Calls of every binding's API that need no conversion beyond their arguments and results. They act on the running profiler.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::collect::capture::CapturedProfile;
use crate::deliver::resource;
use crate::lifecycle::pending_ends::RootSpanEnd;
use crate::lifecycle::request;
use crate::lifecycle::request::RequestEnd;
use crate::lifecycle::ProfilerHandle;
use crate::pull::answer::answer;
use crate::pull::{HttpRequest, HttpResponse, PullTransport};
use spanprof_aggregate::context::{ContextRow, Link};
use spanprof_aggregate::runtime::{DisabledRuntime, Runtime};
use spanprof_config::{Config, ConfigPatch, ConfigValue, Error, KEYS};
use spanprof_signal::RawFrame;

/// Starts the profiler; true when samples are taken afterwards. `runtime` is `None` if [`Config::is_disabled`]: a disabled
/// profiler does not inspect the program.
///
/// # Errors
/// As [`ProfilerHandle::start_with_runtime`].
pub fn start(config: Config, runtime: Option<Arc<dyn Runtime>>) -> Result<bool, Error> {
    let runtime = runtime.unwrap_or_else(|| Arc::new(DisabledRuntime));
    ProfilerHandle::start_with_runtime(config, runtime).map(|profiler| profiler.is_running())
}

/// Stops the profiler within `at_most` or `stop_timeout`, the shorter of both; true when everything was delivered.
pub fn stop(at_most: Duration) -> bool {
    ProfilerHandle::running().is_none_or(|profiler| profiler.stop_within(at_most))
}

/// Closes the open window and sends it; true when everything was delivered within `timeout`, by default `stop_timeout`.
pub fn flush(timeout: Option<Duration>) -> bool {
    ProfilerHandle::running()
        .is_none_or(|profiler| profiler.flush(timeout.unwrap_or_else(|| profiler.config().stop_timeout)))
}

/// Sends the profile of a capture; true when it was delivered within `timeout`, by default `stop_timeout`.
pub fn send_capture(captured: &CapturedProfile, timeout: Option<Duration>) -> bool {
    let by_default = || ProfilerHandle::running().map(|profiler| profiler.config().stop_timeout).unwrap_or_default();
    captured.send(timeout.unwrap_or_else(by_default))
}

/// A handler of pulls exists in the program's web framework: allocations and lock waits are summed up as with the key `pull`, from
/// the start or, in a running profiler, from the end of the open window on.
pub fn serve_pulls() {
    crate::session::pull_handlers::serve();
}

/// Answers a request for a profile (`/debug/pprof/…`) that the program's web framework received. Blocks for the duration that it
/// requests: call it on a thread that may block. `has_left` reports whether the client has left.
pub fn pull(request: &HttpRequest, has_left: &dyn Fn() -> bool) -> HttpResponse {
    answer(request, PullTransport::Framework, has_left)
}

/// Changes keys of the running profiler; false when none runs.
///
/// # Errors
/// As [`ProfilerHandle::update`].
pub fn update(changes: Vec<(String, ConfigValue)>) -> Result<bool, Error> {
    ProfilerHandle::running().map_or(Ok(false), |profiler| profiler.update(&ConfigPatch(changes)).map(|()| true))
}

/// A local root span with a span processor begins in the context `row`.
pub fn begin_root_span(row: &ContextRow, span: Link) {
    request::begin_root_span(row, span);
}

/// A local root span ends; see [`begin_root_span`].
pub fn end_root_span(end: &RootSpanEnd<'_>) {
    request::end_root_span(end);
}

/// A client span (a call to another service) begins in the context `row`.
pub fn begin_client_span(row: &ContextRow, span_id: [u8; 8]) {
    request::begin_client_span(row, span_id);
}

/// A client span ends: its request awaited it, by its name; with an empty name, it was no call. See [`begin_client_span`].
pub fn end_client_span(span_id: [u8; 8], name: &str, duration: Duration) {
    request::end_client_span(span_id, name, duration);
}

/// Whether the end of a request is awaited.
pub fn has_open_requests() -> bool {
    request::has_open_requests()
}

/// The local root of the open request that a context belongs to; `None` for work that outlives its request, or has none.
pub fn open_request_of(context: u64) -> Option<[u8; 8]> {
    request::open_request_of(context)
}

/// Counts a wait of a future that is not submitted, because too many others began in that second.
pub fn count_unrecorded_await() {
    request::count_unrecorded_await();
}

/// Adds to the profile `off_cpu` that a suspended task awaited for `duration`. `frames`: leaf first.
pub fn submit_awaiting(context: u64, frames: &[RawFrame], duration: Duration) {
    request::submit_awaiting(context, frames, duration);
}

/// The endpoint of the request that the context `row` belongs to became known, while a span processor reports its end. The route
/// of the span has precedence.
pub fn name_request(row: &ContextRow, endpoint: &str) {
    request::name_request(row, endpoint);
}

/// A request begins in a middleware, in the context `row`; `caller` has the trace of its samples where the context has none. Returns
/// its local root, for [`spanprof_aggregate::context::in_request`] and [`end_request`]; `None` while no profiler runs, or if another
/// middleware or a span processor reports its end.
pub fn begin_request(row: &ContextRow, caller: Link) -> Option<[u8; 8]> {
    request::begin_request(row, caller)
}

/// The request `end.local_root_span_id` ends, which [`begin_request`] began. `end.trace_id` is not used.
pub fn end_request(end: &RequestEnd<'_>) {
    request::end_request(end);
}

/// A request that [`begin_request`] began is that of a span processor, which reports its end.
pub fn forget_request(local_root_span_id: [u8; 8]) {
    request::forget_request(local_root_span_id);
}

/// The resource attributes of the program's OpenTelemetry SDK are those of the profiles too, except those that are configured
/// otherwise, which is logged. Cheap if they did not change.
pub fn adopt_resource(attributes: Vec<(String, String)>) {
    if resource::adopt(attributes) {
        let running = ProfilerHandle::running();
        running.iter().filter_map(|profiler| profiler.session()).for_each(|session| session.refresh_resource());
    }
}

/// Whether the binding finds the tracer provider of the program's OpenTelemetry SDK, and the web frameworks without one: the key
/// `requests` of the running profiler.
pub fn follows_requests() -> bool {
    ProfilerHandle::running().is_some_and(|profiler| profiler.is_running() && profiler.config().requests)
}

/// The keys of the profiles that are on, for the attribute `profile.type` of spans; empty when no profiler runs.
pub fn profile_types() -> Vec<&'static str> {
    ProfilerHandle::running().map(|profiler| profiler.profile_types()).unwrap_or_default()
}

/// Calls a function of the running profiler; without effect when none runs.
pub fn with_running(call: impl FnOnce(&ProfilerHandle)) {
    if let Some(profiler) = ProfilerHandle::running() {
        call(&profiler);
    }
}

/// Whether samples are being taken.
pub fn is_running() -> bool {
    ProfilerHandle::running().is_some_and(|profiler| profiler.is_running())
}

/// The running configuration's value of `key` (snake_case) as text, secrets masked; `None` when no profiler runs or the key is
/// unknown.
pub fn setting(key: &str) -> Option<String> {
    let entries = ProfilerHandle::running()?.config().entries();
    entries.into_iter().find(|(name, _, _)| *name == key).map(|(_, text, _)| text)
}

/// Every configuration key in snake_case: name, type of its value, description.
pub fn config_keys() -> impl Iterator<Item = [Cow<'static, str>; 3]> {
    KEYS.iter().map(|key| [key.name.into(), key.shape.name(), key.doc.trim().into()])
}
