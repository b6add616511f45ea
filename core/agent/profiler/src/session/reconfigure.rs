//! Applies changed settings to a running session: clocks, wall sampler, heap hooks, reported events. `enabled=false` ends
//! all of them and the open window; the threads and destinations of the session stay. A stop and a start instead would
//! wait for deliveries and lose the statistics at each toggle. Requires the lifecycle lock, which `profiler` holds.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::active_kinds::{is_end_of_duty, walks_threads};
use super::current::with_lifecycle_lock;
use super::heap_profile;
use crate::host_log::{log, LogLevel};
use crate::session::clocks::{clock_of, start_clocks, thread_error, warn_without_walks};
use crate::session::drain_control::ConfigChange;
use crate::session::session_config::earliest;
use crate::session::Session;
use crate::wall::thread as wall_thread;
use spanprof_aggregate::runtime::ReportedEvents;
use spanprof_config::{Config, Error, RunningConfig};

impl Session {
    /// Replaces the running configuration on behalf of another writer than the program.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&RunningConfig) -> Result<RunningConfig, Error>,
    ) -> Result<(), Error> {
        let outcome = self.replace_running(change);
        self.runtime.settings_changed();
        outcome
    }

    /// Replaces the running configuration.
    pub(crate) fn replace_running(
        &self,
        change: impl FnOnce(&RunningConfig) -> Result<RunningConfig, Error>,
    ) -> Result<(), Error> {
        with_lifecycle_lock(|| {
            let before = self.config.settings.load();
            let settings = change(&before)?;
            // A change that leaves the lasting values, such as a burst, also leaves the warnings of the start.
            let logged = &before.lasting().warnings;
            for warning in settings.lasting().warnings.iter().filter(|warning| !logged.contains(warning)) {
                log(LogLevel::Warning, &format!("spanprof: {warning}"));
            }
            self.reconfigure(settings)
        })
    }

    /// Monotonic time at which the current burst ends.
    pub(crate) fn burst_end_ns(&self) -> Option<u64> {
        Some(self.config.settings.load().burst()?.until_ns)
    }

    /// Whether this session was started with `enabled=false` and has never been enabled.
    pub fn was_never_enabled(&self) -> bool {
        let running = self.config.settings.load();
        !running.start().enabled && !running.lasting().enabled && self.counters.times_enabled.value() == 0
    }

    /// Applies a changed configuration. Nothing happens when its values are those in effect.
    pub fn reconfigure(&self, settings: RunningConfig) -> Result<(), Error> {
        let requested = settings.effective();
        let before = self.config.active.load_full();
        self.config.exempt_burst_from_budget(&settings);
        let walked_before = self.needs_wall_sampler(&self.config.requested.load());
        self.config.evaluate_duty_cycles();
        let (active, change_ns) = self.config.within_limits(&requested);
        self.schedule(earliest(settings.next_change_ns(), change_ns));
        if !self.is_alive() || has_equal_values(&active, &before) {
            self.config.set(settings, requested);
            return Ok(());
        }
        let active = Arc::new(active);
        if active.enabled {
            self.enable_or_change(&before, walked_before, &active, settings, requested)
        } else {
            self.disable(&before, &active, settings, requested);
            Ok(())
        }
    }

    /// Ends the clocks. Returns their run and what they sampled.
    fn end_clocks(&self) -> Option<(u64, spanprof_os::CpuAccount)> {
        self.sampling.ended_clock.store(Some(Arc::new(clock_of(self))));
        self.sampling.clocks.swap(None).map(|clocks| (clocks.run_number(), clocks.stop_with_account()))
    }

    /// Applies the governor's changed limits. Starts and ends no thread: the drain thread calls it. Requires the lifecycle lock.
    pub fn apply_limits(&self) {
        let requested = self.config.requested.load_full();
        let before = self.config.active.load_full();
        let active = Arc::new(self.config.within_limits(&requested).0);
        self.config.active.store(active.clone());
        // Before the rate changes: samples from this ring position on use the new configuration.
        self.control.change_config(self.change_to(&active, &requested), self.inbox);
        if let Some(clocks) = &*self.sampling.clocks.load() {
            if before.sample_rate != active.sample_rate {
                clocks.set_rate(active.sample_rate);
            }
        }
        heap_profile::update(self, &before, &active);
        self.set_reported_events();
    }

    fn change_to(&self, active: &Arc<Config>, requested: &Config) -> ConfigChange {
        let comment = self.config.governor.load().comment(requested);
        ConfigChange { position: 0, config: active.clone(), comment, ends_window: false, ended_clocks: None }
    }

    /// Whether the wall sampler is needed. A type that the governor has shed keeps it.
    pub(crate) fn needs_wall_sampler(&self, requested: &Config) -> bool {
        (requested.enabled && self.sampling.wall_collections.load(Ordering::Acquire) > 0)
            || walks_threads(&self.config.without_kinds_off(requested).0)
    }

    /// Sets the time of the next change that time causes; 0: none.
    fn schedule(&self, next_ns: u64) {
        if self.config.next_change_ns.swap(next_ns, Ordering::AcqRel) != next_ns {
            // The drain thread sleeps until then.
            self.inbox.wake();
        }
    }

    fn enable_or_change(
        &self,
        before: &Config,
        walked_before: bool,
        active: &Arc<Config>,
        settings: RunningConfig,
        requested: Config,
    ) -> Result<(), Error> {
        let clocks = self.sampling.clocks.load_full();
        if clocks.is_none() && active.cpu {
            self.sampling.clocks.store(start_clocks(active, &*self.runtime)?.map(Arc::new));
            self.delay_termination();
        }
        self.counters.times_enabled.add(u64::from(!before.enabled));
        let ends_window = !before.enabled || is_end_of_duty(&requested, before, active);
        let change = self.change_to(active, &requested);
        let walks = self.needs_wall_sampler(&requested);
        self.config.set(settings, requested);
        self.config.active.store(active.clone());
        if walked_before && !walks {
            // Its last samples precede the change.
            self.stop_wall();
        }
        let ended_clocks = clocks.as_ref().filter(|_| !active.cpu).and_then(|_| self.end_clocks());
        // Before the rate changes: samples from this ring position on use the new configuration.
        self.control.change_config(ConfigChange { ends_window, ended_clocks, ..change }, self.inbox);
        if let Some(clocks) = clocks.filter(|_| active.cpu && before.sample_rate != active.sample_rate) {
            clocks.set_rate(active.sample_rate);
        }
        let outcome = if !walked_before && walks { self.start_wall().map_err(thread_error) } else { Ok(()) };
        heap_profile::update(self, before, active);
        self.set_reported_events();
        outcome
    }

    /// Ends the sampling and the window. Samples stay ordered: all of them precede the change in the ring.
    fn disable(&self, before: &Config, active: &Arc<Config>, settings: RunningConfig, requested: Config) {
        let change = self.change_to(active, &requested);
        self.config.set(settings, requested);
        // From here on `submit` refuses samples of the runtime.
        self.config.active.store(active.clone());
        self.set_reported_events();
        self.stop_wall();
        heap_profile::update(self, before, active);
        let ended_clocks = self.end_clocks();
        let ends_window = before.enabled;
        self.control.change_config(ConfigChange { ends_window, ended_clocks, ..change }, self.inbox);
    }

    /// Notifies the runtime of the events to report: none after the stop, while disabled and in safe mode.
    pub(crate) fn set_reported_events(&self) {
        let config = self.config.active.load();
        let is_reporting = self.is_running() && !self.config.safe_mode;
        let Some(events) = self.runtime.events() else { return };
        events.set_reported(ReportedEvents {
            gc: config.gc && is_reporting,
            lock: config.lock && is_reporting,
            off_cpu: config.off_cpu && is_reporting,
            thread_names: config.thread_labels && is_reporting,
            lock_threshold_ns: config.lock_threshold.as_nanos() as u64,
            lock_rate_limit: config.cpu_budget > 0.0,
        });
    }

    /// Lets SIGTERM wait for the last window while CPU samples are taken.
    pub(crate) fn delay_termination(&self) {
        if let Some(handler) = self.runtime.delayed_termination().filter(|_| self.sampling.clocks.load().is_some()) {
            spanprof_os::install_termination_handler(handler);
        }
    }

    pub(crate) fn start_wall(&self) -> std::io::Result<()> {
        let mut wall = self.sampling.wall();
        if wall.is_none() {
            let Some(capture) = self.runtime.capture_other() else {
                warn_without_walks(&self.config.active.load());
                return Ok(());
            };
            let counters = self.counters.clone();
            let demand = self.wall_demand();
            *wall = Some(wall_thread::spawn(
                self.runtime.clone(),
                capture,
                self.inbox,
                counters,
                self.sampling.cpu_quota,
                demand,
            )?);
        } else if let Some(running) = &*wall {
            running.set_demand(self.wall_demand());
        }
        Ok(())
    }

    pub(crate) fn stop_wall(&self) {
        let thread = self.sampling.wall().take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }
}

/// Whether two configurations differ in sources and warnings only.
fn has_equal_values(left: &Config, right: &Config) -> bool {
    let mut left = left.clone();
    (left.sources, left.warnings) = (right.sources.clone(), right.warnings.clone());
    left == *right
}
