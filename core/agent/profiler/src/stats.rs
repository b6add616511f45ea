//! Statistics of the profiler itself: the table of values (name, unit, kind, one sentence) and the result of `stats()`. The
//! reference page and the OTLP metrics (`metrics`) follow from the same table. Not here: counters of the engine
//! (`spanprof_aggregate`).

use std::fmt::Write;

use spanprof_aggregate::{Counters, COUNTERS};
pub use spanprof_aggregate::{StatDoc, StatKind, StatValue};

/// A counter unless the row names another kind.
macro_rules! kind {
    () => {
        StatKind::Counter
    };
    ($kind:ident) => {
        StatKind::$kind
    };
}

macro_rules! stats {
    ($($name:literal $unit:literal $($kind:ident)? $($doc:literal)+;)+) => {
        &[$(StatDoc { name: $name, unit: $unit, kind: kind!($($kind)?), doc: concat!($($doc),+) },)+]
    };
}

/// Values of `stats()` that do not come from the engine's own counters.
pub const OTHER_STATS: &[StatDoc] = stats! {
    "state" "" Property "running, stopped, disabled (and by what), failed, or safe_mode after a crash inside the profiler.";
    "clock.name" "" Property "The clock in use.";
    "clock.reason" "" Property "Reason for the choice of this clock.";
    "clock.kernel_tick_hz" "Hz" Gauge "The kernel's tick rate: the maximum rate of stacks per CPU second with timers.";
    "clock.signal" "" Property "Number of the clock's signal: SIGURG (23), or the runtime's fallback signal where SIGURG is in use.";
    "clock.ticks.perf" "ticks" ProcessCounter "Ticks of perf events that gave a sample.";
    "clock.ticks_due.perf" "ticks" ProcessCounter "Ticks of perf events that were due: the CPU time of their threads divided by \
        the period.";
    "clock.ticks.thread_timer" "ticks" ProcessCounter "Ticks of thread timers that gave a sample.";
    "clock.ticks_due.thread_timer" "ticks" ProcessCounter "Ticks of thread timers that were due: the CPU time of their threads \
        divided by the period, or by the kernel tick where it is longer.";
    "clock.handler_ns" "ns" ProcessCounter "CPU time spent inside the signal handler. The kernel's delivery of the signal is not part of "
        "it.";
    "clock.walk_ns" "ns" ProcessCounter "The part of `clock.handler_ns` spent in stack walks.";
    "clock.delivery_ns" "ns" ProcessCounter "Time of the kernel's signal delivery, from the overflow of a perf event to the handler. The "
        "interrupt's entry and the return from the handler are not part of it. 0 on other clocks.";
    "clock.threads" "threads" Gauge "Threads with a clock.";
    "clock.threads_refused" "threads" Gauge "Threads for which the system refused a clock.";
    "clock.signals_forwarded" "signals" ProcessCounter "Foreign signals forwarded to their handler.";
    "clock.signals_stray" "signals" ProcessCounter "Signals without a recipient, discarded.";
    "clock.guarded_faults" "faults" ProcessCounter "Guarded reads of unmapped memory that faulted. 0 in normal operation.";
    "clock.scans" "scans" "Scans of the process's threads.";
    "clock.rearmed" "clocks" "Clocks rearmed because their signal was lost.";
    "native.tables" "tables" Gauge "Loaded files with a table of unwind rules. It is built when a stack first meets the file.";
    "native.table_bytes" "bytes" Gauge "Memory of all tables of unwind rules.";
    "native.tables_left_out" "files" Gauge "Files without a table of unwind rules: they have no unwind information, or all tables together would \
        exceed 16 MiB.";
    "native.walk_ends.root" "walks" ProcessCounter "Native walks that reached the first function of the thread.";
    "native.walk_ends.outside_files" "walks" ProcessCounter "Native walks that reached generated code, which the language continues.";
    "native.walk_ends.table_missing" "walks" ProcessCounter "Native walks that met a file without a table yet; the drain thread then builds it.";
    "native.walk_ends.no_table" "walks" ProcessCounter "Native walks that ended in a file whose table was left out.";
    "native.walk_ends.no_rule" "walks" ProcessCounter "Native walks that ended in code without unwind information, as most hand-written assembly.";
    "native.walk_ends.unknown_register" "walks" ProcessCounter "Native walks whose rule needed a register that was not known.";
    "native.walk_ends.invalid_frame" "walks" ProcessCounter "Native walks whose rule led to an address outside of the stack.";
    "native.walk_ends.faulted_read" "walks" ProcessCounter "Native walks that met unreadable memory.";
    "native.walk_ends.stopped" "walks" ProcessCounter "Native walks with all frames that were needed, or at `max_stack_depth`.";
    "dropped.<reason>" "samples" ProcessCounter "Samples lost, or kept without frames, by drop reason.";
    "heap.samples" "samples" ProcessCounter "Allocation samples.";
    "heap.samples_freed" "samples" ProcessCounter "Sampled objects that were freed.";
    "heap.live_samples" "samples" Gauge "Sampled objects in use.";
    "heap.interval" "bytes" Gauge "Mean number of bytes between allocation samples now; 0 without a heap profile.";
    "heap.reason" "" Property "The reason why this process has no heap profile; absent otherwise.";
    "lock.threshold" "ns" Gauge "Waits for locks of at least this duration are all recorded now, shorter ones are sampled; 0 without a \
        lock profile.";
    "dropped.heap_busy" "samples" ProcessCounter "Allocation samples lost because too many other threads took one at the same time.";
    "dropped.heap_ring_full" "samples" ProcessCounter "Allocation samples lost because the ring was full.";
    "dropped.heap_live" "samples" ProcessCounter "Sampled objects missing in in-use profiles: the live set had no slot for them, or a "
        "reallocation failed.";
    "governor.sample_rate" "Hz" Gauge "CPU rate in effect.";
    "governor.wall_rate" "Hz" Gauge "Wall rate in effect.";
    "governor.limited_by" "" Property "The key because of which the values in effect differ from the configured ones: `cpu_budget` \
        or `load_shedding_threshold`. Empty otherwise.";
    "governor.raised_by" "" Property "`sample_rate_max` while the adaptive rate is above `sample_rate`. Empty otherwise.";
    "governor.shed" "" Property "Profile types that are paused, or thinned (`heap`), separated by commas; empty when there are none.";
    "memory.limit_bytes" "bytes" Gauge "The smallest memory limit of the process's cgroups; missing without a limit.";
    "memory.until_limit_bytes" "bytes" Gauge "Memory that this cgroup may still use; file cache that was not used recently counts as "
        "free. Missing without a limit.";
    "memory.reserve_bytes" "bytes" ProcessCounter "Memory that the profiler took from its reserve of 8 MiB because the system had none; more "
        "than half of the reserve in use ends profiling.";
    "process.children_cut_off" "processes" ProcessCounter "Profiled processes forked by this one, or by its children, that ended without "
        "delivering their last window.";
    "cost.own_cpu_ns" "ns" "CPU time of the profiler's own threads, and of unwind tables that `start` builds.";
    "cost.process_cpu_ns" "ns" "CPU time of the whole process since start.";
    "contexts.opened" "contexts" ProcessCounter "Contexts with a span, since the start of the process.";
    "contexts.refused" "contexts" ProcessCounter "Contexts opened without their span because open scopes pinned all 65,536 rows; "
        "labels are kept.";
    "labels.sets" "label sets" Gauge "Distinct label sets of the process.";
    "labels.bytes" "bytes" Gauge "Memory of labels and label sets.";
    "labels.values_truncated" "values" ProcessCounter "Label values truncated at 1,024 bytes.";
    "labels.values_replaced" "values" ProcessCounter "Label values replaced by `other` beyond a cap.";
    "labels.dropped" "labels" ProcessCounter "Labels dropped: too many keys, or an empty key.";
    "labels.thread_names_dropped" "names" ProcessCounter "Names of threads dropped because more than 65,536 were set since the \
        last drain; samples have an earlier name of the thread, or the kernel's.";
    "export.<n>.kind" "" Property "`otlp_http`, `otlp_grpc`, `pyroscope` or `file`.";
    "export.<n>.target" "" Property "Address of the destination without user and query, or its directory.";
    "export.<n>.enqueued" "requests" "Requests queued for the destination.";
    "export.<n>.sent" "requests" "Requests accepted by the destination.";
    "export.<n>.sent_samples" "samples" "Samples in sent requests.";
    "export.<n>.sent_bytes" "bytes" "Bytes of sent requests before compression.";
    "export.<n>.retries" "attempts" "Retries of failed requests.";
    "export.<n>.splits" "requests" "Requests split because they were too large.";
    "export.<n>.rejected_profiles" "profiles" "Profiles rejected by partial success.";
    "export.<n>.dropped_<reason>" "requests" "Requests not delivered, by reason.";
    "export.<n>.dropped_samples" "samples" "Samples not delivered.";
    "export.<n>.queue_payloads" "requests" Gauge "Queued requests.";
    "export.<n>.queue_bytes" "bytes" Gauge "Bytes of queued requests.";
    "export.<n>.buffer_payloads" "requests" Gauge "Requests in `buffer_directory`.";
    "export.<n>.buffer_bytes" "bytes" Gauge "Bytes of the requests in `buffer_directory`.";
    "export.<n>.buffer_adopted" "requests" "Requests of exited processes taken from `buffer_directory`; part of `enqueued`.";
    "export.<n>.buffer_left" "requests" "Requests left in `buffer_directory` for the next process of the service.";
    "export.<n>.buffer_errors" "requests" "Requests that could not be written to `buffer_directory` and stayed in memory.";
    "export.<n>.files_removed_keep" "files" "Files removed from the directory because of `file_keep`.";
    "export.<n>.files_removed_max_age" "files" "Files removed from the directory because of `file_max_age`.";
    "export.<n>.files_removed_max_bytes" "files" "Files removed from the directory because of `file_max_bytes`.";
    "export.<n>.last_error" "" Property "The last failure of a delivery to the destination, without secrets; empty when there was none.";
    "export.<n>.last_warning" "" Property "The last message of a receiver that accepted a request completely; empty when there was "
        "none.";
    "metrics.<n>.target" "" Property "Address without user and query of a receiver of `metrics`.";
    "metrics.<n>.sent" "requests" "Requests with metrics that the receiver accepted.";
    "metrics.<n>.failed" "requests" "Requests with metrics that the receiver did not accept, or that a newer one replaced. They are not retried.";
    "metrics.<n>.last_error" "" Property "The last failure of a delivery of metrics, without secrets; empty when there was none.";
    "pull.address" "" Property "Bound address of the pull listener; absent without one.";
    "pull.connections" "connections" "Connections accepted by the pull listener.";
    "pull.incomplete" "connections" "Connections to the pull listener closed without a complete, well-formed request within 5 s.";
    "pull.overloaded" "requests" "Requests to the pull listener refused because too many were being handled (503).";
    "pull.rebound" "sockets" "Sockets of the pull listener bound again because the program had closed the previous one.";
    "runtime.<name>" "" Gauge "Counters and properties of the language runtime; see the page of the language.";
    "config.<key>" "" Property "Effective value of each key; secrets are masked.";
    "config.<key>.source" "" Property "Source of the effective value of each key.";
    "config.warnings" "" Property "Warnings of the loading of the configuration.";
};

