//! The form of a case file. Unknown keys are errors, so that a misspelt expectation cannot pass.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_norway::Value;

/// A case: what is configured, what happens, what must come out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name, equal to the file's.
    pub name: String,
    /// The law, as a sentence.
    pub law: String,
    /// Keys given in code.
    #[serde(default)]
    pub config: BTreeMap<String, Value>,
    /// The variables of the environment; nothing else is seen.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What happens, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What must hold at the end.
    #[serde(default)]
    pub expect: Expect,
}

/// One event; exactly one of the fields is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// A sample arrives.
    pub sample: Option<SampleStep>,
    /// A function's code ends.
    pub end_code: Option<EndCode>,
    /// Threads that nobody saw burn CPU time.
    pub unseen_ms: Option<f64>,
    /// Periodic work is sampled at random intervals.
    pub cycle: Option<Cycle>,
    /// The window ends.
    pub close: Option<Close>,
}

/// A sample.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleStep {
    /// `cpu`, `wall`, `alloc`, `lock`, `event_loop` or `off_cpu`.
    #[serde(default = "cpu")]
    pub kind: String,
    /// Thread.
    #[serde(default = "one")]
    pub thread: u32,
    /// Monotonic time.
    pub at_ms: f64,
    /// First value, in milliseconds (bytes for `alloc`).
    pub value: f64,
    /// Second value.
    #[serde(default)]
    pub count: u64,
    /// `root;…;leaf`.
    pub stack: String,
    /// Scopes around the sample, outermost first: what the language's `tag_wrapper` is given.
    #[serde(default)]
    pub scopes: Vec<BTreeMap<String, String>>,
    /// Contexts with a span that are opened between the sample and its being drained.
    #[serde(default)]
    pub contexts_opened_meanwhile: u32,
    /// Whether it is its thread's first.
    #[serde(default)]
    pub first_of_thread: bool,
    /// Whether the stack was cut.
    #[serde(default)]
    pub truncated: bool,
    /// How often, each time `every_ms` later.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Distance of repetitions.
    #[serde(default)]
    pub every_ms: f64,
}

/// Code that ends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndCode {
    /// Its name.
    pub function: String,
    /// What takes its place at the same address.
    pub reborn_as: Option<String>,
}

/// Work that repeats itself exactly, sampled as the clocks sample: intervals drawn evenly from 0.5 to 1.5 periods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycle {
    /// Stack and milliseconds of CPU of each part, in order.
    pub parts: Vec<Part>,
    /// CPU time in all.
    pub seconds: u64,
    /// Seed of the random intervals.
    pub seed: u64,
}

/// A part of a cycle.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// `root;…;leaf`.
    pub stack: String,
    /// CPU time.
    pub ms: f64,
}

/// The end of a window, and what it must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    /// Monotonic time.
    pub at_ms: f64,
    /// Folded lines by profile type; a type that is not named is not checked.
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
    /// Attributes of the resource, as text; keys that are not named are not checked.
    #[serde(default)]
    pub resource: BTreeMap<String, String>,
    /// Keys of attributes that the resource must not have.
    #[serde(default)]
    pub resource_without: Vec<String>,
    /// Start of the window, milliseconds after the start of the case.
    pub start_ms: Option<f64>,
    /// Period by profile type.
    #[serde(default)]
    pub period: BTreeMap<String, i64>,
    /// Whether nothing at all must be sent.
    #[serde(default)]
    pub nothing: bool,
}

/// A share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Leaf function.
    pub leaf: String,
    /// Percent of the type's total.
    pub percent: f64,
    /// Points it may differ by.
    pub within: f64,
}

/// What must hold at the end.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The configuration must be refused.
    pub error: Option<ExpectedError>,
    /// Parts of warnings, in order; an empty list means that there is none. Not checked when absent.
    pub warnings: Option<Vec<String>>,
    /// Values of the configuration, as text.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// Where values came from.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    /// URLs of the destinations (directories for files).
    pub destinations: Option<Vec<String>>,
    /// The kill switch that is on.
    pub disabled_by: Option<String>,
    /// Counters of `stats()`.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// An expected error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedError {
    /// Name of the kind.
    pub kind: String,
    /// Part of the message.
    pub message: String,
    /// Part of the hint.
    #[serde(default)]
    pub hint: String,
}

fn cpu() -> String {
    "cpu".to_owned()
}

fn one() -> u32 {
    1
}
