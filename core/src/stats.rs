//! Statistics of the profiler itself: the table of counters (name, unit, one sentence) and the result of `stats()`. The
//! reference page is generated from the same table. Counting is lock-free.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

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

/// A documented value of `stats()`.
#[derive(Clone, Copy, Debug)]
pub struct StatDoc {
    /// Name; `<…>` is a placeholder.
    pub name: &'static str,
    /// Unit; empty for text.
    pub unit: &'static str,
    /// Description.
    pub doc: &'static str,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal, $unit:literal;)+) => {
        /// The counters of the engine.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $($(#[doc = $doc])+ pub $field: Counter,)+ }

        /// The engine's own counters, as documented.
        pub const COUNTERS: &[StatDoc] = &[$(StatDoc { name: $name, unit: $unit, doc: concat!($($doc),+) },)+];

        impl Counters {
            /// Appends every counter.
            pub fn append_to(&self, stats: &mut Stats) {
                $(stats.count($name, self.$field.value());)+
            }
        }
    };
}

counters! {
    /// CPU samples in windows.
    samples_cpu = "samples.cpu", "samples";
    /// CPU time of these samples.
    samples_cpu_ns = "samples.cpu_ns", "ns";
    /// Wall-clock samples in windows; consecutive identical observations of a thread may be one sample.
    samples_wall = "samples.wall", "samples";
    /// Samples of other kinds in windows.
    samples_submitted = "samples.submitted", "samples";
    /// CPU and wall-clock samples with labels or a link.
    samples_labelled = "samples.labelled", "samples";
    /// CPU and wall-clock samples with a span.
    samples_linked = "samples.linked", "samples";
    /// Samples of kinds without a profile type.
    samples_unwanted = "samples.unwanted", "samples";
    /// Unattributed CPU time (of threads that ended without a sample) added to samples of short-lived threads.
    unseen_distributed_ns = "samples.unseen_distributed_ns", "ns";
    /// Unattributed CPU time shown as `[unseen_thread]`.
    unseen_shown_ns = "samples.unseen_shown_ns", "ns";
    /// Samples whose context was evicted (`max_contexts`); they have no labels instead of wrong ones.
    contexts_expired = "contexts.expired", "samples";
    /// Frames whose code ended before it was resolved.
    frames_code_ended = "dropped.code_ended", "frames";
    /// Samples whose stack exceeded `max_stacks`.
    dropped_too_many_stacks = "dropped.too_many_stacks", "samples";
    /// Stacks truncated at `max_stack_depth`.
    stacks_truncated = "stacks.truncated", "samples";
    /// Distinct stacks in the last window.
    stacks_unique = "stacks.unique", "stacks";
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
    /// Resource attributes dropped beyond the limit of 15.
    resource_attributes_dropped = "resource.attributes_dropped", "attributes";
    /// Panics caught on the profiler's own threads; the first one stops the profiler.
    panics = "internal.panics", "panics";
    /// Restarts of the profiler in forked children.
    forks = "process.fork_restarts", "forks";
}

