//! `cargo xtask conformance`: runs the cases of core/conformance through every language's runner.

use crate::languages;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;

/// the same cases through every language's runner
///
/// Cases are YAML files in core/conformance/cases: configuration, scripted stacks and labels, and the
/// expected profiles. Without a name, every language runs.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct ConformanceArguments {
    /// rust, python, node or java
    names: Vec<String>,
}

pub fn run(arguments: &ConformanceArguments) -> StepResult {
    let all: Vec<&str> = std::iter::once("rust").chain(languages::ALL.iter().map(|language| language.name())).collect();
    let names =
        if arguments.names.is_empty() { all.clone() } else { arguments.names.iter().map(String::as_str).collect() };
    let mut tally = Tally::default();
    for name in names {
        let passed_before = tally.passed;
        match languages::ALL.iter().find(|language| language.name() == name) {
            Some(language) => language.conformance(&mut tally)?,
            None if name == "rust" => rust(&mut tally)?,
            None => {
                let message = format!("no runner for `{name}`; the runners are: {}", all.join(", "));
                return Err(StepFailure::new("conformance", message));
            }
        }
        if tally.passed == passed_before {
            return Err(StepFailure::new("conformance", format!("the {name} runner ran no case")));
        }
    }
    println!("{tally}");
    match tally.failed {
        0 => Ok(()),
        failed => Err(StepFailure::new("conformance", format!("{failed} failed; each is named above"))),
    }
}

fn rust(tally: &mut Tally) -> StepResult {
    ProcessStep::cargo("conformance in Rust")
        .args(["test", "-p", "spanprof", "--", "conformance"])
        .run_with_lines(|line| tally.read(line))
}
