//! The addon's API: every function that `lib/` can call, in camelCase there. Each converts its arguments, calls the core and
//! converts the result. Only `start` and `update` may throw; no panic unwinds out of this file.
//!
//! # How `lib/` uses it
//! * Each environment (main thread, each worker) loads the addon and calls `registerThread()` once, which enables code events
//!   and stack walks for its thread. A worker does so in a preloaded module of the package (`execArgv`), without user code.
//! * `registerStorage(als, probe)` runs twice in each environment, inside `als.run(probe, …)` with two different probes above
//!   one million. If the second call returns true, the handler reads the storage's number and a switch needs no further work.
//!   Otherwise keep `contextArray()[0]` up to date (async_hooks `before`), or call `setCurrent(id)` where it is null.
//! * A context id is a number up to 2^53; 0 means no labels and no span. The storage holds the id itself.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use napi::bindgen_prelude::{AsyncTask, Env, Function, JsValue, Object, Unknown};
use napi::{Result, Task};
use napi_derive::{module_init, napi};
use spanprof_aggregate::context::{context_row, format_id, link_of_hex, parse_id};
use spanprof_aggregate::StatValue;
use spanprof_config::{from_json, process_environment, Config, Error, ErrorKind};
use spanprof_profiler::binding::{self, ffi_guard, with_running, NOT_CHANGED, NOT_PROFILED};
use spanprof_profiler::{CapturedProfile, ProfilerHandle, RequestEnd, RootSpanEnd, Stats};

use crate::context::{self, DescribedContext};
use crate::convert::{ffi_guard_argument, BINDING};
use crate::host_log;
use crate::pull::on_new_thread;
use crate::runtime::{self, NodeRuntime};

fn load(config_json: &str, program_name: Option<String>) -> std::result::Result<Config, Error> {
    BINDING.load(&from_json(config_json)?, &process_environment(), || program_name.unwrap_or_default())
}

/// The values of the options of [`BINDING`] under this configuration, in their order, as text; null where this process cannot be
/// profiled, which is logged. Throws as `start` does.
#[napi]
pub fn option_values(config_json: String) -> Result<Option<Vec<String>>> {
    host_log::install();
    ffi_guard_argument(NOT_PROFILED, None, || {
        let config = load(&config_json, None)?;
        Ok(Some(BINDING.options.iter().map(|option| config.option(option.name).to_owned()).collect()))
    })
}

/// Version of the addon.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Whether a start with this configuration would sample. Throws as `start` does.
#[napi]
pub fn is_enabled(config_json: String) -> Result<bool> {
    ffi_guard_argument(NOT_PROFILED, false, || {
        let config = load(&config_json, None)?;
        runtime::allow_signals(config.signals);
        let is_enabled = !config.is_disabled();
        if is_enabled {
            require_first_copy()?;
        }
        Ok(is_enabled)
    })
}

/// V8 has one code event handler per isolate: enrolling a thread would take it from the running copy.
fn require_first_copy() -> std::result::Result<(), Error> {
    spanprof_os::announce_copy()
        .map_err(|other| Error::new(ErrorKind::SecondCopy, other.to_string(), "start only one of them"))
}

/// Starts the profiler. `config_json` is an object of configuration keys in camelCase; `program_name` is the service name
/// when none is configured, `runtime_name` names the runtime in the log. Returns whether samples are taken afterwards: false before
/// a walk method is selected. Throws for an impossible argument only.
#[napi]
pub fn start(
    env: Env,
    config_json: String,
    program_name: Option<String>,
    runtime_name: Option<String>,
) -> Result<bool> {
    host_log::install();
    if let Ok(version) = env.get_node_version() {
        runtime::set_node_version([version.major, version.minor, version.patch]);
    }
    let unsupported =
        |message: String| unsupported(format!("{}: {message}", runtime_name.as_deref().unwrap_or("this runtime")));
    ffi_guard_argument(NOT_PROFILED, false, || {
        let config = load(&config_json, program_name)?;
        if config.is_disabled() {
            return binding::start(config, None).map(|_| false);
        }
        require_first_copy()?;
        let runtime = NodeRuntime::get().map_err(unsupported)?;
        enroll(&env)?;
        if !runtime::can_walk_stacks() {
            return Err(unsupported("stacks cannot be walked".to_owned()));
        }
        let run = ProfilerHandle::running().is_none().then(runtime::begin_run);
        let started = binding::start(config, Some(runtime));
        // A disabled profiler is prepared: it may be enabled later.
        if let Some(run) = run.filter(|_| ProfilerHandle::running().is_none()) {
            runtime::end_run(run);
        }
        started
    })
}

