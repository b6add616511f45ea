//! Starts, changes and stops a session: its clocks, threads and destinations in their order. Requires the lifecycle lock,
//! which `profiler` holds.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::deliver::output::OutputFile;
use crate::deliver::resource::SystemProperties;
use crate::deliver::windows::WindowDelivery;
use crate::drain::{drain_thread, heap_peak};
use crate::host_log::{log, LogLevel};
use crate::pull::answer as pull;
use crate::report::outcome::OutcomeReport;
use crate::session::active_kinds::walks_threads;
use crate::session::clocks::{ring_bytes, start_clocks, thread_error};
use crate::session::drain_control::DrainControl;
use crate::session::session_config::{Inherited, SessionConfig};
use crate::session::{heap_profile, PullState, Session, SessionOutputs, SessionProcess, SessionSampling};
use spanprof_aggregate::hash::hash_bytes;
use spanprof_aggregate::runtime::{set_ends_soon, Runtime};
use spanprof_aggregate::{context, Counters};
use spanprof_config::{Config, ConfigSource, DestinationType, Error, ErrorKind, Profiles};
use spanprof_os::{Clocks, Inbox};
use spanprof_profile::redact::ProfileRedactor;
use spanprof_signal::SampleKind;

impl Session {
    /// Starts a session. With `enabled=false` it has its threads, and no clock and no hook.
    pub fn start(mut config: Config, inherited: Inherited, runtime: Arc<dyn Runtime>) -> Result<Arc<Self>, Error> {
        spanprof_os::load_clock_gettime();
        make_paths_absolute(&mut config);
        spanprof_os::remember_standard_error();
        let inbox = empty_inbox(&config)?;
        let process = SessionProcess::begin();
        // Discards entries of the previous run.
        inbox.ring().drain(inbox.ring().head(), &mut |_, _| {});
        spanprof_os::use_inbox(inbox);
        let safe_mode = process.marks_crashes && begin_crash_marker();
        let outputs = start_outputs(&mut config, &*runtime)?;
        let counters = Arc::new(Counters::default());
        counters.resource_attributes_dropped.add(outputs.resource.load().dropped);
        turn_off_unsupported_kinds(&mut config, &*runtime);
        warn_of_unsupported_kinds(&config, &*runtime);
        let config = SessionConfig::new(config, inherited, safe_mode);
        let sampling = SessionSampling::new(start_usable_clocks(&config, &*runtime)?);
        let session = Arc::new(Self {
            process,
            config,
            sampling,
            outputs,
            pull: PullState::default(),
            runtime,
            inbox,
            counters,
            control: DrainControl::default(),
            stopping: AtomicBool::new(false),
        });
        session.start_threads()?;
        session.delay_termination();
        Ok(session)
    }

    /// Starts the threads of the session, the heap profile, the events of the runtime, and the pull listener.
    fn start_threads(self: &Arc<Self>) -> Result<(), Error> {
        if let Err(error) = drain_thread::spawn(self.clone()) {
            self.stop_clocks();
            return Err(thread_error(error));
        }
        let config = self.config.active.load_full();
        if walks_threads(&config) {
            if let Err(error) = self.start_wall() {
                self.end(Duration::MAX);
                return Err(thread_error(error));
            }
        }
        if config.heap {
            heap_profile::start(self, &config);
        }
        self.set_reported_events();
        pull::start(self);
        Ok(())
    }

    /// Stops the session within `stop_timeout`, or `at_most` if that is shorter, and logs the outcome. True when everything
    /// was delivered.
    pub fn stop(&self, at_most: Duration) -> bool {
        let outcome = OutcomeReport::before_stop(self);
        let (delivered, ended) = self.end(at_most);
        outcome.log(self, ended);
        // A SIGTERM received meanwhile was delayed until here.
        if spanprof_os::is_terminating() {
            spanprof_os::raise_termination();
        }
        spanprof_os::remove_termination_handler();
        delivered && ended
    }

