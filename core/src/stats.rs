//! The profiler's own health: the table of counters (name, unit, one sentence) and what `stats()` returns. The reference
//! page is made from the same table. Counting never waits.

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
    /// Name; `<…>` stands for what varies.
    pub name: &'static str,
    /// Unit; empty for facts.
    pub unit: &'static str,
    /// What it tells.
    pub doc: &'static str,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal, $unit:literal;)+) => {
        /// Everything the engine counts itself.
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
    /// CPU samples that joined a window.
    samples_cpu = "samples.cpu", "samples";
    /// CPU time they carry.
    samples_cpu_ns = "samples.cpu_ns", "ns";
    /// Wall-clock samples that joined a window; looks at a thread that goes on doing the same may be one.
    samples_wall = "samples.wall", "samples";
    /// Samples of other kinds that joined a window.
    samples_submitted = "samples.submitted", "samples";
    /// CPU and wall-clock samples that carry labels or a link.
    samples_labelled = "samples.labelled", "samples";
    /// CPU and wall-clock samples that carry a span.
    samples_linked = "samples.linked", "samples";
    /// Samples of kinds that no open profile wants.
    samples_unwanted = "samples.unwanted", "samples";
    /// CPU time of threads that ended unseen, given to samples of short-lived threads.
    unseen_distributed_ns = "samples.unseen_distributed_ns", "ns";
    /// CPU time of threads that ended unseen, shown as `[unseen_thread]`.
    unseen_shown_ns = "samples.unseen_shown_ns", "ns";
    /// Samples whose context was gone (`max_contexts`); they have no labels rather than wrong ones.
    contexts_expired = "contexts.expired", "samples";
    /// Frames whose code ended before it could be named.
    frames_code_ended = "dropped.code_ended", "frames";
    /// Samples whose stack had no room in the window (`max_stacks`).
    dropped_too_many_stacks = "dropped.too_many_stacks", "samples";
    /// Stacks cut at `max_stack_depth`.
    stacks_truncated = "stacks.truncated", "samples";
    /// Different stacks of the last window.
    stacks_unique = "stacks.unique", "stacks";
    /// Windows closed and sent.
    windows_closed = "windows.closed", "windows";
    /// Windows closed before their time because they were full.
    windows_closed_early = "windows.closed_early", "windows";
    /// Wall-clock walks that had to show `[moved_during_walk]` because the thread ran.
    wall_moved = "wall.moved_during_walk", "samples";
    /// Wall-clock walks done again because the thread ran.
    wall_repeated = "wall.repeated_walks", "walks";
    /// Wall-clock samples that show a reason in place of their stack.
    wall_without_stack = "wall.without_stack", "samples";
    /// Wall-clock and submitted samples that the ring had no room for.
    submit_dropped = "dropped.submit_ring_full", "samples";
    /// Attributes left out of the resource because it had more than 15.
    resource_attributes_dropped = "resource.attributes_dropped", "attributes";
    /// Panics caught on our own threads; after one the profiler is off.
    panics = "internal.panics", "panics";
    /// Times the profiler started again in a forked child.
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
    StatDoc { name: "clock.reason", unit: "", doc: "Why this clock." },
    StatDoc {
        name: "clock.kernel_tick_hz",
        unit: "Hz",
        doc: "The kernel's tick: the most stacks per CPU second that timers give.",
    },
    StatDoc {
        name: "clock.signal",
        unit: "",
        doc: "Number of the signal that carries the clock: SIGURG (23), or the runtime's own where that was not free.",
    },
    StatDoc {
        name: "clock.handler_ns",
        unit: "ns",
        doc: "CPU time spent inside the signal handler. The kernel's delivery of the signal is not part of it.",
    },
    StatDoc { name: "clock.walk_ns", unit: "ns", doc: "The part of it in which stacks were walked." },
    StatDoc {
        name: "clock.delivery_ns",
        unit: "ns",
        doc: "Time in which the kernel delivered the clock's signals, from the overflow of a perf event to the handler. The \
              interrupt's entry and the return from the handler are not part of it. 0 on other clocks.",
    },
    StatDoc { name: "clock.threads", unit: "threads", doc: "Threads that have a clock now." },
    StatDoc { name: "clock.threads_refused", unit: "threads", doc: "Threads without a clock." },
    StatDoc { name: "clock.signals_forwarded", unit: "signals", doc: "Signals of others given to their handler." },
    StatDoc { name: "clock.signals_stray", unit: "signals", doc: "Signals nobody wanted, swallowed." },
    StatDoc { name: "clock.guarded_faults", unit: "faults", doc: "Reads of unmapped memory that were caught." },
    StatDoc { name: "clock.scans", unit: "scans", doc: "Looks at the list of threads." },
    StatDoc { name: "clock.rearmed", unit: "clocks", doc: "Clocks armed again because their signal was lost." },
    StatDoc {
        name: "dropped.<reason>",
        unit: "samples",
        doc: "Samples lost, or kept without their frames, by reason; one per drop reason.",
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
        doc: "Contexts with a span opened in the life of the process.",
    },
    StatDoc {
        name: "contexts.refused",
        unit: "contexts",
        doc: "Contexts opened without their span because `max_contexts` were held by open scopes; labels are kept.",
    },
    StatDoc { name: "labels.sets", unit: "label sets", doc: "Different label sets of the process." },
    StatDoc { name: "labels.bytes", unit: "bytes", doc: "Memory of labels and label sets." },
    StatDoc { name: "labels.values_truncated", unit: "values", doc: "Values cut at `max_label_value_bytes`." },
    StatDoc { name: "labels.values_replaced", unit: "values", doc: "Values that became `other` beyond a cap." },
    StatDoc { name: "labels.dropped", unit: "labels", doc: "Labels left out: too many keys, or an empty one." },
    StatDoc { name: "export.<n>.kind", unit: "", doc: "`otlp_http`, `otlp_grpc` or `file`." },
    StatDoc { name: "export.<n>.target", unit: "", doc: "Address without user and query, or directory." },
    StatDoc { name: "export.<n>.enqueued", unit: "requests", doc: "Requests given to the destination." },
    StatDoc { name: "export.<n>.sent", unit: "requests", doc: "Requests it took." },
    StatDoc { name: "export.<n>.sent_samples", unit: "samples", doc: "Samples inside them." },
    StatDoc { name: "export.<n>.sent_bytes", unit: "bytes", doc: "Their bytes before compression." },
    StatDoc { name: "export.<n>.retries", unit: "attempts", doc: "Attempts after a first one." },
    StatDoc { name: "export.<n>.splits", unit: "requests", doc: "Requests cut because they were too large." },
    StatDoc { name: "export.<n>.rejected_profiles", unit: "profiles", doc: "Profiles refused by partial success." },
    StatDoc { name: "export.<n>.dropped_<reason>", unit: "requests", doc: "Requests that did not arrive, by reason." },
    StatDoc { name: "export.<n>.dropped_samples", unit: "samples", doc: "Samples that did not arrive." },
    StatDoc { name: "export.<n>.queue_payloads", unit: "requests", doc: "Requests waiting." },
    StatDoc { name: "export.<n>.queue_bytes", unit: "bytes", doc: "Their bytes." },
    StatDoc {
        name: "export.<n>.last_error",
        unit: "",
        doc: "The last failure, free of secrets; empty when there was none.",
    },
    StatDoc {
        name: "export.<n>.last_warning",
        unit: "",
        doc: "The last remark of a receiver that took everything; empty when there was none.",
    },
    StatDoc { name: "runtime.<name>", unit: "", doc: "Counters and facts of the language runtime; its page has them." },
    StatDoc { name: "config.<key>", unit: "", doc: "Value in force of each key; secrets masked." },
    StatDoc { name: "config.<key>.source", unit: "", doc: "Where it came from." },
    StatDoc { name: "config.warnings", unit: "", doc: "What was noticed while the configuration was read." },
];

