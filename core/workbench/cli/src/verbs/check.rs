//! `spanprof check`: checks OTLP profiles against the signal's rules and against the limits of common receivers.

use serde_json::{json, Value};
use spanprof_answers::failure::{Failure, EXIT_FAILED};
use spanprof_answers::selection::moment::unix_ns;
use spanprof_answers::selection::EndArguments;
use spanprof_read::check::{self, CheckFinding, CheckSettings, Severity};
use spanprof_read::decode::{self, DecodeLimits, Format};
use spanprof_read::query::Filter;

use super::{check_redaction, sources, ReadArguments};
use crate::output;
use crate::source::NamedBytes;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof check FILE|DIR|URL… [FLAGS]",
    before_help = "\
Checks each file (of a directory too), stdin for `-`, or each request that a running `spanprof serve` keeps, as it was
sent; with a filter, only those with samples that pass. Errors violate the signal's rules; warnings are legal, but a known
receiver drops or misreads them. The exit code is 1 when there is an error or unreadable input.
With --redaction, prints each text that would be removed or replaced, of any kind of profile. The exit code is 1 when there
is such a text, and 2 when a rule is invalid. For sources that end in .yaml, it runs their `redaction_cases`; the exit code is 1
when one fails.",
    after_help = "\
Examples:
  spanprof check profiles.otlp.pb.gz
  spanprof check http://127.0.0.1:4318 --json
  spanprof check --redaction spanprof.yaml profiles/
  spanprof check --redaction spanprof.yaml redaction-cases.yaml"
)]
pub(crate) struct CheckArguments {
    /// as if sent now: windows too old or in the future for a receiver are findings
    #[arg(long)]
    pub live: bool,
    /// warnings count as errors
    #[arg(long)]
    pub strict: bool,
    /// show the texts that these rules and the default patterns would remove, in place of the check: a configuration file, or a
    /// list of rules in YAML
    #[arg(long, value_name = "FILE")]
    pub redaction: Option<String>,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

/// Findings of one file, or the reason that it cannot be read.
type CheckResult = Result<Vec<CheckFinding>, String>;

pub(crate) fn run(arguments: &CheckArguments) -> Result<i32, Failure> {
    if let Some(rules) = &arguments.redaction {
        return check_redaction::run(rules, &arguments.read, arguments.end.to.as_deref(), arguments.json);
    }
    let sources = sources(&arguments.read.sources)?;
    let now_unix_nano = arguments.live.then(unix_ns);
    let settings = CheckSettings { now_unix_nano, limits: DecodeLimits::of_files() };
    let filter = arguments.read.filter.filter(arguments.end.to.as_deref(), unix_ns())?;
    let named = sources.iter().map(|source| source.raw(&filter)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<(String, CheckResult)> = named
        .into_iter()
        .flatten()
        .filter(|named| is_chosen(named, &filter, &settings.limits))
        .map(|NamedBytes { name, bytes }| (name, outcome(&bytes, &settings)))
        .collect();
    let fails = |finding: &CheckFinding| finding.severity == Severity::Error || arguments.strict;
    let passed = files.iter().all(|(_, outcome)| match outcome {
        Ok(findings) => !findings.iter().any(fails),
        Err(_) => false,
    });
    let text = if arguments.json { json(&files, passed) } else { text(&files) };
    output::print(text.as_bytes())?;
    Ok(if passed { 0 } else { EXIT_FAILED })
}

fn outcome(bytes: &[u8], settings: &CheckSettings) -> CheckResult {
    let format = decode::detect(bytes, &settings.limits);
    check::check(bytes, settings).map_err(|error| match format {
        Ok(Format::Pprof) => {
            "expected OTLP profiles, got pprof, which has no such rules; `spanprof top` reads it".to_owned()
        }
        Ok(Format::Folded) => {
            "expected OTLP profiles, got folded stacks, which have no such rules; `spanprof top` reads them".to_owned()
        }
        Ok(Format::Speedscope) => {
            "expected OTLP profiles, got a speedscope file, which has no such rules; `spanprof top` reads it".to_owned()
        }
        _ => error.to_string(),
    })
}

/// Whether a file contains samples that pass the filter. A file that cannot be decoded is always checked.
fn is_chosen(named: &NamedBytes, filter: &Filter, limits: &DecodeLimits) -> bool {
    *filter == Filter::default()
        || decode::any(&named.bytes, limits).map_or(true, |(_, data)| filter.apply(&data).sample_count() > 0)
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn text(files: &[(String, CheckResult)]) -> String {
    let mut text = String::new();
    for (name, outcome) in files {
        match outcome {
            Err(reason) => text += &format!("{name}: error: {reason}\n"),
            Ok(findings) if findings.is_empty() => text += &format!("{name}: nothing wrong found\n"),
            Ok(findings) => {
                for CheckFinding { severity, path, sentence } in findings {
                    text += &format!("{name}: {}: {path}: {sentence}\n", severity_name(*severity));
                }
            }
        }
    }
    if files.is_empty() {
        text += "nothing to check\n";
    }
    text
}

fn json(files: &[(String, CheckResult)], passed: bool) -> String {
    let finding = |CheckFinding { severity, path, sentence }: &CheckFinding| json!({"severity": severity_name(*severity), "path": path, "sentence": sentence});
    let files = files.iter().map(|(name, outcome)| {
        let findings: Value = outcome.iter().flatten().map(finding).collect();
        json!({"name": name, "unreadable": outcome.as_ref().err(), "findings": findings})
    });
    json!({"passed": passed, "files": files.collect::<Value>()}).to_string() + "\n"
}
