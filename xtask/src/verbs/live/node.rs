//! Stress in real Node.js programs: every major that is supported. A crash, a hang, an exit code, a label or the length of a
//! block that is not the program's own fails the suite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::Arguments;
use crate::nodes::{self, Node};
use crate::step::{Failure, Outcome, Step};
use crate::verbs::addon;
use crate::workspace;

/// Real web servers that run under load.
const SERVERS: [&str; 2] = ["express@5", "fastify@4"];
/// What a program may take beyond the time that it is told.
const GRACE: Duration = Duration::from_secs(180);
/// Ends of programs, of nine ways in turn.
const ENDS: u64 = 36;
/// How often the length of a block is measured before the suite gives up.
const TRIES: u64 = 12;

/// Node.js 22 carries labels along when it is asked to.
const CARRIES_WITH_FLAG: u32 = 22;
const CARRYING: &str = "--experimental-async-context-frame";

/// A program of the suite.
#[derive(Clone, Copy)]
struct Cell {
    program: &'static str,
    /// What of it; empty where it has no kinds.
    kind: &'static str,
    /// Seconds, ends or tries.
    size: u64,
    /// Of Node.js; empty for none.
    flag: &'static str,
}

const fn cell(program: &'static str, kind: &'static str, size: u64) -> Cell {
    Cell { program, kind, size, flag: "" }
}

pub fn run(given: &Arguments) -> Outcome {
    let seconds = given.number("seconds")?.unwrap_or(60);
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
    for node in nodes::chosen(given.text("node"))? {
        let carrying = Cell { flag: CARRYING, ..cell("labels", "chains", brief) };
        let carrying = (node.major() == CARRIES_WITH_FLAG).then_some(carrying);
        for cell in cells.into_iter().chain(carrying) {
            let name = cell.name(&node);
            if let Err(failure) = cell.run(&node, &name, &modules) {
                eprintln!("{failure}");
                failed.push(name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("live node", format!("failed: {}", failed.join("; ")))),
    }
}

/// The package with the checks of the tests' profile left in, and the servers, in a folder of their own.
pub fn installed() -> Outcome<PathBuf> {
    addon::build_for_tests()?;
    nodes::install(&addon::pack_for_tests()?, &SERVERS, "live-node")
}

impl Cell {
    fn name(&self, node: &Node) -> String {
        let words = [self.program, self.kind, self.flag].into_iter().filter(|word| !word.is_empty());
        format!("{} on Node.js {}", words.collect::<Vec<_>>().join(" "), node.version)
    }

    fn run(&self, node: &Node, name: &str, modules: &Path) -> Outcome {
        let program = workspace::root().join("xtask/live/node").join(format!("{}.js", self.program));
        Step::new(name, &node.program)
            .arg(program)
            .args((!self.kind.is_empty()).then_some(self.kind))
            .arg(self.size.to_string())
            .env("NODE_PATH", modules)
            .env("NODE_OPTIONS", self.flag)
            .within(Duration::from_secs(self.size * 4) + GRACE)
            .run()
    }
}
