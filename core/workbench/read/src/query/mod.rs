//! Queries: filters, list of types and labels, top table, call tree, callers and callees, comparison, spans. They return values,
//! which the command line formats.

mod builtins;
mod call_tree;
mod detail;
mod diff;
mod diff_tree;
mod dispersion;
mod filter;
mod function_lines;
mod generated_names;
mod growth;
mod label_matcher;
mod label_values;
mod neighbors;
mod object_types;
mod request_times;
mod span_baseline;
mod span_parts;
mod span_time;
mod spans;
mod stack_filter;
mod stack_sums;
mod summed_row;
mod time_category;
mod top;
mod tracked_functions;
mod weights;
mod window_sums;

pub use builtins::{fold_builtins, fold_runtime_code, has_builtins};
pub use call_tree::{call_tree, CallRow};
pub use detail::{reduce_to_stacks, Detail};
pub use diff::{cost, diff, CostGrowth, DiffRow, DiffTable};
pub use diff_tree::{diff_tree, folded_diff_tree, DiffNode, DiffTree, OneSidedPath};
pub use filter::Filter;
pub use function_lines::{function_lines, FunctionLineTable, FunctionLines};
pub use growth::{Growth, FAMILY_ERROR, MIN_SAMPLES, MIN_SHARE, MIN_WINDOWS};
pub use label_matcher::{LabelMatcher, MatchOperator};
pub use label_values::{labels, LabelKey, LabelTable};
pub use neighbors::{neighbors, Neighbors};
pub use object_types::reduce_to_types;
pub use request_times::{is_of_requests, REQUEST_TIME};
pub use span_baseline::{
    span_baseline, NoSpanBaseline, SpanBaseline, SpanBaselineRow, SpanDifference, COMPARED_TYPES, MIN_SPAN_SAMPLES,
};
pub use span_parts::{SpanPart, SpanParts};
pub use span_time::{span_time, ComparedTotal, SpanSubject, SpanTime, SpanTimeRow, WaitSource};
pub use spans::{endpoint_of_labels, SpanGrouping, SpanRow, SpanTable, SpanTotals, TypeTotal};
pub use stack_filter::{is_match, StackFilter};
pub use summed_row::Compared;
pub use time_category::TimeCategory;
pub use top::{top, TopRow, TopTable};
pub use weights::{FunctionLine, Granularity, Weight};
pub use window_sums::WindowSums;

pub(crate) use diff::regressions;
pub(crate) use request_times::{awaits, request_duration};
pub(crate) use spans::ENDPOINT_LABELS;
pub(crate) use weights::visit_samples;
pub(crate) use window_sums::{estimated_samples, process_identity};

use std::collections::BTreeMap;

use spanprof_profile::encode::pprof::names::DEFAULT_SAMPLE_TYPE;
use spanprof_profile::{Profile, ProfilesData, ResourceProfiles};

/// One service's profiles of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSummary {
    /// `service.name`, "" when there is none.
    pub service: String,
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: String,
    /// [`spanprof_profile::Profile::unit`].
    pub unit: String,
    /// Number of observations, as of [`Profile::observations`].
    pub samples: usize,
    /// Sum of the weights, in `unit`.
    pub total: i64,
    /// Start of the first window, Unix nanoseconds.
    pub from_unix_nano: u64,
    /// End of the last window, Unix nanoseconds.
    pub to_unix_nano: u64,
}

/// The default sample type of all profiles, as in pprof files; `None` when it is absent or differs between profiles.
pub fn default_type(data: &ProfilesData) -> Option<String> {
    let named = |profile: &Profile| {
        let mut settings = data.dictionary.attributes_of(profile.attributes);
        settings.find(|setting| setting.key == DEFAULT_SAMPLE_TYPE).map(|setting| setting.value.to_string())
    };
    let mut defaults = data.profiles().map(|(_, profile)| named(profile));
    let first = defaults.next()??;
    let is_present = data.profiles().any(|(_, profile)| profile.type_name() == first);
    (is_present && defaults.all(|other| other.as_ref() == Some(&first))).then_some(first)
}

/// The profile types of each service, sorted by service and type.
pub fn types(data: &ProfilesData) -> Vec<TypeSummary> {
    types_of(&data.resources)
}

/// As [`types`], of profiles without their dictionary.
pub fn types_of(resources: &[ResourceProfiles]) -> Vec<TypeSummary> {
    let mut summaries: BTreeMap<(&str, &str), TypeSummary> = BTreeMap::new();
    let profiles = resources.iter().flat_map(|resource| resource.profiles.iter().map(move |it| (resource, it)));
    for (resource, profile) in profiles {
        let (service, type_name) = (resource.service_name(), profile.type_name());
        let summary = summaries.entry((service, type_name)).or_insert_with(|| TypeSummary {
            service: service.to_owned(),
            type_name: type_name.to_owned(),
            unit: profile.unit().to_owned(),
            samples: 0,
            total: 0,
            from_unix_nano: u64::MAX,
            to_unix_nano: 0,
        });
        let observations = profile.samples.iter().map(|sample| profile.observations(sample).max(0) as usize);
        summary.samples += observations.sum::<usize>();
        summary.total =
            profile.samples.iter().fold(summary.total, |sum, sample| sum.saturating_add(profile.weight(sample)));
        summary.from_unix_nano = summary.from_unix_nano.min(profile.time_unix_nano);
        summary.to_unix_nano = summary.to_unix_nano.max(profile.end_unix_nano());
    }
    summaries.into_values().collect()
}
