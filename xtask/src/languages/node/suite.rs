//! The Node.js part of `cargo xtask test`: the package in the work tree with a module in the tests' profile, its
//! declarations, and its tests on the Node.js on PATH and a newer one.

use std::path::{Path, PathBuf};

use super::package;
use super::runtimes::{self, NodeJs};
use crate::deadline::at_most;
use crate::languages::Versions;
use crate::second_attempt::{self, FailedTests};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;
use crate::{artifact, git, progress, scratch, workspace};

/// Subjects whose outcome depends on the version of Node.js: V8's layouts, contexts, heap, workers, the event loop.
const OF_THE_VERSION: [&str; 18] = [
    "buffers",
    "bundles",
    "capture",
    "coexistence",
    "execve",
    "exits",
    "handler",
    "heap",
    "heap_peak",
    "locations",
    "names",
    "native_frames",
    "opentelemetry",
    "profile",
    "scopes",
    "servers",
    "waiting",
    "workers",
];

/// Node.js of the page's tests: puppeteer-core 25 needs 22.12 or later.
const PAGE_NODE_MAJOR: u32 = 24;

/// Runs everything; continues after a failure, so that one run shows every failure. The older Node.js is left out unless every version
/// is tested.
pub fn run(versions: Versions, tally: &mut Tally) -> StepResult {
    let package = prepared()?;
    let preferred = runtimes::preferred()?;
    let nodes = match versions {
        Versions::Complete => runtimes::all()?,
        Versions::Dependent => runtimes::preferred_and_newer()?,
    };
    let list: Vec<_> = nodes.iter().map(|node| node.version.as_str()).collect();
    progress::print(&format!("Node.js tests will run on {}", list.join(", ")));
    declarations(&package)?;
    for node in &nodes {
        let is_complete = versions == Versions::Complete || node.version == preferred.version;
        suites(std::slice::from_ref(node), &package, &|file| is_complete || depends_on_version(file), tally);
    }
    let packed = package::pack_for_tests()?;
    package::first_run(&nodes, &packed)?;
    tally.passed += nodes.len() as u64;
    Ok(())
}

/// Whether the outcome of a test file depends on the version of Node.js. The others test options, files, delivery and frameworks.
fn depends_on_version(file: &str) -> bool {
    let subject = file.trim_start_matches("tests/").trim_end_matches(".test.js");
    OF_THE_VERSION.contains(&subject)
}

/// Runs the test files that `is_selected` accepts, on each Node.js.
pub fn files(is_selected: &dyn Fn(&str) -> bool, tally: &mut Tally) -> StepResult {
    let package = prepared()?;
    suites(&runtimes::all()?, &package, is_selected, tally);
    match tally.failed {
        0 => Ok(()),
        failed => Err(StepFailure::new("tests in Node.js", format!("{failed} failed"))),
    }
}

/// The package in the work tree, with its module and the dependencies of its tests.
pub fn prepared() -> StepResult<PathBuf> {
    let package = package::build_for_tests()?;
    runtimes::install_locked("dependencies of the tests in Node.js", &package)?;
    Ok(package)
}

fn suites(nodes: &[NodeJs], package: &Path, is_selected: &dyn Fn(&str) -> bool, tally: &mut Tally) {
    for node in nodes {
        let failed_before = tally.failed;
        let outcome = suite(node, package, is_selected, tally);
        tally.add_outcome(failed_before, outcome);
    }
}

/// Checks that the committed declarations equal those generated from the sources, and that a program compiles against them.
fn declarations(package: &Path) -> StepResult {
    let fresh = scratch::empty("node-types")?;
    let node = runtimes::preferred()?.program;
    let run = |name: &str| ProcessStep::new(name, &node).in_directory(package);
    run("declarations").arg("types.mjs").arg(&fresh).run()?;
    let compiler = "node_modules/typescript/bin/tsc";
    run("a program in TypeScript").args([compiler, "-p", "tests/tsconfig.json"]).run()?;
    let name = "compare declarations";
    let names = |directory: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let committed = package.join("types");
    let differs = names(&fresh) != names(&committed)
        || names(&fresh)
            .iter()
            .any(|file| std::fs::read(fresh.join(file)).ok() != std::fs::read(committed.join(file)).ok());
    if differs {
        let failure = StepFailure::new(name, "bindings-node/types differs from the declarations of lib");
        return Err(failure.with_hint("npm run types, in bindings-node"));
    }
    Ok(())
}

