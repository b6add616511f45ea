//! Python: CPython interpreters, the wheel, pytest.

pub mod bench;
pub mod debian;
mod documents;
pub mod live;
pub mod package;
pub mod runtimes;
mod suite;
mod venv;

use std::path::PathBuf;

pub use venv::Venv;

use super::{Packages, Tool, Toolchain};
use crate::step::StepResult;
use crate::tally::Tally;
use crate::verbs::Verb;

/// Python.
pub struct PythonToolchain;

impl Toolchain for PythonToolchain {
    fn name(&self) -> &'static str {
        "python"
    }

    fn title(&self) -> &'static str {
        "Python"
    }

    fn tools(&self) -> &'static [Tool] {
        &[]
    }

    fn installed_runtimes(&self) -> StepResult<Option<String>> {
        let found: Vec<_> = runtimes::oldest_and_newest()?.iter().map(runtimes::Python::full).collect();
        Ok(Some(format!("CPython {}", found.join(" and "))))
    }

    fn package_verb(&self) -> &'static Verb {
        &package::VERB
    }

    fn crates(&self) -> &'static [&'static str] {
        &[]
    }

    fn package(&self, packages: Packages) -> StepResult<PathBuf> {
        match packages {
            Packages::ForTests => package::build_for_tests(),
            Packages::Optimized => package::build_for_demo(),
        }
    }

    fn test(&self, tally: &mut Tally) -> StepResult {
        suite::run(tally)
    }

    fn conformance(&self, tally: &mut Tally) -> StepResult {
        suite::conformance(tally)
    }

    fn document_blocks(&self) -> StepResult {
        documents::run_blocks()
    }
}
