//! The door to JavaScript: every function that `lib/` can call, in camelCase there. Each converts, calls the core and
//! converts back. Only `start` and `update` may throw; a panic never leaves this file.
//!
//! # How `lib/` uses it
//! * Each environment (main thread, each worker) loads the addon; `registerThread()` once in each makes its code known.
//!   A worker gets there by preloading the package (`execArgv`), with no user code.
//! * `registerStorage(als, probe)` in each environment, twice, inside `als.run(probe, …)` with two different probes above
//!   one million. True from the second call means: the handler reads the storage's number by itself, nothing else is to be
//!   done per switch. False: keep `currentWord()[0]` up to date (async_hooks `before`), or `setCurrent(id)` where there is none.
//! * A context id is a number up to 2^53; 0 is no labels and no span. The storage holds the id itself.

use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{AsyncTask, Env, JsValue, Object, Unknown};
use napi::{Result, Task};
use napi_derive::napi;
use spanprof::config::{from_json, process_environment, BindingOption, OptionValues, KEYS};
use spanprof::runtime::SwitchedOff;
use spanprof::{Config, ConfigPatch, Error, ErrorKind, Profiler, StatValue};

use crate::context_calls;
use crate::error::{panics, quiet, raising};
use crate::runtime::{self, NodeRuntime};
use crate::submitted::Submitted;

/// What this package can be told beyond the keys of the core.
pub static OPTIONS: [BindingOption; 3] = [
    BindingOption {
        name: "event_loop_block",
        values: OptionValues::Number { min: 0.0, max: 3_600_000.0, unit: "ms" },
        default: "50",
        doc: "milliseconds; a turn of an event loop that takes longer is reported with its stacks, 0 for none",
    },
    BindingOption {
        name: "worker_threads",
        values: OptionValues::Flag,
        default: "true",
        doc: "whether worker threads are profiled by their JavaScript stacks",
    },
    BindingOption {
        name: "stack_walk",
        values: OptionValues::Choice(&["auto", "own", "v8", "inspector"]),
        default: "auto",
        doc: "the best means to be tried; leave it out for the first that works",
    },
];

fn load(config_json: &str) -> std::result::Result<Config, Error> {
    Config::load_with_options(&from_json(config_json)?, &process_environment(), &OPTIONS)
}

/// The values of [`OPTIONS`] under this configuration, in their order, as text. Throws as `start` does.
#[napi]
pub fn option_values(config_json: String) -> Result<Vec<String>> {
    raising(|| {
        let config = load(&config_json)?;
        Ok(OPTIONS.iter().map(|option| config.option(option.name).to_owned()).collect())
    })
}

/// Version of the addon.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Whether a start with this configuration would sample, or is switched off. Throws as `start` does.
#[napi]
pub fn is_wanted(config_json: String) -> Result<bool> {
    raising(|| {
        let config = load(&config_json)?;
        runtime::allow_handling_of_faults(config.signals);
        let is_wanted = config.enabled && config.disabled_by.is_none();
        if is_wanted {
            // V8 has one callback for code: to enrol a thread takes it from the copy that runs.
            spanprof::sys::announce_copy()
                .map_err(|other| Error::new(ErrorKind::SecondCopy, other.to_string(), "start only one of them"))?;
        }
        Ok(is_wanted)
    })
}

/// Starts the profiler. `config_json` is an object of configuration keys in camelCase; `program_name` is the service name
/// when none is configured. True when samples are being taken afterwards; false when switched off. `submitted`: the
/// inspector samples, and `submitProfile` is called with what it saw.
#[napi]
pub fn start(env: Env, config_json: String, program_name: Option<String>, submitted: Option<bool>) -> Result<bool> {
    crate::host_log::install();
    raising(|| {
        let mut config = load(&config_json)?;
        if config.service_name.is_empty() && !config.resource_attributes.contains_key("service.name") {
            config.service_name = program_name.unwrap_or_default();
        }
        if !config.enabled || config.disabled_by.is_some() {
            return Profiler::start_with_runtime(config, Arc::new(SwitchedOff)).map(|_| false);
        }
        if submitted == Some(true) {
            // The inspector samples; nothing is to be walked.
            (config.cpu, config.wall) = (false, false);
            return Profiler::start_with_runtime(config, Submitted::get()).map(|profiler| profiler.is_running());
        }
        let runtime = NodeRuntime::get().map_err(unsupported)?;
        enrol(&env)?;
        let run = Profiler::running().is_none().then(runtime::run_begins);
        let started = Profiler::start_with_runtime(config, runtime).map(|profiler| profiler.is_running());
        if let (Some(run), Err(_) | Ok(false)) = (run, &started) {
            runtime::run_ended(run);
        }
        started
    })
}

