//! Stress in real Java programs: every version that is supported times every collector. A crash, a hang, an exit code, a
//! label or a share that is not the program's own fails the suite.

use std::path::Path;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::javas::{self, Java};
use crate::step::{Failure, Outcome, Step};
use crate::verbs::jar;
use crate::{scratch, workspace};

/// What the VM's own switches call its collectors.
static COLLECTORS: [&str; 3] = ["G1GC", "ZGC", "SerialGC"];
/// What a program may take beyond the time that it is told.
const GRACE: Duration = Duration::from_secs(180);
/// Ends of programs, of ten ways in turn.
const ENDS: u64 = 30;
/// Virtual threads came with this version.
const VIRTUAL_THREADS: u32 = 21;

/// A program of xtask/live/java, its words, and the collectors it runs with.
type Cell = (&'static str, Vec<String>, &'static [&'static str]);

pub fn run(given: &Arguments) -> Outcome {
    let seconds = given.number("seconds")?.unwrap_or(60);
    let classes = compiled()?;
    let mut failed = Vec::new();
    for java in javas::chosen(given.text("java"))? {
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
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("live java", format!("failed: {}", failed.join("; ")))),
    }
}

fn cells(java: &Java, seconds: u64) -> Vec<Cell> {
    let brief = seconds.min(15);
    let words = |words: &[&str], size: u64| {
        words.iter().map(|word| (*word).to_owned()).chain([size.to_string()]).collect::<Vec<_>>()
    };
    let mut cells: Vec<Cell> = vec![
        ("Stress", words(&[], seconds), &COLLECTORS[..]),
        ("Pauses", words(&[], brief), &COLLECTORS[..]),
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
        cells.push(("Labels", words(&["virtual"], brief), &COLLECTORS[..]));
    }
    cells
}

/// The class path of the programs: the JAR as the tests build it, the programs, what they share with the benchmarks, and the
/// tests' reader of pprof.
pub fn compiled() -> Outcome<String> {
    let jar = jar::for_tests()?;
    let classes = scratch::empty("live-java")?;
    let sources = workspace::root().join("xtask/live");
    let java = &javas::all()?[0];
    let programs = ["Exits", "Idle", "Labels", "Pauses", "Shares", "Stress", "Suite"]
        .map(|name| sources.join(format!("java/{name}.java")));
    Step::new("compile the programs", java.home.join("bin/javac"))
        .args(["-Xlint:all,-try", "-Werror", "-cp"])
        .arg(&jar)
        .arg("-d")
        .arg(&classes)
        .args(programs)
        .arg(sources.join("collector/Program.java"))
        .arg(sources.join("pyroscope/Requests.java"))
        .arg(workspace::root().join("core/benches/java/Threads.java"))
        .arg(workspace::root().join("bindings-java/src/test/java/io/spanprof/ProfileFile.java"))
        .run()?;
    Ok(format!("{}:{}", jar.display(), classes.display()))
}

/// A program of these classes.
pub fn program(java: &Java, name: &str, class_path: &str) -> Step {
    let step = Step::new(name, java.home.join("bin/java"));
    // Before it there is no warning to switch off.
    let step = if java.version >= 22 { step.arg("--enable-native-access=ALL-UNNAMED") } else { step };
    step.args(["-Xmx512m", "-cp", class_path])
}

fn cell(
    java: &Java,
    name: &str,
    program_name: &str,
    words: &[String],
    collector: &str,
    classes: &str,
    seconds: u64,
) -> Outcome {
    let crash = Path::new("live-java").join("hs_err_%p.log");
    program(java, name, classes)
        .arg(format!("-XX:+Use{collector}"))
        .arg(format!("-XX:ErrorFile={}", workspace::target().join(crash).display()))
        .args(["-XX:-CreateCoredumpOnCrash"])
        .arg(program_name)
        .args(words)
        .within(Duration::from_secs(seconds * 4) + GRACE)
        .run()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn virtual_threads_are_judged_where_there_are_any() {
        let virtual_cells = |version| {
            let java = Java { home: PathBuf::new(), version };
            cells(&java, 60).iter().filter(|(_, words, _)| words[0] == "virtual").count()
        };
        assert_eq!((virtual_cells(17), virtual_cells(25)), (0, 1));
    }
}