fn suite(node: &NodeJs, package: &Path, is_selected: &dyn Fn(&str) -> bool, tally: &mut Tally) -> StepResult {
    let files: Vec<String> = git::files()?
        .into_iter()
        .filter_map(|path| path.strip_prefix("bindings-node/").map(str::to_owned))
        .filter(|path| path.starts_with("tests/") && path.ends_with(".test.js") && is_selected(path))
        .collect();
    let tests = |name: String, files: &[String]| {
        ProcessStep::new(name, &node.program)
            .args(["--test", "--test-reporter=tap"])
            .args(files)
            .in_directory(package)
            .time_limit(at_most(20))
    };
    counted(&format!("tests on Node.js {}", node.version), tests, &files, tally)
}

/// The tests of the page of `serve` in a browser, in one process, so that they share a server and a browser. Each leaves a
/// screenshot.
pub fn page(screenshots: &Path, tally: &mut Tally) -> StepResult {
    let directory = workspace::root().join("xtask/live/page");
    runtimes::install_locked("dependencies of the page's tests", &directory)?;
    let program = artifact::command_line()?;
    println!("each test of the page leaves a screenshot in {}", screenshots.display());
    for node in runtimes::chosen(&[PAGE_NODE_MAJOR])? {
        let tests = |name: String, files: &[String]| {
            ProcessStep::new(name, &node.program)
                .args(["--test", "--test-isolation=none", "--test-reporter=tap"])
                .args(files)
                .env("SPANPROF", &program)
                .env("SCREENSHOTS", screenshots)
                .in_directory(&directory)
                .time_limit(at_most(20))
        };
        counted("tests of the page", tests, &[], tally)?;
    }
    Ok(())
}

/// Counts the tests of `files`, or all of the directory; those that fail get a second attempt.
fn counted(
    name: &str,
    tests: impl Fn(String, &[String]) -> ProcessStep,
    files: &[String],
    tally: &mut Tally,
) -> StepResult {
    let (passed_before, failed_before, mut suite) = (tally.passed, tally.failed, TapOutput::default());
    let outcome = tests(name.to_owned(), files).run_with_lines(|line| suite.read(line));
    tally.passed += suite.passed;
    tally.failed += suite.failed;
    second_attempt::of_failed(&suite.failed_files, failed_before, tally, outcome, |files, second| {
        let mut suite = TapOutput::default();
        let outcome = tests(format!("failed {name}"), files).run_with_lines(|line| suite.read(line));
        *second = Tally { passed: suite.passed, failed: suite.failed, ..Tally::default() };
        outcome
    })?;
    if tally.passed > passed_before {
        Ok(())
    } else {
        Err(StepFailure::new(name, "no test ran"))
    }
}

/// The output of Node's test runner: the counts of its closing lines, and the files of failed tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct TapOutput {
    passed: u64,
    failed: u64,
    failed_files: FailedTests,
    /// The last test, which failed; its file follows.
    failed_test: Option<String>,
}

impl TapOutput {
    fn read(&mut self, line: &str) {
        let number = |rest: &str| rest.trim().parse::<u64>().unwrap_or_default();
        if let Some(rest) = line.strip_prefix("# pass ") {
            self.passed += number(rest);
        }
        for word in ["# fail ", "# cancelled "] {
            if let Some(rest) = line.strip_prefix(word) {
                self.failed += number(rest);
            }
        }
        let line = line.trim_start();
        if let Some(test) = line.strip_prefix("not ok ") {
            self.failed_test = Some(test.to_owned());
        } else if let Some((file, _)) = line.strip_prefix("location: '").and_then(|rest| rest.split_once(':')) {
            if let Some(test) = self.failed_test.take() {
                self.failed_files.add(file.to_owned(), format!("{test} ({file})"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_files_of_failed_tests_are_read() {
        let mut suite = TapOutput::default();
        for line in [
            "ok 1 - a",
            "  location: '/tests/a.test.js:1:1'",
            "    not ok 1 - inner",
            "      location: '/tests/b.test.js:4:32'",
            "not ok 2 - outer",
            "  location: '/tests/b.test.js:4:1'",
            "# tests 5",
            "# pass 3",
            "# fail 1",
            "# cancelled 1",
            "# skipped 0",
        ] {
            suite.read(line);
        }
        assert_eq!((suite.passed, suite.failed), (3, 2));
        assert_eq!(
            suite.failed_files,
            FailedTests {
                names: vec!["/tests/b.test.js".to_owned()],
                lines: ["1 - inner (/tests/b.test.js)", "2 - outer (/tests/b.test.js)"].map(str::to_owned).to_vec(),
            }
        );
    }

    #[test]
    fn each_subject_that_depends_on_the_version_has_a_test_file() {
        let directory = workspace::root().join("bindings-node/tests");
        for subject in OF_THE_VERSION {
            assert!(directory.join(format!("{subject}.test.js")).is_file(), "{subject}");
        }
        assert!(depends_on_version("tests/heap.test.js") && !depends_on_version("tests/web.test.js"));
    }
}
