//! The schema of a case file. Unknown keys are errors, so that a misspelt expectation cannot pass.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_norway::Value;

/// A case: configuration, steps, expectations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name, equal to the name of the file.
    pub name: String,
    /// The rule that the case checks, as a sentence.
    pub rule: String,
    /// Keys set in code.
    #[serde(default)]
    pub config: BTreeMap<String, Value>,
    #[serde(default)]
    pub limits: TableLimits,
    /// Text of the configuration file, which `SPANPROF_CONFIG_FILE` names.
    pub file: Option<String>,
    /// All environment variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub steps: Vec<CaseStep>,
    /// Expectations at the end.
    #[serde(default)]
    pub expect: Expect,
}

/// Limits of tables, smaller than those of the product.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableLimits {
    pub stacks: u32,
    pub contexts: u32,
    pub label_value_bytes: u32,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            stacks: spanprof_aggregate::MAX_STACKS,
            contexts: spanprof_aggregate::context::MAX_CONTEXTS,
            label_value_bytes: spanprof_aggregate::labels::MAX_VALUE_BYTES,
        }
    }
}

/// One step; exactly one of the fields is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseStep {
    /// Adds samples.
    pub sample: Option<SampleStep>,
    pub end_request: Option<EndRequest>,
    /// Ends the code of a function.
    pub end_code: Option<EndCode>,
    /// Adds CPU time of threads without a sample.
    pub unseen_ms: Option<f64>,
    /// Samples periodic work at random intervals.
    pub cycle: Option<Cycle>,
    /// Closes the window.
    pub close: Option<Close>,
}

/// The labels of one scope.
pub type ScopeLabels = BTreeMap<String, String>;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleStep {
    /// `cpu`, `wall`, `alloc`, `lock`, `event_loop` or `off_cpu`.
    #[serde(default = "cpu")]
    pub kind: String,
    /// Thread id.
    #[serde(default = "one")]
    pub thread: u32,
    /// Monotonic time.
    pub at_ms: f64,
    /// First value, in milliseconds (bytes for `alloc`).
    pub value: f64,
    /// Second value; of `wall`, nanoseconds off CPU.
    #[serde(default)]
    pub count: u64,
    /// `root;…;leaf`.
    pub stack: String,
    /// Scopes around the sample, outermost first: arguments of the language's `tag_wrapper`.
    #[serde(default)]
    pub scopes: Vec<ScopeLabels>,
    /// Indexes of scopes that end before the sample, in this order, while the others are open. Not in Node.js, where a scope is a call.
    #[serde(default)]
    pub ended: Vec<usize>,
    /// Whether every scope of this sample gets prepared labels in place of labels.
    #[serde(default)]
    pub prepared: bool,
    /// The sample is taken in a function that is bound inside these scopes and called inside `scopes`. An empty list binds the
    /// function outside all scopes.
    pub bound_in: Option<Vec<ScopeLabels>>,
    /// Name of the request that the sample belongs to, begun by its first sample as a middleware of the language begins one. Its
    /// context is inside `scopes`.
    pub request: Option<String>,
    /// Takes the sample after the return of the bound function or, without one, of the innermost scope.
    #[serde(default)]
    pub returned: bool,
    /// Contexts with a span that are opened before the sample is drained.
    #[serde(default)]
    pub contexts_opened_meanwhile: u32,
    /// Whether it is the first sample of its thread.
    #[serde(default)]
    pub first_of_thread: bool,
    /// Whether the stack is truncated.
    #[serde(default)]
    pub truncated: bool,
    /// Number of samples.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Interval between them.
    #[serde(default)]
    pub every_ms: f64,
}

/// The end of a request, reported as a middleware of the language reports it; in Rust by `ProfilerHandle::request_ended`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    /// The name that its samples have.
    pub request: String,
    /// Monotonic time.
    pub at_ms: f64,
    /// Time from its start to its end.
    pub duration_ms: u32,
    /// Method and route.
    pub endpoint: String,
    /// Whether it failed.
    #[serde(default)]
    pub is_error: bool,
}

/// End of a function's code.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndCode {
    pub function: String,
    /// Function that reuses its address.
    pub reused_by: Option<String>,
}

/// Periodic work, sampled as by the clocks: uniform random intervals from 0.5 to 1.5 periods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycle {
    pub parts: Vec<CyclePart>,
    /// Total CPU time.
    pub seconds: u64,
    /// Seed of the random intervals.
    pub seed: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CyclePart {
    /// `root;…;leaf`.
    pub stack: String,
    /// CPU time.
    pub ms: f64,
}

/// The end of a window, and its expected content.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    /// Monotonic time.
    pub at_ms: f64,
    /// Folded lines by profile type; other types are not checked.
    #[serde(default)]
    pub folded: BTreeMap<String, Vec<String>>,
    /// Samples by profile type as `stack value {labels} link`, sorted.
    #[serde(default)]
    pub samples: BTreeMap<String, Vec<String>>,
    /// Nanoseconds (bytes, counts) by type and folded stack before rounding to periods.
    #[serde(default)]
    pub exact: BTreeMap<String, BTreeMap<String, i64>>,
    /// Share of leaf functions in percent, by type.
    #[serde(default)]
    pub shares: BTreeMap<String, Vec<Share>>,
    /// Attributes of the resource, as text; other keys are not checked.
    #[serde(default)]
    pub resource: BTreeMap<String, String>,
    /// Keys that must be absent from the resource.
    #[serde(default)]
    pub resource_without: Vec<String>,
    /// Start of the window, milliseconds after the start of the case.
    pub start_ms: Option<f64>,
    /// Period by profile type.
    #[serde(default)]
    pub period: BTreeMap<String, i64>,
    /// Whether the window must be empty.
    #[serde(default)]
    pub nothing: bool,
}

/// An expected share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Leaf function.
    pub leaf: String,
    /// Percent of the type's total.
    pub percent: f64,
    /// Tolerance in percentage points.
    pub within: f64,
}

/// Expectations at the end of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The error of an invalid configuration.
    pub error: Option<ExpectedError>,
    /// Substrings of all warnings, in order. Not checked when absent.
    pub warnings: Option<Vec<String>>,
    /// Values of the configuration, as text.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// Sources of values.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    /// URLs of the destinations (directories for files).
    pub destinations: Option<Vec<String>>,
    /// The active kill switch.
    pub disabled_by: Option<String>,
    /// Counters of `stats()`.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedError {
    /// Name of the kind.
    pub kind: String,
    /// Substring of the message.
    pub message: String,
    /// Substring of the hint.
    #[serde(default)]
    pub hint: String,
}

fn cpu() -> String {
    "cpu".to_owned()
}

fn one() -> u32 {
    1
}
