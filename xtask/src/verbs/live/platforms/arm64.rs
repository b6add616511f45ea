//! arm64 in emulation (qemu-user), with the programs of Debian.

use std::path::{Path, PathBuf};

use super::{node_directory, profiles_in, python_package, script, shows_function, tests, unit_tests};
use crate::arguments::LiveArguments;
use crate::artifact::{self, copy};
use crate::languages::{java, node};
use crate::step::{all_passed, on_path, ProcessStep, StepResult};
use crate::target::Target;
use crate::{debian_root, interpreters, scratch, workspace};

/// Debian's packages in the roots.
const PYTHON_PACKAGES: [&str; 4] = ["python3", "libstdc++6", "python3-yaml", "python3-pytest"];
const ARM64_PACKAGES: [&str; 3] = ["python3", "libstdc++6", "openjdk-17-jre-headless"];
/// The emulator.
const QEMU: &str = "qemu-aarch64-static";

/// The second one has neither atomic instructions (LSE) nor authentication of pointers.
const PROCESSORS: [&str; 2] = ["max", "cortex-a53"];

/// Tests that read memory by `process_vm_readv`, which the emulator does not know, expect a signal before the call that sends it ends, or
/// follow a stack through the kernel's library.
const NOT_EMULATED: [&str; 8] = [
    "restart::tests",
    "a_walk_from_a_handler_continues_in_the_interrupted_function",
    "the_program_and_the_c_library_have_unwind_information",
    "changed_unwind_information_makes_no_panic_and_takes_bounded_time",
    "the_c_library_has_a_rule_at_each_of_its_functions",
    "a_pc_at_or_after_the_syscall_instruction_is_inside_a_system_call",
    "a_copy_by_words_equals_the_copy_of_the_process",
    "the_requested_thread_responds_with_clock_signals_blocked_and_its_errno_preserved",
];

/// The first test of `bindings-python/tests/test_conformance.py` in this process.
const PYTHON_CONFORMANCE: &str = "import sys, test_conformance as suite
failed = {name: result for name, result in suite.run_cases().items() if name != result}
print(len(suite.CASES) - len(failed), 'of', len(suite.CASES), 'cases hold')
sys.exit('\\n'.join(failed.values()) or len(suite.CASES) < 30)";

pub fn rust() -> StepResult {
    PROCESSORS.iter().try_for_each(|processor| emulated_unit_tests(Target::Arm64, processor))?;
    let conformance = tests("conformance in Rust on arm64", Target::Arm64)?.args(["-p", "spanprof", "--test", "it"]);
    with_emulator(conformance, Target::Arm64, PROCESSORS[0])?.args(["--", "conformance"]).run()
}

pub fn rust_musl() -> StepResult {
    emulated_unit_tests(Target::Arm64Musl, PROCESSORS[0])
}

/// The unit tests without those of clocks and of threads of the kernel, which emulation changes.
fn emulated_unit_tests(target: Target, processor: &str) -> StepResult {
    println!("unit tests on {processor}");
    let tests = unit_tests(target, &["signal", "unwind", "profile", "aggregate", "config"])?;
    with_emulator(tests, target, processor)?.arg("--").args(NOT_EMULATED.iter().flat_map(|test| ["--skip", test])).run()
}

/// Runs the tests of a step of cargo on an emulated processor.
fn with_emulator(step: ProcessStep, target: Target, processor: &str) -> StepResult<ProcessStep> {
    let runner = format!("CARGO_TARGET_{}_RUNNER", target.triple().to_uppercase().replace('-', "_"));
    let emulator = format!("{} -L {}", emulator()?.display(), root_directory()?.display());
    Ok(step.env(&runner, emulator).env("QEMU_CPU", processor))
}

pub fn python() -> StepResult {
    let root = debian_root::with_packages("arm64-python", ".", "arm64", &PYTHON_PACKAGES)?;
    let (site, profiles) =
        (scratch::empty("platforms/python-arm64/site")?, scratch::empty("platforms/python-arm64/out")?);
    python_package(&site.join("spanprof"), Target::Arm64)?;
    let python = |name: &str| -> StepResult<ProcessStep> {
        Ok(emulated(name, &root, &root.join("usr/bin/python3"))?.env("PYTHONPATH", &site))
    };
    python("first run of Python on arm64")?.arg("xtask/wheel/first_run.py").arg(&profiles).arg("native").run()?;
    shows_function(&profiles, "work")?;
    let profiles = scratch::empty("platforms/python-arm64/threads")?;
    python("threads in Python on arm64")?.arg("xtask/live/platforms/threads.py").arg(&profiles).run()?;
    shows_threads(&profiles, "30")?;
    python("conformance in Python on arm64")?
        .env("PYTHONPATH", format!("{}:{}", site.display(), workspace::root().join("bindings-python/tests").display()))
        .args(["-c", PYTHON_CONFORMANCE])
        .run()
}

