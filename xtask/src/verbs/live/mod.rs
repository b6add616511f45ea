//! `cargo xtask live`: suites with real programs: the OpenTelemetry Collector, Pyroscope, google/pprof, every installed
//! CPython, Node.js and Java, a Rust program, a browser, a coding agent's client, an S3 server, failing
//! receivers. Longer than `test`; prints the duration of each suite.

mod collector;
pub(super) mod contention;
mod deploy;
mod explain;
pub(super) mod faults;
mod field;
mod governor;
mod heap_stacks;
mod mcp;
mod objects;
mod outage;
pub mod platforms;
mod pprof;
mod pull;
mod pyroscope;
mod scrape;
mod serve;
mod suite_program;
mod system_calls;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::workspace;

/// Time limit of the Rust program beyond its requested duration: its build, and the end of its last run.
const RUST_GRACE: Duration = Duration::from_secs(300);

/// A suite: its name and its function.
type Suite = (&'static str, Box<dyn Fn(&LiveArguments) -> StepResult>);

/// Every suite, in the order of a run without names.
fn suites() -> Vec<Suite> {
    fn suite(name: &'static str, run: fn(&LiveArguments) -> StepResult) -> Suite {
        (name, Box::new(run))
    }
    let mut suites = vec![
        suite("collector", collector::run),
        suite("pyroscope", pyroscope::run),
        suite("pprof", pprof::run),
        suite("pull", pull::run),
        suite("serve", serve::run),
        suite("mcp", mcp::run),
        suite("explain", explain::run),
        suite("scrape", scrape::run),
        suite("objects", objects::run),
        suite("outage", outage::run),
        suite("governor", governor::run),
        suite("contention", contention::run),
    ];
    for language in languages::ALL {
        suites.push((language.name(), Box::new(|arguments| language.live(arguments))));
    }
    suites.extend([
        suite("rust", rust_stress),
        suite("heap-stacks", heap_stacks::run),
        suite("field", field::run),
        suite("deploy", deploy::run),
        suite("system-calls", system_calls::run),
        suite("faults", faults::run),
        suite("platforms", platforms::run),
    ]);
    suites
}

pub fn run(arguments: &LiveArguments) -> StepResult {
    let suites = suites();
    let chosen: Vec<&Suite> = if arguments.names.is_empty() {
        suites.iter().collect()
    } else {
        arguments.names.iter().map(|name| find(&suites, name)).collect::<StepResult<_>>()?
    };
    let mut failed = Vec::new();
    for (name, suite) in chosen {
        println!("\n══ live {name}");
        let began = Instant::now();
        let outcome = suite(arguments);
        let seconds = began.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("live {name}: passed in {seconds} s"),
            Err(failure) => {
                eprintln!("live {name}: {failure}");
                failed.push(*name);
            }
        }
    }
    all_passed("live suites", &failed)
}

fn find<'a>(suites: &'a [Suite], name: &str) -> StepResult<&'a Suite> {
    suites.iter().find(|(other, _)| *other == name).ok_or_else(|| {
        let names: Vec<_> = suites.iter().map(|(name, _)| *name).collect();
        StepFailure::new("live", format!("unknown suite `{name}`; the suites are: {}", names.join(", ")))
    })
}

/// A free port of the loopback.
fn free_port() -> StepResult<u16> {
    crate::http::free_port().map_err(|error| StepFailure::new("free port", error.to_string()))
}

/// Builds a Go program of `xtask/live/<name>` once per content of its sources.
fn go_program(name: &str, package: &str, version: &str) -> StepResult<PathBuf> {
    let source = workspace::root().join("xtask/live").join(name);
    let program = workspace::target().join("live").join(format!("{name}-{version}"));
    let newest = |path: &PathBuf| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    let sources = ["go.mod", "go.sum", "main.go"].map(|file| source.join(file));
    let changed = sources.iter().filter_map(newest).max();
    if program.exists() && newest(&program) > changed {
        return Ok(program);
    }
    println!("building {name} {version} from its Go modules: some minutes the first time, cached afterwards");
    ProcessStep::new(format!("build {name} {version}"), "go")
        .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
        .arg(&program)
        .arg(package)
        .env("CGO_ENABLED", "0")
        .in_directory(&source)
        .install_hint("install Go 1.26 or later: https://go.dev/dl")
        .run()?;
    Ok(program)
}

/// Runs a subcommand of `spanprof-live`.
fn run_spanprof_live(name: &str, words: &[&str]) -> StepResult {
    ProcessStep::new(name, artifact::for_tests()?.join("spanprof-live")).args(words).run()
}

/// Stress of a Rust program with every profile on.
fn rust_stress(arguments: &LiveArguments) -> StepResult {
    let seconds = arguments.seconds.unwrap_or(60);
    ProcessStep::new("Rust stress", artifact::for_tests()?.join("rust-stress"))
        .arg(seconds.to_string())
        .without_cpu_budget()
        .time_limit(Duration::from_secs(seconds) + RUST_GRACE)
        .run()
}
