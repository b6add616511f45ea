//! Starts the CPU clocks of a configuration, and describes them.

use spanprof_aggregate::runtime::Runtime;
use spanprof_config::{Clock, Config, Error, ErrorKind, NativeFrames};
use spanprof_os::{ClockChoice, ClockSettings, Clocks};

use super::Session;
use crate::host_log::{log, LogLevel};

/// Size of the ring: thousands of samples with native frames, and a small part of the memory budget.
const RING_BYTES: usize = 2 << 20;
/// Minimum capacity for entries of the largest size.
const RING_ENTRIES: usize = 64;

/// Warns of the profiles that are missing where the runtime cannot walk another thread.
pub fn warn_without_walks(config: &Config) {
    let without = if config.signals { "" } else { " with signals=false" };
    if config.wall {
        log(LogLevel::Warning, &format!("spanprof: this runtime does not support wall-clock samples{without}"));
    }
    for (key, is_enabled) in [("off_cpu", config.off_cpu && config.is_explicit("off_cpu")), ("threads", config.threads)]
    {
        if is_enabled {
            log(LogLevel::Warning, &format!("spanprof: {key} is on, but this runtime has no such samples{without}"));
        }
    }
}

pub fn ring_bytes(config: &Config) -> usize {
    let largest_entry = 128 + 16 * config.max_stack_depth as usize;
    RING_BYTES.max(largest_entry * RING_ENTRIES)
}

/// Starts the CPU clocks; `None` without CPU samples.
pub fn start_clocks(config: &Config, runtime: &dyn Runtime) -> Result<Option<Clocks>, Error> {
    let native_frames = config.native_frames;
    spanprof_unwind::show_native_frames(native_frames != NativeFrames::Off, native_frames == NativeFrames::All);
    if !config.cpu {
        return Ok(None);
    }
    let settings = ClockSettings {
        kind: match config.clock {
            Clock::Auto => ClockChoice::Auto,
            Clock::ThreadTimer => ClockChoice::ThreadTimer,
            Clock::Perf => ClockChoice::Perf,
        },
        rate_hz: config.sample_rate,
        max_stack_depth: config.max_stack_depth as usize,
        capture: runtime.capture(),
        ring_bytes: ring_bytes(config),
        fallback_signal: runtime.fallback_signal(),
    };
    Clocks::start(settings).map(Some).map_err(|error| Error::new(ErrorKind::NoClock, error.message, error.hint))
}

pub fn thread_error(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::System,
        format!("the system refused a thread for the profiler: {error}"),
        "raise the limit of threads (pids.max, ulimit -u)",
    )
}

pub fn clock_of(session: &Session) -> String {
    match &*session.sampling.clocks.load() {
        Some(clocks) => {
            let in_use = clocks.in_use();
            format!("clock {} ({})", in_use.name, in_use.reason)
        }
        // Its samples may be in the window that ends with it.
        None => session.sampling.ended_clock.load().as_deref().map_or_else(|| "no CPU clock".to_owned(), String::clone),
    }
}
