//! The Node.js part of `cargo xtask test`: the package in the work tree with a module of the tests' profile, its
//! declarations, and its tests on an older, the present and a newer Node.js.

use std::path::{Path, PathBuf};

use super::addon;
use super::test::at_most;
use crate::nodes::{self, Node};
use crate::step::{Failure, Outcome, Step};
use crate::tally::Tally;
use crate::{scratch, workspace};

/// Everything; goes on after a failed Node.js, so that one run shows every failure.
pub fn run(tally: &mut Tally) -> Outcome {
    let package = prepared()?;
    let nodes = nodes::all()?;
    println!(
        "Node.js tests will run on {}",
        nodes.iter().map(|node| node.version.as_str()).collect::<Vec<_>>().join(", ")
    );
    declarations(&package)?;
    suites(&nodes, &package, &|_| true, tally);
    let packed = addon::pack_for_tests()?;
    let before = *tally;
    addon::first_run(&nodes, &packed)?;
    tally.passed = before.passed + nodes.len() as u64;
    Ok(())
}

/// The test files that a judge wants, on each Node.js.
pub fn files(wanted: &dyn Fn(&str) -> bool, tally: &mut Tally) -> Outcome {
    let package = prepared()?;
    suites(&nodes::all()?, &package, wanted, tally);
    match tally.failed {
        0 => Ok(()),
        failed => Err(Failure::new("tests in Node.js", format!("{failed} failed"))),
    }
}

/// The package in the work tree, with its module and what its tests need.
pub fn prepared() -> Outcome<PathBuf> {
    let package = addon::build_for_tests()?;
    let stamp = package.join("node_modules/.made-from");
    let lock = scratch::read(&package.join("package-lock.json"))?;
    if !scratch::read(&stamp).is_ok_and(|made_from| made_from == lock) {
        nodes::npm("what the tests in Node.js need")
            .args(["ci", "--ignore-scripts"])
            .inside(&package)
            .within(at_most(10))
            .run()?;
        scratch::write(&stamp, &lock)?;
    }
    Ok(package)
}

fn suites(nodes: &[Node], package: &Path, wanted: &dyn Fn(&str) -> bool, tally: &mut Tally) {
    for node in nodes {
        let before = *tally;
        let outcome = suite(node, package, wanted, tally);
        tally.judge(before, outcome);
    }
}

/// The committed declarations are those that the sources make, and a user's program compiles against them.
fn declarations(package: &Path) -> Outcome {
    let compiler = package.join("node_modules/typescript/bin/tsc");
    let fresh = scratch::empty("node-types")?;
    let node = nodes::preferred()?.program;
    let compile = |name: &str| Step::new(name, &node).arg(&compiler);
    compile("declarations").args(["-p", "tsconfig.json", "--outDir"]).arg(&fresh).inside(package).run()?;
    compile("a program in TypeScript").args(["-p", "tests/tsconfig.json"]).inside(package).run()?;
    let name = "compare declarations";
    let names = |folder: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let committed = package.join("types");
    let differs = names(&fresh) != names(&committed)
        || names(&fresh)
            .iter()
            .any(|file| std::fs::read(fresh.join(file)).ok() != std::fs::read(committed.join(file)).ok());
    match differs {
        true => Err(Failure::new(name, "bindings-node/types differs from what lib makes")
            .with_way_out("npm run types, in bindings-node")),
        false => Ok(()),
    }
}

fn suite(node: &Node, package: &Path, wanted: &dyn Fn(&str) -> bool, tally: &mut Tally) -> Outcome {
    let files: Vec<String> = workspace::files()?
        .into_iter()
        .filter_map(|path| path.strip_prefix("bindings-node/").map(str::to_owned))
        .filter(|path| path.starts_with("tests/") && path.ends_with(".test.js") && wanted(path))
        .collect();
    let before = *tally;
    let mut suite = Suite::default();
    let outcome = Step::new(format!("tests on Node.js {}", node.version), &node.program)
        .args(["--test", "--test-reporter=tap"])
        .args(&files)
        .inside(package)
        .within(at_most(10))
        .run_reading(|line| suite.read(line));
    tally.passed += suite.passed;
    tally.failed += suite.failed;
    outcome?;
    match tally.passed > before.passed {
        true => Ok(()),
        false => Err(Failure::new("tests in Node.js", "no test ran")),
    }
}

/// The closing lines of Node's own runner.
#[derive(Debug, Default, PartialEq, Eq)]
struct Suite {
    passed: u64,
    failed: u64,
}

impl Suite {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_of_a_run_are_read() {
        let mut suite = Suite::default();
        for line in ["ok 1 - a", "# tests 5", "# pass 3", "# fail 1", "# cancelled 1", "# skipped 0"] {
            suite.read(line);
        }
        assert_eq!(suite, Suite { passed: 3, failed: 2 });
    }
}
