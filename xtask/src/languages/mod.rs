//! The languages with a binding, behind one trait. The directory of a language has the modules `runtimes` (find and install
//! them), `package`, `suite`, `bench` and `live`. Called by the verbs.

pub mod java;
pub mod node;
pub mod python;

use std::path::{Path, PathBuf};

use crate::arguments::{LiveArguments, RuntimeArguments};
use crate::step::{ProcessStep, StepResult};
use crate::tally::Tally;

/// Every language, in the order of the tests.
pub const ALL: [&dyn Toolchain; 3] = [&python::PythonToolchain, &node::NodeToolchain, &java::JavaToolchain];

/// A language with a binding: the actions of the verbs.
pub trait Toolchain: Sync {
    /// Name on the command line: its runner in `conformance`, its suite in `live`, its benchmarks in `bench`, and the option
    /// of `live` and `bench` that selects runtimes.
    fn name(&self) -> &'static str;

    /// Name in messages.
    fn title(&self) -> &'static str;

    /// Programs on PATH that the tests need.
    fn tools(&self) -> &'static [Tool];

    /// Lists the installed runtimes of the tests; fails with a hint when there is none. `None`: the tests print their list,
    /// after they have installed more versions.
    fn installed_runtimes(&self) -> StepResult<Option<String>>;

    /// Crates with the native libraries of the package.
    fn crates(&self) -> &'static [&'static str];

    /// Builds the package for tests or the demo; for the demo, the libraries of [`Toolchain::crates`] are built before.
    fn package(&self, packages: Packages) -> StepResult<PathBuf>;

    /// Installs the package from source as its users do, and runs it once.
    fn install_from_source(&self) -> StepResult;

    /// Runs the suite; continues after a failure, so that one run shows every failure.
    fn test(&self, versions: Versions, tally: &mut Tally) -> StepResult;

    /// Runs the cases of core/conformance.
    fn conformance(&self, tally: &mut Tally) -> StepResult;

    /// Runs the code blocks of the documents.
    fn document_blocks(&self) -> StepResult;

    /// The README's first program, to be run in `directory`; none where [`Toolchain::document_blocks`] runs it.
    fn first_program(&self, _directory: &Path) -> StepResult<Option<FirstProgram>> {
        Ok(None)
    }

    /// Benchmarks beside other profilers.
    fn benchmarks(&self) -> &'static [Benchmark];

    /// Builds the release package and installs the other profilers; for these runtimes, or the default ones.
    fn prepare_benchmarks(&self, runtimes: &RuntimeArguments) -> StepResult<Box<dyn BenchRunner>>;

    /// Runs the live suite.
    fn live(&self, arguments: &LiveArguments) -> StepResult;
}

/// A program on PATH.
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// Arguments with which it succeeds, without effects.
    pub words: [&'static str; 2],
    /// How to install it.
    pub install: &'static str,
}

/// Which tests run on the versions of a runtime beside the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Those whose outcome depends on the version: stack walks, contexts, heap, locks, waits.
    Dependent,
    /// All.
    Complete,
}

/// Which packages services run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packages {
    /// Those of the workspace's tests, which a test run has built already.
    ForTests,
    /// Optimized without link-time optimization, which takes minutes; for this machine only.
    Optimized,
}

/// The first program of the README in one language.
pub struct FirstProgram {
    /// Tag of its code block.
    pub tag: &'static str,
    /// File for the code.
    pub file: &'static str,
    /// Runs it; lacks the argument with the file.
    pub step: ProcessStep,
}

/// A benchmark of a language: a script of xtask/bench/every-language measures programs, one for each row.
pub struct Benchmark {
    /// Name on the command line.
    pub name: &'static str,
    /// Heading in RESULTS.md.
    pub heading: &'static str,
    /// The script, without `.py`.
    pub script: &'static str,
    /// The program, in the directory of the language.
    pub program: &'static str,
    /// Names of the rows, and arguments of the program.
    pub rows: &'static [&'static str],
}

/// A row of a benchmark, and the command of its program.
pub type BenchRow = (String, Vec<String>);

/// Prepared inputs of the benchmarks of a language.
pub trait BenchRunner {
    /// Measured versions.
    fn runtime(&self) -> String;

    /// The rows of a benchmark; those of `figures` once for each version.
    fn rows(&self, benchmark: &Benchmark) -> StepResult<Vec<BenchRow>>;
}