/// Values of `stats()` that do not come from the engine's own counters.
pub const OTHER_STATS: &[StatDoc] = &[
    StatDoc {
        name: "state",
        unit: "",
        doc: "running, stopped, disabled (and by what), failed, or safe_mode after a crash inside the profiler.",
    },
    StatDoc { name: "clock.name", unit: "", doc: "The clock in use." },
    StatDoc { name: "clock.reason", unit: "", doc: "Reason for the choice of this clock." },
    StatDoc {
        name: "clock.kernel_tick_hz",
        unit: "Hz",
        doc: "The kernel's tick rate: the maximum rate of stacks per CPU second with timers.",
    },
    StatDoc {
        name: "clock.signal",
        unit: "",
        doc: "Number of the clock's signal: SIGURG (23), or the runtime's fallback signal where SIGURG is in use.",
    },
    StatDoc {
        name: "clock.handler_ns",
        unit: "ns",
        doc: "CPU time spent inside the signal handler. The kernel's delivery of the signal is not part of it.",
    },
    StatDoc { name: "clock.walk_ns", unit: "ns", doc: "The part of `clock.handler_ns` spent in stack walks." },
    StatDoc {
        name: "clock.delivery_ns",
        unit: "ns",
        doc: "Time of the kernel's signal delivery, from the overflow of a perf event to the handler. The interrupt's entry \
              and the return from the handler are not part of it. 0 on other clocks.",
    },
    StatDoc { name: "clock.threads", unit: "threads", doc: "Threads with a clock." },
    StatDoc { name: "clock.threads_refused", unit: "threads", doc: "Threads for which the system refused a clock." },
    StatDoc { name: "clock.signals_forwarded", unit: "signals", doc: "Foreign signals forwarded to their handler." },
    StatDoc { name: "clock.signals_stray", unit: "signals", doc: "Signals without a recipient, discarded." },
    StatDoc { name: "clock.guarded_faults", unit: "faults", doc: "Guarded reads of unmapped memory." },
    StatDoc { name: "clock.scans", unit: "scans", doc: "Scans of the process's threads." },
    StatDoc { name: "clock.rearmed", unit: "clocks", doc: "Clocks rearmed because their signal was lost." },
    StatDoc {
        name: "dropped.<reason>",
        unit: "samples",
        doc: "Samples lost, or kept without frames, by drop reason.",
    },
    StatDoc {
        name: "process.children_cut_off",
        unit: "processes",
        doc: "Profiled processes forked by this one, or by its children, that ended without delivering their last window.",
    },
    StatDoc { name: "cost.own_cpu_ns", unit: "ns", doc: "CPU time of the profiler's own threads." },
    StatDoc { name: "cost.process_cpu_ns", unit: "ns", doc: "CPU time of the whole process since start." },
    StatDoc {
        name: "contexts.opened",
        unit: "contexts",
        doc: "Contexts with a span, since the start of the process.",
    },
    StatDoc {
        name: "contexts.refused",
        unit: "contexts",
        doc: "Contexts opened without their span because open scopes pinned `max_contexts` rows; labels are kept.",
    },
    StatDoc { name: "labels.sets", unit: "label sets", doc: "Distinct label sets of the process." },
    StatDoc { name: "labels.bytes", unit: "bytes", doc: "Memory of labels and label sets." },
    StatDoc { name: "labels.values_truncated", unit: "values", doc: "Values truncated at `max_label_value_bytes`." },
    StatDoc { name: "labels.values_replaced", unit: "values", doc: "Values replaced by `other` beyond a cap." },
    StatDoc { name: "labels.dropped", unit: "labels", doc: "Labels dropped: too many keys, or an empty key." },
    StatDoc { name: "export.<n>.kind", unit: "", doc: "`otlp_http`, `otlp_grpc` or `file`." },
    StatDoc { name: "export.<n>.target", unit: "", doc: "Address without user and query, or directory." },
    StatDoc { name: "export.<n>.enqueued", unit: "requests", doc: "Requests queued for the destination." },
    StatDoc { name: "export.<n>.sent", unit: "requests", doc: "Requests accepted by the destination." },
    StatDoc { name: "export.<n>.sent_samples", unit: "samples", doc: "Samples in sent requests." },
    StatDoc { name: "export.<n>.sent_bytes", unit: "bytes", doc: "Bytes of sent requests before compression." },
    StatDoc { name: "export.<n>.retries", unit: "attempts", doc: "Retries of failed requests." },
    StatDoc { name: "export.<n>.splits", unit: "requests", doc: "Requests split because they were too large." },
    StatDoc { name: "export.<n>.rejected_profiles", unit: "profiles", doc: "Profiles rejected by partial success." },
    StatDoc { name: "export.<n>.dropped_<reason>", unit: "requests", doc: "Requests not delivered, by reason." },
    StatDoc { name: "export.<n>.dropped_samples", unit: "samples", doc: "Samples not delivered." },
    StatDoc { name: "export.<n>.queue_payloads", unit: "requests", doc: "Queued requests." },
    StatDoc { name: "export.<n>.queue_bytes", unit: "bytes", doc: "Bytes of queued requests." },
    StatDoc {
        name: "export.<n>.last_error",
        unit: "",
        doc: "The last failure, without secrets; empty when there was none.",
    },
    StatDoc {
        name: "export.<n>.last_warning",
        unit: "",
        doc: "The last message of a receiver that accepted a request completely; empty when there was none.",
    },
    StatDoc {
        name: "runtime.<name>",
        unit: "",
        doc: "Counters and properties of the language runtime; see the page of the language.",
    },
    StatDoc { name: "config.<key>", unit: "", doc: "Effective value of each key; secrets are masked." },
    StatDoc { name: "config.<key>.source", unit: "", doc: "Source of the value." },
    StatDoc { name: "config.warnings", unit: "", doc: "Warnings of the loading of the configuration." },
];

