//! The Java part of `cargo xtask bench`: the release JAR, async-profiler from Maven Central, and the programs of
//! xtask/bench/java on the selected JDKs.

use std::path::PathBuf;

use super::package;
use super::runtimes::{self, Jdk};
use crate::languages::{BenchRow, BenchRunner, Benchmark};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{git, scratch, workspace};

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark {
        name: "java-sample",
        heading: "Java: cost of samples",
        script: "figures",
        program: "SampleRun",
        rows: &[
            "20 frames, arithmetic, spanprof",
            "20 frames, arithmetic, async-profiler",
            "100 frames, arithmetic, spanprof",
            "100 frames, arithmetic, async-profiler",
            "20 frames, memory, spanprof",
            "20 frames, memory, async-profiler",
            "100 frames, memory, spanprof",
            "100 frames, memory, async-profiler",
        ],
    },
    Benchmark {
        name: "java-accuracy",
        heading: "Java: shares and totals",
        script: "truth",
        program: "AccuracyRun",
        rows: &[
            "spanprof, mix, 100",
            "spanprof, mix, 1000",
            "spanprof, cycle-4, 100",
            "spanprof, cycle-10, 1000",
            "spanprof, native, 250",
            "spanprof, inlined, 250",
            "async-profiler, mix, 100",
            "async-profiler, native, 250",
            "async-profiler, inlined, 250",
        ],
    },
    Benchmark {
        name: "java-labels",
        heading: "Java: labels",
        script: "figures",
        program: "LabelRun",
        rows: &[
            "platform, none",
            "platform, tag",
            "platform, tag inside of another",
            "platform, wrapper",
            "platform, wrapper of a map",
            "platform, span",
            "virtual, none",
            "virtual, tag",
            "virtual, wrapper",
            "virtual, span",
        ],
    },
    Benchmark {
        name: "java-heap-accuracy",
        heading: "Java: heap against the truth",
        script: "truth",
        program: "AllocationsRun",
        rows: &["spanprof, 524288", "spanprof, 16384", "async-profiler, alloc", "async-profiler, live"],
    },
    Benchmark {
        name: "java-service",
        heading: "Java: web service",
        script: "service",
        program: "ServiceRun",
        rows: &[
            "none",
            "spanprof, cpu",
            "spanprof, heap",
            "spanprof, default",
            "spanprof, all",
            "async-profiler, cpu, alloc",
            "async-profiler, cpu, alloc, lock",
        ],
    },
];

/// Pinned for reproducible figures.
const PEER: &str = "tools.profiler:async-profiler:4.6";
/// Options of the programs. On one processor, the VM would select another collector. Resident memory does not depend on the
/// part of the heap in use.
const PROGRAM_OPTIONS: [&str; 5] =
    ["-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC", "-XX:ActiveProcessorCount=2"];
/// Maven's goal to fetch a JAR.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";
/// Default of `--java`.
const JDKS: [u32; 2] = [17, 25];

/// Built and fetched inputs of the benchmarks.
pub struct JavaBench {
    jdks: Vec<Jdk>,
    own: PathBuf,
    peer: PathBuf,
    classes: PathBuf,
}

impl JavaBench {
    /// Builds the JAR, fetches the other profiler and compiles the programs; for the JDKs of `--java`.
    pub fn prepare(versions: &[u32]) -> StepResult<Self> {
        let jdks = runtimes::chosen(if versions.is_empty() { &JDKS } else { versions })?;
        let (own, peer) = (package::release_jar()?, peer()?);
        let classes = compiled(&[&own, &peer])?;
        Ok(Self { jdks, own, peer, classes })
    }

    fn command(&self, java: &Jdk, class: &str, row: &str) -> Vec<String> {
        // Each with the JAR of its own profiler alone.
        let jar = if row.contains("async-profiler") { &self.peer } else { &self.own };
        let class_path = format!("{}:{}", self.classes.display(), jar.display());
        let access: &[&str] = if java.version >= 22 { &["--enable-native-access=ALL-UNNAMED"] } else { &[] };
        let program = java.home.join("bin/java").display().to_string();
        let words = [&[program.as_str()], &PROGRAM_OPTIONS[..], access, &["-cp", &class_path, class, row]].concat();
        words.into_iter().map(str::to_owned).collect()
    }
}

impl BenchRunner for JavaBench {
    fn runtime(&self) -> String {
        let versions: Vec<_> = self.jdks.iter().map(Jdk::full).collect();
        format!("Java {} with G1, beside {PEER}", versions.join(" and "))
    }

    fn rows(&self, benchmark: &Benchmark) -> StepResult<Vec<BenchRow>> {
        let rows = |java: &Jdk, prefix: &str| {
            let rows = benchmark.rows.iter().filter(|row| java.version >= 21 || !row.starts_with("virtual"));
            let row = |row: &&str| (format!("{prefix}{row}"), self.command(java, benchmark.program, row));
            rows.map(row).collect::<Vec<_>>()
        };
        let newest = self.jdks.last().ok_or_else(|| StepFailure::new("bench", "no JDK"))?;
        Ok(match benchmark.script {
            "figures" => self.jdks.iter().flat_map(|java| rows(java, &format!("{}, ", java.version))).collect(),
            _ => rows(newest, ""),
        })
    }
}

/// The JAR of another profiler.
fn peer() -> StepResult<PathBuf> {
    let directory = workspace::target().join("bench-java-peers");
    let file: Vec<_> = PEER.split(':').skip(1).collect();
    let jar = directory.join(format!("{}.jar", file.join("-")));
    if !jar.is_file() {
        runtimes::maven(format!("fetch {PEER}"), &runtimes::preferred()?)
            .args(["--quiet", COPY])
            .arg(format!("-Dartifact={PEER}"))
            .arg(format!("-DoutputDirectory={}", directory.display()))
            .run()?;
    }
    Ok(jar)
}

/// Sources of the programs, relative to the root. Their folders only sort them: all classes are in the unnamed package.
fn sources() -> StepResult<Vec<String>> {
    let is_source = |path: &String| path.starts_with("xtask/bench/java/") && path.ends_with(".java");
    Ok(git::files()?.into_iter().filter(is_source).collect())
}

/// Compiles the programs in one run.
fn compiled(jars: &[&PathBuf]) -> StepResult<PathBuf> {
    let classes = scratch::empty("bench-java-classes")?;
    let root = workspace::root();
    let files: Vec<PathBuf> = sources()?.iter().map(|path| root.join(path)).collect();
    let class_path: Vec<_> = jars.iter().map(|jar| jar.display().to_string()).collect();
    ProcessStep::new("compile the benchmarks", runtimes::preferred()?.home.join("bin/javac"))
        .args([
            "--release",
            "17",
            "-Xlint:all,-try,-processing,-options",
            "-Werror",
            "-proc:none",
            "-cp",
            &class_path.join(":"),
            "-d",
        ])
        .arg(&classes)
        .args(&files)
        .run()?;
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_has_a_source() {
        let sources = sources().unwrap();
        for Benchmark { program, .. } in ALL {
            assert!(sources.iter().any(|path| path.ends_with(&format!("/{program}.java"))), "no source of {program}");
        }
    }
}
