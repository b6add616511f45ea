//! Counters of the engine: the table of values (name, unit, kind, one sentence). Counting is lock-free. Not here: the other
//! values of `stats()` (the profiler).

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a value of `stats()` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Only grows; 0 at `start()`.
    Counter,
    /// Only grows; 0 at the start of the process.
    ProcessCounter,
    /// A current value.
    Gauge,
    /// Text, or a number that identifies something. It is no metric.
    Property,
}

impl StatKind {
    /// The name on the reference page.
    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::ProcessCounter => "process counter",
            Self::Gauge => "gauge",
            Self::Property => "property",
        }
    }
}

/// A counter unless the row names another kind.
macro_rules! kind {
    () => {
        StatKind::Counter
    };
    ($kind:ident) => {
        StatKind::$kind
    };
}

/// A documented value of `stats()`.
#[derive(Clone, Copy, Debug)]
pub struct StatDoc {
    /// Name; `<…>` is a placeholder.
    pub name: &'static str,
    /// Unit; empty for text.
    pub unit: &'static str,
    /// How it changes.
    pub kind: StatKind,
    /// Description.
    pub doc: &'static str,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal, $unit:literal $(, $kind:ident)?;)+) => {
        /// The counters of the engine.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[doc = $doc])+ pub $field: Counter,)+ }

        /// The engine's own counters, as documented.
        pub const COUNTERS: &[StatDoc] =
            &[$(StatDoc { name: $name, unit: $unit, kind: kind!($($kind)?), doc: concat!($($doc),+) },)+];

        impl Counters {
            /// Every counter: its name and value.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field.value()),)+].into_iter()
            }
        }
    };
}

