//! FFI boundary to Java: the native methods of `io.spanprof.Native`. Each converts its arguments, calls the core and
//! converts the result. No panic and no Java exception leaves this file. Strings are passed packed (`convert`), contexts as
//! five words (`context`).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray, JObject, JString};
use jni::sys::{jbyte, jint, jlong, jobject, JNIEnv};
use jni::Env;
use spanprof_aggregate::context::labels_lost;
use spanprof_aggregate::StatValue;
use spanprof_config::{
    camel_case, from_json, process_environment, Config, ConfigSource, ConfigValue, Environment, Error, ErrorKind,
};
use spanprof_profiler::binding::{self, log, NOT_CHANGED, NOT_PROFILED};
use spanprof_profiler::{CapturedProfile, LogLevel, ProfilerHandle, RunningCapture};

use crate::convert::{
    self, error_array, native_methods, packed_array, read_words, text_of, texts_of, write_words, LocalRef, BINDING,
};
use crate::runtime::applications::{self, RemainingHolders};
use crate::runtime::{self, virtual_threads, JavaRuntime};
use crate::{context, host_log};

/// Invalid arguments of API calls, such as null labels.
static INVALID_ARGUMENTS: AtomicU64 = AtomicU64::new(0);

/// The open captures, by number.
static CAPTURES: LazyLock<Mutex<HashMap<u32, RunningCapture>>> = LazyLock::new(Mutex::default);

/// The profiles of ended captures, by number, until [`Java_io_spanprof_Native_freeCapture`].
static CAPTURED: LazyLock<Mutex<HashMap<u32, Arc<CapturedProfile>>>> = LazyLock::new(Mutex::default);

