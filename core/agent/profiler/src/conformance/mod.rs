//! The engine of the conformance suite: scripted samples instead of clocks, with the production drain, window, encoder and
//! decoder. The runner of each language passes the configuration and the contexts of its own API. Cases are data
//! (`core/conformance/cases`). Not part of the public API.

mod case;
mod run;

pub use crate::lifecycle::request::report as report_end;
pub use case::{Case, CaseStep, EndRequest, SampleStep, ScopeLabels, TableLimits};
pub use run::{run_in, value_from_yaml, Language};

use std::sync::Arc;

use crate::deliver::reduction;
use crate::deliver::resource::SystemProperties;
use crate::drain::engine_settings::{engine_settings, system_access};
use crate::lifecycle::request;
use crate::stats::Stats;
use spanprof_aggregate::context::row_of_sample;
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::{Counters, Engine, EngineSettings, WindowEnd};
use spanprof_config::Config;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::redact::ProfileRedactor;
use spanprof_profile::transform::Reduction;
use spanprof_profile::ProfilesData;
use spanprof_read::decode;
use spanprof_signal::{Context, InlineContext, RawFrame, RawSample, SampleFlags, SampleKind};

/// Unix time at monotonic time 0 in every case.
pub const UNIX_OFFSET_NS: i128 = 1_700_000_000_000_000_000;

#[derive(Clone, Debug)]
pub struct ScriptedSample<'a> {
    pub kind: SampleKind,
    /// Kernel thread id.
    pub thread_id: u32,
    /// Monotonic time.
    pub time_ns: u64,
    /// See [`SampleKind`].
    pub values: [u64; 2],
    /// Id from `open_context`.
    pub context: u64,
    /// `root;…;leaf`; `name:12` executes at offset 12 of the function; `[reason]` is a drop reason.
    pub stack: &'a str,
    /// Whether it is the first sample of its thread.
    pub first_of_thread: bool,
    /// Whether the stack is truncated.
    pub truncated: bool,
}

/// An engine with scripted samples and times.
pub struct ScriptedEngine {
    engine: Engine,
    /// Reduction of the first destination.
    reduction: Reduction,
    runtime: Arc<FakeRuntime>,
    counters: Arc<Counters>,
    position: u64,
    unattributed_ns: u64,
}

/// The context without the random trace of a request: cases state their results.
fn without_own_trace(context: Context) -> Context {
    match row_of_sample(&context) {
        Some(row) if row.has_own_trace() => Context::Inline(InlineContext {
            label_set: row.label_set.0,
            local_root_span_id: row.local_root_span_id,
            capture: row.capture,
            ..InlineContext::default()
        }),
        _ => context,
    }
}

impl ScriptedEngine {
    /// An engine with a configuration and limits of its tables.
    pub fn new(config: &Config, limits: &TableLimits) -> Self {
        spanprof_aggregate::labels::tables().set_limits(spanprof_aggregate::labels::MAX_SETS, limits.label_value_bytes);
        spanprof_aggregate::context::set_max_contexts(limits.contexts);
        let runtime = FakeRuntime::new();
        let system = SystemProperties {
            process_id: 42,
            program: "program".to_owned(),
            host_name: "host".to_owned(),
            container_id: None,
            instance_id: "instance".to_owned(),
            deployment: Vec::new(),
        };
        let mut redactor = ProfileRedactor::new(config.redaction_settings(&[]));
        let resource = system.resource(config, runtime.resource_attributes(), &mut redactor);
        let counters = Arc::new(Counters::default());
        let engine = Engine::new(
            EngineSettings { max_stacks: limits.stacks, ..engine_settings(config, None) },
            system_access(),
            runtime.clone(),
            resource,
            redactor,
            counters.clone(),
            0,
        );
        let destination = config.effective_destinations().into_iter().next();
        let reduction = destination.map(|first| reduction::of_destination(&first, config)).unwrap_or_default();
        Self { engine, reduction, runtime, counters, position: 0, unattributed_ns: 0 }
    }

    /// Adds one sample.
    pub fn sample(&mut self, sample: &ScriptedSample<'_>) {
        let frames: Vec<_> = sample.stack.rsplit(';').map(|name| self.frame(name)).collect();
        let first = if sample.first_of_thread { SampleFlags::FIRST_OF_THREAD } else { 0 };
        let truncated = if sample.truncated { SampleFlags::TRUNCATED } else { 0 };
        self.engine.process(
            self.position,
            &RawSample {
                kind: sample.kind,
                flags: SampleFlags(first | truncated),
                thread_id: sample.thread_id,
                time_ns: sample.time_ns,
                values: sample.values,
                key: 0,
                context: without_own_trace(if sample.context == 0 {
                    Context::None
                } else {
                    Context::Id(sample.context)
                }),
                frames: &frames,
            },
        );
        self.position += 1;
    }

    /// Processes the end of a request that was reported on this thread; false without one.
    pub fn end_request(&mut self, time_ns: u64) -> bool {
        let Some(end) = request::take_scripted_end() else { return false };
        self.process(&RawSample { time_ns, context: without_own_trace(end.context), ..end });
        true
    }

    /// Processes a raw sample as from the ring, for benchmarks.
    pub fn process(&mut self, sample: &RawSample<'_>) {
        self.engine.process(self.position, sample);
        self.position += 1;
    }

    /// The code of a function in raw samples.
    pub fn code_of(&self, function: &str) -> u64 {
        self.runtime.code_of(function)
    }

    fn frame(&self, name: &str) -> RawFrame {
        let reasons = spanprof_signal::DropReason::ALL;
        if let Some(reason) = reasons.iter().find(|reason| name == format!("[{}]", reason.name())) {
            return RawFrame::reason(*reason);
        }
        let (name, at) = match name.rsplit_once(':') {
            Some((function, at)) => (function, at.parse().unwrap_or(0)),
            None => (name, 0),
        };
        RawFrame { code: self.runtime.code_of(name), at }
    }

    /// Ends the code of a function at the current position; another function may reuse its address.
    pub fn end_code(&mut self, function: &str, reused_by: Option<&str>) {
        self.runtime.end(self.runtime.code_of(function), self.position, reused_by);
    }

    /// Adds CPU time without samples.
    pub fn add_unattributed(&mut self, ns: u64) {
        self.unattributed_ns += ns;
    }

    /// Monotonic time at which the open window is due.
    pub fn due_ns(&self) -> Option<u64> {
        self.engine.due_ns()
    }

    /// Closes the window. The result went through the OTLP encoder and decoder, which drops exact values.
    pub fn close(&mut self, now_ns: u64) -> Option<ProfilesData> {
        let data = self.close_in_memory(now_ns)?;
        let decoded = decode::otlp::decode(&otlp::encode(&data, Revision::One), &decode::DecodeLimits::default());
        decoded.ok()
    }

    /// Closes the window; returns the profiles of the first destination before encoding.
    pub fn close_in_memory(&mut self, now_ns: u64) -> Option<ProfilesData> {
        let closed = self.engine.close(WindowEnd {
            now_monotonic_ns: now_ns,
            unix_offset_ns: UNIX_OFFSET_NS,
            unattributed_ns: Some(self.unattributed_ns),
            is_alive: &mut |_| true,
            in_use: true,
            sums_since_start: false,
        });
        closed.map(|closed| self.reduction.apply(closed.data))
    }

    /// The engine's counters.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        stats.add_counters(&self.counters);
        stats
    }
}