    /// Returns whether everything was delivered, and whether the drain thread closed the last window in time.
    fn end(&self, at_most: Duration) -> (bool, bool) {
        let deadline = Instant::now() + self.config.active.load().stop_timeout.min(at_most);
        self.stopping.store(true, Ordering::Release);
        self.set_reported_events();
        pull::stop(self);
        self.stop_wall();
        heap_profile::stop(self);
        // Debug information of a debug build takes seconds to read: without it, the window is delivered.
        let half = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        let ended = self.control.stop(half, self.inbox) || {
            set_ends_soon(true);
            self.control.stop(deadline, self.inbox)
        };
        set_ends_soon(false);
        heap_profile::forget_objects(self);
        // The drain thread does this first; repeated in case it is late or has ended.
        self.stop_clocks();
        if self.process.marks_crashes {
            spanprof_os::end_crash_marker();
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let delivered = self.outputs.delivery.as_ref().is_none_or(|delivery| {
            let delivered = delivery.stop(left);
            delivery.log_metrics_failures(true);
            delivered
        });
        spanprof_os::unregister_child();
        (delivered, ended)
    }
}

const SAFE_MODE: &str =
    "spanprof: the previous process of this program crashed inside the profiler within a minute of its start; \
                         this process takes no samples, the next start tries again (state: safe_mode)";

/// Requires memory for a start. Some runtimes end the process where a call has no memory: a binding asks before it calls them.
///
/// # Errors
/// There is too little.
pub fn require_memory() -> Result<(), Error> {
    spanprof_os::has_address_space(spanprof_os::START_BYTES).then_some(()).ok_or_else(no_memory)
}

fn no_memory() -> Error {
    Error::new(ErrorKind::System, "no memory for the profiler", "raise the memory limit of the process")
}

/// The inbox of this process without operations of the parent.
fn empty_inbox(config: &Config) -> Result<&'static Inbox, Error> {
    require_memory()?;
    let inbox = spanprof_os::inbox(ring_bytes(config)).ok_or_else(no_memory)?;
    reset_inbox_after_fork(inbox);
    context::set_drain_inbox(inbox);
    Ok(inbox)
}

/// The clocks of the active configuration. With a warning, a clock that was set outside the code and does not start is ignored,
/// and so are all clocks if there are wall-clock samples.
fn start_usable_clocks(config: &SessionConfig, runtime: &dyn Runtime) -> Result<Option<Clocks>, Error> {
    let active = config.active.load_full();
    let started = match start_clocks(&active, runtime) {
        Err(error) if active.is_set_outside_code("clock") => {
            let source = &active.sources["clock"];
            log(LogLevel::Warning, &format!("spanprof: {}; clock ({source}) is ignored", error.message));
            config.reset("clock");
            start_clocks(&config.active.load(), runtime)
        }
        started => started,
    };
    match started {
        Err(error) if active.wall => {
            log(LogLevel::Warning, &format!("spanprof: no CPU samples, wall-clock only: {error}"));
            Ok(None)
        }
        started => started,
    }
}

/// Opens the files of the run and the queues of its destinations. Keys that cannot be used are reset in `config`.
fn start_outputs(config: &mut Config, runtime: &dyn Runtime) -> Result<SessionOutputs, Error> {
    let redaction = config.redaction_settings(&spanprof_os::random::bytes::<32>());
    let mut redactor = ProfileRedactor::new(redaction.clone());
    let system = SystemProperties::gather();
    let resource = system.resource(config, runtime.resource_attributes(), &mut redactor);
    let file = start_output(config)?;
    let peak_file = heap_peak::start(config, &resource)?;
    let delivery = WindowDelivery::start(config, &resource)?;
    Ok(SessionOutputs {
        system,
        resource: ArcSwap::from_pointee(resource),
        redaction,
        delivery,
        file: Mutex::new(file),
        file_result: OnceLock::new(),
        peak_file: Mutex::new(peak_file),
    })
}

/// Marks this run for the case that it crashes. True when the previous process of this program crashed inside the profiler.
fn begin_crash_marker() -> bool {
    let directory = spanprof_os::crash_marker_directory();
    let has_crashed = spanprof_os::begin_crash_marker(&directory, program_hash(), spanprof_os::unix_ns());
    if has_crashed {
        log(LogLevel::Warning, SAFE_MODE);
    }
    has_crashed
}

/// Distinguishes this program from others of the same interpreter.
fn program_hash() -> u64 {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    hash_bytes(hash_bytes(0, &command), directory.as_os_str().as_encoded_bytes())
}

/// Resets the inbox, which lives as long as the process, at the first start in a forked child. Threads of the parent
/// may have been in the middle of an operation at the fork. The child does not use the inbox before that start.
fn reset_inbox_after_fork(inbox: &Inbox) {
    static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);
    let generation = spanprof_signal::fork_generation();
    if LAST_GENERATION.swap(generation, Ordering::AcqRel) != generation {
        inbox.reset_after_fork();
    }
}

