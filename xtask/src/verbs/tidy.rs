//! `cargo xtask tidy`: applies the rules of `crate::tidy` to the work tree and its commits.

use crate::step::{StepFailure, StepResult};
use crate::tidy::{TidyReport, WorkTree};

/// Prints violations; fails when there is a violation.
pub fn run() -> StepResult {
    conclude(&WorkTree::read()?.check()?, false)
}

/// As [`run`], for published commits: their messages are warnings.
pub fn run_on_published() -> StepResult {
    conclude(&WorkTree::read()?.check()?, true)
}

fn conclude(report: &TidyReport, is_published: bool) -> StepResult {
    println!("── tidy");
    let severity = if is_published { "warning: " } else { "" };
    report.violations.iter().for_each(|violation| println!("{violation}"));
    report.commits.iter().for_each(|violation| println!("{severity}{violation}"));
    match report.violations.len() + if is_published { 0 } else { report.commits.len() } {
        0 => Ok(()),
        count => Err(StepFailure::new("tidy", format!("{count} violations above"))),
    }
}
