//! The engine without clock, thread or network: drain, window, resource. Time is an argument, so that tests and the
//! conformance suite drive it with scripted samples. Owned by the drain thread.

use std::sync::Arc;

use crate::config::Config;
use crate::drain::Drain;
use crate::heap::{encode_peak, HeapEstimator, PeakProfileInput};
use crate::reduction;
use crate::resource::Resource;
use crate::runtime::Runtime;
use crate::stats::Counters;
use crate::sys::CpuAccount;
use crate::window::{CloseInput, ClosedWindow, Window, WindowSettings};
use spanprof_profile::HeapAge;
use spanprof_signal::heap::HEAP;
use spanprof_signal::{DropReason, Ring, SampleKind};

/// See the module documentation.
pub(crate) struct Engine {
    drain: Drain,
    window: Window,
    resource: Resource,
    tags: Vec<(String, String)>,
    service_name_attribute: bool,
    counters: Arc<Counters>,
    /// Unattributed CPU time that windows already contain.
    unattributed_added_ns: u64,
}

/// Time and CPU account at the end of a window.
pub(crate) struct WindowEnd<'a> {
    pub now_monotonic_ns: u64,
    /// Unix time minus monotonic time.
    pub unix_offset_ns: i128,
    /// CPU time by thread; `None` without CPU clocks.
    pub account: Option<CpuAccount>,
    /// Whether the thread of this id is alive.
    pub is_alive: &'a mut dyn FnMut(u32) -> bool,
    /// Closes this kind only; `None`: all kinds.
    pub only: Option<SampleKind>,
    /// Whether to add the objects in use, once per upload interval.
    pub in_use: bool,
}

/// The live objects, encoded.
pub(crate) struct HeapAtPeak {
    pub profile: Vec<u8>,
    pub objects: u64,
    pub omitted_stacks: u64,
}

impl Engine {
    pub fn new(
        config: &Config,
        runtime: Arc<dyn Runtime>,
        resource: Resource,
        counters: Arc<Counters>,
        now_ns: u64,
    ) -> Self {
        let mut drain = Drain::new(runtime, estimator(config), config.max_stacks);
        drain.set_heap_age(has_heap_age(config));
        Self {
            drain,
            window: Window::new(window_settings(config), now_ns),
            resource,
            tags: config.tags.clone().into_iter().collect(),
            service_name_attribute: config.service_name_attribute,
            counters,
            unattributed_added_ns: 0,
        }
    }

    /// Drains the ring below the position `up_to`. Stops early when the window is full; true when entries may be left.
    pub fn drain(&mut self, ring: &Ring, up_to: u64) -> bool {
        self.drain.drain(ring, up_to, &mut self.window, &self.counters)
    }

    /// Processes one scripted sample.
    #[cfg(feature = "conformance")]
    pub fn process(&mut self, position: u64, sample: &spanprof_signal::RawSample<'_>) {
        self.drain.collect_ended_code();
        self.drain.process(position, sample, &mut self.window, &self.counters);
    }

    /// Number of live objects found so far: without a new one, live bytes do not grow.
    pub fn live_samples_added(&self) -> u64 {
        self.drain.heap.added()
    }

    /// Estimated bytes of the live objects.
    pub fn live_bytes(&mut self) -> u64 {
        self.drain.live_bytes()
    }

    /// The live objects as pprof of at most `max_bytes`; `None` if not even one stack fits.
    pub fn heap_peak(&mut self, time_unix_ns: u64, max_bytes: usize) -> Option<HeapAtPeak> {
        let totals = self.drain.heap.in_use(false);
        let objects = totals.iter().map(|total| total.values[1]).sum();
        let interval_bytes = self.drain.heap.interval();
        let input = PeakProfileInput { resource: &self.resource, time_unix_ns, interval_bytes, max_bytes };
        let (profile, omitted_stacks) = encode_peak(totals, &input)?;
        Some(HeapAtPeak { profile, objects, omitted_stacks })
    }

    /// Monotonic time at which the window is due; `None` while it is empty.
    pub fn due_ns(&self) -> Option<u64> {
        self.window.due_ns()
    }

    /// Whether the window must close before its time.
    pub fn is_full(&self) -> bool {
        self.window.is_full()
    }

    /// Opens a window.
    pub fn open(&mut self, now_ns: u64) {
        self.window.open(now_ns);
    }

