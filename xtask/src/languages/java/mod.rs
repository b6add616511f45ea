//! Java: JDKs and Maven, the JAR, JUnit.

pub mod bench;
pub mod live;
pub mod package;
pub mod runtimes;
mod suite;

use std::path::{Path, PathBuf};

use super::{FirstProgram, Packages, Tool, Toolchain};
use crate::step::{ProcessStep, StepResult};
use crate::tally::Tally;
use crate::verbs::Verb;

/// Java.
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
        let found: Vec<_> = runtimes::all()?.iter().map(|java| java.version.to_string()).collect();
        Ok(Some(format!("JDK {}", found.join(" and "))))
    }

    fn package_verb(&self) -> &'static Verb {
        &package::VERB
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

    fn test(&self, tally: &mut Tally) -> StepResult {
        suite::junit(&[], tally)
    }

    fn conformance(&self, tally: &mut Tally) -> StepResult {
        suite::junit(&["-Dtest=ConformanceTest,SurfaceTest"], tally)
    }

    fn first_program(&self, _directory: &Path) -> StepResult<Option<FirstProgram>> {
        let jar = package::for_tests()?;
        let java = runtimes::preferred()?.home.join("bin/java");
        let step = ProcessStep::new("the README in Java", java).arg("-cp").arg(&jar);
        Ok(Some(FirstProgram { tag: "java", file: "Checkout.java", step }))
    }
}
