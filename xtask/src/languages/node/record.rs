//! `live node --record`: records stacks of synthetic programs in every Node.js, for the tests that replay them
//! (`bindings-node/src/runtime/record/replay_tests.rs`). `live platforms --record`: those of Node.js on arm64.

use std::path::Path;
use std::time::Duration;

use super::{package, runtimes};
use crate::arguments::LiveArguments;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::target::Target;
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
    shape("frameless", &[NO_INLINING, NO_MAGLEV]),
    shape("builtin", &[]),
    shape("frameless-builtin", &[]),
    // Nor this one, before a stack is recorded on a slow machine.
    shape("fast-call", &[NO_INLINING, NO_MAGLEV]),
    shape("async", &[]),
    shape("generator", &[]),
    shape("native", &[]),
    shape("collecting", &["--expose-gc"]),
];

const NO_INLINING: &str = "--no-turbo-inlining";
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
        let program = |name: &str| Ok(ProcessStep::new(name, &node.program));
        failed.extend(record(arguments, Target::HOST, node.major(), &modules, program));
    }
    all_passed("live node --record", &failed)
}

/// Records every chosen shape by a Node.js of this major for `target`, of which `program` makes a step, with these modules. Returns the
/// names of the steps that failed.
pub fn record(
    arguments: &LiveArguments,
    target: Target,
    major: u32,
    modules: &Path,
    program: impl Fn(&str) -> StepResult<ProcessStep>,
) -> Vec<String> {
    let mut failed = Vec::new();
    let is_chosen = |shape: &&ShapeFlags| arguments.shape.as_deref().is_none_or(|name| name == shape.name);
    for shape in SHAPES.iter().filter(is_chosen) {
        let name = format!("record {} on Node.js {major}", shape.name);
        let flags = shape.flags.iter().filter(|flag| **flag != NO_MAGLEV || major >= MAGLEV_MAJOR);
        // One directory for the updates of a major; the file has the full version.
        let directory = format!("bindings-node/tests/recorded/{}/{major}", target.npm().1);
        let step = program(&name).map(|step| step.args(flags).env("NODE_PATH", modules));
        let recorded = step.and_then(|step| record_shape(&name, step, shape.name, &workspace::root().join(directory)));
        if let Err(failure) = recorded {
            eprintln!("{failure}");
            failed.push(name);
        }
    }
    failed
}

fn record_shape(name: &str, step: ProcessStep, shape: &str, directory: &Path) -> StepResult {
    let fixture = step
        .arg(workspace::root().join("xtask/live/node/record_stacks.js"))
        .arg(shape)
        .time_limit(TIME_LIMIT)
        .capture()?;
    std::fs::create_dir_all(directory)
        .map_err(|error| StepFailure::new("recorded stacks", format!("{}: {error}", directory.display())))?;
    scratch::write(&directory.join(format!("{shape}.json")), &fixture)?;
    println!("{name}: {} bytes", fixture.len());
    Ok(())
}