/// A name of `stats()` with its row of the table.
pub(crate) struct DocumentedName<'n> {
    pub row: &'static StatDoc,
    /// Placeholders of the row, with their text in the name.
    pub placeholders: Vec<(&'static str, &'n str)>,
}

impl<'n> DocumentedName<'n> {
    /// The text of a placeholder.
    pub fn placeholder(&self, placeholder: &str) -> Option<&'n str> {
        self.placeholders.iter().find(|(name, _)| *name == placeholder).map(|(_, text)| *text)
    }
}

/// The most specific row for a name.
pub(crate) fn documented(name: &str) -> Option<DocumentedName<'_>> {
    let of_row = |row| Some(DocumentedName { row, placeholders: placeholders(row.name, name)? });
    COUNTERS.iter().chain(OTHER_STATS).filter_map(of_row).min_by_key(|row| row.placeholders.len())
}

/// The texts of the placeholders of a pattern; `None` when the name does not match.
fn placeholders<'n>(pattern: &'static str, name: &'n str) -> Option<Vec<(&'static str, &'n str)>> {
    // Text and placeholders alternate.
    let mut parts = pattern.split(['<', '>']);
    let mut rest = name.strip_prefix(parts.next()?)?;
    let mut found = Vec::new();
    while let (Some(placeholder), Some(text)) = (parts.next(), parts.next()) {
        let end = if text.is_empty() { rest.len() } else { rest.find(text)? };
        found.push((placeholder, &rest[..end]));
        rest = &rest[end + text.len()..];
    }
    (rest.is_empty() && found.iter().all(|(_, text)| !text.is_empty())).then_some(found)
}

