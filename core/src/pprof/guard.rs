//! The guard: takes CPU samples until it is dropped.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::GuardError as Error;
use super::report::ReportBuilder;
use super::samples::GuardSamples;
use super::Result;
use crate::api::profiler::start_native;
use spanprof_config::Config;
use spanprof_profiler::ProfilerHandle;
use spanprof_profiler::{log, LogLevel};

/// Frequency without [`ProfilerGuardBuilder::frequency`], in Hz.
const DEFAULT_FREQUENCY: i32 = 99;

/// Whether a guard exists.
static EXISTS: AtomicBool = AtomicBool::new(false);

/// Settings of a [`ProfilerGuard`].
#[derive(Clone, Debug)]
pub struct ProfilerGuardBuilder {
    frequency: i32,
}

impl Default for ProfilerGuardBuilder {
    fn default() -> Self {
        Self { frequency: DEFAULT_FREQUENCY }
    }
}

impl ProfilerGuardBuilder {
    /// Samples per second of CPU time of each thread, from 1 to 10,000; values beyond are replaced by the nearest one. Default:
    /// 99. Beside a running profiler, the rate of that.
    pub fn frequency(self, frequency: i32) -> Self {
        Self { frequency: frequency.clamp(1, 10_000) }
    }

    /// Has no effect: no library is unsafe to interrupt.
    pub fn blocklist<T: AsRef<str>>(self, _blocklist: &[T]) -> Self {
        self
    }

    /// Starts to take samples.
    ///
    /// # Errors
    /// [`Error::Running`] while another guard exists. [`Error::CreatingError`] if no CPU samples can be taken.
    pub fn build(self) -> Result<ProfilerGuard<'static>> {
        if EXISTS.swap(true, Ordering::AcqRel) {
            return Err(Error::Running);
        }
        let refused = |reason: &str| {
            EXISTS.store(false, Ordering::Release);
            log(LogLevel::Warning, &format!("spanprof: no guard: {reason}"));
            Error::CreatingError
        };
        let running = ProfilerHandle::running();
        let owns_profiler = running.is_none();
        let profiler = running.map_or_else(|| start_native(own_config(self.frequency)), Ok);
        let profiler = profiler.map_err(|error| refused(&error.to_string()))?;
        // With a kill switch, the reports are empty.
        let is_disabled = owns_profiler && profiler.config().is_disabled();
        if !is_disabled {
            if let Err(reason) = profiler.begin_guard() {
                if owns_profiler {
                    profiler.stop();
                }
                return Err(refused(&reason));
            }
        }
        Ok(ProfilerGuard {
            samples: GuardSamples::new(profiler, is_disabled, self.frequency),
            owns_profiler,
            _of_profiler: PhantomData,
        })
    }
}

/// CPU samples at this rate and nothing else, without destinations.
fn own_config(frequency: i32) -> Config {
    Config {
        sample_rate: frequency.unsigned_abs(),
        heap: false,
        lock: false,
        destinations: Some(Vec::new()),
        // The program chose its frequency.
        cpu_budget: 0.0,
        ..Config::default()
    }
}

/// Takes CPU samples until it is dropped. A process has at most one.
#[must_use = "the samples end when the guard is dropped"]
pub struct ProfilerGuard<'a> {
    samples: GuardSamples,
    /// Whether it started the profiler.
    owns_profiler: bool,
    _of_profiler: PhantomData<&'a ()>,
}

impl ProfilerGuard<'_> {
    /// Starts to take samples at a frequency in Hz.
    ///
    /// # Errors
    /// As [`ProfilerGuardBuilder::build`].
    pub fn new(frequency: i32) -> Result<ProfilerGuard<'static>> {
        ProfilerGuardBuilder::default().frequency(frequency).build()
    }

    /// A report of the samples since the start of the guard.
    pub fn report(&self) -> ReportBuilder<'_> {
        ReportBuilder::new(&self.samples)
    }
}

impl Drop for ProfilerGuard<'_> {
    fn drop(&mut self) {
        if self.owns_profiler {
            self.samples.profiler.stop();
        } else {
            self.samples.profiler.end_guard();
        }
        EXISTS.store(false, Ordering::Release);
    }
}
