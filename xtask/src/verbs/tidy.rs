//! `cargo xtask tidy`: applies the rules of `crate::tidy` to the work tree and its commits.

use super::Verb;
use crate::arguments::{Arguments, OptionSpec};
use crate::step::{StepFailure, StepResult};
use crate::tidy::{TidyReport, WorkTree};

pub const VERB: Verb = Verb {
    name: "tidy",
    usage: "tidy [--places TERM] [--sentences] [--lower]",
    about: "checks the rules that a machine can check\n\n\
        `unsafe` only in its places and each with SAFETY; files of at most 500 lines with a header; no empty names, no\n\
        unfinished work, no disabled test; dependencies among the crates; a reason beside each dependency; every directory\n\
        in ARCHITECTURE.md's code map; no language named in the core; no path of a machine; banned words, repeated type\n\
        names and import cycles within the lists of xtask/src/tidy/counts; commits as `area: summary` of 72 characters\n\
        with a body.\n\
        --places TERM: lists each use of a banned word or type name. --sentences: lists the sentences above 30 words in the\n\
        documents. --lower: writes the counts that fell and the cycles that shrank.",
    options: &[OptionSpec::Value("places"), OptionSpec::Switch("sentences"), OptionSpec::Switch("lower")],
    run: execute,
};

fn execute(given: &Arguments) -> StepResult {
    if let Some(term) = given.text("places") {
        WorkTree::read()?.places(term).into_iter().for_each(|(path, line)| println!("{path}:{line}"));
        return Ok(());
    }
    if given.has("lower") {
        WorkTree::read()?.lower_counts()?;
    }
    let report = WorkTree::read()?.check()?;
    if given.has("sentences") {
        for sentence in &report.long_sentences {
            println!("{}:{}: {} words: {} …", sentence.path, sentence.line, sentence.words, sentence.start);
        }
    }
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
    if !report.long_sentences.is_empty() {
        println!(
            "warning: {} sentences above 30 words in the documents; `cargo xtask tidy --sentences` lists them",
            report.long_sentences.len()
        );
    }
    let severity = if is_published { "warning: " } else { "" };
    report.violations.iter().for_each(|violation| println!("{violation}"));
    report.commits.iter().for_each(|violation| println!("{severity}{violation}"));
    match report.violations.len() + if is_published { 0 } else { report.commits.len() } {
        0 => Ok(()),
        count => Err(StepFailure::new("tidy", format!("{count} violations above"))),
    }
}
