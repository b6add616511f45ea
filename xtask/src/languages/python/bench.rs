//! The Python part of `cargo xtask bench`: the release wheel and other profilers in separate environments, and the scripts of
//! xtask/bench/python.

use std::path::{Path, PathBuf};

use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::languages::service::{self, MeasuredService};
use crate::languages::{BenchRunner, Benchmark};
use crate::scratch;
use crate::step::{ProcessStep, StepResult};

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark { name: "accuracy", heading: "Python: shares and totals" },
    Benchmark { name: "overhead", heading: "Python: cost" },
    Benchmark { name: "tags", heading: "Python: tag_wrapper" },
    Benchmark { name: "heap", heading: "Python: allocator hooks" },
    Benchmark { name: "service", heading: "Python: web service" },
    Benchmark { name: "footprint", heading: "Python: start, memory, size" },
];

/// Pinned for reproducible figures.
const PEERS: [(&str, &str); 3] =
    [("pyroscope", "pyroscope-io==1.4.0"), ("ddtrace", "ddtrace==4.16.0"), ("py-spy", "py-spy==0.4.3")];
/// Profilers of the web service, in the order of its table; the first is none.
const IN_SERVICE: [&str; 5] = ["none", "spanprof, heap", "spanprof, default", "spanprof, all", "ddtrace"];

/// The peers of a benchmark.
fn peers(name: &str) -> &'static [&'static str] {
    match name {
        "overhead" | "footprint" => &["pyroscope", "ddtrace", "py-spy"],
        "service" => &["ddtrace"],
        _ => &[],
    }
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
        for (peer, package) in PEERS.into_iter().filter(|(peer, _)| peers(name).contains(peer)) {
            let venv = Venv::with(&format!("bench-{peer}"), &self.python, &[package.to_owned()])?;
            environments.push((peer, venv.python()));
        }
        Ok(environments)
    }

    /// The web service under each profiler.
    fn service(&self, short: bool) -> StepResult<String> {
        let environments = self.environments("service")?;
        let measured = IN_SERVICE.map(|profiler| {
            let own = environments.iter().find(|(name, _)| *name == profiler).unwrap_or(&environments[0]);
            MeasuredService::new(profiler, &[&own.1.to_string_lossy(), "xtask/bench/python/service_run.py"])
        });
        service::measure("service", &self.python.program, &measured, short)
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
        if name == "service" {
            return self.service(short);
        }
        let environments = self.environments(name)?;
        let directory = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let mut step = ProcessStep::new(format!("bench {name}"), &environments[0].1)
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
