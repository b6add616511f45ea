//! `cargo xtask bench`: runs the benchmarks of xtask/bench and core/benches beside other profilers and writes
//! xtask/bench/RESULTS.md.
//! Needs an idle machine; not part of `test`, since a figure has no pass or fail.

use std::path::Path;

use super::{live, Verb};
use crate::arguments::{Arguments, OptionSpec};
use crate::languages::{java, node, python};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{scratch, workspace};

pub const VERB: Verb = Verb {
    name: "bench",
    usage: "bench [NAME…] [--short]",
    about: "paired benchmarks beside other profilers, written to xtask/bench/RESULTS.md\n\n\
        engine      the engine's calls alone, in Rust\n\
        accuracy    shares and totals of a 50/30/20 mix against thread CPU clocks: four rates, two depths, 1 and 16 threads\n\
        overhead    CPU of the same work with and without: spanprof, pyroscope-io, ddtrace, py-spy; 100 and 1000 Hz\n\
        tags        nanoseconds to enter and leave tag_wrapper\n\
        footprint   start time, resident memory, size of the wheel\n\n\
        Node.js, beside @datadog/pprof, @pyroscope/nodejs and the inspector; `node` is all six, a quarter of an hour:\n\
        node-start     cost of a start and of each worker thread, on Node.js 20, 24 and 26\n\
        node-cost      CPU of the same work with and without, in pairs; our own CPU per sample\n\
        node-pauses    pauses of JavaScript at start and at a window's end; installed size\n\
        node-accuracy  shares and totals of a mix; shares of inlined functions\n\
        node-lag       blocks of the event loop of 20 to 110 ms\n\
        node-labels    cost of labels in a program that awaits\n\n\
        Java, beside async-profiler, the Pyroscope agent and the flight recorder; `java` is all of them:\n\
        java-handler   cost of a sample to its thread, beside async-profiler's walk; our own CPU\n\
        java-cost      CPU of the same work with and without, in pairs\n\
        java-accuracy  shares and totals of a mix, of native code, of inlined methods\n\
        java-labels    cost of labels, and the labeled samples, on platform and virtual threads\n\
        java-wall      the wall-clock profile of 50 threads; CPU of sampling 500\n\
        java-start     starts, stops, pauses, memory, samples lost at a stop\n\n\
        --short: a few seconds each, as a test; results of short runs are not written.\n\
        --python 3.11, --node 20, --java 17,25: runtimes. The other profilers are installed in separate environments.",
    options: &[OptionSpec::Switch("short"), OptionSpec::Value("python"), OptionSpec::Value("node"), OptionSpec::Value("java")],
    run,
};

/// A benchmark: its name, its heading in RESULTS.md, its kind.
struct Bench {
    name: &'static str,
    heading: &'static str,
    kind: BenchKind,
}

enum BenchKind {
    Engine,
    /// Beside these profilers.
    Python(&'static [(&'static str, &'static str)]),
    Node,
    Java,
}

/// Pinned for reproducible figures.
const PEERS: &[(&str, &str)] =
    &[("pyroscope", "pyroscope-io==1.4.0"), ("ddtrace", "ddtrace==4.16.0"), ("py-spy", "py-spy==0.4.3")];

const fn bench(name: &'static str, heading: &'static str, kind: BenchKind) -> Bench {
    Bench { name, heading, kind }
}

const ALL: [Bench; 17] = [
    bench("engine", "Rust: calls of the engine", BenchKind::Engine),
    bench("accuracy", "Python: shares and totals", BenchKind::Python(&[])),
    bench("overhead", "Python: cost", BenchKind::Python(PEERS)),
    bench("tags", "Python: tag_wrapper", BenchKind::Python(&[])),
    bench("footprint", "Python: start, memory, size", BenchKind::Python(PEERS)),
    bench("node-start", "Node.js: start and worker threads", BenchKind::Node),
    bench("node-cost", "Node.js: cost", BenchKind::Node),
    bench("node-pauses", "Node.js: pauses and size", BenchKind::Node),
    bench("node-accuracy", "Node.js: shares and totals", BenchKind::Node),
    bench("node-lag", "Node.js: blocks of the event loop", BenchKind::Node),
    bench("node-labels", "Node.js: labels", BenchKind::Node),
    bench("java-handler", "Java: handler and walk", BenchKind::Java),
    bench("java-cost", "Java: cost", BenchKind::Java),
    bench("java-accuracy", "Java: shares and totals", BenchKind::Java),
    bench("java-labels", "Java: labels", BenchKind::Java),
    bench("java-wall", "Java: wall clock", BenchKind::Java),
    bench("java-start", "Java: start, stop, pauses, memory", BenchKind::Java),
];

impl Bench {
    /// Whether `name` selects it: its own name or that of its language.
    fn matches(&self, name: &str) -> bool {
        name == self.name
            || matches!(
                (&self.kind, name),
                (BenchKind::Python(_), "python") | (BenchKind::Node, "node") | (BenchKind::Java, "java")
            )
    }
}

fn run(given: &Arguments) -> StepResult {
    let names = &given.names;
    let chosen: Vec<&Bench> =
        ALL.iter().filter(|bench| names.is_empty() || names.iter().any(|name| bench.matches(name))).collect();
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|bench| !bench.matches(name))) {
        let all: Vec<_> = ALL.iter().map(|bench| bench.name).collect();
        return Err(StepFailure::new(
            "bench",
            format!("unknown benchmark `{unknown}`; the benchmarks are: {}", all.join(", ")),
        ));
    }
    let python = match given.text("python") {
        Some(_) => python::runtimes::chosen(given.text("python"))?.remove(0),
        None => python::runtimes::preferred()?,
    };
    // Benchmarks measure the release packages.
    let wheel = chosen
        .iter()
        .any(|bench| matches!(bench.kind, BenchKind::Python(_)))
        .then(python::package::release)
        .transpose()?;
    let node = chosen.iter().any(|bench| matches!(bench.kind, BenchKind::Node));
    let node = node.then(|| node::bench::NodeBench::prepare(given.text("node"))).transpose()?;
    let java = chosen.iter().any(|bench| matches!(bench.kind, BenchKind::Java));
    let java = java.then(|| java::bench::JavaBench::prepare(given.text("java"))).transpose()?;
    let reads_files = wheel.is_some() || node.is_some();
    let command = reads_files.then(live::command_line).transpose()?;
    let short = given.has("short");
    for bench in chosen {
        let (tables, runtime) = match (&bench.kind, &command, &wheel, &node, &java) {
            (BenchKind::Python(peers), Some(command), Some(wheel), ..) => (
                python::bench::measure(bench.name, peers, &python, wheel, command, short)?,
                format!("CPython {}", python.full()),
            ),
            (BenchKind::Node, Some(command), _, Some(node), _) => {
                (node.measure(bench.name, command, short)?, node.runtime())
            }
            (BenchKind::Java, .., Some(java)) => (java.measure(bench.name, short)?, java.runtime()),
            _ => (engine()?, "release profile".to_owned()),
        };
        write_section(bench.heading, &format!("{}\n\n{tables}", conditions(&runtime)?), short)?;
    }
    Ok(())
}

