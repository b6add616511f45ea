//! `cargo xtask test`: what CI runs, all of it, and nothing that CI does not run. Goes on after a failed step, so that one
//! run shows every failure, and ends with the sums of the runners.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{check, demo, docs, jar, node_tests, tidy, wheel, Verb};
use crate::arguments::{Arguments, Known};
use crate::pythons::{self, Python};
use crate::step::{Failure, Outcome, Step};
use crate::tally::Tally;
use crate::venv::Venv;

pub const VERB: Verb = Verb {
    name: "test",
    usage: "test [--seconds N]",
    about: "what CI runs: lints, tidy, tests in Rust, Python, Node.js and Java, the demo; 40 minutes on 2 cores\n\n\
        The documents' Python blocks run too. --seconds N: length of the demo at its end (default 15). Python tests run on\n\
        the oldest and the newest CPython found, Java tests on every JDK from 17 on. Ends with one line: N passed, N failed.",
    options: &[Known::Value("seconds")],
    run,
};

/// All steps together: beyond this, what runs is ended and what remains fails at once, so that the sums are printed.
const WHOLE: Duration = Duration::from_secs(75 * 60);

/// What a step may take: so many minutes, and no more than is left of the whole.
pub fn at_most(minutes: u64) -> Duration {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let left = WHOLE.saturating_sub(BEGUN.get_or_init(Instant::now).elapsed());
    left.min(Duration::from_secs(minutes * 60))
}

fn run(given: &Arguments) -> Outcome {
    at_most(0);
    let seconds = given.number("seconds")?.unwrap_or(15);
    toolchain()?;
    let mut tally = Tally::default();
    let mut step = |work: &mut dyn FnMut(&mut Tally) -> Outcome| {
        let before = tally;
        let outcome = work(&mut tally);
        tally.judge(before, outcome);
    };
    step(&mut |_| check::format());
    step(&mut |_| check::clippy());
    step(&mut |_| tidy::run());
    step(&mut |_| docs::links());
    step(&mut rust);
    step(&mut rust_features);
    step(&mut |_| docs::generated(true));
    step(&mut |tally| check::loom(None, tally));
    step(&mut |tally| {
        let wheel = wheel::build_for_tests()?;
        pythons::oldest_and_newest()?.iter().try_for_each(|python| {
            let before = *tally;
            let outcome = environment(python, &wheel).and_then(|venv| pytest(&venv, python, &[], tally));
            tally.judge(before, outcome);
            Ok(())
        })?;
        // Each interpreter has a layout of its own.
        pythons::all()?.iter().try_for_each(|python| {
            let before = *tally;
            let outcome = runtime_doors(python, &wheel, tally);
            tally.judge(before, outcome);
            Ok(())
        })
    });
    step(&mut |_| docs::blocks());
    step(&mut node_tests::run);
    step(&mut |tally| jar::junit(&[], tally));
    step(&mut |_| docs::first_results());
    step(&mut |_| demo::show(&demo::USUAL, Some(seconds), &demo::Ports::free()?, demo::Packages::ForTests));
    println!("{tally}");
    match tally.failed {
        0 => Ok(()),
        failed => Err(Failure::new("sum", format!("{failed} failed; each is named above"))),
    }
}

/// Stops before anything is built when a tool is missing, naming the command that installs it.
fn toolchain() -> Outcome {
    let nodes = crate::nodes::WAY_OUT;
    let tools = [
        ("cargo", ["fmt", "--version"], "rustup component add rustfmt"),
        ("cargo", ["clippy", "--version"], "rustup component add clippy"),
        ("git", ["--version", "--build-options"], "apt-get install git"),
        ("cc", ["--version", "-v"], "apt-get install gcc libc6-dev"),
        ("node", ["--version", "--no-warnings"], nodes),
        ("npm", ["--version", "--silent"], nodes),
        ("mvn", ["--version", "--quiet"], crate::javas::WAY_OUT),
    ];
    for (program, words, install) in tools {
        let found = Command::new(program).args(words).output().is_ok_and(|output| output.status.success());
        if !found {
            let message = format!("`{program} {}` does not answer", words[0]);
            return Err(Failure::new("toolchain", message).with_way_out(install));
        }
    }
    let found: Vec<_> = pythons::oldest_and_newest()?.iter().map(Python::full).collect();
    println!("Python tests will run on CPython {}", found.join(" and "));
    crate::nodes::preferred()?;
    let found: Vec<_> = crate::javas::all()?.iter().map(|java| java.version.to_string()).collect();
    println!("Java tests will run on JDK {}", found.join(" and "));
    Ok(())
}

fn rust(tally: &mut Tally) -> Outcome {
    Step::cargo("tests in Rust")
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("PYO3_PYTHON", &pythons::preferred()?.program)
        .within(at_most(35))
        .run_reading(|line| tally.read(line))
}

/// What the facade does only with a feature that no other package of the workspace asks for.
fn rust_features(tally: &mut Tally) -> Outcome {
    let before = *tally;
    Step::cargo("tests in Rust with the feature opentelemetry")
        .args(["test", "-p", "spanprof", "--features", "opentelemetry", "--lib", "tag::"])
        .within(at_most(10))
        .run_reading(|line| tally.read(line))?;
    match tally.passed > before.passed {
        true => Ok(()),
        false => Err(Failure::new("feature opentelemetry", "no test ran")),
    }
}

/// An environment with what the Python tests need, and the wheel under test.
pub fn environment(python: &Python, wheel: &Path) -> Outcome<Venv> {
    let venv = Venv::with("tests", python, &["-r".to_owned(), "bindings-python/tests/requirements.txt".to_owned()])?;
    venv.install_wheel(wheel)?;
    Ok(venv)
}

/// The Python suite, or a part of it.
pub fn pytest(venv: &Venv, python: &Python, words: &[&str], tally: &mut Tally) -> Outcome {
    let before = *tally;
    Step::new(format!("tests on Python {}", python.full()), venv.python())
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q"])
        .args(words)
        .inside(&crate::workspace::root().join("bindings-python"))
        .within(at_most(20))
        .run_reading(|line| tally.read(line))?;
    if tally.passed == before.passed {
        return Err(Failure::new("pytest", "no test ran"));
    }
    Ok(())
}

/// The tests of the runtime's own doors (`bindings-python/tests/runtime`): they need the wheel for tests and nothing of the
/// suite around them.
pub fn runtime_doors(python: &Python, wheel: &Path, tally: &mut Tally) -> Outcome {
    let venv = Venv::with("runtime", python, &["pytest", "pytest-timeout", "greenlet"].map(str::to_owned))?;
    venv.install_wheel(wheel)?;
    let before = *tally;
    Step::new(format!("tests of the runtime on Python {}", python.full()), venv.python())
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q", "-o", "python_files=check_*.py"])
        .args(["--confcutdir", "tests/runtime", "tests/runtime"])
        .inside(&crate::workspace::root().join("bindings-python"))
        .within(at_most(10))
        .run_reading(|line| tally.read(line))?;
    if tally.passed == before.passed {
        return Err(Failure::new("pytest", "no test ran"));
    }
    Ok(())
}
