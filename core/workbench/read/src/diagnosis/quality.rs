//! Rules on the profile itself: whether the other findings can be relied on.

use std::collections::BTreeMap;

use spanprof_profile::code_origin::is_activity;

use super::service::ServiceProfile;
use super::{EstimatedShare, Fact, Finding, Rule, FEW_SAMPLES, LISTED, MIN_FINDING_SAMPLES};

/// Smallest share of samples without a complete stack.
const MISSING_SHARE: f64 = 0.05;
/// Reason frames: see `core/agent/signal/src/drop_reason.rs`, and the frames of cut stacks.
const REASONS: [&str; 14] = [
    "[ring_full]",
    "[no_thread_state]",
    "[faulted_read]",
    "[invalid_frame]",
    "[too_many_threads]",
    "[no_clock]",
    "[code_ended]",
    "[too_many_stacks]",
    "[unseen_thread]",
    "[moved_during_walk]",
    "[faults_blocked]",
    "[signal_blocked]",
    "[stack_too_small]",
    "[truncated]",
];

/// Findings about the profile.
pub(super) fn rules(service: &ServiceProfile) -> Vec<Finding> {
    let finding = |rule, type_name, share: EstimatedShare, samples, facts| Finding {
        rule,
        service: String::new(),
        type_name,
        function: None,
        share,
        cost: share.value,
        samples,
        facts,
    };
    let mut findings = Vec::new();
    if let Some(cpu) = service.of_type("cpu").filter(|cpu| cpu.samples < FEW_SAMPLES) {
        let margin = EstimatedShare::of(1.0, 2.0, cpu.samples.max(1.0)).high - 0.5;
        let facts = vec![("uncertainty", Fact::Part(margin))];
        findings.push(finding(Rule::FewSamples, "cpu", EstimatedShare::exact(margin), cpu.samples, facts));
    }
    for type_name in ["cpu", "wall"] {
        let Some(stacks) = service.of_type(type_name) else { continue };
        let (mut missing, mut samples, mut reasons) = (0i64, 0.0, BTreeMap::new());
        for ((stack, _), sums) in &stacks.stacks {
            let is_reason = |id: &u32| {
                let at = service.function(*id);
                is_activity(&at.function, &at.file) && REASONS.contains(&at.function.as_str())
            };
            if let Some(reason) = service.functions_of(stack).find(is_reason) {
                missing = missing.saturating_add(sums.weight);
                samples += sums.samples;
                *reasons.entry(reason).or_insert(0i64) += sums.weight;
            }
        }
        let share = EstimatedShare::of(missing as f64, stacks.total as f64, stacks.samples.max(1.0));
        if samples >= MIN_FINDING_SAMPLES && share.low >= MISSING_SHARE {
            let reasons = Fact::Functions(service.heaviest(&reasons, LISTED), stacks.total);
            findings.push(finding(Rule::MissingStacks, type_name, share, samples, vec![("reasons", reasons)]));
        }
    }
    if !service.limits.is_empty() {
        let limits: Vec<&str> = service.limits.iter().take(LISTED).map(String::as_str).collect();
        let facts = vec![("limits", Fact::Text(limits.join("; ")))];
        findings.push(finding(Rule::LimitedSampling, "", EstimatedShare::default(), 0.0, facts));
    }
    findings
}
