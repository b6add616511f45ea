//! The rule on versions of a service.

use super::service::ServiceProfile;
use super::{EstimatedShare, Fact, Finding, Rule};
use crate::query;

/// Findings of a service.
const MAX_REGRESSIONS: usize = 3;

/// Functions whose share of the CPU time grew significantly from the previous to the newest version. Versions are ordered by
/// their first windows. The test is the same as in `diff`.
pub(super) fn regressions(service: &ServiceProfile) -> Vec<Finding> {
    let mut versions: Vec<_> = service.versions.iter().collect();
    versions.sort_by_key(|(name, version)| (version.first_unix_nano, *name));
    let [.., (baseline, before), (comparison, newest)] = &versions[..] else { return Vec::new() };
    let rows = query::regressions([&before.sums, &newest.sums], "cpu");
    let totals = [before, newest].map(|version| version.sums.total("cpu").max(1.0));
    let observed = service.observed_ns();
    let finding = |row: query::DiffRow| {
        let growth = row.growth?;
        let shares = [row.baseline.flat as f64 / totals[0], row.comparison.flat as f64 / totals[1]];
        Some(Finding {
            rule: Rule::Regression,
            service: String::new(),
            type_name: "cpu",
            function: Some(row.location),
            share: EstimatedShare { value: growth.estimate, low: growth.low, high: growth.high },
            cost: (shares[1] - shares[0]).max(0.0) * totals[1] / observed,
            samples: newest.sums.samples("cpu", row.comparison.flat as f64),
            facts: vec![
                ("baseline_version", Fact::Text((*baseline).clone())),
                ("version", Fact::Text((*comparison).clone())),
                ("baseline", Fact::Part(shares[0])),
                ("comparison", Fact::Part(shares[1])),
            ],
        })
    };
    rows.into_iter().filter_map(finding).take(MAX_REGRESSIONS).collect()
}