/// Must precede the first run of the self-test's two functions.
#[napi]
pub fn expect_self_test() {
    runtime::expect_self_test();
}

/// Called by the self-test's inner function. Returns the walk method from here on: `own`, `v8` or `none`.
#[napi]
pub fn select_stack_walk(allow_frame_pointers: bool) -> &'static str {
    ffi_guard("none", || runtime::select_stack_walk(allow_frame_pointers))
}

fn unsupported(message: String) -> Error {
    Error::new(
        ErrorKind::UnsupportedRuntime,
        message,
        "use a Node.js 18 or later of nodejs.org; the service runs on without profiles",
    )
}

fn enroll(env: &Env) -> std::result::Result<(), Error> {
    // V8 ends the process where it has no memory for the list of its code, which has the line ends of every script.
    if !runtime::is_current_thread_enrolled() {
        binding::require_memory()?;
    }
    // The script needs at least two source positions; the parentheses make V8 compile it at once.
    let probe =
        || drop(env.run_script::<_, Unknown<'_>>("(function (turns) { let sum = turns * 2; return sum + turns; })(1)"));
    if runtime::enroll_current_thread(&probe).map_err(unsupported)? {
        // The environment ends before its isolate does, on the same thread.
        if env.add_env_cleanup_hook((), |()| ffi_guard((), runtime::leave_current_thread)).is_err() {
            runtime::leave_current_thread();
            return Err(unsupported("this Node.js does not report the end of its environment".to_owned()));
        }
        if let Ok(event_loop) = env.get_uv_event_loop() {
            runtime::watch_event_loop(event_loop as usize);
            runtime::begin_heap_profile(env.raw() as usize, event_loop as usize);
        }
    }
    Ok(())
}

/// Enrolls this environment's thread: code events and stack walks are on from here. Cheap when the thread is enrolled
/// already. False when this Node.js cannot be profiled.
#[napi]
pub fn register_thread(env: Env) -> bool {
    ffi_guard(false, || {
        host_log::install();
        let enrolled = NodeRuntime::get().is_ok() && enroll(&env).is_ok();
        if enrolled {
            with_running(ProfilerHandle::register_current_thread);
        }
        enrolled
    })
}

/// Delays SIGTERM again after the program removed its last listener.
#[napi]
pub fn delay_termination() {
    ffi_guard((), || with_running(ProfilerHandle::delay_termination));
}

/// Sets the duration above which a turn of any event loop becomes samples; 0 turns this off.
#[napi]
pub fn report_turns_longer_than(milliseconds: f64) {
    let threshold = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default();
    runtime::report_turns_longer_than(threshold.as_nanos() as u64);
}

/// Called inside `als.run(probe, …)`. True when the handler now finds exactly `probe` through `als`.
#[napi]
pub fn register_storage(als: Unknown, probe: f64) -> bool {
    ffi_guard(false, || runtime::register_storage(als.raw() as usize, probe as u64))
}

/// Sets the context of this thread's samples, where the handler does not read the storage.
#[napi]
pub fn set_current(id: f64) {
    runtime::set_current(id);
}

/// The same context as an array of one number, which JavaScript writes instead of calling `setCurrent`. Null where V8 forbids
/// external buffers.
#[napi]
pub fn context_array(env: Env) -> Option<Unknown<'static>> {
    ffi_guard(None, || runtime::context_array(&env))
}

/// The context id that the handler would read for this thread now, for tests.
#[napi]
pub fn current_in_handler() -> f64 {
    ffi_guard(0.0, || runtime::current_context() as f64)
}

/// Stops on another thread and sends the last window within `stopTimeout`. True when everything was delivered.
#[napi]
pub fn stop() -> AsyncTask<BlockingTask> {
    AsyncTask::new(BlockingTask(BlockingOperation::Stop))
}

/// As `stop`, on this thread: for `process.on('exit')`.
#[napi]
pub fn stop_sync() -> bool {
    runtime::while_waiting(|| BlockingOperation::Stop.run())
}

/// Closes the open window and sends it; true when everything was delivered within `timeout_ms`.
#[napi]
pub fn flush(timeout_ms: Option<f64>) -> AsyncTask<BlockingTask> {
    AsyncTask::new(BlockingTask(BlockingOperation::Flush(timeout_ms)))
}

