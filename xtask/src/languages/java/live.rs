//! Stress in Java programs: every supported version with every collector. A crash, a hang, a wrong exit code, label or share
//! fails the suite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::package;
use super::runtimes::{self, Jdk};
use crate::arguments::LiveArguments;
use crate::step::{all_passed, ProcessStep, StepResult};
use crate::{scratch, workspace};

/// Collectors by the name of their VM option.
static COLLECTORS: [&str; 4] = ["G1GC", "ZGC", "SerialGC", "ParallelGC"];
/// Time limit of a program beyond its requested duration.
const GRACE: Duration = Duration::from_secs(180);
/// Number of program exits, which cycle through ten kinds.
const ENDS: u64 = 30;
/// First version with virtual threads.
const VIRTUAL_THREADS: u32 = 21;

/// A program of xtask/live/java, its arguments, and its collectors.
type JavaCell = (&'static str, Vec<String>, &'static [&'static str]);

pub fn run(given: &LiveArguments) -> StepResult {
    let seconds = given.seconds.unwrap_or(60);
    let classes = compiled()?;
    let mut failed = Vec::new();
    for java in runtimes::chosen(&given.runtimes.java)? {
        for (program, words, collectors) in cells(&java, seconds) {
            for collector in collectors {
                let name = format!("{program} {} on Java {} with {collector}", words.join(" "), java.version);
                if let Err(failure) = cell(&java, &name, program, &words, collector, &classes, seconds) {
                    eprintln!("{failure}");
                    failed.push(name);
                }
            }
        }
    }
    all_passed("live java", &failed)
}

fn cells(java: &Jdk, seconds: u64) -> Vec<JavaCell> {
    let brief = seconds.min(15);
    let words = |words: &[&str], size: u64| {
        words.iter().map(|word| (*word).to_owned()).chain([size.to_string()]).collect::<Vec<_>>()
    };
    let mut cells: Vec<JavaCell> = vec![
        ("Stress", words(&[], seconds), &COLLECTORS[..]),
        ("Pauses", words(&[], brief), &COLLECTORS[..3]),
        ("Labels", words(&["platform"], brief), &COLLECTORS[..1]),
        ("Labels", words(&["executors"], brief), &COLLECTORS[..1]),
        ("Shares", words(&["cpu", "100"], brief), &COLLECTORS[..1]),
        ("Shares", words(&["cpu", "250"], brief), &COLLECTORS[..1]),
        ("Shares", words(&["cpu", "1000"], brief), &COLLECTORS[..1]),
        ("Shares", words(&["native", "250"], brief), &COLLECTORS[..1]),
        ("Exits", words(&[], ENDS.min(seconds)), &COLLECTORS[..1]),
        ("Idle", words(&[], brief), &COLLECTORS[..1]),
    ];
    if java.version >= VIRTUAL_THREADS {
        cells.push(("Labels", words(&["virtual"], brief), &COLLECTORS[..3]));
    }
    cells
}

/// Class path of the programs: the JAR for tests, the programs, the classes shared with the benchmarks, the tests' reader
/// of pprof, and one program of the tests.
pub fn compiled() -> StepResult<String> {
    let jar = package::for_tests()?;
    let classes = scratch::empty("live-java")?;
    let sources = workspace::root().join("xtask/live");
    let java = &runtimes::preferred()?;
    let programs = ["Exits", "Idle", "Labels", "Pauses", "Shares", "Stress", "StressWork", "Suite"]
        .map(|name| sources.join(format!("java/{name}.java")));
    ProcessStep::new("compile the programs", java.home.join("bin/javac"))
        .args(["-Xlint:all,-try", "-Werror", "-cp"])
        .arg(&jar)
        .arg("-d")
        .arg(&classes)
        .args(programs)
        .arg(sources.join("collector/Program.java"))
        .arg(sources.join("explain/Diagnosed.java"))
        .arg(sources.join("pull/Pulled.java"))
        .arg(sources.join("pyroscope/Requests.java"))
        .arg(workspace::root().join("xtask/bench/java/labels/Threads.java"))
        .args(
            ["ProfileFile.java", "programs/Retains.java"]
                .map(|file| workspace::root().join("bindings-java/src/test/java/io/spanprof").join(file)),
        )
        .run()?;
    Ok(format!("{}:{}", jar.display(), classes.display()))
}

/// Compiles one source against a JAR; returns the command line of its program.
pub fn command_of(source: &Path, jar: &Path, classes: &str) -> StepResult<Vec<PathBuf>> {
    let classes = scratch::empty(classes)?;
    let java = runtimes::preferred()?;
    ProcessStep::new("compile the program", java.home.join("bin/javac"))
        .args(["-Xlint:all,-try", "-Werror", "-cp"])
        .arg(jar)
        .arg("-d")
        .arg(&classes)
        .arg(source)
        .run()?;
    let class_path = format!("{}:{}", jar.display(), classes.display());
    let name = source.file_stem().unwrap_or_default();
    Ok(vec![java.home.join("bin/java"), "-cp".into(), class_path.into(), name.into()])
}

/// A step that runs a program of this class path.
pub fn program(java: &Jdk, name: &str, class_path: &str) -> ProcessStep {
    let step = ProcessStep::new(name, java.home.join("bin/java"));
    // Older versions print no warning.
    let step = if java.version >= 22 { step.arg("--enable-native-access=ALL-UNNAMED") } else { step };
    step.without_cpu_budget().args(["-Xmx512m", "-cp", class_path])
}

fn cell(
    java: &Jdk,
    name: &str,
    program_name: &str,
    words: &[String],
    collector: &str,
    classes: &str,
    seconds: u64,
) -> StepResult {
    let crash = Path::new("live-java").join("hs_err_%p.log");
    program(java, name, classes)
        .arg(format!("-XX:+Use{collector}"))
        .arg(format!("-XX:ErrorFile={}", workspace::target().join(crash).display()))
        .args(["-XX:-CreateCoredumpOnCrash"])
        .arg(program_name)
        .args(words)
        .time_limit(Duration::from_secs(seconds * 4) + GRACE)
        .run()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn virtual_threads_are_tested_where_they_exist() {
        let virtual_cells = |version| {
            let java = Jdk { home: PathBuf::new(), version };
            cells(&java, 60).iter().filter(|(_, words, _)| words[0] == "virtual").count()
        };
        assert_eq!((virtual_cells(17), virtual_cells(25)), (0, 1));
    }
}