pub fn node() -> StepResult {
    let directory = node_directory(&workspace::target().join("platforms/node-arm64"), Target::Arm64)?;
    // The emulator does not start child processes for another processor.
    emulated_node("first run of Node.js on arm64")?.args(["first_run.mjs", "alone"]).in_directory(&directory).run()?;
    shows_function(&profiles_in(&directory)?, "anonymous")?;
    let profiles = scratch::empty("platforms/node-arm64-threads")?;
    emulated_node("worker threads in Node.js on arm64")?
        .arg("xtask/live/platforms/threads.js")
        .arg(&profiles)
        .arg("8")
        .env("NODE_PATH", directory.join("node_modules"))
        .run()?;
    shows_threads(&profiles, "8")?;
    let package = workspace::root().join("bindings-node");
    let library = artifact::dev_library("spanprof-node", Target::Arm64)?;
    copy(&library, &package.join("prebuilds").join(Target::Arm64.npm().0).join("spanprof.node"))?;
    node::runtimes::install_locked("dependencies of the tests in Node.js", &package)?;
    emulated_node("conformance in Node.js on arm64")?.arg(package.join("tests/conformance.test.js")).run()?;
    // Others read memory by `process_vm_readv`.
    let replays = with_emulator(unit_tests(Target::Arm64, &["node"])?, Target::Arm64, PROCESSORS[0])?;
    replays.args(["--", "record::", "frameless::"]).run()
}

/// Records the stacks of Node.js that its unit tests replay.
pub fn record(arguments: &LiveArguments) -> StepResult {
    let directory = node_directory(&workspace::target().join("platforms/node-arm64"), Target::Arm64)?;
    let modules = directory.join("node_modules");
    copy(
        &artifact::recording_library(Target::Arm64)?,
        &modules.join(Target::Arm64.npm_package()).join("spanprof.node"),
    )?;
    all_passed("live platforms --record", &node::record::record(arguments, Target::Arm64, 24, &modules, emulated_node))
}

fn emulated_node(name: &str) -> StepResult<ProcessStep> {
    let root = root_directory()?;
    emulated(name, &root, &root.join("opt/node/bin/node"))
}

/// On Java 17, and on 21 with authentication codes in return addresses, which the emulated processor has.
pub fn java() -> StepResult {
    let newer = debian_root::with_packages("arm64-java-21", "trixie", "arm64", &["openjdk-21-jre-headless"])?;
    let jar = java::package::of_dev_libraries(Target::Arm64)?;
    let classes = scratch::empty("platforms/java-arm64/classes")?;
    java::package::compile_first_run(&java::runtimes::preferred()?, &jar, &classes)?;
    for (root, version, flags) in
        [(root_directory()?, "17", &[][..]), (newer, "21", &["-XX:UseBranchProtection=standard"][..])]
    {
        let profiles = scratch::empty(&format!("platforms/java-arm64/out-{version}"))?;
        let program = root.join(format!("usr/lib/jvm/java-{version}-openjdk-arm64/bin/java"));
        emulated(&format!("first run of Java {version} on arm64"), &root, &program)?
            .args(flags)
            .args(["-cp", &format!("{}:{}", classes.display(), jar.display()), "FirstRun", "library"])
            .arg(&profiles)
            .run()?;
        shows_function(&profiles, "FirstRun.main")?;
    }
    Ok(())
}

/// The root with Debian's programs for arm64.
pub fn root_directory() -> StepResult<PathBuf> {
    let root = debian_root::with_packages("arm64", ".", "arm64", &ARM64_PACKAGES)?;
    script("fetch Node.js for arm64", "node.sh").arg(&root).arg("manylinux_2_28_aarch64").run()?;
    Ok(root)
}

/// The emulator: that of this machine, or Debian's in a root directory, which needs no other files.
fn emulator() -> StepResult<PathBuf> {
    match on_path(Path::new(QEMU)) {
        Some(program) => Ok(program),
        None => {
            Ok(debian_root::with_packages("qemu-user", ".", "amd64", &["qemu-user-static"])?.join("usr/bin").join(QEMU))
        }
    }
}

fn emulated(name: &str, root: &Path, program: &Path) -> StepResult<ProcessStep> {
    // A library of the dev profile can take longer than the default to stop there: beside other builds, 8 worker threads took 30 s.
    Ok(ProcessStep::new(name, emulator()?).arg("-L").arg(root).arg(program).env("SPANPROF_STOP_TIMEOUT", "60"))
}

/// Fails unless the profiles have each of this many threads of `threads.py` or `threads.js`.
fn shows_threads(profiles: &Path, threads: &str) -> StepResult {
    ProcessStep::new("read the profiles of threads", interpreters::preferred()?.program)
        .arg("xtask/live/platforms/check_threads.py")
        .arg(profiles)
        .arg(threads)
        .run()
}