/// The result of `stats()`: values by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Name and value. Names are dotted, e.g. `dropped.ring_full`; none occurs twice.
    pub entries: Vec<(String, StatValue)>,
}

impl Stats {
    pub(crate) fn add_counters(&mut self, counters: &Counters) {
        counters.values().for_each(|(name, value)| self.count(name, value));
    }

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
        self.entries.iter().find(|(entry, _)| entry == name).map(|(_, value)| value)
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
            "# Statistics\n\nThe values of `stats()`, in every language. Kinds of values:\n\n\
             - **counter**: only grows, from 0 at `start()`.\n\
             - **process counter**: only grows, from 0 at the start of the process.\n\
             - **gauge**: the current value.\n\
             - **property**: text, or a number that identifies something.\n\n\
             `clock.*` and the losses of CPU samples are 0 while no CPU samples are taken. With `metrics`, the numbers are \
             also [metrics](../guides/destinations.md#metrics-of-the-profiler) of OpenTelemetry.\n\n\
             | name | unit | kind | description |\n|---|---|---|---|\n",
        );
        for doc in COUNTERS.iter().chain(OTHER_STATS) {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "| `{}` | {} | {} | {} |", doc.name, doc.unit, doc.kind.name(), doc.doc.trim());
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

    /// Metrics show each description alone.
    #[test]
    fn every_description_is_complete_without_its_neighbors() {
        for row in COUNTERS.iter().chain(OTHER_STATS) {
            let is_complete = !row.doc.starts_with("The same")
                && row
                    .doc
                    .split_whitespace()
                    .all(|word| !matches!(word, "these" | "These" | "those" | "Those" | "such"));
            assert!(is_complete, "{}: {}", row.name, row.doc);
        }
    }

    #[test]
    fn documented_names_are_unique() {
        let mut names: Vec<_> = COUNTERS.iter().chain(OTHER_STATS).map(|doc| doc.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn the_most_specific_row_documents_a_name() {
        let row = |name: &'static str| documented(name).map(|known| (known.row.name, known.placeholders));
        assert_eq!(row("samples.cpu"), Some(("samples.cpu", Vec::new())));
        assert_eq!(row("dropped.ring_full"), Some(("dropped.<reason>", vec![("reason", "ring_full")])));
        assert_eq!(row("dropped.heap_busy"), Some(("dropped.heap_busy", Vec::new())));
        let expired = vec![("n", "12"), ("reason", "expired")];
        assert_eq!(row("export.12.dropped_expired"), Some(("export.<n>.dropped_<reason>", expired)));
        assert_eq!(row("export.0.dropped_samples"), Some(("export.<n>.dropped_samples", vec![("n", "0")])));
        assert_eq!(row("config.clock.source").map(|(name, _)| name), Some("config.<key>"));
        assert_eq!(row("dropped."), None);
        assert_eq!(row("unknown"), None);
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