/// One value of `stats()`.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A counter or a size.
    Count(u64),
    /// A fact.
    Text(String),
}

/// What `stats()` returns: values by name.
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

    /// A counter that several places feed is one entry with their sum.
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

    /// Everything `stats()` can hold, as a Markdown page.
    pub fn reference_markdown() -> String {
        let mut page = String::from(
            "# Statistics\n\nWhat `stats()` returns, in every language. Counters begin with `start()`; those of labels, contexts and \
             signals (`clock.handler_ns`, `clock.walk_ns`, `clock.delivery_ns`, `clock.signals_*`, `clock.guarded_faults`, `dropped.<reason>`) with the process. \
             `clock.threads`, `clock.threads_refused`, `stacks.unique` and `export.<n>.queue_*` go up and down, all others only \
             grow. What the CPU clocks count (`clock.*`, their losses) reads 0 while no CPU samples are taken.\n\n\
             | name | unit | what it tells |\n|---|---|---|\n",
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
    format!("\n| reason of `{name}` | what it tells |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_name_is_there_once() {
        let mut names: Vec<_> = COUNTERS.iter().chain(OTHER_STATS).map(|doc| doc.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_counter_fed_from_two_places_is_one_sum() {
        let mut stats = Stats::default();
        stats.count("dropped.ring_full", 2);
        stats.count("dropped.ring_full", 3);
        assert_eq!(stats.counter("dropped.ring_full"), 5);
        assert_eq!(stats.entries.len(), 1);
    }
}
