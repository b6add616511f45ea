//! Python: CPython interpreters, the wheel, pytest.

mod bench;
pub mod debian;
mod documents;
mod live;
pub mod package;
mod record;
mod suite;

use std::path::PathBuf;

use super::{BenchRunner, Benchmark, Packages, Tool, Toolchain, Versions};
pub(crate) use crate::interpreters as runtimes;
pub use crate::venv::Venv;

use crate::arguments::{LiveArguments, RuntimeArguments};
use crate::step::StepResult;
use crate::tally::Tally;

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
        let versions: Vec<_> = runtimes::oldest_and_newest()?.iter().map(runtimes::Python::full).collect();
        Ok(Some(format!("CPython {}", versions.join(" and "))))
    }

    fn crates(&self) -> &'static [&'static str] {
        &["spanprof-python"]
    }

    fn package(&self, packages: Packages) -> StepResult<PathBuf> {
        match packages {
            Packages::ForTests => package::build_for_tests(),
            Packages::Optimized => package::pack_for_demo(),
        }
    }

    fn install_from_source(&self) -> StepResult {
        package::from_source()
    }

    fn test(&self, versions: Versions, tally: &mut Tally) -> StepResult {
        suite::run(versions, tally)
    }

    fn conformance(&self, tally: &mut Tally) -> StepResult {
        suite::conformance(tally)
    }

    fn document_blocks(&self) -> StepResult {
        documents::run_blocks()
    }

    fn benchmarks(&self) -> &'static [Benchmark] {
        bench::ALL
    }

    fn prepare_benchmarks(&self, runtimes: &RuntimeArguments) -> StepResult<Box<dyn BenchRunner>> {
        Ok(Box::new(bench::PythonBench::prepare(&runtimes.python)?))
    }

    fn live(&self, arguments: &LiveArguments) -> StepResult {
        if arguments.record {
            record::run(arguments)
        } else {
            live::run(arguments)
        }
    }
}
