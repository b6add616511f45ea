//! `cargo xtask test`: the checks of CI, complete. Continues after a failed step, so that one run shows every failure, and ends
//! with the sums of the runners. A failed test gets a second attempt (`second_attempt`).

use std::process::Command;
use std::time::Instant;

use super::live::contention;
use super::{check, demo, docs, release, tidy};
use crate::deadline::at_most;
use crate::languages::{self, python, Packages, Tool, Toolchain, Versions};
use crate::second_attempt::{self, FailedTests, UNSTABLE_LIMIT};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;
use crate::{artifact, book, documents, first_results, parallel, progress};

/// checks of CI: lints, tidy, tests in Rust, Python, Node.js, Java, Chromium, demo; 40 min on 2 cores
///
/// The documents' code blocks and the CPU cells of `live contention` beside busy processes run too. The suites run on the newest
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

pub fn run(given: &TestArguments) -> StepResult {
    at_most(0);
    toolchain()?;
    let mut tally = Tally::default();
    let mut durations = Vec::new();
    let mut step = |name: &str, work: &mut dyn FnMut(&mut Tally) -> StepResult| {
        let (failed_before, begun) = (tally.failed, Instant::now());
        let outcome = work(&mut tally);
        tally.add_outcome(failed_before, outcome);
        durations.push(format!("{:>6} s  {name}", begun.elapsed().as_secs()));
    };
    step("rustfmt", &mut |_| check::format());
    step("clippy", &mut |_| check::clippy());
    step("tidy", &mut |_| tidy::run_on_published());
    step("links", &mut |_| documents::check_links());
    step("site", &mut |_| book::build());
    step("rustdoc", &mut |_| docs::rustdoc());
    step("Rust", &mut rust);
    step("generated documents", &mut |_| docs::generated(true));
    step("loom", &mut |tally| check::loom(None, tally));
    for language in languages::ALL {
        step(&format!("{}, package", language.title()), &mut |_| language.package(Packages::ForTests).map(drop));
    }
    step("languages side by side", &mut |tally| {
        side_by_side(tally, |language, own| language.test(given.versions(), own))
    });
    step("documents side by side", &mut |tally| side_by_side(tally, |language, _| language.document_blocks()));
    // Last, since npm links the work tree: its module replaces the one for tests.
    for language in languages::ALL {
        step(&format!("{}, from source", language.title()), &mut |_| language.install_from_source());
    }
    step("Rust, from source", &mut |_| release::sources::rust());
    step("contention", &mut |_| contention::short());
    step("first results", &mut |_| first_results::run());
    step("demo", &mut |_| {
        demo::show(&demo::DEFAULT, Some(given.seconds), &demo::Ports::free()?, Packages::ForTests, None)
    });
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

/// Does `work` for all languages at the same time: most of it waits, for timers, child processes and windows.
fn side_by_side(tally: &mut Tally, work: impl Fn(&dyn Toolchain, &mut Tally) -> StepResult + Sync) -> StepResult {
    let of_language = |language: &&dyn Toolchain| {
        let (mut own, begun) = (Tally::default(), Instant::now());
        let outcome = work(*language, &mut own);
        own.add_outcome(0, outcome);
        progress::print(&format!("{}: {} s, {own}", language.title(), begun.elapsed().as_secs()));
        Ok(own)
    };
    for outcome in parallel::side_by_side(&languages::ALL, |language| language.title(), of_language) {
        match outcome {
            Ok(own) => tally.add(own),
            Err(failure) => tally.add_outcome(tally.failed, Err(failure)),
        }
    }
    Ok(())
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
        let found = Command::new(program).args(words).output().is_ok_and(|output| output.status.success());
        if !found {
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
    let tests = |name: &str| {
        let python = python::runtimes::preferred()?;
        let words = ["test", "--workspace", "--features", artifact::TEST_FEATURES, "--no-fail-fast"];
        Ok(ProcessStep::cargo(name).args(words).env("PYO3_PYTHON", python.program).time_limit(at_most(35)))
    };
    let (failed_before, mut failed) = (tally.failed, FailedTests::default());
    let outcome = tests("tests in Rust")?.run_with_lines(|line| {
        tally.read(line);
        second_attempt::failed_in_cargo(line).into_iter().for_each(|name| failed.add(name.clone(), name));
    });
    second_attempt::of_failed(&failed, failed_before, tally, outcome, |names, second| {
        tests("failed tests in Rust")?
            .args(["--", "--exact", "--test-threads=1"])
            .args(names)
            .run_with_lines(|line| second.read(line))
    })
}
