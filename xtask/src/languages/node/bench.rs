//! The Node.js part of `cargo xtask bench`: the release package and other profilers in a separate directory, and the scripts
//! of xtask/bench/node.

use std::path::{Path, PathBuf};

use super::package;
use super::runtimes::{self, NodeJs};
use crate::languages::service::{self, MeasuredService};
use crate::languages::{python, BenchRunner, Benchmark};
use crate::step::{ProcessStep, StepResult};
use crate::{scratch, workspace};

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark { name: "node-start", heading: "Node.js: start and worker threads" },
    Benchmark { name: "node-cost", heading: "Node.js: cost" },
    Benchmark { name: "node-pauses", heading: "Node.js: pauses and size" },
    Benchmark { name: "node-accuracy", heading: "Node.js: shares and totals" },
    Benchmark { name: "node-lag", heading: "Node.js: blocks of the event loop" },
    Benchmark { name: "node-labels", heading: "Node.js: labels" },
    Benchmark { name: "node-service", heading: "Node.js: web service" },
];

/// Pinned for reproducible figures.
const PEERS: [&str; 2] = ["@datadog/pprof@5.20.0", "@pyroscope/nodejs@0.6.4"];
/// Profilers of the web service, in the order of its table; the first is none.
const IN_SERVICE: [&str; 6] =
    ["none", "spanprof, heap", "spanprof, default", "spanprof, all", "datadog, heap", "datadog, wall and heap"];
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

    /// The web service under each profiler.
    fn service(&self, short: bool) -> StepResult<String> {
        let modules = format!("NODE_PATH={}", self.modules.display());
        let node = self.node.program.to_string_lossy();
        let measured = IN_SERVICE.map(|profiler| {
            MeasuredService::new(profiler, &["env", &modules, &node, "xtask/bench/node/service_run.js"])
        });
        service::measure("node-service", &python::runtimes::preferred()?.program, &measured, short)
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
        if name == "node-service" {
            return self.service(short);
        }
        let directory = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let script = format!("xtask/bench/node/{}.js", name.trim_start_matches("node-"));
        let mut step = ProcessStep::new(format!("bench {name}"), &self.node.program)
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
