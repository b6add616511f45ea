//! `cargo xtask tidy`: applies the rules of `crate::tidy` to the work tree and its commits.

use crate::step::{StepFailure, StepResult};
use crate::tidy::{TidyReport, WorkTree};

/// checks the rules that a machine can check
///
/// `unsafe` only in its places and each with SAFETY; files of at most 500 lines with a header; no empty names, no
/// unfinished work, no disabled test; dependencies among the crates; a reason beside each dependency; every directory
/// in ARCHITECTURE.md's code map; no language named in the core; no path of a machine; repeated type names
/// and import cycles within the lists of xtask/src/tidy/counts; commits as `area: summary` of 72 characters
/// with a body.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct TidyArguments {
    /// lists each declaration of a type name
    #[arg(long, value_name = "NAME")]
    places: Option<String>,
    /// writes the counts that fell and the cycles that shrank
    #[arg(long)]
    lower: bool,
}

pub fn execute(given: &TidyArguments) -> StepResult {
    if let Some(term) = &given.places {
        WorkTree::read()?.places(term).into_iter().for_each(|(path, line)| println!("{path}:{line}"));
        return Ok(());
    }
    if given.lower {
        WorkTree::read()?.lower_counts()?;
    }
    let report = WorkTree::read()?.check()?;
    conclude(&report, false)
}

/// Prints notices and violations; fails when there is a violation.
pub fn run() -> StepResult {
    conclude(&WorkTree::read()?.check()?, false)
}

/// As [`run`], for published commits: their messages are warnings.
pub fn run_on_published() -> StepResult {
    conclude(&WorkTree::read()?.check()?, true)
}

fn conclude(report: &TidyReport, is_published: bool) -> StepResult {
    println!("── tidy");
    report.notices.iter().for_each(|notice| println!("note: {notice}"));
    if !report.notices.is_empty() {
        println!("note: `cargo xtask tidy --lower` writes these counts");
    }
    let severity = if is_published { "warning: " } else { "" };
    report.violations.iter().for_each(|violation| println!("{violation}"));
    report.commits.iter().for_each(|violation| println!("{severity}{violation}"));
    match report.violations.len() + if is_published { 0 } else { report.commits.len() } {
        0 => Ok(()),
        count => Err(StepFailure::new("tidy", format!("{count} violations above"))),
    }
}
