//! `cargo xtask bench`: runs the benchmarks of xtask/bench and core/benches beside other profilers and writes
//! xtask/bench/RESULTS.md.
//! Needs an idle machine; not part of `test`, since a figure has no pass or fail.

use std::path::{Path, PathBuf};

use crate::arguments::RuntimeArguments;
use crate::artifact;
use crate::languages::{self, python, BenchRow, BenchRunner, Benchmark};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{scratch, workspace};

/// benchmarks beside other profilers, written to xtask/bench/RESULTS.md
///
/// engine      the engine's calls alone, in Rust
/// serve       answers of spanprof serve for a day of one service, and for a million stacks: time, bytes, memory; an hour
/// accuracy    shares and totals of mixes of functions against thread CPU clocks
/// sample      CPU of the same work: none, spanprof, pyroscope-io, ddtrace, py-spy
/// labels      nanoseconds to enter and leave tag_wrapper
/// heap-accuracy  shares of a 60/30/10 mix and a leak, against the truth, beside ddtrace
/// service     a web service: CPU of 25,000 requests in fresh processes, and memory; each type, ddtrace, pyroscope-io; 20 minutes
///
/// Node.js, beside @datadog/pprof; `node` is all of them:
/// node-sample    cost of a sample by spanprof's own clocks
/// node-accuracy  shares and totals of a mix, of periodic work, of inlined functions
/// node-labels    cost of labels in a program that awaits
/// node-heap-accuracy, node-service  as in Python
///
/// Java, beside async-profiler; `java` is all of them:
/// java-sample    cost of a sample to its thread, beside async-profiler's walk
/// java-accuracy  shares and totals of a mix, of periodic work, of native code, of inlined methods
/// java-labels    cost of labels on platform and virtual threads
/// java-heap-accuracy, java-service  as in Python
///
/// The other profilers are installed in separate environments.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct BenchArguments {
    /// benchmarks or languages, all by default
    names: Vec<String>,
    /// a few seconds each, as a test; the results are not written
    #[arg(long)]
    short: bool,
    #[command(flatten)]
    runtimes: RuntimeArguments,
}

/// The benchmarks without a language.
const ENGINE: Benchmark = of_cargo("engine", "Rust: calls of the engine");
const SERVE: Benchmark = of_cargo("serve", "Rust: answers of serve");

const fn of_cargo(name: &'static str, heading: &'static str) -> Benchmark {
    Benchmark { name, heading, script: "", program: "", rows: &[] }
}

/// A benchmark, and the name of its language; none for those above.
#[derive(Clone, Copy)]
struct ListedBenchmark {
    language: Option<&'static str>,
    benchmark: &'static Benchmark,
}

impl ListedBenchmark {
    /// Every benchmark, in the order of a run without names.
    fn all() -> Vec<Self> {
        let mut all = [&ENGINE, &SERVE].map(|benchmark| Self { language: None, benchmark }).to_vec();
        for language in languages::ALL {
            let listed = |benchmark| Self { language: Some(language.name()), benchmark };
            all.extend(language.benchmarks().iter().map(listed));
        }
        all
    }

    /// Whether `name` selects it: its own name or that of its language.
    fn matches(&self, name: &str) -> bool {
        name == self.benchmark.name || Some(name) == self.language
    }
}

pub fn run(arguments: &BenchArguments) -> StepResult {
    let (names, all) = (&arguments.names, ListedBenchmark::all());
    let is_chosen = |bench: &&ListedBenchmark| names.is_empty() || names.iter().any(|name| bench.matches(name));
    let chosen: Vec<&ListedBenchmark> = all.iter().filter(is_chosen).collect();
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|bench| !bench.matches(name))) {
        let all: Vec<_> = all.iter().map(|bench| bench.benchmark.name).collect();
        return Err(StepFailure::new(
            "bench",
            format!("unknown benchmark `{unknown}`; the benchmarks are: {}", all.join(", ")),
        ));
    }
    // Benchmarks measure the release packages.
    let mut runners: Vec<(&str, Box<dyn BenchRunner>)> = Vec::new();
    for language in languages::ALL {
        let name = language.name();
        if chosen.iter().any(|bench| bench.language == Some(name)) {
            runners.push((name, language.prepare_benchmarks(&arguments.runtimes)?));
        }
    }
    // Reads the profiles of programs.
    let command = if runners.is_empty() { PathBuf::new() } else { artifact::command_line()? };
    let short = arguments.short;
    for ListedBenchmark { language, benchmark } in chosen {
        let runner = runners.iter().find(|(name, _)| Some(*name) == *language);
        let (tables, runtime) = match runner {
            Some((_, runner)) => (measure(benchmark, &runner.rows(benchmark)?, &command, short)?, runner.runtime()),
            None if benchmark.name == SERVE.name => (serve(short)?, "release profile".to_owned()),
            None => (engine()?, "release profile".to_owned()),
        };
        let section = format!("`cargo xtask bench {}`, {}\n\n{tables}", benchmark.name, conditions(&runtime)?);
        write_section(benchmark.heading, &section, short)?;
    }
    Ok(())
}

/// Runs the script of a benchmark.
fn measure(benchmark: &Benchmark, rows: &[BenchRow], command: &Path, short: bool) -> StepResult<String> {
    let directory = scratch::empty(&format!("bench-{}", benchmark.name))?;
    let file = directory.join("programs.json");
    // An array, since an object of serde_json has no order.
    scratch::write(&file, &serde_json::json!(rows).to_string())?;
    println!("── bench {}", benchmark.name);
    let step = ProcessStep::new(format!("bench {}", benchmark.name), &python::runtimes::preferred()?.program);
    // A service is measured with default settings; the others need every sample of their rate or interval.
    let step = if benchmark.script == "service" { step } else { step.without_cpu_budget() };
    step.arg(format!("xtask/bench/every-language/{}.py", benchmark.script))
        .arg("--programs")
        .arg(&file)
        .arg("--command")
        .arg(command)
        .arg("--folder")
        .arg(&directory)
        .args(short.then_some("--short"))
        .capture()
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

/// The tables of the server's answers.
fn serve(short: bool) -> StepResult<String> {
    ProcessStep::cargo("bench serve")
        .args(["bench", "--quiet", "-p", "spanprof-cli", "--bench", "serve", "--"])
        .args(if short { &["short"][..] } else { &[] })
        .capture()
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
        let matching = |name: &str| ListedBenchmark::all().iter().filter(|bench| bench.matches(name)).count();
        assert_eq!(["engine", "python", "node", "node-sample", "java"].map(matching), [1, 5, 5, 1, 5]);
    }

    #[test]
    fn a_new_section_is_added_at_the_end() {
        assert_eq!(with_section("# Results\n", "A", "a"), "# Results\n\n## A\n\na\n");
    }
}
