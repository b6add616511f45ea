//! The Node.js part of `cargo xtask bench`: the release package and other profilers in a separate directory, and the scripts
//! of xtask/bench/node.

use std::path::{Path, PathBuf};

use super::package;
use super::runtimes::{self, NodeJs};
use crate::languages::programs::ProgramBenchmark;
use crate::languages::{python, BenchRunner, Benchmark};
use crate::step::{ProcessStep, StepResult};
use crate::{scratch, workspace};

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark { name: "node-start", heading: "Node.js: start and worker threads" },
    Benchmark { name: "node-cost", heading: "Node.js: cost" },
    Benchmark { name: "node-accuracy", heading: "Node.js: shares and totals" },
    Benchmark { name: "node-labels", heading: "Node.js: labels" },
    Benchmark { name: "node-heap-accuracy", heading: "Node.js: heap against the truth" },
    Benchmark { name: "node-heap-cost", heading: "Node.js: cost of the heap profile" },
    Benchmark { name: "node-service", heading: "Node.js: web service" },
];

/// Pinned for reproducible figures.
const PEERS: [&str; 2] = ["@datadog/pprof@5.20.0", "@pyroscope/nodejs@0.6.4"];
/// The benchmarks that every language has.
const OF_PROGRAMS: &[ProgramBenchmark] = &[
    ProgramBenchmark {
        name: "node-service",
        script: "service",
        program: "service_run.js",
        profilers: &[
            "none",
            "spanprof, cpu",
            "spanprof, heap",
            "spanprof, default",
            "spanprof, all",
            "datadog, heap",
            "datadog, wall and heap",
        ],
    },
    ProgramBenchmark {
        name: "node-heap-accuracy",
        script: "truth",
        program: "allocations_run.js",
        profilers: &["spanprof, 524288", "spanprof, 16384", "datadog"],
    },
    ProgramBenchmark {
        name: "node-heap-cost",
        script: "cost",
        program: "allocations_run.js",
        profilers: &["none", "spanprof, 524288", "spanprof, 131072", "datadog"],
    },
];
/// Measured in addition: AsyncContextFrame carries labels, and V8 reserves four times the memory for machine code.
const NEWER: [u32; 2] = [24, 26];

/// Installed inputs of the benchmarks.
pub struct NodeBench {
    node: NodeJs,
    newer: Vec<NodeJs>,
    package: PathBuf,
    modules: PathBuf,
}

impl NodeBench {
    /// Builds the package and installs it with the other profilers; for the Node.js of `--node`, or the one on PATH.
    pub fn prepare(majors: &[u32]) -> StepResult<Self> {
        let node = match majors {
            [] => runtimes::preferred()?,
            _ => runtimes::chosen(majors)?.remove(0),
        };
        let newer = runtimes::chosen(&NEWER)?;
        let package = package::release_package()?;
        let modules = runtimes::install(&package, &PEERS, "bench-node")?;
        Ok(Self { node, newer, package, modules })
    }
}

impl BenchRunner for NodeBench {
    fn runtime(&self) -> String {
        format!("Node.js {}", self.node.version)
    }

    fn needs_command(&self) -> bool {
        true
    }

    fn measure(&self, name: &str, command: &Path, short: bool) -> StepResult<String> {
        if let Some(benchmark) = ProgramBenchmark::named(name, OF_PROGRAMS) {
            let program = |_: &str| {
                let modules = format!("NODE_PATH={}", self.modules.display());
                let program = format!("xtask/bench/node/{}", benchmark.program);
                vec!["env".to_owned(), modules, self.node.program.display().to_string(), program]
            };
            return benchmark.measure(&python::runtimes::preferred()?.program, command, program, short);
        }
        let directory = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let script = format!("xtask/bench/node/{}.js", name.trim_start_matches("node-"));
        let mut step = ProcessStep::new(format!("bench {name}"), &self.node.program)
            .without_cpu_budget()
            .arg(workspace::root().join(script))
            .env("NODE_PATH", &self.modules)
            .arg("--command")
            .arg(command)
            .arg("--folder")
            .arg(&directory)
            .arg("--package")
            .arg(&self.package)
            .arg("--modules")
            .arg(&self.modules);
        if short {
            step = step.arg("--short");
        }
        for node in std::iter::once(&self.node).chain(&self.newer) {
            step = step.arg(format!("{}={}", node.major(), node.program.display()));
        }
        step.capture()
    }
}
