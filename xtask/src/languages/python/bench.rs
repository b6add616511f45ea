//! The Python part of `cargo xtask bench`: the release wheel and other profilers in separate environments, and the programs of
//! xtask/bench/python.

use std::path::PathBuf;

use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::languages::{BenchRow, BenchRunner, Benchmark};
use crate::step::StepResult;
use crate::target::Target;

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark {
        name: "accuracy",
        heading: "Python: shares and totals",
        script: "truth",
        program: "accuracy_run.py",
        rows: &[
            "spanprof, python 100 20 1",
            "spanprof, python 100 100 16",
            "spanprof, python 1000 20 1",
            "spanprof, python 1000 100 16",
            "spanprof, native 100 20 16",
            "spanprof, cycle-4 100 20 1",
            "spanprof, cycle-10 1000 20 1",
        ],
    },
    Benchmark {
        name: "sample",
        heading: "Python: cost of samples",
        script: "figures",
        program: "sample_run.py",
        rows: &[
            "20 frames, none",
            "20 frames, spanprof 100 Hz",
            "20 frames, spanprof 1000 Hz",
            "20 frames, pyroscope 100 Hz",
            "20 frames, ddtrace 100 Hz",
            "20 frames, py-spy 100 Hz",
            "100 frames, none",
            "100 frames, spanprof 100 Hz",
            "100 frames, spanprof 1000 Hz",
            "100 frames, pyroscope 100 Hz",
            "100 frames, ddtrace 100 Hz",
            "100 frames, py-spy 100 Hz",
        ],
    },
    Benchmark {
        name: "labels",
        heading: "Python: tag_wrapper",
        script: "figures",
        program: "label_run.py",
        rows: &["none", "prepared", "3 keys"],
    },
    Benchmark {
        name: "heap-accuracy",
        heading: "Python: heap against the truth",
        script: "truth",
        program: "allocations_run.py",
        rows: &["spanprof, 524288", "spanprof, 16384", "ddtrace"],
    },
    Benchmark {
        name: "service",
        heading: "Python: web service",
        script: "service",
        program: "service_run.py",
        rows: &[
            "none",
            "spanprof, cpu",
            "spanprof, heap",
            "spanprof, default",
            "spanprof, all",
            "ddtrace",
            "pyroscope",
        ],
    },
];

/// Pinned for reproducible figures. ddtrace's files are compressed by zstd.
const PEERS: [(&str, &str); 3] = [
    ("pyroscope", "pyroscope-io==1.4.0"),
    ("ddtrace", "ddtrace==4.16.0 zstandard==0.25.0"),
    ("py-spy", "py-spy==0.4.3"),
];

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
        Ok(Self { python, wheel: package::release(Target::HOST)? })
    }

    /// The interpreter with the profiler of a row.
    fn interpreter(&self, row: &str) -> StepResult<PathBuf> {
        if let Some((peer, packages)) = PEERS.into_iter().find(|(peer, _)| row.contains(peer)) {
            let packages: Vec<_> = packages.split(' ').map(str::to_owned).collect();
            return Ok(Venv::with(&format!("bench-{peer}"), &self.python, &packages)?.python());
        }
        let own = Venv::with("bench-spanprof", &self.python, &[])?;
        own.install_wheel(&self.wheel)?;
        Ok(own.python())
    }
}

impl BenchRunner for PythonBench {
    fn runtime(&self) -> String {
        format!("CPython {}", self.python.full())
    }

    fn rows(&self, benchmark: &Benchmark) -> StepResult<Vec<BenchRow>> {
        let row = |row: &&str| {
            let program = format!("xtask/bench/python/{}", benchmark.program);
            let command = vec![self.interpreter(row)?.display().to_string(), program, (*row).to_owned()];
            Ok(((*row).to_owned(), command))
        };
        benchmark.rows.iter().map(row).collect()
    }
}