/// One value of `stats()`.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A counter or a size.
    Count(u64),
    /// Text.
    Text(String),
}

/// The result of `stats()`: values by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Name and value. Names are dotted, e.g. `dropped.ring_full`; none occurs twice.
    pub entries: Vec<(String, StatValue)>,
}

impl Stats {
    pub(crate) fn count(&mut self, name: impl Into<String>, value: u64) {
        self.add(name.into(), StatValue::Count(value));
    }

    pub(crate) fn text(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.add(name.into(), StatValue::Text(value.into()));
    }

    /// Counts with the same name are added up in one entry.
    fn add(&mut self, name: String, value: StatValue) {
        let known = self.entries.iter_mut().find(|(known, _)| *known == name);
        match (known, value) {
            (Some((_, StatValue::Count(sum))), StatValue::Count(count)) => *sum += count,
            (Some((_, known)), value) => *known = value,
            (None, value) => self.entries.push((name, value)),
        }
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&StatValue> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The counter of a name; 0 when there is none.
    pub fn counter(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(StatValue::Count(value)) => *value,
            _ => 0,
        }
    }

    /// The reference of all statistics as a Markdown page.
    pub fn reference_markdown() -> String {
        let mut page = String::from(
            "# Statistics\n\nThe values of `stats()`, in every language. Counters start at `start()`; those of labels, contexts and \
             signals (`clock.handler_ns`, `clock.walk_ns`, `clock.delivery_ns`, `clock.signals_*`, `clock.guarded_faults`, `dropped.<reason>`) start with the process. \
             `clock.threads`, `clock.threads_refused`, `stacks.unique` and `export.<n>.queue_*` are gauges, all others only \
             grow. The values of the CPU clocks (`clock.*`, their losses) are 0 without CPU samples.\n\n\
             | name | unit | description |\n|---|---|---|\n",
        );
        for doc in COUNTERS.iter().chain(OTHER_STATS) {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "| `{}` | {} | {} |", doc.name, doc.unit, doc.doc.trim());
        }
        let of_samples = spanprof_signal::DropReason::ALL.iter().map(|reason| (reason.name(), reason.doc()));
        let of_requests = spanprof_export::DiscardReason::ALL.iter().map(|reason| (reason.name(), reason.doc()));
        page.push_str(&table_of_reasons("dropped.<reason>", of_samples));
        page.push_str(&table_of_reasons("export.<n>.dropped_<reason>", of_requests));
        page
    }
}

fn table_of_reasons(name: &str, reasons: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let rows = reasons.map(|(reason, doc)| format!("| `{reason}` | {} |\n", doc.trim()));
    format!("\n| reason of `{name}` | description |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_names_are_unique() {
        let mut names: Vec<_> = COUNTERS.iter().chain(OTHER_STATS).map(|doc| doc.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn counts_with_the_same_name_are_added_up() {
        let mut stats = Stats::default();
        stats.count("dropped.ring_full", 2);
        stats.count("dropped.ring_full", 3);
        assert_eq!(stats.counter("dropped.ring_full"), 5);
        assert_eq!(stats.entries.len(), 1);
    }
}
