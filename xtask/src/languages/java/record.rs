//! `live java --record`: records stacks of the program xtask/live/java/RecordedShapes.java for the tests of the stack walker.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::runtimes::{self, Jdk};
use super::{live, package};
use crate::arguments::LiveArguments;
use crate::artifact::copy;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::{scratch, workspace};

const PROGRAM: &str = "RecordedShapes";
const LIBRARY: &str = "libspanprof_java.so";
/// The program ends by itself after 60 s.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A shape: the name of its fixture, options of the VM, and compiler commands with methods of the program.
struct ShapeProgram {
    name: &'static str,
    options: &'static [&'static str],
    commands: &'static [&'static str],
    /// First version of Java that has it.
    since: u32,
}

const fn program(name: &'static str, commands: &'static [&'static str]) -> ShapeProgram {
    ShapeProgram { name, options: &[], commands, since: 8 }
}

/// Every shape of `SHAPES` in bindings-java/src/runtime/walk/recorded_shape.rs.
static PROGRAMS: [ShapeProgram; 14] = [
    program("compiled", &["dontinline compiled", "dontinline compiledCaller"]),
    program("inlined", &["inline inlinedCallee", "dontinline inlined", "dontinline inlinedCaller"]),
    program("partial_frame", &["dontinline partialFrame", "dontinline partialFrameCaller"]),
    program("interpreted", &["exclude interpreted", "dontinline interpretedCaller"]),
    program("interpreter_entry", &["exclude interpreterEntry", "dontinline interpreterEntryCaller"]),
    program("stub", &["dontinline stub", "dontinline stubCaller"]),
    program("adapter", &["exclude adapter", "dontinline adapterCaller"]),
    program("native_leaf", &["dontinline nativeLeaf"]),
    program("upcall", &["dontinline compiled", "dontinline compiledCaller"]),
    program("exception", &["dontinline exception", "dontinline exceptionCaller"]),
    ShapeProgram {
        // Otherwise the compiler replaces faults that occur often by a check.
        options: &["-XX:-OmitStackTraceInFastThrow", "-XX:TieredStopAtLevel=1"],
        // Up to 11 the VM's fault handler lets no sample interrupt it.
        since: 17,
        ..program("fault", &["dontinline fault", "dontinline faultCaller"])
    },
    ShapeProgram {
        options: &["-Xbatch"],
        ..program("deoptimization", &["dontinline deoptimization", "dontinline compiled", "dontinline compiledCaller"])
    },
    program("osr", &["dontinline osr"]),
    ShapeProgram { since: 21, ..program("frames_in_heap", &["dontinline compiled", "dontinline compiledCaller"]) },
];

/// Records every shape, or that of `--shape NAME`, on each chosen JDK.
pub fn run(arguments: &LiveArguments) -> StepResult {
    let jar = package::for_tests()?;
    ProcessStep::cargo("build the library that records")
        .args(["build", "--locked", "-p", "spanprof-java", "--features", "spanprof-java/record-stacks"])
        .run()?;
    let directory = scratch::empty("live-java-record")?;
    // A library beside the JAR precedes the one in the JAR.
    let beside = directory.join("spanprof.jar");
    copy(&jar, &beside)?;
    copy(&workspace::target().join("debug").join(LIBRARY), &directory.join(LIBRARY))?;
    ProcessStep::new("compile the program", runtimes::preferred()?.home.join("bin/javac"))
        .args(["--release", "8", "-Xlint:all,-options", "-Werror", "-cp"])
        .arg(&beside)
        .arg("-d")
        .arg(&directory)
        .arg(workspace::root().join(format!("xtask/live/java/{PROGRAM}.java")))
        .run()?;
    let class_path = format!("{}:{}", beside.display(), directory.display());
    let mut failed = Vec::new();
    for java in runtimes::chosen(&arguments.runtimes.java)? {
        let is_chosen = |shape: &&ShapeProgram| arguments.shape.as_deref().is_none_or(|name| name == shape.name);
        for shape in PROGRAMS.iter().filter(is_chosen).filter(|shape| shape.since <= java.version) {
            if let Err(failure) = record(&java, shape, &class_path) {
                eprintln!("{failure}");
                failed.push(format!("{} on Java {}", shape.name, java.version));
            }
        }
    }
    all_passed("live java --record", &failed)
}

fn record(java: &Jdk, shape: &ShapeProgram, class_path: &str) -> StepResult {
    let output = scratch::empty("live-java-recorded")?;
    let mut step = live::program(java, &format!("record {} on Java {}", shape.name, java.version), class_path)
        .args(shape.options)
        .args(["-XX:CompileCommand=quiet"]);
    for (command, method) in shape.commands.iter().filter_map(|command| command.split_once(' ')) {
        step = step.arg(format!("-XX:CompileCommand={command},{PROGRAM}*::{method}"));
    }
    step.env("RECORD_STACKS_SHAPE", shape.name)
        .env("RECORD_STACKS_DIRECTORY", &output)
        .args([PROGRAM, shape.name])
        .arg(&output)
        .time_limit(TIME_LIMIT)
        .run()?;
    let file = format!("{}.json", shape.name);
    let fixture = fixture(&output, &file).ok_or_else(|| StepFailure::new("record", format!("{file} is missing")))?;
    // One directory for the updates of a version; the file has the full version.
    let directory = workspace::root().join("bindings-java/tests/recorded").join(java.version.to_string());
    copy(&fixture, &directory.join(file))
}

/// The fixture in the directory of its full version.
fn fixture(output: &Path, file: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(output).ok()?;
    versions.flatten().map(|version| version.path().join(file)).find(|path| path.is_file())
}
