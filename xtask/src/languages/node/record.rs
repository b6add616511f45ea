//! `live node --record`: records stacks of synthetic programs in every Node.js, for the tests that replay them
//! (`bindings-node/src/runtime/record/replay_tests.rs`).

use std::path::Path;
use std::time::Duration;

use super::package;
use super::runtimes::{self, NodeJs};
use crate::arguments::LiveArguments;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::{scratch, workspace};

/// The program ends by itself after 60 s.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A shape of xtask/live/node/record_stacks.js, and the flags of Node.js that give it.
struct ShapeFlags {
    name: &'static str,
    flags: &'static [&'static str],
}

/// Every shape of `SHAPES` in bindings-node/src/runtime/record/recorded_shape.rs.
static SHAPES: [ShapeFlags; 11] = [
    shape("interpreted", &["--no-opt", NO_MAGLEV, "--no-sparkplug"]),
    shape("baseline", &["--no-opt", NO_MAGLEV, "--always-sparkplug"]),
    shape("optimized", &[]),
    // The callee must not be inlined.
    shape("frameless", &["--no-turbo-inlining", NO_MAGLEV]),
    shape("builtin", &[]),
    shape("frameless-builtin", &[]),
    shape("fast-call", &[]),
    shape("async", &[]),
    shape("generator", &[]),
    shape("native", &[]),
    shape("collecting", &["--expose-gc"]),
];

const NO_MAGLEV: &str = "--no-maglev";
/// First major with that flag.
const MAGLEV_MAJOR: u32 = 20;

const fn shape(name: &'static str, flags: &'static [&'static str]) -> ShapeFlags {
    ShapeFlags { name, flags }
}

/// Records every shape, or that of `--shape NAME`, on each chosen Node.js.
pub fn run(arguments: &LiveArguments) -> StepResult {
    let modules = runtimes::install(&package::pack_for_recording()?, &[], "live-node-record")?;
    let mut failed = Vec::new();
    for node in runtimes::chosen(&arguments.runtimes.node)? {
        let is_chosen = |shape: &&ShapeFlags| arguments.shape.as_deref().is_none_or(|name| name == shape.name);
        for shape in SHAPES.iter().filter(is_chosen) {
            if let Err(failure) = record(&node, shape, &modules) {
                eprintln!("{failure}");
                failed.push(format!("{} on Node.js {}", shape.name, node.version));
            }
        }
    }
    all_passed("live node --record", &failed)
}

fn record(node: &NodeJs, shape: &ShapeFlags, modules: &Path) -> StepResult {
    let name = format!("record {} on Node.js {}", shape.name, node.version);
    let fixture = ProcessStep::new(&name, &node.program)
        .args(shape.flags.iter().filter(|flag| **flag != NO_MAGLEV || node.major() >= MAGLEV_MAJOR))
        .arg(workspace::root().join("xtask/live/node/record_stacks.js"))
        .arg(shape.name)
        .env("NODE_PATH", modules)
        .time_limit(TIME_LIMIT)
        .capture()?;
    // One directory for the updates of a major; the file has the full version.
    let directory = workspace::root().join("bindings-node/tests/recorded").join(node.major().to_string());
    std::fs::create_dir_all(&directory)
        .map_err(|error| StepFailure::new("recorded stacks", format!("{}: {error}", directory.display())))?;
    scratch::write(&directory.join(format!("{}.json", shape.name)), &fixture)?;
    println!("{name}: {} bytes", fixture.len());
    Ok(())
}
