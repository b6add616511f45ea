//! The Node.js part of `cargo xtask bench`: the release package and the peers in a folder of their own, and the scripts of
//! core/benches/node on them.

use std::path::{Path, PathBuf};

use super::addon;
use crate::nodes::{self, Node};
use crate::step::{Outcome, Step};
use crate::{scratch, workspace};

/// Pinned, so that a figure can be measured again.
const PEERS: [&str; 2] = ["@datadog/pprof@5.20.0", "@pyroscope/nodejs@0.6.4"];
/// Beside the chosen one: those whose continuations carry labels, and which reserve four times the memory for machine code.
const NEWER: &str = "24,26";

/// What is measured, installed.
pub struct Measured {
    node: Node,
    newer: Vec<Node>,
    package: PathBuf,
    modules: PathBuf,
}

impl Measured {
    /// Builds and installs it with the peers; on the Node.js of `--node`, or the one on PATH.
    pub fn prepare(wanted: Option<&str>) -> Outcome<Self> {
        let node = match wanted {
            Some(_) => nodes::chosen(wanted)?.remove(0),
            None => nodes::preferred()?,
        };
        let newer = nodes::chosen(Some(NEWER))?;
        let package = addon::release_package()?;
        let modules = nodes::install(&package, &PEERS, "bench-node")?;
        Ok(Self { node, newer, package, modules })
    }

    /// The name and version that a figure is of.
    pub fn runtime(&self) -> String {
        format!("Node.js {}", self.node.version)
    }

    /// Runs one benchmark; what it prints.
    pub fn measure(&self, name: &str, command: &Path, short: bool) -> Outcome<String> {
        let folder = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let script = format!("core/benches/node/{}.js", name.trim_start_matches("node-"));
        let mut step = Step::new(format!("bench {name}"), &self.node.program)
            .arg(workspace::root().join(script))
            .env("NODE_PATH", &self.modules)
            .arg("--command")
            .arg(command)
            .arg("--folder")
            .arg(&folder)
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
