//! Stress in Java programs: every supported version with every collector. A crash, a hang, a wrong result or a longer pause fails
//! the suite.

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
pub fn run(arguments: &LiveArguments) -> StepResult {
    let seconds = arguments.seconds.unwrap_or(60);
    let classes = compiled()?;
    let mut failed = Vec::new();
    for java in runtimes::chosen(&arguments.runtimes.java)? {
        // ZGC and the log of safepoints are those of later versions.
        let is_old = java.version < runtimes::OLDEST;
        for (program, size, collectors) in
            [("Stress", seconds, &COLLECTORS[..]), ("Pauses", seconds.min(15), &COLLECTORS[..3])]
        {
            for collector in collectors.iter().filter(|name| !is_old || (program == "Stress" && **name != "ZGC")) {
                let name = format!("{program} on Java {} with {collector}", java.version);
                if let Err(failure) = cell(&java, &name, program, size, collector, &classes) {
                    eprintln!("{failure}");
                    failed.push(name);
                }
            }
        }
    }
    all_passed("live java", &failed)
}

/// Class path of the programs: the JAR for tests, the programs, and one program of the tests.
pub fn compiled() -> StepResult<String> {
    let jar = package::for_tests()?;
    let classes = scratch::empty("live-java")?;
    let sources = workspace::root().join("xtask/live");
    let java = &runtimes::preferred()?;
    let class_path = format!("{}:{}", jar.display(), classes.display());
    ProcessStep::new("compile the stress for Java 8", java.home.join("bin/javac"))
        .args(["--release", "8", "-Xlint:all,-try,-options", "-Werror", "-cp", &class_path, "-d"])
        .arg(&classes)
        .args(["Stress", "StressWork", "Suite"].map(|name| sources.join(format!("java/{name}.java"))))
        .arg(workspace::root().join("xtask/bench/java/labels/Threads.java"))
        .run()?;
    ProcessStep::new("compile the programs", java.home.join("bin/javac"))
        .args(["-Xlint:all,-try", "-Werror", "-cp", &class_path, "-d"])
        .arg(&classes)
        .arg(sources.join("java/Pauses.java"))
        .arg(sources.join("explain/Diagnosed.java"))
        .arg(workspace::root().join("bindings-java/src/test/java/io/spanprof/programs/Retains.java"))
        .run()?;
    Ok(class_path)
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

fn cell(java: &Jdk, name: &str, class: &str, size: u64, collector: &str, classes: &str) -> StepResult {
    let crash = Path::new("live-java").join("hs_err_%p.log");
    program(java, name, classes)
        .arg(format!("-XX:+Use{collector}"))
        .arg(format!("-XX:ErrorFile={}", workspace::target().join(crash).display()))
        // Java 8 does not have the second one.
        .args(["-XX:+IgnoreUnrecognizedVMOptions", "-XX:-CreateCoredumpOnCrash", class, &size.to_string()])
        .time_limit(Duration::from_secs(size * 4) + GRACE)
        .run()
}
