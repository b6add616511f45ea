//! The samples of a guard so far.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::error::GuardError;
use spanprof_profile::ProfilesData;
use spanprof_profiler::ProfilerHandle;

/// Access to the samples that the profiler took since the guard was created.
pub(super) struct GuardSamples {
    pub profiler: ProfilerHandle,
    /// Whether a kill switch is set: there are no samples.
    pub is_disabled: bool,
    /// The requested frequency, in Hz.
    pub frequency: i32,
    begun: (SystemTime, Instant),
    /// Held during a report.
    reading: Mutex<()>,
}

impl GuardSamples {
    /// Samples from now on.
    pub fn new(profiler: ProfilerHandle, is_disabled: bool, frequency: i32) -> Self {
        let begun = (SystemTime::now(), Instant::now());
        Self { profiler, is_disabled, frequency, begun, reading: Mutex::new(()) }
    }

    pub fn read(&self) -> Result<ProfilesData, GuardError> {
        if self.is_disabled {
            return Ok(ProfilesData::default());
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.profiler.read_guard().ok_or(GuardError::NotRunning)
    }

    /// Start, and time since then.
    pub fn times(&self) -> (SystemTime, Duration) {
        (self.begun.0, self.begun.1.elapsed())
    }
}