native_methods! {
    /// Version of the library.
    fn Java_io_spanprof_Native_version(env, _class) -> LocalRef {
        packed_array(env, [env!("CARGO_PKG_VERSION")])
    }

    /// Starts the profiler for an application, which is identified by an object of its own; for the calling one if that is null. The
    /// configuration is JSON with keys in camelCase; `variables` override the environment. Returns one string, `running`, `disabled` or
    /// `off`, or kind, message and hint of an impossible argument. A process that cannot be profiled is `off`, which is logged.
    fn Java_io_spanprof_Native_start(
        env, class, config: JByteArray<'_>, program_name: JByteArray<'_>, variables: JByteArray<'_>, application: JObject<'_>
    ) -> LocalRef {
        host_log::install();
        let (config, program_name) = (text_of(env, &config)?, text_of(env, &program_name)?);
        let variables = texts_of(env, &variables)?;
        let outcome = binding::ffi_guard_argument(NOT_PROFILED, Started::Off, || {
            let code = from_json(&config)?;
            // SAFETY: the environment of a native method is its thread's.
            unsafe {
                let (raw, copy) = (env.get_raw(), class.as_raw());
                let application: jobject =
                    if application.is_null() { applications::calling(raw, copy) } else { application.as_raw() };
                let mut applications = applications::lock();
                let is_first = applications.count() == 0 || applications.is_held_by(raw, copy, application);
                let started = start(raw, code, program_name, &variables, is_first)?;
                if let Started::Running | Started::Disabled = started {
                    applications.hold(raw, copy, application);
                }
                Ok(started)
            }
        });
        runtime::take_warning().iter().for_each(|line| log(LogLevel::Warning, line));
        match outcome {
            Ok(Started::Running) => packed_array(env, ["running"]),
            Ok(Started::Disabled) => packed_array(env, ["disabled"]),
            Ok(Started::Off) => packed_array(env, ["off"]),
            Err(error) => error_array(env, &error),
        }
    }

    /// The calling application stops the profiler, which ends with its last holder, or at the end of the program. The open window is
    /// sent within `stopTimeout` in any case. True if everything was delivered.
    fn Java_io_spanprof_Native_stop(env, class, program_ends: bool) -> bool {
        let (raw, copy) = (env.get_raw(), class.as_raw());
        // SAFETY: the environment and an argument of this native method.
        let application = unsafe { applications::calling(raw, copy) };
        let mut applications = applications::lock();
        // SAFETY: as above; the application is a local reference of this thread.
        let remaining = unsafe {
            if program_ends {
                applications.release_all(raw);
            }
            applications.release(raw, copy, application)
        };
        let count = applications.count();
        if remaining == RemainingHolders::None {
            let delivered = binding::stop(Duration::MAX);
            virtual_threads::disable_unused_events();
            runtime::inherited::disable();
            host_log::stopped();
            return Ok(delivered);
        }
        drop(applications);
        if remaining == RemainingHolders::OthersOnly {
            let line = "spanprof: an application that has not started the profiler called stop(); the profiler continues for the";
            log(LogLevel::Info, &format!("{line} {count} that have"));
        }
        host_log::stopped();
        Ok(binding::flush(None))
    }

    /// Whether an application that uses this copy of the package holds the profiler.
    fn Java_io_spanprof_Native_isHeld(env, class) -> bool {
        // SAFETY: the environment and an argument of this native method.
        Ok(unsafe { applications::lock().is_held_by_copy(env.get_raw(), class.as_raw()) })
    }

    /// Closes the open window and sends it; a negative timeout means `stopTimeout`. True if everything was delivered in time.
    fn Java_io_spanprof_Native_flush(_env, _class, nanos: jlong) -> bool {
        Ok(binding::flush(u64::try_from(nanos).ok().map(Duration::from_nanos)))
    }

    /// Changes keys of the running profiler. Returns `changed`, `not running`, or kind, message and hint of the error.
    fn Java_io_spanprof_Native_update(env, _class, config: JByteArray<'_>) -> LocalRef {
        let changes = text_of(env, &config)?;
        let change = || from_json(&changes).and_then(binding::update);
        match binding::ffi_guard_argument(NOT_CHANGED, false, change) {
            Ok(is_running) => packed_array(env, [if is_running { "changed" } else { "not running" }]),
            Err(error) => error_array(env, &error),
        }
    }

    /// Statistics in groups of three: name, `count` or `text`, value. Empty if the profiler does not run.
    fn Java_io_spanprof_Native_stats(env, _class) -> LocalRef {
        let counters = vec![("invalid_arguments", StatValue::Count(INVALID_ARGUMENTS.load(Ordering::Relaxed)))];
        let texts = BINDING.stats(counters).entries.into_iter().flat_map(|(name, value)| match value {
            StatValue::Count(count) => [name, "count".to_owned(), count.to_string()],
            StatValue::Text(text) => [name, "text".to_owned(), text],
        });
        packed_array(env, texts)
    }

    /// Whether samples are being taken.
    fn Java_io_spanprof_Native_isRunning(_env, _class) -> bool {
        Ok(binding::is_running())
    }

    /// Keys of the profiles that are on.
    fn Java_io_spanprof_Native_profileTypes(env, _class) -> LocalRef {
        packed_array(env, binding::profile_types())
    }

    /// Begins a capture; returns its number, 0 without a profiler.
    fn Java_io_spanprof_Native_beginCapture(_env, _class) -> jint {
        let open = RunningCapture::begin();
        let number = open.number();
        if number != 0 {
            CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).insert(number, open);
        }
        Ok(number as jint)
    }

    /// Ends a capture, and keeps its profile.
    fn Java_io_spanprof_Native_endCapture(_env, _class, capture: jint) {
        let open = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).remove(&(capture as u32));
        let profile = open.map(RunningCapture::end).unwrap_or_default();
        CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).insert(capture as u32, Arc::new(profile));
        Ok(())
    }

    /// The profile of an ended capture: 0 for pprof, 1 for a flame graph, 2 for folded stacks.
    fn Java_io_spanprof_Native_captured(env, _class, capture: jint, format: jint) -> LocalRef {
        let profile = captured(capture);
        let bytes = match format {
            0 => profile.pprof(),
            1 => profile.flamegraph().into_bytes(),
            _ => profile.folded().into_bytes(),
        };
        Ok(LocalRef(env.byte_array_from_slice(&bytes)?.into_raw()))
    }

    /// Sends the profile of an ended capture; a negative timeout means `stopTimeout`. True if it was delivered in time.
    fn Java_io_spanprof_Native_sendCapture(_env, _class, capture: jint, nanos: jlong) -> bool {
        let timeout = u64::try_from(nanos).ok().map(Duration::from_nanos);
        Ok(binding::send_capture(&captured(capture), timeout))
    }

    /// Ends a capture without its profile, or frees the profile of an ended one.
    fn Java_io_spanprof_Native_freeCapture(_env, _class, capture: jint) {
        let open = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).remove(&(capture as u32));
        let ended = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).remove(&(capture as u32));
        // After the locks are released.
        drop((open, ended));
        Ok(())
    }

    /// Counts an invalid argument of an API call.
    fn Java_io_spanprof_Native_countInvalidArgument(_env, _class) {
        INVALID_ARGUMENTS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// All configuration keys in snake_case, in groups of three: name, type, description.
    fn Java_io_spanprof_Native_configKeys(env, _class) -> LocalRef {
        packed_array(env, binding::config_keys().flatten())
    }

    /// Adds labels (key, value, key, value, …) to the context in `words`. True if all labels were added unchanged; labels that
    /// a limit cuts may be cut differently another time.
    fn Java_io_spanprof_Native_child(env, _class, words: JLongArray<'_>, labels: JByteArray<'_>) -> bool {
        let lost_before = labels_lost();
        let child = context::child(read_words(env, &words)?, &texts_of(env, &labels)?);
        write_words(env, &words, child)?;
        // Labels that another thread loses meanwhile count too: no loss is missed.
        Ok(labels_lost() == lost_before)
    }

    /// Merges a prepared context into the context in `words`. False on failure.
    fn Java_io_spanprof_Native_merge(env, _class, words: JLongArray<'_>, prepared: JLongArray<'_>) -> bool {
        let merged = context::merged(read_words(env, &words)?, read_words(env, &prepared)?);
        write_words(env, &words, merged)?;
        Ok(true)
    }

    /// The labels of a set: key, value, key, value, ….
    fn Java_io_spanprof_Native_labelsOf(env, _class, label_set: jint) -> LocalRef {
        packed_array(env, context::labels_of(label_set as u32))
    }

    /// A buffer of the calling platform thread's scope words; null if no row is free.
    fn Java_io_spanprof_Native_threadBuffer(env, _class) -> LocalRef {
        words_buffer(env, runtime::own_scope(), runtime::SCOPE_BYTES)
    }

    /// Calls `static void begin()` of a class on each new thread, platform or virtual. False if threads do not inherit.
    fn Java_io_spanprof_Native_inherit(env, _class, callback_class: JClass<'_>) -> bool {
        let inherits = |profiler: &ProfilerHandle| profiler.is_running() && profiler.config().inherit_threads;
        let is_enabled = ProfilerHandle::running().is_some_and(|profiler| inherits(&profiler));
        // SAFETY: the environment and an argument of this native method.
        Ok(is_enabled && unsafe { runtime::inherited::register(env.get_raw(), callback_class.as_raw()) })
    }

    /// A buffer of the calling virtual thread's scope words, and a word that is 0 while they are not tracked. Null if virtual
    /// threads cannot be tracked, or no scope words are free.
    fn Java_io_spanprof_Native_virtualBuffer(env, _class) -> LocalRef {
        words_buffer(env, virtual_threads::own_scope(), virtual_threads::VIRTUAL_SCOPE_BYTES)
    }

    /// Whether the boot loader has loaded a class.
    fn Java_io_spanprof_Native_isLoaded(env, _class, name: JString<'_>) -> bool {
        // SAFETY: the environment and an argument of this native method.
        Ok(unsafe { runtime::loaded_class::is_loaded(env.get_raw(), name.as_raw()) })
    }

    /// Writes a static field of a class, also a final one.
    fn Java_io_spanprof_Native_setStatic(env, _class, holder: JClass<'_>, field: JObject<'_>, value: JObject<'_>) {
        // SAFETY: the environment and the arguments of this native method; its caller passes a field of the class and its type.
        unsafe { runtime::static_field::set(env.get_raw(), holder.as_raw(), field.as_raw(), value.as_raw()) };
        Ok(())
    }

    /// Log lines for the host's logger: `info` or `warning`, then the text. Waits up to `nanos` for the first line. Null if no
    /// more lines will come for this copy of the package: either the profiler runs for other copies only, which fetch the
    /// lines; or it is stopped and no virtual thread is tracked.
    fn Java_io_spanprof_Native_logLines(env, class, nanos: jlong) -> LocalRef {
        let timeout = Duration::from_nanos(nanos.max(0) as u64);
        runtime::exclude(spanprof_os::thread_id());
        // SAFETY: the environment and an argument of this native method.
        let is_held = || unsafe { applications::lock().is_held_by_copy(env.get_raw(), class.as_raw()) };
        let is_profiling_caller = || binding::is_running() && is_held();
        let lines = host_log::take(timeout, is_profiling_caller);
        virtual_threads::disable_unused_events();
        let others_fetch_lines = binding::is_running() && !is_held();
        let is_inactive = !binding::is_running() && !virtual_threads::are_mounts_tracked();
        let is_over = lines.is_empty() && (others_fetch_lines || is_inactive);
        if is_over {
            return Ok(LocalRef::default());
        }
        packed_array(env, lines)
    }

    /// Reserves log lines for the caller, which stops the profiler; returns the queued ones.
    fn Java_io_spanprof_Native_holdLog(env, _class) -> LocalRef {
        packed_array(env, host_log::hold())
    }

    /// Returns the lines since `holdLog` and ends the reservation.
    fn Java_io_spanprof_Native_heldLines(env, _class) -> LocalRef {
        packed_array(env, host_log::release())
    }
}