/// A profile of the inspector's sampler, as JSON; gives how many samples it had.
#[napi]
pub fn submit_profile(profile_json: String) -> u32 {
    quiet(0, || Submitted::get().take(&profile_json) as u32)
}

/// The two functions of the self-test are about to be called for the first time.
#[napi]
pub fn expect_self_test() {
    runtime::expect_self_test();
}

/// Called by the self-test's inner function. How stacks are walked from here on: `own`, `v8` or `none`.
#[napi]
pub fn judge_walks(own_is_allowed: bool) -> &'static str {
    quiet("none", || runtime::judge_walks(own_is_allowed))
}

fn unsupported(message: String) -> Error {
    Error::new(
        ErrorKind::UnsupportedRuntime,
        message,
        "use a Node.js 18 or later of nodejs.org; the service runs on without profiles",
    )
}

fn enrol(env: &Env) -> std::result::Result<(), Error> {
    runtime::set_node_major(env.get_node_version().map_or(0, |version| version.major));
    // Two places at least; the parentheses have it compiled at once.
    let probe =
        || drop(env.run_script::<_, Unknown<'_>>("(function (turns) { let sum = turns * 2; return sum + turns; })(1)"));
    if runtime::enrol_current_thread(&probe).map_err(unsupported)? {
        // The environment ends before its isolate does, on the same thread.
        if env.add_env_cleanup_hook((), |()| quiet((), runtime::leave_current_thread)).is_err() {
            runtime::leave_current_thread();
            return Err(unsupported("this Node.js does not tell when its environment ends".to_owned()));
        }
        if let Ok(event_loop) = env.get_uv_event_loop() {
            runtime::watch_event_loop(event_loop as usize);
        }
    }
    Ok(())
}

/// Makes this environment's thread known: its code is named from now on and its stacks are walked. Cheap when it is so
/// already; false when this Node cannot be profiled.
#[napi]
pub fn register_thread(env: Env) -> bool {
    quiet(false, || {
        crate::host_log::install();
        let known = NodeRuntime::get().is_ok() && enrol(&env).is_ok();
        if let (true, Some(profiler)) = (known, Profiler::running()) {
            profiler.register_current_thread();
        }
        known
    })
}

/// Takes the CPU clock from this thread, which is about to execute another program.
#[napi]
pub fn suspend_current_thread() {
    quiet((), || {
        if let Some(profiler) = Profiler::running() {
            profiler.suspend_current_thread();
        }
    });
}

/// Gives this thread its CPU clock again.
#[napi]
pub fn resume_current_thread() {
    quiet((), || {
        if let Some(profiler) = Profiler::running() {
            profiler.resume_current_thread();
        }
    });
}

/// Turns of any event loop that take longer than this become samples; 0 for none.
#[napi]
pub fn report_turns_longer_than(milliseconds: f64) {
    let threshold = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default();
    runtime::report_turns_longer_than(threshold.as_nanos() as u64);
}

/// Called inside `als.run(probe, …)`. True when the handler now finds exactly `probe` through `als`.
#[napi]
pub fn register_storage(als: Unknown, probe: f64) -> bool {
    quiet(false, || runtime::register_storage(als.raw() as usize, probe as u64))
}

/// Makes `id` the context of this thread's samples, where the storage is not read by the handler.
#[napi]
pub fn set_current(id: f64) {
    runtime::set_current(id);
}

/// An array of one number, which is that context: writing it is as good as `setCurrent`. Null where there cannot be one.
#[napi]
pub fn current_word(env: Env) -> Option<Unknown<'static>> {
    quiet(None, || runtime::current_word(&env))
}

/// What the handler would read as this thread's context id now, for tests.
#[napi]
pub fn current_in_handler() -> f64 {
    quiet(0.0, || runtime::current_context() as f64)
}

/// Stops on another thread and sends the last window within `stopTimeout`. True when everything was delivered.
#[napi]
pub fn stop() -> AsyncTask<Waiting> {
    AsyncTask::new(Waiting(Wanted::Stop))
}

/// As `stop`, on this thread: for `process.on('exit')`.
#[napi]
pub fn stop_sync() -> bool {
    Wanted::Stop.carry_out()
}