/// Changes keys of the running profiler; false when none runs.
#[napi]
pub fn update(config_json: String) -> Result<bool> {
    ffi_guard_argument(NOT_CHANGED, false, || binding::update(from_json(&config_json)?))
}

/// Counters and facts by dotted name, as on the reference page; empty when the profiler does not run.
#[napi]
pub fn stats(env: Env) -> Result<Object<'static>> {
    let mut object = Object::new(&env)?;
    for (name, value) in ffi_guard(Stats::default(), || BINDING.stats(Vec::new())).entries {
        match value {
            StatValue::Count(count) => object.set(name, count as f64)?,
            StatValue::Text(text) => object.set(name, text)?,
        }
    }
    Ok(object)
}

/// Whether samples are being taken.
#[napi]
pub fn is_running() -> bool {
    ffi_guard(false, binding::is_running)
}

/// The keys of the profiles that are on; empty when no profiler runs.
#[napi]
pub fn profile_types() -> Vec<&'static str> {
    ffi_guard(Vec::new(), binding::profile_types)
}

/// A local root span with a span processor begins in the context `current`; ids in hex.
#[napi]
pub fn begin_root_span(current: f64, trace_id: String, span_id: String) {
    ffi_guard((), || {
        let link = link_of_hex(&trace_id, &span_id);
        binding::begin_root_span(&context_row(current as u64).unwrap_or_default(), link);
    });
}

/// The end of a local root span; ids in hex. `method` and `route` are empty where it has none.
#[napi]
pub fn end_root_span(
    trace_id: String,
    span_id: String,
    milliseconds: f64,
    name: String,
    method: String,
    route: String,
    is_error: bool,
) {
    ffi_guard((), || {
        binding::end_root_span(&RootSpanEnd {
            trace_id: parse_id(&trace_id).unwrap_or_default(),
            span_id: parse_id(&span_id).unwrap_or_default(),
            duration: duration_of(milliseconds),
            name: &name,
            method: &method,
            route: &route,
            is_error,
        });
    });
}

/// A client span begins in the context `current`; its id in hex.
#[napi]
pub fn begin_client_span(current: f64, span_id: String) {
    ffi_guard((), || {
        let row = context_row(current as u64).unwrap_or_default();
        binding::begin_client_span(&row, parse_id(&span_id).unwrap_or_default());
    });
}

/// The end of a client span: its request awaited it, by this name.
#[napi]
pub fn end_client_span(span_id: String, name: String, milliseconds: f64) {
    ffi_guard((), || {
        binding::end_client_span(parse_id(&span_id).unwrap_or_default(), &name, duration_of(milliseconds));
    });
}

/// The endpoint of the request of the context `current`, whose end a span processor reports.
#[napi]
pub fn name_request(current: f64, endpoint: String) {
    ffi_guard((), || binding::name_request(&context_row(current as u64).unwrap_or_default(), &endpoint));
}

/// Attributes of the resource of the program's OpenTelemetry SDK, flat: keys and values.
#[napi]
pub fn adopt_resource(keys_and_values: Vec<String>) {
    ffi_guard((), || {
        let attributes = keys_and_values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        binding::adopt_resource(attributes.collect());
    });
}

/// A request begins in a middleware, in the context `current`, with the trace of its caller in hex: its id in hex, the local root
/// of its contexts; empty if its end is not to be reported.
#[napi]
pub fn begin_request(current: f64, trace_id: String) -> String {
    ffi_guard(String::new(), || {
        let row = context_row(current as u64).unwrap_or_default();
        let root = binding::begin_request(&row, link_of_hex(&trace_id, ""));
        format_id(&root.unwrap_or_default())
    })
}

/// The end of a request that `begin_request` returned.
#[napi]
pub fn end_request(request: String, milliseconds: f64, endpoint: String, is_error: bool) {
    ffi_guard((), || {
        let local_root_span_id = parse_id(&request).unwrap_or_default();
        let (duration, endpoint) = (duration_of(milliseconds), &endpoint);
        binding::end_request(&RequestEnd { trace_id: [0; 16], local_root_span_id, duration, endpoint, is_error });
    });
}

fn duration_of(milliseconds: f64) -> Duration {
    Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default()
}

