//! The Node.js part of `cargo xtask bench`: the release package and other profilers in a separate directory, and the programs
//! of xtask/bench/node.

use std::path::PathBuf;

use super::package;
use super::runtimes::{self, NodeJs};
use crate::languages::{BenchRow, BenchRunner, Benchmark};
use crate::step::StepResult;

/// In the order of a run.
pub const ALL: &[Benchmark] = &[
    Benchmark {
        name: "node-sample",
        heading: "Node.js: cost of samples",
        script: "figures",
        program: "sample_run.js",
        rows: &[
            "20 frames, spanprof 100 Hz",
            "20 frames, spanprof 1000 Hz",
            "100 frames, spanprof 100 Hz",
            "100 frames, spanprof 1000 Hz",
        ],
    },
    Benchmark {
        name: "node-accuracy",
        heading: "Node.js: shares and totals",
        script: "truth",
        program: "accuracy_run.js",
        rows: &[
            "spanprof, mix 100 20",
            "spanprof, mix 1000 100",
            "spanprof, cycle-4 100 20",
            "spanprof, cycle-10 1000 20",
            "spanprof, inlined 1000 20",
        ],
    },
    Benchmark {
        name: "node-labels",
        heading: "Node.js: labels",
        script: "figures",
        program: "label_run.js",
        rows: &["none", "AsyncLocalStorage", "spanprof", "datadog"],
    },
    Benchmark {
        name: "node-heap-accuracy",
        heading: "Node.js: heap against the truth",
        script: "truth",
        program: "allocations_run.js",
        rows: &["spanprof, 524288", "spanprof, 16384", "datadog"],
    },
    Benchmark {
        name: "node-service",
        heading: "Node.js: web service",
        script: "service",
        program: "service_run.js",
        rows: &[
            "none",
            "spanprof, cpu",
            "spanprof, heap",
            "spanprof, default",
            "spanprof, all",
            "datadog, heap",
            "datadog, wall and heap",
        ],
    },
];

/// Pinned for reproducible figures.
const PEER: &str = "@datadog/pprof@5.20.0";
/// Measured in addition: AsyncContextFrame carries labels, and V8 reserves four times the memory for machine code.
const NEWER: [u32; 2] = [24, 26];

/// Installed inputs of the benchmarks.
pub struct NodeBench {
    /// The first one is that of `--node`.
    nodes: Vec<NodeJs>,
    modules: PathBuf,
}

impl NodeBench {
    /// Builds the package and installs it with the other profilers; for the Node.js of `--node`, or the one on PATH.
    pub fn prepare(majors: &[u32]) -> StepResult<Self> {
        let mut nodes = match majors {
            [] => vec![runtimes::preferred()?],
            _ => runtimes::chosen(majors)?,
        };
        nodes.truncate(1);
        nodes.extend(runtimes::chosen(&NEWER)?);
        let modules = runtimes::install(&package::release_package()?, &[PEER], "bench-node")?;
        Ok(Self { nodes, modules })
    }
}

impl BenchRunner for NodeBench {
    fn runtime(&self) -> String {
        format!("Node.js {}, beside {PEER}", self.nodes[0].version)
    }

    fn rows(&self, benchmark: &Benchmark) -> StepResult<Vec<BenchRow>> {
        let (modules, program) =
            (format!("NODE_PATH={}", self.modules.display()), format!("xtask/bench/node/{}", benchmark.program));
        let command = |node: &NodeJs, row: &str| {
            ["env", &modules, &node.program.display().to_string(), &program, row].map(str::to_owned).to_vec()
        };
        let rows = |node: &NodeJs, prefix: &str| {
            let row = |row: &&str| (format!("{prefix}{row}"), command(node, row));
            benchmark.rows.iter().map(row).collect::<Vec<_>>()
        };
        Ok(match benchmark.script {
            "figures" => self.nodes.iter().flat_map(|node| rows(node, &format!("{}, ", node.version))).collect(),
            _ => rows(&self.nodes[0], ""),
        })
    }
}