/// Closes the open window and sends it; true when everything was delivered within `timeout_ms`.
#[napi]
pub fn flush(timeout_ms: Option<f64>) -> AsyncTask<Waiting> {
    AsyncTask::new(Waiting(Wanted::Flush(timeout_ms)))
}

/// As `flush`, on this thread.
#[napi]
pub fn flush_sync(timeout_ms: Option<f64>) -> bool {
    Wanted::Flush(timeout_ms).carry_out()
}

/// Changes keys of the running profiler; false when none runs.
#[napi]
pub fn update(config_json: String) -> Result<bool> {
    raising(|| {
        let patch = ConfigPatch(from_json(&config_json)?);
        match Profiler::running() {
            Some(profiler) => profiler.update(&patch).map(|()| true),
            None => Ok(false),
        }
    })
}

/// Counters and facts by dotted name, as the reference page has them; empty when the profiler does not run.
#[napi]
pub fn stats(env: Env) -> Result<Object<'static>> {
    let mut object = Object::new(&env)?;
    let entries =
        quiet(Vec::new(), || Profiler::running().map(|profiler| profiler.stats().entries).unwrap_or_default());
    for (name, value) in entries {
        match value {
            StatValue::Count(count) => object.set(name, count as f64)?,
            StatValue::Text(text) => object.set(name, text)?,
        }
    }
    object.set("node.panics", panics() as f64)?;
    Ok(object)
}

/// Whether samples are being taken.
#[napi]
pub fn is_running() -> bool {
    quiet(false, || Profiler::running().is_some_and(|profiler| profiler.is_running()))
}

/// The running configuration's value of `key` (snake_case) as text, secrets masked.
#[napi]
pub fn setting(key: String) -> Option<String> {
    quiet(None, || {
        let entries = Profiler::running()?.config().entries();
        entries.into_iter().find(|(name, _, _)| *name == key).map(|(_, text, _)| text)
    })
}

/// Every configuration key in snake_case, flat: name, what its value is, what it does.
#[napi]
pub fn config_keys() -> Vec<&'static str> {
    KEYS.iter().flat_map(|key| [key.name, key.type_name, key.doc.trim()]).collect()
}

/// A context id for a label set and a span; ids in hex, or absent.
#[napi]
pub fn open_context(
    label_set: u32,
    trace_id: Option<String>,
    span_id: Option<String>,
    local_root_span_id: Option<String>,
) -> f64 {
    quiet(0.0, || {
        context_calls::open(label_set, trace_id.as_deref(), span_id.as_deref(), local_root_span_id.as_deref()) as f64
    })
}

/// What `tagWrapper` calls: the id of context `parent` with labels on top; valid `trace_id` and `span_id` among them
/// become the link.
#[napi]
pub fn child_context(parent: f64, keys_and_values: Vec<String>) -> f64 {
    quiet(parent, || context_calls::child(parent as u64, &keys_and_values) as f64)
}

/// What a context id stands for: labels flat, ids in hex, empty when absent.
#[napi(object)]
pub struct DescribedContext {
    pub label_set: u32,
    pub labels: Vec<String>,
    pub trace_id: String,
    pub span_id: String,
    pub local_root_span_id: String,
}

/// See [`DescribedContext`]; an expired id reads as empty.
#[napi]
pub fn describe_context(id: f64) -> DescribedContext {
    quiet(context_calls::describe(0), || context_calls::describe(id as u64))
}

/// The next lines for the host's logger, flat: `info` or `warning`, then the text.
#[napi]
pub fn take_log_lines() -> Vec<String> {
    quiet(Vec::new(), crate::host_log::take)
}

enum Wanted {
    Stop,
    Flush(Option<f64>),
}

impl Wanted {
    fn carry_out(&self) -> bool {
        quiet(false, || {
            let Some(profiler) = Profiler::running() else { return true };
            match self {
                Self::Stop => {
                    let run = runtime::present_run();
                    let delivered = profiler.stop();
                    runtime::run_ended(run);
                    delivered
                }
                Self::Flush(timeout_ms) => {
                    let timeout = timeout_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
                    profiler.flush(timeout.unwrap_or_else(|| profiler.config().stop_timeout))
                }
            }
        })
    }
}

/// A verb that may wait, on a thread of libuv's pool.
pub struct Waiting(Wanted);

impl Task for Waiting {
    type Output = bool;
    type JsValue = bool;

    fn compute(&mut self) -> Result<bool> {
        Ok(self.0.carry_out())
    }

    fn resolve(&mut self, _env: Env, delivered: bool) -> Result<bool> {
        Ok(delivered)
    }
}