counters! {
    /// CPU samples in windows.
    samples_cpu = "samples.cpu", "samples";
    /// CPU time of the CPU samples in windows.
    samples_cpu_ns = "samples.cpu_ns", "ns";
    /// Wall-clock samples in windows; consecutive identical observations of a thread may be one sample.
    samples_wall = "samples.wall", "samples";
    /// Off-CPU samples in windows; consecutive identical observations of a thread may be one sample.
    samples_off_cpu = "samples.off_cpu", "samples";
    /// Samples of other kinds in windows.
    samples_submitted = "samples.submitted", "samples";
    /// CPU and wall-clock samples with labels or a link.
    samples_labelled = "samples.labelled", "samples";
    /// CPU and wall-clock samples with a span.
    samples_linked = "samples.linked", "samples";
    /// Unattributed CPU time (of threads that ended without a sample) added to samples of short-lived threads.
    unseen_distributed_ns = "samples.unseen_distributed_ns", "ns";
    /// Unattributed CPU time shown as `[unseen_thread]`.
    unseen_shown_ns = "samples.unseen_shown_ns", "ns";
    /// Samples whose context was evicted; they have no labels instead of wrong ones.
    contexts_expired = "contexts.expired", "samples";
    /// Frames whose code ended before it was resolved.
    frames_code_ended = "dropped.code_ended", "frames", ProcessCounter;
    /// Samples of stacks beyond 32,768 distinct ones in a window.
    dropped_too_many_stacks = "dropped.too_many_stacks", "samples", ProcessCounter;
    /// Stacks truncated at `max_stack_depth`.
    stacks_truncated = "stacks.truncated", "samples";
    /// Distinct stacks in the last window.
    stacks_unique = "stacks.unique", "stacks", Gauge;
    /// Windows closed and sent.
    windows_closed = "windows.closed", "windows";
    /// Windows closed early because they were full.
    windows_closed_early = "windows.closed_early", "windows";
    /// Wall-clock samples that contain `[moved_during_walk]` because the thread ran during each walk.
    wall_moved = "wall.moved_during_walk", "samples";
    /// Wall-clock walks repeated because the thread ran during the walk.
    wall_repeated = "wall.repeated_walks", "walks";
    /// Wall-clock samples that show a reason instead of a stack.
    wall_without_stack = "wall.without_stack", "samples";
    /// Wall-clock and submitted samples dropped because the ring was full.
    submit_dropped = "dropped.submit_ring_full", "samples";
    /// Requests of middlewares that are not in the profile `requests`, because 65,536 others had not ended.
    open_requests_dropped = "dropped.open_requests", "requests";
    /// Waits of futures (Rust) that are not in the profile `off_cpu`, because 5,000 others began in that second.
    awaits_dropped = "dropped.awaits", "waits";
    /// CPU time of the wall sampler, part of `cost.own_cpu_ns`.
    wall_cpu_ns = "cost.wall_cpu_ns", "ns";
    /// Changes of the governor's limits.
    governor_changes = "governor.changes", "changes";
    /// Intervals of 10 s in which the profiler exceeded `cpu_budget`.
    governor_exceeded_intervals = "governor.exceeded_intervals", "intervals";
    /// Time in which a rate was below the configured one, or a profile type was shed.
    governor_limited_seconds = "governor.limited_seconds", "s";
    /// CPU time of the profiler in the last interval, its handlers included, in millionths of one core.
    governor_cost_ppm = "governor.cost_ppm", "ppm", Gauge;
    /// `cpu_budget` in millionths of one core, with a CPU quota below one processor of the quota; 0 without a budget.
    governor_budget_ppm = "governor.budget_ppm", "ppm", Gauge;
    /// Resource attributes dropped beyond the limit of 20.
    resource_attributes_dropped = "resource.attributes_dropped", "attributes";
    /// Samples of live objects removed because there were more than `heap_live_samples`; the others represent them.
    heap_thinned = "heap.thinned", "samples";
    /// Writes of the heap at its peak into `heap_peak_directory`.
    heap_peak_writes = "heap.peak_writes", "writes";
    /// Time spent in writes of the heap at its peak.
    heap_peak_write_ns = "heap.peak_write_ns", "ns";
    /// Live bytes of the last write of the heap at its peak.
    heap_peak_bytes = "heap.peak_bytes", "bytes", Gauge;
    /// Stacks that did not fit into a write of the heap at its peak; their bytes are shown as `[too_many_stacks]`.
    heap_peak_omitted = "heap.peak_omitted_stacks", "stacks";
    /// Failed writes of the heap at its peak; three in a row end them.
    heap_peak_errors = "heap.peak_errors", "writes";
    /// Requests for profiles, of the pull listener and of the program's web framework.
    pull_requests = "pull.requests", "requests";
    /// Requests for profiles that were answered.
    pull_answered = "pull.answered", "requests";
    /// Requests for profiles refused for a missing or wrong token, a foreign `Host` header or a foreign web site (401, 403).
    pull_refused_access = "pull.refused_access", "requests";
    /// Requests for profiles refused because another profile was being collected (429).
    pull_refused_busy = "pull.refused_busy", "requests";
    /// Requests for profiles refused for another reason: an unknown path, a wrong parameter, a profile that is off, the end of
    /// the profiler.
    pull_refused_other = "pull.refused_other", "requests";
    /// Ends of requests, with `retention=tail`.
    tail_requests = "tail.requests", "requests";
    /// Requests whose samples were kept in full detail because of their duration.
    tail_kept_duration = "tail.kept_duration", "requests";
    /// Requests whose samples were kept in full detail because they were longer than the 99th percentile of their endpoint.
    tail_kept_p99 = "tail.kept_p99", "requests";
    /// Requests whose samples were kept in full detail because of their share of CPU time.
    tail_kept_cpu_share = "tail.kept_cpu_share", "requests";
    /// Requests whose samples were kept in full detail because of the bytes that they allocated.
    tail_kept_allocated_bytes = "tail.kept_allocated_bytes", "requests";
    /// Requests whose samples were kept in full detail because of an error.
    tail_kept_error = "tail.kept_error", "requests";
    /// Requests released without a decision: beyond 8 MiB of samples, without a sample for 5 minutes, or at `stop`.
    tail_undecided = "tail.undecided", "requests";
    /// Memory of the samples of unfinished requests.
    tail_held_bytes = "tail.held_bytes", "bytes", Gauge;
    /// Samples that are missing in the profile of a capture, because it was full. The continuous profile has them.
    capture_dropped = "capture.dropped", "samples";
    /// Samples of captures that were not sent, because there is no destination.
    capture_unsent = "capture.unsent", "samples";
    /// Panics caught on the profiler's own threads; the first one stops the profiler.
    panics = "internal.panics", "panics";
    /// Changes of `enabled` to true while running.
    times_enabled = "control.times_enabled", "changes";
    /// Restarts of the profiler in forked children.
    forks = "process.fork_restarts", "forks";
}

/// One value of `stats()`.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A counter or a size.
    Count(u64),
    /// Text.
    Text(String),
}