/// The running configuration's value of `key` (snake_case) as text, secrets masked.
#[napi]
pub fn setting(key: String) -> Option<String> {
    ffi_guard(None, || binding::setting(&key))
}

/// Every configuration key in snake_case, flat: name, type, description.
#[napi]
pub fn config_keys() -> Vec<String> {
    binding::config_keys().flatten().map(Cow::into_owned).collect()
}

/// The id of context `parent` under a span; ids in hex, empty without a span.
#[napi]
pub fn context_under_span(parent: f64, trace_id: String, span_id: String, is_remote: bool) -> f64 {
    ffi_guard(parent, || context::under_span(parent as u64, &trace_id, &span_id, is_remote) as f64)
}

/// The id of a context with another local root, in hex.
#[napi]
pub fn context_in_request(id: f64, local_root: String) -> f64 {
    ffi_guard(id, || context::in_request(id as u64, &local_root) as f64)
}

/// The id of a context without its labels.
#[napi]
pub fn context_without_labels(id: f64) -> f64 {
    ffi_guard(id, || context::without_labels(id as u64) as f64)
}

/// The id of context `parent` with labels added, for `tagWrapper`. Valid `trace_id` and `span_id` among them become the link.
#[napi]
pub fn child_context(parent: f64, keys_and_values: Vec<String>) -> f64 {
    ffi_guard(parent, || context::child(parent as u64, &keys_and_values) as f64)
}

/// See [`DescribedContext`]; an expired id reads as empty.
#[napi]
pub fn describe_context(id: f64) -> DescribedContext {
    ffi_guard(context::describe(0), || context::describe(id as u64))
}

/// Calls `callback` on this thread when lines are queued.
#[napi]
pub fn on_log_lines(callback: Function<'_, (), ()>) -> Result<()> {
    host_log::call_back(&callback)
}

/// A promise that is resolved after some time, also where the timers of the program are replaced.
#[napi]
pub fn sleep(env: Env, milliseconds: f64) -> Result<Object<'static>> {
    let duration = timeout(&Some(milliseconds)).unwrap_or_default();
    on_new_thread(&env, "spanprof-sleep", move || std::thread::sleep(duration), |()| ())
}

/// Milliseconds since 1970.
#[napi]
pub fn unix_milliseconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64
}

/// Milliseconds of the monotonic clock.
#[napi]
pub fn monotonic_milliseconds() -> f64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed().as_secs_f64() * 1000.0
}

/// The queued lines for the host's logger, flat: `info`, `outcome` or `warning`, then the text.
#[napi]
pub fn take_log_lines() -> Vec<String> {
    ffi_guard(Vec::new(), host_log::take)
}

/// Called when the addon is loaded, before the program may close its standard error.
#[module_init]
fn loaded() {
    spanprof_os::remember_standard_error();
}

/// Whether descriptor 2 still is standard error; the program may have closed it, and opened another file.
#[napi]
pub fn has_standard_error() -> bool {
    ffi_guard(false, spanprof_os::has_standard_error)
}

/// Writes a line to standard error, unless that is closed, replaced or not read.
#[napi]
pub fn write_to_standard_error(line: String) {
    ffi_guard((), || _ = spanprof_os::write_to_standard_error(&line));
}

/// An operation that waits; its timeout is in milliseconds.
pub enum BlockingOperation {
    Stop,
    Flush(Option<f64>),
    SendCapture(Arc<CapturedProfile>, Option<f64>),
}

fn timeout(milliseconds: &Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64((*milliseconds)? / 1000.0).ok()
}

impl BlockingOperation {
    fn run(&self) -> bool {
        ffi_guard(false, || match self {
            Self::Stop => {
                let Some(profiler) = ProfilerHandle::running() else { return true };
                let run = runtime::current_run();
                let delivered = profiler.stop();
                runtime::end_run(run);
                delivered
            }
            Self::Flush(milliseconds) => binding::flush(timeout(milliseconds)),
            Self::SendCapture(captured, milliseconds) => binding::send_capture(captured, timeout(milliseconds)),
        })
    }
}

/// A blocking operation, run on a thread of libuv's pool.
pub struct BlockingTask(pub BlockingOperation);

impl Task for BlockingTask {
    type Output = bool;
    type JsValue = bool;

    fn compute(&mut self) -> Result<bool> {
        Ok(self.0.run())
    }

    fn resolve(&mut self, _env: Env, delivered: bool) -> Result<bool> {
        Ok(delivered)
    }
}
