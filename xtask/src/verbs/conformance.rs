//! `cargo xtask conformance`: runs the cases of core/conformance through every language's runner.

use super::Verb;
use crate::arguments::Arguments;
use crate::languages::{java, node, python};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;

pub const VERB: Verb = Verb {
    name: "conformance",
    usage: "conformance [rust|python|node|java]",
    about: "the same cases through every language's runner\n\n\
        Cases are YAML files in core/conformance/cases: configuration, scripted stacks and labels, and the\n\
        expected profiles. Without a name, every language runs.",
    options: &[],
    run,
};

const ALL: [&str; 4] = ["rust", "python", "node", "java"];

fn run(given: &Arguments) -> StepResult {
    let names = if given.names.is_empty() { ALL.map(str::to_owned).to_vec() } else { given.names.clone() };
    let mut tally = Tally::default();
    for name in &names {
        let before = tally;
        match name.as_str() {
            "rust" => rust(&mut tally)?,
            "python" => {
                let wheel = python::package::build_for_tests()?;
                for python in python::runtimes::oldest_and_newest()? {
                    let venv = python::suite::environment(&python, &wheel)?;
                    python::suite::pytest(&venv, &python, &["-k", "conformance"], &mut tally)?;
                }
            }
            "node" => node::suite::files(&|file| file.contains("conformance"), &mut tally)?,
            "java" => java::suite::junit(&["-Dtest=ConformanceTest,SurfaceTest"], &mut tally)?,
            other => {
                let message = format!("no runner for `{other}`; the runners are: {}", ALL.join(", "));
                return Err(StepFailure::new("conformance", message));
            }
        }
        if tally.passed == before.passed {
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
