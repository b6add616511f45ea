//! The Node.js part of `cargo xtask bench`: the release package and the peers in a folder of their own, and the scripts of
//! core/benches/node on them.

use std::path::{Path, PathBuf};

use super::addon;
use crate::nodes::{self, Node};
use crate::step::{Outcome, Step};
use crate::{scratch, workspace};

/// Pinned, so that a figure can be measured again.
const PEERS: [&str; 2] = ["@datadog/pprof@5.20.0", "@pyroscope/nodejs@0.6.4"];
/// Beside the chosen one, labels are measured on a Node.js whose continuations carry them.
const CARRIES_LABELS: &str = "24";

/// What is measured, installed.
pub struct Measured {
    node: Node,
    newer: Node,
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
        let newer = nodes::chosen(Some(CARRIES_LABELS))?.remove(0);
        let package = addon::release_package()?;
        let folder = scratch::empty("bench-node")?;
        scratch::write(&folder.join("package.json"), "{\"private\": true}\n")?;
        nodes::npm("install the package and its peers")
            .args(["install", "--ignore-scripts"])
            .arg(&package)
            .args(PEERS)
            .inside(&folder)
            .run()?;
        Ok(Self { node, newer, package, modules: folder.join("node_modules") })
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
        for node in [&self.node, &self.newer] {
            step = step.arg(format!("{}={}", node.major(), node.program.display()));
        }
        step.capture()
    }
}
