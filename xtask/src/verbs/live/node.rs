//! Stress in real Node.js programs: every major that is supported. A crash, a hang, an exit code or a label that is not the
//! program's own fails the suite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::Arguments;
use crate::nodes::{self, Node};
use crate::step::{Failure, Outcome, Step};
use crate::verbs::addon;
use crate::{scratch, workspace};

/// Real web servers that run under load.
const SERVERS: [&str; 2] = ["express@5", "fastify@4"];
/// What a program may take beyond the time that it is told.
const GRACE: Duration = Duration::from_secs(180);
/// Ends of programs, of nine ways in turn.
const ENDS: u64 = 36;

pub fn run(given: &Arguments) -> Outcome {
    let seconds = given.number("seconds")?.unwrap_or(60);
    let modules = installed()?;
    let brief = seconds.min(15);
    let cells: [(&str, &[&str], u64); 7] = [
        ("stress", &[], seconds),
        ("exits", &[], ENDS.min(seconds)),
        ("labels", &["chains"], brief),
        ("labels", &["express"], brief),
        ("labels", &["fastify"], brief),
        ("beside", &[], brief.div_ceil(4)),
        ("idle", &[], brief),
    ];
    let mut failed = Vec::new();
    for node in nodes::chosen(given.text("node"))? {
        for (program, words, size) in cells {
            let name = [&[program], words].concat().join(" ");
            let name = format!("{name} on Node.js {}", node.version);
            if let Err(failure) = cell(&node, &name, program, words, size, &modules) {
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
    let package = addon::pack_for_tests()?;
    let folder = scratch::empty("live-node")?;
    scratch::write(&folder.join("package.json"), "{\"private\": true}\n")?;
    nodes::npm("install the package and the servers")
        .args(["install", "--ignore-scripts"])
        .arg(&package)
        .args(SERVERS)
        .inside(&folder)
        .within(Duration::from_secs(600))
        .run()?;
    Ok(folder.join("node_modules"))
}

fn cell(node: &Node, name: &str, program: &str, words: &[&str], size: u64, modules: &Path) -> Outcome {
    Step::new(name, &node.program)
        .arg(workspace::root().join("xtask/live/node").join(format!("{program}.js")))
        .args(words)
        .arg(size.to_string())
        .env("NODE_PATH", modules)
        .within(Duration::from_secs(size * 4) + GRACE)
        .run()
}