/// The outcome of a start without error.
pub enum Started {
    Running,
    /// Prepared, and disabled by `enabled=false` until a change enables it.
    Disabled,
    /// Disabled by a kill switch.
    Off,
}

/// Starts with the keys set in code, `stackWalk` included, and variables that override the environment. If another
/// application has started the profiler (`is_first` is false), it keeps its settings, and keys that differ are logged.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
pub unsafe fn start(
    env: *mut JNIEnv,
    mut code: Vec<(String, ConfigValue)>,
    program_name: String,
    variables: &[String],
    is_first: bool,
) -> Result<Started, Error> {
    let warnings = convert::take_agent_options(&mut code);
    let mut config = BINDING.load(&code, &environment(variables), || program_name)?;
    config.warnings.extend(warnings);
    let stack_walk = convert::stack_walk(&config);
    if config.is_disabled() {
        return binding::start(config, None).map(|_| Started::Off);
    }
    // HotSpot ends the process where it has no memory for what the runtime asks of it.
    if ProfilerHandle::running().is_none() {
        binding::require_memory()?;
    }
    runtime::allow_signals(config.signals);
    // SAFETY: guaranteed by the caller.
    let runtime = unsafe { JavaRuntime::get(env, stack_walk) }
        .map_err(|message| Error::new(ErrorKind::UnsupportedRuntime, message, ""))?;
    match ProfilerHandle::running() {
        None => runtime::session_begins(),
        Some(running) if !is_first => {
            ignored_settings(&config, &running.config()).iter().for_each(|line| log(LogLevel::Warning, line));
            return Ok(if running.is_running() { Started::Running } else { Started::Disabled });
        }
        Some(_) => {}
    }
    // The core logs it if the profile was requested explicitly.
    let no_heap = runtime.no_heap_reason().filter(|_| config.heap && !config.is_explicit("heap"));
    let is_running = binding::start(config, Some(runtime))?;
    if let Some(reason) = no_heap.filter(|_| is_running) {
        log(LogLevel::Info, &format!("spanprof: no heap profile: {reason}"));
    }
    virtual_threads::session_begins();
    Ok(if is_running { Started::Running } else { Started::Disabled })
}

