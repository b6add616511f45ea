//! Java: JDKs and Maven, the JAR, JUnit.

mod bench;
mod documents;
mod jar_modes;
pub mod live;
pub mod package;
mod record;
pub mod runtimes;
mod suite;

use std::path::{Path, PathBuf};

use super::{BenchRunner, Benchmark, FirstProgram, Packages, Tool, Toolchain, Versions};
use crate::arguments::{LiveArguments, RuntimeArguments};
use crate::step::{ProcessStep, StepResult};
use crate::tally::Tally;
use crate::{artifact, guides};

pub struct JavaToolchain;

impl Toolchain for JavaToolchain {
    fn name(&self) -> &'static str {
        "java"
    }

    fn title(&self) -> &'static str {
        "Java"
    }

    fn tools(&self) -> &'static [Tool] {
        &[Tool { program: "mvn", words: ["--version", "--quiet"], install: runtimes::INSTALL_HINT }]
    }

    fn installed_runtimes(&self) -> StepResult<Option<String>> {
        let versions: Vec<_> = runtimes::all()?.iter().map(|java| java.version.to_string()).collect();
        Ok(Some(format!("JDK {}", versions.join(" and "))))
    }

    fn crates(&self) -> &'static [&'static str] {
        &["spanprof-java", "spanprof-java-opener"]
    }

    fn package(&self, packages: Packages) -> StepResult<PathBuf> {
        match packages {
            Packages::ForTests => package::for_tests(),
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
        suite::junit(&["-Dtest=ConformanceTest,SurfaceTest"], tally)
    }

    fn document_blocks(&self) -> StepResult {
        let jar = package::for_tests()?;
        documents::compile_blocks(&jar)?;
        let java = runtimes::preferred()?.home.join("bin");
        let command = artifact::command_line()?.parent().map(Path::to_path_buf).unwrap_or_default();
        guides::run("java", &[java, command], |directory| {
            artifact::copy(&jar, &directory.join(package::file_name(".jar")))
        })
    }

    fn first_program(&self, _directory: &Path) -> StepResult<Option<FirstProgram>> {
        let jar = package::for_tests()?;
        let java = runtimes::preferred()?.home.join("bin/java");
        let step = ProcessStep::new("the first program in Java", java).arg("-cp").arg(&jar);
        Ok(Some(FirstProgram { tag: "java", file: "Checkout.java", step }))
    }

    fn benchmarks(&self) -> &'static [Benchmark] {
        bench::ALL
    }

    fn prepare_benchmarks(&self, runtimes: &RuntimeArguments) -> StepResult<Box<dyn BenchRunner>> {
        Ok(Box::new(bench::JavaBench::prepare(&runtimes.java)?))
    }

    fn live(&self, arguments: &LiveArguments) -> StepResult {
        if arguments.record {
            record::run(arguments)
        } else {
            live::run(arguments)
        }
    }
}
