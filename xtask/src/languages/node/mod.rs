//! Node.js: binaries, the npm package, the tests of Node's own runner.

mod bench;
mod documents;
pub mod live;
pub mod package;
pub mod record;
pub mod runtimes;
pub mod suite;

use std::path::{Path, PathBuf};

use super::{BenchRunner, Benchmark, FirstProgram, Packages, Tool, Toolchain, Versions};
use crate::arguments::{LiveArguments, RuntimeArguments};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;
use crate::{artifact, guides, scratch};

pub struct NodeToolchain;

impl Toolchain for NodeToolchain {
    fn name(&self) -> &'static str {
        "node"
    }

    fn title(&self) -> &'static str {
        "Node.js"
    }

    fn tools(&self) -> &'static [Tool] {
        const INSTALL: &str = runtimes::INSTALL_HINT;
        &[
            Tool { program: "node", words: ["--version", "--no-warnings"], install: INSTALL },
            Tool { program: "npm", words: ["--version", "--silent"], install: INSTALL },
        ]
    }

    fn installed_runtimes(&self) -> StepResult<Option<String>> {
        runtimes::preferred()?;
        Ok(None)
    }

    fn crates(&self) -> &'static [&'static str] {
        &["spanprof-node"]
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
        let failed_before = tally.failed;
        let outcome = suite::run(versions, tally);
        tally.add_outcome(failed_before, outcome);
        // The page is tested by Node.js too; its browser leaves the processors to the other languages for much of its time.
        suite::page(&scratch::empty("page-screenshots")?, tally)
    }

    fn conformance(&self, tally: &mut Tally) -> StepResult {
        suite::files(&|file| file.contains("conformance"), tally)
    }

    fn document_blocks(&self) -> StepResult {
        let package = suite::prepared()?;
        documents::run_blocks(&package)?;
        let command = artifact::command_line()?.parent().map(Path::to_path_buf).unwrap_or_default();
        guides::run("node", &[command], |directory| link_package(&package, directory))
    }

    fn first_program(&self, directory: &Path) -> StepResult<Option<FirstProgram>> {
        link_package(&suite::prepared()?, directory)?;
        let step = ProcessStep::new("the first program in Node.js", runtimes::preferred()?.program);
        Ok(Some(FirstProgram { tag: "js", file: "checkout.js", step }))
    }

    fn benchmarks(&self) -> &'static [Benchmark] {
        bench::ALL
    }

    fn prepare_benchmarks(&self, runtimes: &RuntimeArguments) -> StepResult<Box<dyn BenchRunner>> {
        Ok(Box::new(bench::NodeBench::prepare(&runtimes.node)?))
    }

    fn live(&self, arguments: &LiveArguments) -> StepResult {
        if arguments.record {
            record::run(arguments)
        } else {
            live::run(arguments)
        }
    }
}

/// Makes the package loadable for programs in `directory`.
fn link_package(package: &Path, directory: &Path) -> StepResult {
    let modules = directory.join("node_modules");
    let linked =
        std::fs::create_dir(&modules).and_then(|()| std::os::unix::fs::symlink(package, modules.join("spanprof")));
    linked.map_err(|error| StepFailure::new("link the package", format!("{}: {error}", modules.display())))
}