/// A warning about keys set in code that have no effect, since another application started the profiler first.
fn ignored_settings(requested: &Config, running: &Config) -> Option<String> {
    let effective: BTreeMap<_, _> = running.entries().into_iter().map(|(name, value, _)| (name, value)).collect();
    let ignored: Vec<String> = requested
        .entries()
        .into_iter()
        .filter(|(name, value, source)| *source == ConfigSource::Code && effective.get(name) != Some(value))
        .map(|(name, value, _)| {
            let now = effective.get(name).map_or("", String::as_str);
            format!("{} is `{now}`, not `{value}`", camel_case(name))
        })
        .collect();
    (!ignored.is_empty()).then(|| {
        format!(
            "spanprof: another application of this process has started the profiler, whose settings stay: {}; give all \
             applications the same settings, or change them with update()",
            ignored.join(", ")
        )
    })
}

/// The profile of an ended capture; an empty one for an unknown number.
fn captured(capture: jint) -> Arc<CapturedProfile> {
    CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).get(&(capture as u32)).cloned().unwrap_or_default()
}

fn words_buffer(env: &mut Env<'_>, address: Option<usize>, bytes: usize) -> jni::errors::Result<LocalRef> {
    let Some(address) = address else { return Ok(LocalRef::default()) };
    // SAFETY: the words are atomic and never freed, and only this thread writes them.
    let buffer: JByteBuffer<'_> = unsafe { env.new_direct_byte_buffer(address as *mut jbyte as *mut u8, bytes) }?;
    Ok(LocalRef(buffer.into_raw()))
}

fn environment(overrides: &[String]) -> Environment {
    let mut variables = process_environment();
    variables.extend(overrides.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
    variables
}
