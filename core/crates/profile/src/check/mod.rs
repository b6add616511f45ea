//! Checks an OTLP profiles file against the rules of the signal, on its wire form: what receivers refuse, drop or
//! misread. Not a decoder: it goes on after a finding, and looks at what decoding would normalise away.
//!
//! Errors break what the schema (opentelemetry-proto 1.10 and 1.11) demands. Warnings go against what it advises, or a
//! receiver in use today drops, refuses or misreads them.

mod dictionary;
mod profiles;
mod references;

use crate::decode::otlp::each_request;
use crate::decode::{DecodeError, Limits};
use crate::wire::otlp as wire;
use references::References;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Advised against, or a known receiver drops, refuses or misreads it.
    Warning,
    /// Against the signal's rules.
    Error,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where, e.g. `resource_profiles[0].scope_profiles[0].profiles[1].samples[7].stack_index`.
    pub path: String,
    /// What is wrong and what to do.
    pub sentence: String,
}

/// What the checks may assume.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckSettings {
    /// With it, windows outside a receiver's ingestion range (1 h old, 10 min ahead) are findings.
    pub now_unix_nano: Option<u64>,
    /// How large the input may be, before and after decompression.
    pub limits: Limits,
}

/// Findings of one rule that are told one by one; the rest are counted.
const TOLD_PER_RULE: usize = 5;

/// All findings, gravest first; an error when the bytes cannot be read at all.
pub fn check(bytes: &[u8], settings: &CheckSettings) -> Result<Vec<Finding>, DecodeError> {
    let mut findings = Findings::default();
    let mut requests = 0;
    each_request(bytes, &settings.limits, |request, nth| {
        requests += 1;
        findings.prefix = nth.map_or(String::new(), |nth| format!("request {}: ", nth + 1));
        check_request(&request, settings, &mut findings);
        // Findings are bounded, so nothing accumulates.
        Ok(0)
    })?;
    if requests == 0 {
        findings.warn("", "empty", || "There is no request in it.".to_owned());
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

/// Collects findings; of each rule only the first few are told.
#[derive(Default)]
struct Findings {
    prefix: String,
    all: Vec<(&'static str, Finding)>,
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
        if *count <= TOLD_PER_RULE {
            let path = format!("{}{path}", self.prefix);
            self.all.push((rule, Finding { severity, path, sentence: sentence() }));
        }
    }

    fn finish(mut self) -> Vec<Finding> {
        for (rule, count) in self.counts {
            let more = count.saturating_sub(TOLD_PER_RULE);
            if let Some((_, last)) = self.all.iter_mut().rev().find(|(known, _)| *known == rule).filter(|_| more > 0) {
                last.sentence.push_str(&format!(" ({more} more like this)"));
            }
        }
        let mut findings: Vec<Finding> = self.all.into_iter().map(|(_, finding)| finding).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }
}

#[cfg(test)]
mod tests;
