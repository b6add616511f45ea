//! The Python part of `cargo xtask bench`: the release wheel and other profilers in separate environments, and the scripts of
//! xtask/bench/python.

use std::path::{Path, PathBuf};

use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::languages::programs::ProgramBenchmark;
use crate::languages::{BenchRunner, Benchmark};
use crate::scratch;
use crate::step::{ProcessStep, StepResult};

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark { name: "accuracy", heading: "Python: shares and totals" },
    Benchmark { name: "overhead", heading: "Python: cost" },
    Benchmark { name: "tags", heading: "Python: tag_wrapper" },
    Benchmark { name: "heap", heading: "Python: allocator hooks" },
    Benchmark { name: "heap-accuracy", heading: "Python: heap against the truth" },
    Benchmark { name: "heap-cost", heading: "Python: cost of the heap profile" },
    Benchmark { name: "lock-accuracy", heading: "Python: waits for locks against the truth" },
    Benchmark { name: "service", heading: "Python: web service" },
    Benchmark { name: "gate", heading: "Python: `spanprof diff` as a gate" },
];

/// Pinned for reproducible figures. ddtrace's files are compressed by zstd.
const PEERS: [(&str, &str); 3] = [
    ("pyroscope", "pyroscope-io==1.4.0"),
    ("ddtrace", "ddtrace==4.16.0 zstandard==0.25.0"),
    ("py-spy", "py-spy==0.4.3"),
];
/// The benchmarks that every language has.
const OF_PROGRAMS: &[ProgramBenchmark] = &[
    ProgramBenchmark {
        name: "service",
        script: "service",
        program: "service_run.py",
        profilers: &[
            "none",
            "spanprof, cpu",
            "spanprof, heap",
            "spanprof, default",
            "spanprof, all",
            "ddtrace",
            "pyroscope",
        ],
    },
    ProgramBenchmark {
        name: "heap-accuracy",
        script: "truth",
        program: "allocations_run.py",
        profilers: &["spanprof, 524288", "spanprof, 16384", "ddtrace"],
    },
    ProgramBenchmark {
        name: "heap-cost",
        script: "cost",
        program: "allocations_run.py",
        profilers: &["none", "spanprof, 524288", "spanprof, 131072", "ddtrace"],
    },
    ProgramBenchmark {
        name: "lock-accuracy",
        script: "truth",
        program: "waits_run.py",
        profilers: &["spanprof", "ddtrace"],
    },
];

/// Whether a benchmark runs beside a peer.
fn is_beside(name: &str, peer: &str) -> bool {
    let of_programs = ProgramBenchmark::named(name, OF_PROGRAMS).is_some_and(|one| one.profilers.contains(&peer));
    name == "overhead" || of_programs
}

/// Inputs of the benchmarks.
pub struct PythonBench {
    python: Python,
    wheel: PathBuf,
}

impl PythonBench {
    /// Builds the wheel; for the interpreter of `--python`, or the preferred one.
    pub fn prepare(versions: &[String]) -> StepResult<Self> {
        let python = match versions {
            [] => runtimes::preferred()?,
            _ => runtimes::chosen(versions)?.remove(0),
        };
        Ok(Self { python, wheel: package::release()? })
    }

    /// Interpreters by profiler.
    fn environments(&self, name: &str) -> StepResult<Vec<(&'static str, PathBuf)>> {
        let own = Venv::with("bench-spanprof", &self.python, &[])?;
        own.install_wheel(&self.wheel)?;
        let mut environments = vec![("spanprof", own.python())];
        for (peer, package) in PEERS.into_iter().filter(|(peer, _)| is_beside(name, peer)) {
            let packages: Vec<_> = package.split(' ').map(str::to_owned).collect();
            let venv = Venv::with(&format!("bench-{peer}"), &self.python, &packages)?;
            environments.push((peer, venv.python()));
        }
        Ok(environments)
    }
}

impl BenchRunner for PythonBench {
    fn runtime(&self) -> String {
        format!("CPython {}", self.python.full())
    }

    fn needs_command(&self) -> bool {
        true
    }

    fn measure(&self, name: &str, command: &Path, short: bool) -> StepResult<String> {
        let environments = self.environments(name)?;
        if let Some(benchmark) = ProgramBenchmark::named(name, OF_PROGRAMS) {
            let program = |profiler: &str| {
                let own = environments.iter().find(|(name, _)| *name == profiler).unwrap_or(&environments[0]);
                vec![own.1.display().to_string(), format!("xtask/bench/python/{}", benchmark.program)]
            };
            return benchmark.measure(&self.python.program, command, program, short);
        }
        let directory = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let mut step = ProcessStep::new(format!("bench {name}"), &environments[0].1)
            .without_cpu_budget()
            .arg(format!("xtask/bench/python/{name}.py"))
            .arg("--command")
            .arg(command)
            .arg("--folder")
            .arg(&directory)
            .arg("--wheel")
            .arg(&self.wheel);
        if short {
            step = step.arg("--short");
        }
        step.args(environments.iter().map(|(name, python)| format!("{name}={}", python.display()))).capture()
    }
}