    /// Opens a window when the unattributed CPU time is at least one period.
    pub fn open_for_unattributed(&mut self, account: &CpuAccount, now_ns: u64) {
        if self.unattributed_ns(account) >= self.window.settings().cpu_period_ns {
            self.window.open(now_ns);
        }
    }

    fn unattributed_ns(&self, account: &CpuAccount) -> u64 {
        account.unattributed_ns().saturating_sub(self.unattributed_added_ns)
    }

    /// Follows a restart of the clocks, which resets their account to 0.
    pub fn reset_account(&mut self) {
        self.unattributed_added_ns = 0;
    }

    /// Ends the window; `None` when there is nothing to send.
    pub fn close(&mut self, end: WindowEnd<'_>) -> Option<ClosedWindow> {
        self.window.release_remainders_of_ended_threads(end.is_alive);
        let closes_cpu = end.only.is_none_or(|only| only == SampleKind::Cpu);
        if let Some(account) = end.account.as_ref().filter(|_| closes_cpu) {
            let unattributed_ns = self.unattributed_ns(account);
            if unattributed_ns >= self.window.settings().cpu_period_ns {
                let stack = self.drain.reason_stack(DropReason::UnseenThread);
                self.window.add_unattributed(unattributed_ns, end.now_monotonic_ns, stack, &self.counters);
                self.unattributed_added_ns += unattributed_ns;
            }
        }
        if end.in_use && end.only.is_none_or(|only| only == SampleKind::InUse) {
            self.drain.add_in_use(end.now_monotonic_ns, &mut self.window, &self.counters);
        }
        HEAP.ensure_sampling();
        let closed = self.window.close(CloseInput {
            locations: &self.drain.locations,
            stacks: &self.drain.stacks,
            resource: &self.resource.attributes,
            tags: &self.tags,
            service_name: if self.service_name_attribute { &self.resource.service_name } else { "" },
            now_monotonic_ns: end.now_monotonic_ns,
            unix_offset_ns: end.unix_offset_ns,
            profile_id: &mut crate::random::bytes,
            only: end.only,
        });
        if self.window.is_empty() {
            self.drain.between_windows();
        }
        if let Some(closed) = &closed {
            self.counters.windows_closed.add(1);
            self.counters.stacks_unique.set(closed.stacks);
        }
        closed
    }

    /// Whether `config` requires the open window to close first.
    pub fn needs_new_window(&self, config: &Config) -> bool {
        let (old, new) = (self.window.settings(), window_settings(config));
        let are_tags_equal =
            || config.tags.iter().map(|(key, value)| (key.clone(), value.clone())).eq(self.tags.iter().cloned());
        let periods =
            |settings: &WindowSettings| (settings.cpu_period_ns, settings.wall_period_ns, settings.heap_interval_bytes);
        periods(&old) != periods(&new) || !are_tags_equal()
    }

    /// Applies a changed configuration; after `close` where [`Engine::needs_new_window`].
    pub fn apply(&mut self, config: &Config) {
        self.drain.set_max_stacks(config.max_stacks);
        self.drain.set_heap_age(has_heap_age(config));
        self.drain.heap.set_interval(config.heap_interval);
        self.window.set_settings(window_settings(config));
        self.tags = config.tags.clone().into_iter().collect();
        self.service_name_attribute = config.service_name_attribute;
    }
}

fn estimator(config: &Config) -> HeapEstimator {
    let seed = u64::from_ne_bytes(crate::random::bytes());
    HeapEstimator::new(HEAP.live_set(), config.heap_interval, config.heap_live_samples as usize, seed)
}

fn has_heap_age(config: &Config) -> bool {
    reduction::is_heap_age_used(config) && !config.tags.contains_key(HeapAge::LABEL)
}

pub(crate) fn window_settings(config: &Config) -> WindowSettings {
    WindowSettings {
        cpu_period_ns: 1_000_000_000 / u64::from(config.sample_rate.max(1)),
        wall_period_ns: 1_000_000_000 / u64::from(config.wall_rate.unwrap_or(config.sample_rate).max(1)),
        heap_interval_bytes: config.heap_interval,
        interval_ns: config.upload_interval.as_nanos() as u64,
        keep_timestamps: config.keep_timestamps,
        thread_labels: config.thread_labels,
        wall: config.wall || !config.off_cpu,
    }
}
