//! Stress in Node.js programs: every supported major. A crash, a hang, a wrong exit code, label or length of a block fails the
//! suite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::package;
use super::runtimes::{self, NodeJs};
use crate::arguments::LiveArguments;
use crate::step::{all_passed, ProcessStep, StepResult};
use crate::workspace;

/// Web servers under load.
const SERVERS: [&str; 2] = ["express@5", "fastify@4"];
/// Time limit of a program beyond its requested duration.
const GRACE: Duration = Duration::from_secs(180);
/// Number of program exits, which cycle through nine kinds.
const ENDS: u64 = 36;
/// Measurements of the length of a block before the suite fails.
const TRIES: u64 = 12;

/// Node.js 22 has AsyncContextFrame behind a flag.
const CONTEXT_FRAME_MAJOR: u32 = 22;
const CONTEXT_FRAME_FLAG: &str = "--experimental-async-context-frame";

/// A program of the suite.
#[derive(Clone, Copy)]
struct NodeCell {
    program: &'static str,
    /// Variant of the program; empty for none.
    kind: &'static str,
    /// Seconds, exits or measurements.
    size: u64,
    /// Flag of Node.js; empty for none.
    flag: &'static str,
}

const fn cell(program: &'static str, kind: &'static str, size: u64) -> NodeCell {
    NodeCell { program, kind, size, flag: "" }
}

pub fn run(given: &LiveArguments) -> StepResult {
    let seconds = given.seconds.unwrap_or(60);
    let modules = installed()?;
    let brief = seconds.min(15);
    let cells = [
        cell("stress", "", seconds),
        cell("exits", "", ENDS.min(seconds)),
        cell("labels", "chains", brief),
        cell("labels", "express", brief),
        cell("labels", "fastify", brief),
        cell("blocks", "", TRIES),
        cell("beside", "", brief.div_ceil(4)),
        cell("idle", "", brief),
    ];
    let mut failed = Vec::new();
    for node in runtimes::chosen(&given.runtimes.node)? {
        let with_flag = NodeCell { flag: CONTEXT_FRAME_FLAG, ..cell("labels", "chains", brief) };
        let with_flag = (node.major() == CONTEXT_FRAME_MAJOR).then_some(with_flag);
        for cell in cells.into_iter().chain(with_flag) {
            let name = cell.name(&node);
            if let Err(failure) = cell.run(&node, &name, &modules) {
                eprintln!("{failure}");
                failed.push(name);
            }
        }
    }
    all_passed("live node", &failed)
}

/// Installs the package in the profile of the tests, and the servers, into a separate directory.
pub fn installed() -> StepResult<PathBuf> {
    package::build_for_tests()?;
    runtimes::install(&package::pack_for_tests()?, &SERVERS, "live-node")
}

impl NodeCell {
    fn name(&self, node: &NodeJs) -> String {
        let words = [self.program, self.kind, self.flag].into_iter().filter(|word| !word.is_empty());
        format!("{} on Node.js {}", words.collect::<Vec<_>>().join(" "), node.version)
    }

    fn run(&self, node: &NodeJs, name: &str, modules: &Path) -> StepResult {
        let program = workspace::root().join("xtask/live/node").join(format!("{}.js", self.program));
        ProcessStep::new(name, &node.program)
            .without_cpu_budget()
            .arg(program)
            .args((!self.kind.is_empty()).then_some(self.kind))
            .arg(self.size.to_string())
            .env("NODE_PATH", modules)
            .env("NODE_OPTIONS", self.flag)
            .time_limit(Duration::from_secs(self.size * 4) + GRACE)
            .run()
    }
}
