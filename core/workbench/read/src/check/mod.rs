//! Checks the wire messages of an OTLP profiles file against the rules of the signal and of known receivers. Unlike a
//! decoder, it continues after a finding and detects the differences that decoding normalizes.
//!
//! Errors violate a requirement of the schema (opentelemetry-proto 1.10 and 1.11), or are errors of the signal's own tool `profcheck`
//! (open-telemetry/sig-profiling, profcheck/check.go, 2026). Warnings violate a recommendation, or a current receiver drops, rejects or
//! misinterprets them.

mod dictionary;
mod profiles;
mod references;

use crate::decode::otlp::each_request;
use crate::decode::{DecodeError, DecodeLimits};
use crate::wire::otlp as wire;
use references::References;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Violates a recommendation, or a known receiver drops, rejects or misinterprets it.
    Warning,
    /// Violates a rule of the signal.
    Error,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// Severity.
    pub severity: Severity,
    /// Path of the field, e.g. `resource_profiles[0].scope_profiles[0].profiles[1].samples[7].stack_index`.
    pub path: String,
    /// The violation and its remedy.
    pub sentence: String,
}

/// Settings of the checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckSettings {
    /// When set, windows outside a receiver's ingestion range (1 h old, 10 min ahead) are findings.
    pub now_unix_nano: Option<u64>,
    /// Limits of the decoder.
    pub limits: DecodeLimits,
}

/// Maximum number of findings per rule that are reported individually; the rest are counted.
const REPORTED_PER_RULE: usize = 5;

/// All findings, errors first; a [`DecodeError`] when the bytes cannot be decoded.
pub fn check(bytes: &[u8], settings: &CheckSettings) -> Result<Vec<CheckFinding>, DecodeError> {
    let mut findings = Findings::default();
    let mut requests = 0;
    each_request(bytes, &settings.limits, |request, nth| {
        requests += 1;
        findings.prefix = nth.map_or(String::new(), |nth| format!("request {}: ", nth + 1));
        check_request(&request, settings, &mut findings);
        // The number of findings is bounded, so the memory is too.
        Ok(0)
    })?;
    if requests == 0 {
        findings.warn("", "empty", || "The file contains no request.".to_owned());
    }
    Ok(findings.finish())
}

fn check_request(request: &wire::ProfilesData, settings: &CheckSettings, findings: &mut Findings) {
    let absent = wire::ProfilesDictionary::default();
    let dictionary = match &request.dictionary {
        Some(dictionary) => dictionary,
        None => {
            findings.error("dictionary", "no-dictionary", || {
                "The dictionary is missing; every request needs one.".to_owned()
            });
            &absent
        }
    };
    let mut used = References::new(dictionary);
    profiles::check(request, dictionary, settings, &mut used, findings);
    if request.dictionary.is_some() {
        dictionary::check(dictionary, &mut used, findings);
    }
}

/// Collects findings; only the first few of each rule are stored.
#[derive(Default)]
struct Findings {
    prefix: String,
    all: Vec<(&'static str, CheckFinding)>,
    counts: Vec<(&'static str, usize)>,
}

impl Findings {
    fn error(&mut self, path: impl AsRef<str>, rule: &'static str, sentence: impl FnOnce() -> String) {
        self.add(Severity::Error, path.as_ref(), rule, sentence);
    }

    fn warn(&mut self, path: impl AsRef<str>, rule: &'static str, sentence: impl FnOnce() -> String) {
        self.add(Severity::Warning, path.as_ref(), rule, sentence);
    }

    fn add(&mut self, severity: Severity, path: &str, rule: &'static str, sentence: impl FnOnce() -> String) {
        let at = self.counts.iter().position(|(known, _)| *known == rule).unwrap_or_else(|| {
            self.counts.push((rule, 0));
            self.counts.len() - 1
        });
        let count = &mut self.counts[at].1;
        *count += 1;
        if *count <= REPORTED_PER_RULE {
            let path = format!("{}{path}", self.prefix);
            self.all.push((rule, CheckFinding { severity, path, sentence: sentence() }));
        }
    }

    fn finish(mut self) -> Vec<CheckFinding> {
        for (rule, count) in self.counts {
            let more = count.saturating_sub(REPORTED_PER_RULE);
            if let Some((_, last)) = self.all.iter_mut().rev().find(|(known, _)| *known == rule).filter(|_| more > 0) {
                last.sentence.push_str(&format!(" ({more} more like this)"));
            }
        }
        let mut findings: Vec<CheckFinding> = self.all.into_iter().map(|(_, finding)| finding).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }
}

#[cfg(test)]
mod tests;
