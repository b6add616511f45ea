//! `cargo xtask test`: the checks of CI, complete. Continues after a failed step, so that one run shows every failure, and ends
//! with the sums of the runners. A failed test gets a second attempt (`second_attempt`).

use std::process::Command;
use std::time::Instant;

use super::live::{contention, faults, platforms};
use super::{check, demo, docs, release, tidy};
use crate::deadline::at_most;
use crate::languages::{self, python, Packages, Tool, Toolchain, Versions};
use crate::second_attempt::{self, FailedTests, UNSTABLE_LIMIT};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;
use crate::{artifact, book, documents, first_results, parallel, progress};

/// checks of CI: lints, tidy, tests in Rust, Python, Node.js, Java, Chromium, demo; 50 min on 2 cores
///
/// The documents' code blocks, the CPU cells of `live contention` beside busy processes, a sample of `live faults`, and a first program on
/// arm64 in emulation and one with musl run too; Rust's standard libraries for these are added by rustup. The suites run on the newest
/// CPython, the Node.js on PATH and the oldest JDK from 17 on; the tests that depend on the version also on the oldest CPython, a newer
/// Node.js and the other JDKs. Ends with one line: N passed, N failed.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct TestArguments {
    /// length of the demo at its end, in seconds
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// runs the complete suites on each version of Python, Node.js and Java, with an older Node.js and Java 21 from PyPI
    #[arg(long)]
    every_version: bool,
}

impl TestArguments {
    fn versions(&self) -> Versions {
        if self.every_version {
            Versions::Complete
        } else {
            Versions::Dependent
        }
    }
}

pub fn run(arguments: &TestArguments) -> StepResult {
    at_most(0);
    toolchain()?;
    let mut tests = Tests::default();
    tests.part("rustfmt", |_| check::format());
    tests.part("clippy", |_| check::clippy());
    tests.part("tidy", |_| tidy::run_on_published());
    tests.part("links", |_| documents::check_links());
    tests.part("site", |_| book::build());
    tests.part("rustdoc", |_| docs::rustdoc());
    tests.part("Rust, build", |_| tests_in_rust("build the tests in Rust")?.arg("--no-run").run());
    tests.part("generated documents", |_| docs::generated(true));
    tests.part("loom", |tally| check::loom(None, tally));
    for language in languages::ALL {
        tests.part(&format!("{}, package", language.title()), |_| language.package(Packages::ForTests).map(drop));
    }
    let begun = Instant::now();
    for outcome in parallel::side_by_side(&TestLane::ALL, TestLane::title, |lane| Ok(lane.run(arguments.versions()))) {
        match outcome {
            Ok(lane) => tests.add(lane),
            Err(failure) => tests.tally.add_outcome(tests.tally.failed, Err(failure)),
        }
    }
    tests.durations.push(format!("{:>6} s  these side by side", begun.elapsed().as_secs()));
    tests.part("platforms", |_| platforms::short());
    tests.part("contention", |_| contention::short());
    tests.part("faults", |_| faults::short());
    tests.part("first results", |_| first_results::run());
    tests.part("demo", |_| {
        demo::show(&demo::DEFAULT, Some(arguments.seconds), &demo::Ports::free()?, Packages::ForTests, None)
    });
    tests.end()
}

/// Results and durations of parts.
#[derive(Default)]
struct Tests {
    tally: Tally,
    durations: Vec<String>,
}

impl Tests {
    fn part(&mut self, name: &str, work: impl FnOnce(&mut Tally) -> StepResult) {
        let (failed_before, begun) = (self.tally.failed, Instant::now());
        let outcome = work(&mut self.tally);
        self.tally.add_outcome(failed_before, outcome);
        self.durations.push(format!("{:>6} s  {name}", begun.elapsed().as_secs()));
    }

    fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.durations.extend(other.durations);
    }

    /// Prints the sums.
    fn end(self) -> StepResult {
        let Self { mut tally, durations } = self;
        progress::print(&format!("duration of each part\n{}", durations.join("\n")));
        if !tally.named.is_empty() {
            // The rest of the output is long, and its beginning may be lost.
            progress::print(&format!(
                "failures, and tests that passed at the second attempt only:\n{}",
                tally.named.join("\n")
            ));
        }
        if tally.unstable > UNSTABLE_LIMIT {
            tally.failed += tally.unstable;
            tally.passed -= tally.unstable;
        }
        progress::print(&tally.to_string());
        match tally.failed {
            0 => Ok(()),
            failed => Err(StepFailure::new("sum", format!("{failed} failed; each is named above"))),
        }
    }
}

/// Parts that run one after the other, beside those of other lanes: most tests wait, for timers, child processes and windows.
enum TestLane {
    Rust,
    Language(&'static dyn Toolchain),
}

impl TestLane {
    const ALL: [Self; 4] = [
        Self::Language(languages::ALL[0]),
        Self::Language(languages::ALL[1]),
        Self::Language(languages::ALL[2]),
        Self::Rust,
    ];

    fn title(&self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Language(language) => language.title(),
        }
    }

    fn run(&self, versions: Versions) -> Tests {
        let mut tests = Tests::default();
        let mut part = |name: &str, work: &dyn Fn(&mut Tally) -> StepResult| {
            tests.part(&format!("{}, {name}", self.title()), work);
        };
        match self {
            Self::Rust => {
                part("tests", &rust);
                give_way_to_tests();
                part("from source", &|_| release::sources::rust());
            }
            Self::Language(language) => {
                part("tests", &|tally| language.test(versions, tally));
                part("documents", &|_| language.document_blocks());
                give_way_to_tests();
                // Last, since npm links the work tree: its module replaces the one for tests.
                part("from source", &|_| language.install_from_source());
            }
        }
        progress::print(&tests.tally.to_string());
        tests
    }
}

/// Lowers the priority of this thread and the processes that it will start. They compile, beside tests of other lanes that wait
/// for timers.
fn give_way_to_tests() {
    if let Err(error) = rustix::process::nice(10) {
        eprintln!("cannot lower the priority: {error}");
    }
}

/// Fails before the first build when a tool is missing, with the command that installs it.
fn toolchain() -> StepResult {
    let own = [
        Tool { program: "cargo", words: ["fmt", "--version"], install: "rustup component add rustfmt" },
        Tool { program: "cargo", words: ["clippy", "--version"], install: "rustup component add clippy" },
        Tool { program: "git", words: ["--version", "--build-options"], install: "apt-get install git" },
        Tool { program: "cc", words: ["--version", "-v"], install: "apt-get install gcc libc6-dev" },
    ];
    for Tool { program, words, install } in
        own.iter().chain(languages::ALL.iter().flat_map(|language| language.tools()))
    {
        let is_installed = Command::new(program).args(words).output().is_ok_and(|output| output.status.success());
        if !is_installed {
            let message = format!("`{program} {}` failed", words[0]);
            return Err(StepFailure::new("toolchain", message).with_hint(*install));
        }
    }
    for language in languages::ALL {
        if let Some(list) = language.installed_runtimes()? {
            println!("{} tests will run on {list}", language.title());
        }
    }
    Ok(())
}

fn rust(tally: &mut Tally) -> StepResult {
    let (failed_before, mut failed) = (tally.failed, FailedTests::default());
    let outcome = tests_in_rust("tests in Rust")?.run_with_lines(|line| {
        tally.read(line);
        second_attempt::failed_in_cargo(line).into_iter().for_each(|name| failed.add(name.clone(), name));
    });
    second_attempt::of_failed(&failed, failed_before, tally, outcome, |names, second| {
        tests_in_rust("failed tests in Rust")?
            .args(["--", "--exact", "--test-threads=1"])
            .args(names)
            .run_with_lines(|line| second.read(line))
    })
}

fn tests_in_rust(name: &str) -> StepResult<ProcessStep> {
    let words = ["test", "--workspace", "--features", artifact::TEST_FEATURES, "--no-fail-fast"];
    let python = python::runtimes::preferred()?;
    Ok(ProcessStep::cargo(name).args(words).env("PYO3_PYTHON", python.program).time_limit(at_most(35)))
}
