//! The configuration of a run, from what was set to what is sampled. Not here: the effects of a change (`reconfigure`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

use super::active_kinds::sampling_config;
use crate::governor::Governor;
use crate::host_log::{log, LogLevel};
use crate::session::watched_file::WatchedFile;
use spanprof_config::{Burst, Config, RunningConfig};

/// State of the parent's session that a forked child continues.
#[derive(Default)]
pub(crate) struct Inherited {
    pub burst: Option<Burst>,
    pub watched: Option<Arc<WatchedFile>>,
}

/// The states of the configuration, in the order in which each follows from those before it. All but the governor change with
/// the lifecycle lock only.
pub(crate) struct SessionConfig {
    /// What was set, by origin: the start, later changes, the current burst.
    pub settings: ArcSwap<RunningConfig>,
    /// The values of `settings`: what the program, or an operator, wants now.
    pub requested: ArcSwap<Config>,
    /// The limits on `requested` by the cost of the profiler. Written by the drain thread, and where a burst begins and ends.
    pub governor: ArcSwap<Governor>,
    /// The limits before the current burst, which has none.
    governor_before_burst: ArcSwapOption<Governor>,
    /// What is sampled: `requested` within the limits, without the kinds of samples that are off now. All of them are while
    /// disabled and in safe mode.
    pub active: ArcSwap<Config>,
    /// The previous process crashed inside the profiler: this one takes no samples.
    pub safe_mode: bool,
    /// A burst began or ended: the governor begins a new interval at the next wakeup of the drain thread.
    pub restarts_accounting: AtomicBool,
    /// The configuration file, if it is watched.
    pub watched: ArcSwapOption<WatchedFile>,
    /// Phase of the duty cycles, from 0 to 1.
    duty_phase: f64,
    /// Monotonic time at which the duty cycles were evaluated last.
    evaluated_ns: AtomicU64,
    /// Monotonic time of the next change that time causes; 0: none.
    pub next_change_ns: AtomicU64,
    /// True while a thread applies such a change.
    pub is_applying: AtomicBool,
}

impl SessionConfig {
    pub fn new(config: Config, inherited: Inherited, safe_mode: bool) -> Self {
        let watched = inherited.watched.or_else(|| WatchedFile::new(&config).map(Arc::new));
        let settings = RunningConfig::new(config, inherited.burst);
        let states = Self {
            requested: ArcSwap::from_pointee(settings.effective()),
            settings: ArcSwap::from_pointee(settings),
            governor: ArcSwap::default(),
            governor_before_burst: ArcSwapOption::empty(),
            active: ArcSwap::default(),
            safe_mode,
            restarts_accounting: AtomicBool::new(false),
            watched: ArcSwapOption::new(watched),
            duty_phase: spanprof_os::random::fraction(),
            evaluated_ns: AtomicU64::new(spanprof_os::monotonic_ns()),
            next_change_ns: AtomicU64::new(0),
            is_applying: AtomicBool::new(false),
        };
        states.derive_active();
        states
    }

    fn derive_active(&self) {
        let (active, change_ns) = self.within_limits(&self.requested.load());
        self.active.store(Arc::new(active));
        self.next_change_ns.store(earliest(self.settings.load().next_change_ns(), change_ns), Ordering::Release);
    }

    /// Ignores a key that was set: it has its default before anything uses the configuration.
    pub fn reset(&self, key: &str) {
        let settings = self.settings.load();
        let mut config = settings.lasting().clone();
        config.reset(key);
        let settings = RunningConfig::new(config, settings.burst().cloned());
        let requested = settings.effective();
        self.set(settings, requested);
        self.derive_active();
    }

    /// Stores changed settings with the values that they give.
    pub fn set(&self, settings: RunningConfig, requested: Config) {
        self.settings.store(Arc::new(settings));
        self.requested.store(Arc::new(requested));
    }

    /// `requested` within the limits and without the kinds of samples that are off, and the time of the next change by a duty
    /// cycle.
    pub fn within_limits(&self, requested: &Config) -> (Config, Option<u64>) {
        self.without_kinds_off(&self.governor.load().limited(requested))
    }

    /// As [`Self::within_limits`], without limits.
    pub fn without_kinds_off(&self, config: &Config) -> (Config, Option<u64>) {
        sampling_config(config, self.safe_mode, self.evaluated_ns.load(Ordering::Acquire), self.duty_phase)
    }

    /// Evaluates the duty cycles for this moment from now on.
    pub fn evaluate_duty_cycles(&self) {
        self.evaluated_ns.store(spanprof_os::monotonic_ns(), Ordering::Release);
    }

    /// Removes the governor's limits at the beginning of a burst, and restores them at its end. The cost of a burst is not
    /// accounted to the time after it.
    pub fn exempt_burst_from_budget(&self, settings: &RunningConfig) {
        let governor = self.governor.load_full();
        match (self.settings.load().burst().is_some(), settings.burst().is_some()) {
            (false, true) => {
                self.governor.store(Arc::new(governor.without_budget()));
                self.governor_before_burst.store(Some(governor));
            }
            (true, false) => {
                let before = self.governor_before_burst.swap(None).unwrap_or_default();
                self.governor.store(Arc::new(governor.after_burst(&before)));
                log(LogLevel::Info, "spanprof: the burst has ended; the values before it apply again");
            }
            _ => return,
        }
        self.restarts_accounting.store(true, Ordering::Release);
    }
}

/// The earlier of two times, of which the first is 0 for none.
pub fn earliest(first_ns: u64, second_ns: Option<u64>) -> u64 {
    [Some(first_ns).filter(|first_ns| *first_ns > 0), second_ns].into_iter().flatten().min().unwrap_or(0)
}