/// Writes a section into RESULTS.md; prints it for a short run.
fn write_section(heading: &str, section: &str, short: bool) -> StepResult {
    if short {
        println!("\n{section}");
        return Ok(());
    }
    let path = workspace::root().join("xtask/bench/RESULTS.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Results\n".to_owned());
    scratch::write(&path, &with_section(&page, heading, section))?;
    println!("written to xtask/bench/RESULTS.md: {heading}");
    Ok(())
}

/// Output of the engine's benchmarks, unchanged.
fn engine() -> StepResult<String> {
    let lines = ProcessStep::cargo("bench engine")
        .args(["bench", "--quiet", "-p", "spanprof", "--bench", "engine"])
        .capture()?;
    let empty_tick = ProcessStep::cargo("bench empty_tick")
        .args(["bench", "--quiet", "-p", "spanprof-signal", "--bench", "empty_tick"])
        .capture()?;
    Ok(format!("```text\n{}\n{}\n```", lines.trim_end(), empty_tick.trim_end()))
}

/// Date, machine and versions of a measurement.
fn conditions(runtime: &str) -> StepResult<String> {
    let date = ProcessStep::new("date", "date").args(["-u", "+%Y-%m-%d"]).capture()?;
    let kernel = scratch::read(Path::new("/proc/sys/kernel/osrelease"))?;
    let processors = scratch::read(Path::new("/proc/cpuinfo"))?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let commit = ProcessStep::new("commit", "git").args(["rev-parse", "--short", "HEAD"]).capture()?;
    Ok(format!("{}, commit {}, {runtime}, {count} × {model}, Linux {}.", date.trim(), commit.trim(), kernel.trim()))
}

/// The page with one section replaced, or added at its end.
fn with_section(page: &str, heading: &str, text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    let mut placed = false;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            inside = title.trim() == heading;
            if inside {
                out.push_str(&format!("## {heading}\n\n{}\n\n", text.trim_end()));
                placed = true;
            }
        }
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    if !placed {
        out = format!("{}\n\n## {heading}\n\n{}\n", out.trim_end(), text.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_others_stay() {
        let page = "# Results\n\n## A\n\nold a\n\n## B\n\nold b\n";
        assert_eq!(with_section(page, "A", "new a\n"), "# Results\n\n## A\n\nnew a\n\n## B\n\nold b\n");
    }

    #[test]
    fn a_language_selects_all_its_benchmarks() {
        let matching = |name: &str| ALL.iter().filter(|bench| bench.matches(name)).count();
        assert_eq!(
            [matching("engine"), matching("python"), matching("node"), matching("node-lag"), matching("java")],
            [1, 4, 6, 1, 6]
        );
    }

    #[test]
    fn a_new_section_is_added_at_the_end() {
        assert_eq!(with_section("# Results\n", "A", "a"), "# Results\n\n## A\n\na\n");
    }
}