/// The effective configuration: without signals there are no CPU samples.
pub(crate) fn effective(mut config: Config) -> Config {
    if !config.signals && config.cpu {
        config.cpu = false;
        if !config.wall && !matches!(config.sources.get("wall"), Some(source) if *source != ConfigSource::Default) {
            config.wall = true;
            config.warnings.push("signals=false: wall-clock samples instead of CPU samples".to_owned());
        }
    }
    config
}

/// `profiles=all` means every kind that this runtime supports.
fn turn_off_unsupported_kinds(config: &mut Config, runtime: &dyn Runtime) {
    if config.profiles != Profiles::All {
        return;
    }
    let source = config.sources.get("profiles").cloned().unwrap_or(ConfigSource::Code);
    let walks = runtime.capture_other().is_some();
    for (key, is_on, is_supported) in [
        ("gc", &mut config.gc, runtime.submits(SampleKind::Gc)),
        ("lock", &mut config.lock, runtime.submits(SampleKind::Lock)),
        ("wall", &mut config.wall, walks),
        ("off_cpu", &mut config.off_cpu, walks),
        ("threads", &mut config.threads, walks),
    ] {
        *is_on &= is_supported || config.sources.get(key) != Some(&source);
    }
}

/// One warning for each kind of samples that was enabled explicitly and that this runtime does not submit.
fn warn_of_unsupported_kinds(config: &Config, runtime: &dyn Runtime) {
    let warn_unless_submitted = |key: &str, is_enabled: bool, kind: SampleKind| {
        if is_enabled && config.is_explicit(key) && !runtime.submits(kind) {
            log(LogLevel::Warning, &format!("spanprof: {key} is on, but this runtime has no such samples"));
        }
    };
    warn_unless_submitted("gc", config.gc, SampleKind::Gc);
    warn_unless_submitted("lock", config.lock, SampleKind::Lock);
}

/// Relative paths begin at the working directory of the start: the program, or a forked child, may change it later.
fn make_paths_absolute(config: &mut Config) {
    for entry in config.destinations.iter_mut().flatten() {
        if entry.destination_type == DestinationType::File && config.file_directory.is_none() {
            entry.directory.get_or_insert_with(|| ".".to_owned());
        }
        let files = [&mut entry.certificate, &mut entry.client_certificate, &mut entry.client_key];
        [&mut entry.directory].into_iter().chain(files).for_each(make_absolute);
    }
    let files = [&mut config.certificate, &mut config.client_certificate, &mut config.client_key, &mut config.output];
    let directories = [&mut config.file_directory, &mut config.buffer_directory, &mut config.heap_peak_directory];
    files.into_iter().chain(directories).for_each(make_absolute);
}

fn make_absolute(path: &mut Option<String>) {
    // It fails for an empty path, and without a working directory.
    let absolute = path.as_deref().and_then(|path| std::path::absolute(path).ok()?.into_os_string().into_string().ok());
    if absolute.is_some() {
        *path = absolute;
    }
}

/// Opens the file of the whole run. An unwritable file is a warning if its name comes from the environment, else an error.
fn start_output(config: &mut Config) -> Result<Option<OutputFile>, Error> {
    let Some(name) = &config.output else { return Ok(None) };
    match OutputFile::start(name, spanprof_aggregate::MAX_STACKS, spanprof_signal::fork_generation() > 0) {
        Ok(output) => Ok(Some(output)),
        Err(error) if config.is_set_outside_code("output") => {
            log(
                LogLevel::Warning,
                &format!("spanprof: {} ({}); it is ignored", error.message, config.sources["output"]),
            );
            config.reset("output");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_config::DestinationConfig;

    #[test]
    fn paths_begin_at_the_working_directory_of_the_start() {
        let text = |path: &str| Some(path.to_owned());
        let mut config = Config {
            file_directory: text("profiles"),
            output: text("/srv/../run.html"),
            buffer_directory: text(""),
            destinations: Some(vec![DestinationConfig::new(DestinationType::File)]),
            ..Config::default()
        };
        make_paths_absolute(&mut config);
        let here = std::env::current_dir().unwrap().to_str().unwrap().to_owned();
        assert_eq!(config.file_directory, Some(format!("{here}/profiles")));
        assert_eq!([&config.output, &config.buffer_directory].map(Clone::clone), [text("/srv/../run.html"), text("")]);
        assert_eq!(config.destinations.as_ref().unwrap()[0].directory, None, "that of `file_directory`");
        (config.file_directory, config.output, config.buffer_directory) = (None, None, None);
        make_paths_absolute(&mut config);
        assert_eq!(config.destinations.unwrap()[0].directory, Some(here));
    }
}
