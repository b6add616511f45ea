//! The Java part of `cargo xtask bench`: the release JAR, other profilers from Maven Central, and the programs of
//! xtask/bench/java on the selected JDKs.

use std::path::{Path, PathBuf};

use super::package;
use super::runtimes::{self, Jdk};
use crate::languages::programs::ProgramBenchmark;
use crate::languages::{python, BenchRunner, Benchmark};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{git, scratch, workspace};

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark { name: "java-handler", heading: "Java: handler and walk" },
    Benchmark { name: "java-cost", heading: "Java: cost" },
    Benchmark { name: "java-accuracy", heading: "Java: shares and totals" },
    Benchmark { name: "java-labels", heading: "Java: labels" },
    Benchmark { name: "java-heap-accuracy", heading: "Java: heap against the truth" },
    Benchmark { name: "java-heap-cost", heading: "Java: cost of the heap profile" },
    Benchmark { name: "java-lock-accuracy", heading: "Java: waits for locks against the truth" },
    Benchmark { name: "java-service", heading: "Java: web service" },
];

/// Pinned for reproducible figures: name in the programs, and Maven coordinates.
const PEERS: [(&str, &str); 2] =
    [("async-profiler", "tools.profiler:async-profiler:4.6"), ("pyroscope", "io.pyroscope:agent:2.9.2")];
/// The benchmarks that every language has.
const OF_PROGRAMS: &[ProgramBenchmark] = &[
    ProgramBenchmark {
        name: "java-service",
        script: "service",
        program: "ServiceRun",
        profilers: &[
            "none",
            "spanprof, cpu",
            "spanprof, heap",
            "spanprof, default",
            "spanprof, all",
            "async-profiler, cpu, alloc",
            "async-profiler, cpu, alloc, lock",
        ],
    },
    ProgramBenchmark {
        name: "java-heap-accuracy",
        script: "truth",
        program: "AllocationsRun",
        profilers: &["spanprof, 524288", "spanprof, 16384", "async-profiler, alloc", "async-profiler, live"],
    },
    ProgramBenchmark {
        name: "java-heap-cost",
        script: "cost",
        program: "AllocationsRun",
        profilers: &["none", "spanprof, 524288", "spanprof, 131072", "async-profiler, alloc", "async-profiler, live"],
    },
    ProgramBenchmark {
        name: "java-lock-accuracy",
        script: "truth",
        program: "WaitsRun",
        profilers: &["spanprof, lock", "async-profiler, lock"],
    },
];
/// Options of these programs. On one processor, the VM would select another collector. Resident memory does not depend on the
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
    /// JARs by the name of their profiler.
    jars: Vec<(&'static str, PathBuf)>,
    classes: PathBuf,
}

impl JavaBench {
    /// Builds the JAR, fetches the other profilers and compiles the programs; for the JDKs of `--java`.
    pub fn prepare(versions: &[u32]) -> StepResult<Self> {
        let jdks = runtimes::chosen(if versions.is_empty() { &JDKS } else { versions })?;
        let mut jars = vec![("spanprof", package::release_jar()?)];
        for (name, coordinates) in PEERS {
            jars.push((name, peer(coordinates)?));
        }
        let classes = compiled(&jars)?;
        Ok(Self { jdks, jars, classes })
    }

    /// The newest of the selected JDKs.
    fn newest(&self) -> StepResult<&Jdk> {
        self.jdks.last().ok_or_else(|| StepFailure::new("bench", "no JDK"))
    }

    /// Command of a program of [`OF_PROGRAMS`].
    fn program(&self, newest: &Jdk, class: &str, profiler: &str) -> Vec<String> {
        let jar = self.jars.iter().find(|(name, _)| profiler.starts_with(name)).map(|(_, jar)| jar.display());
        let class_path = format!("{}:{}", self.classes.display(), jar.map(|jar| jar.to_string()).unwrap_or_default());
        let access: &[&str] = if newest.version >= 22 { &["--enable-native-access=ALL-UNNAMED"] } else { &[] };
        let java = newest.home.join("bin/java").display().to_string();
        let words = [&[java.as_str()], &PROGRAM_OPTIONS[..], access, &["-cp", &class_path, class]].concat();
        words.into_iter().map(str::to_owned).collect()
    }
}

impl BenchRunner for JavaBench {
    fn runtime(&self) -> String {
        let versions: Vec<_> = self.jdks.iter().map(Jdk::full).collect();
        let peers: Vec<_> = PEERS.iter().map(|(_, coordinates)| coordinates.replace(':', " ")).collect();
        format!("Java {} with G1, beside {}", versions.join(" and "), peers.join(" and "))
    }

    fn needs_command(&self) -> bool {
        true
    }

    fn measure(&self, name: &str, command: &Path, short: bool) -> StepResult<String> {
        if let Some(benchmark) = ProgramBenchmark::named(name, OF_PROGRAMS) {
            let newest = self.newest()?;
            let program = |profiler: &str| self.program(newest, benchmark.program, profiler);
            return benchmark.measure(&python::runtimes::preferred()?.program, command, program, short);
        }
        let directory = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let mut step = ProcessStep::new(format!("bench {name}"), self.newest()?.home.join("bin/java"))
            .without_cpu_budget()
            .args(["-Xmx256m", "-cp"])
            .arg(&self.classes)
            .arg(main_class(name))
            .arg("--classes")
            .arg(&self.classes)
            .arg("--folder")
            .arg(&directory);
        for (jar, path) in &self.jars {
            step = step.arg(format!("--{jar}")).arg(path);
        }
        if short {
            step = step.arg("--short");
        }
        let jdks: Vec<_> = self.jdks.iter().map(|java| format!("{}={}", java.version, java.home.display())).collect();
        step.args(jdks).capture()
    }
}

/// Main class of a benchmark: `CostBench` for `java-cost`.
fn main_class(name: &str) -> String {
    let word = name.trim_start_matches("java-");
    let (first, rest) = word.split_at(1);
    format!("{}{rest}Bench", first.to_uppercase())
}

/// The JAR of another profiler.
fn peer(coordinates: &str) -> StepResult<PathBuf> {
    let directory = workspace::target().join("bench-java-peers");
    let file: Vec<_> = coordinates.split(':').skip(1).collect();
    let jar = directory.join(format!("{}.jar", file.join("-")));
    if !jar.is_file() {
        runtimes::maven(format!("fetch {coordinates}"), &runtimes::preferred()?)
            .args(["--quiet", COPY])
            .arg(format!("-Dartifact={coordinates}"))
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

/// Compiles the programs in one run, and the tests' reader of pprof.
fn compiled(jars: &[(&str, PathBuf)]) -> StepResult<PathBuf> {
    let classes = scratch::empty("bench-java-classes")?;
    let root = workspace::root();
    let mut files: Vec<PathBuf> = sources()?.iter().map(|path| root.join(path)).collect();
    files.push(root.join("bindings-java/src/test/java/io/spanprof/ProfileFile.java"));
    let class_path: Vec<_> = jars.iter().map(|(_, jar)| jar.display().to_string()).collect();
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
    fn a_benchmark_has_the_name_of_its_class() {
        assert_eq!(main_class("java-cost"), "CostBench");
    }

    #[test]
    fn every_benchmark_has_a_source() {
        let sources = sources().unwrap();
        for benchmark in ALL {
            let class = ProgramBenchmark::named(benchmark.name, OF_PROGRAMS)
                .map_or_else(|| main_class(benchmark.name), |benchmark| benchmark.program.to_owned());
            assert!(sources.iter().any(|path| path.ends_with(&format!("/{class}.java"))), "no source of {class}");
        }
    }
}
