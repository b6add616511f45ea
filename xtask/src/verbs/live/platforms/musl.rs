//! musl natively: unit tests of Rust on this machine, other languages in the root of Alpine Linux.

use std::path::{Path, PathBuf};

use super::{node_directory, profiles_in, python_package, script, shows_function, unit_tests};
use crate::artifact::{self, copy};
use crate::deadline::at_most;
use crate::languages::node::runtimes;
use crate::step::{ProcessStep, StepResult, IN_ROOT};
use crate::target::Target;
use crate::{debian_root, interpreters, scratch, workspace};

const PYTHON: &str = "/opt/python/bin/python3.13";
/// Without compiled code, or with wheels for musl.
const PYTHON_PACKAGES: [&str; 4] = ["pytest>=8", "pytest-timeout>=2.3", "pyyaml>=6", "greenlet"];
/// Test files that need neither further packages nor a compiler or `ctypes`. Not the CPU time of children to the last tick (`child_ends`): it
/// is above 95 % with the perf clock, which is not used on musl.
const PYTHON_TESTS: [&str; 12] = [
    "conformance",
    "scopes",
    "threads",
    "heap",
    "gc",
    "locks",
    "waiting",
    "processes",
    "exec",
    "exit",
    "interruptions",
    "subinterpreters",
];
/// Programs of these import joblib or ctypes.
const PYTHON_SELECTION: &str = "not joblib and not uwsgi and not that_python_did_not_start";

const NODE_PLATFORM: &str = "musllinux_1_2_x86_64";
/// The binaries in the root, by major version.
const NODES: [(&str, &str); 2] = [("22", "/opt/node-22/bin/node"), ("24", "/opt/node/bin/node")];
/// Tests of Node.js that need no compiled package.
const NODE_TESTS: [&str; 8] = ["conformance", "scopes", "workers", "heap", "start", "profile", "names", "waiting"];
/// Alpine has no `prlimit`, which this test calls.
const NOT_ON_ALPINE: &str = "--test-skip-pattern=without memory a start is one line and false";

/// The unit tests of the crates in a service, and a static program, as `cargo build` makes it for musl.
pub fn rust() -> StepResult {
    let triple = Target::X64Musl.triple();
    let crates = ["signal", "unwind", "os", "profile", "aggregate", "config", "export", "profiler"];
    unit_tests(Target::X64Musl, &crates)?.run()?;
    artifact::cargo_with_zig("build a program with musl", Target::X64Musl)?
        .args(["zigbuild", "--locked", "--target", &triple, "-p", "spanprof-live", "--bin", "rust-phases"])
        .run()?;
    let profiles = scratch::empty("platforms/rust-musl/out")?;
    let program = workspace::target().join(triple).join("debug/rust-phases");
    ProcessStep::new("a program with musl", &program)
        .env("PHASE_MS", "250")
        .env("SPANPROF_FILE_DIRECTORY", &profiles)
        .run()?;
    shows_function(&profiles, "rust_phases::run")?;
    delivery("rust-musl", "rust_phases::run")?.arg(program).env("PHASE_MS", "250").run()
}

/// The first program; then a program with small stacks, delivery, and the tests of the runtime and of the package that need no further
/// package.
pub fn python() -> StepResult {
    let root = alpine()?;
    script("build CPython for Alpine", "python.sh").arg(&root).run()?;
    let [site, profiles] = ["site", "out"].map(|name| scratch::empty(&format!("platforms/python-musl/{name}")));
    let (site, profiles) = (site?, profiles?);
    python_package(&site.join("spanprof"), Target::X64Musl)?;
    let python = |name: &str| in_musl_root(name, &root, PYTHON).env("PYTHONPATH", &site);
    python("first run of Python on Alpine").arg("xtask/wheel/first_run.py").arg(&profiles).arg("native").run()?;
    shows_function(&profiles, "work")?;
    python("threads with small stacks on Alpine").arg("xtask/live/platforms/small_stacks.py").run()?;
    delivery_in_musl_root("python-musl", &root, PYTHON)?
        .arg("xtask/live/platforms/deliver.py")
        .env("PYTHONPATH", &site)
        .run()?;
    ProcessStep::new("packages of the tests for Alpine", interpreters::preferred()?.program)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"])
        .args(["--python-version", "3.13", "--platform", "musllinux_1_2_x86_64", "--target"])
        .arg(&site)
        .args(PYTHON_PACKAGES)
        .run()?;
    let pytest = |name: &str| {
        python(name)
            .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q"])
            .in_directory(&workspace::root().join("bindings-python"))
            .time_limit(at_most(40))
    };
    pytest("tests of the runtime on Alpine")
        .args(["-o", "python_files=check_*.py", "--confcutdir", "tests/runtime", "tests/runtime"])
        .run()?;
    pytest("tests in Python on Alpine")
        .args(["-k", PYTHON_SELECTION])
        .args(PYTHON_TESTS.map(|subject| format!("tests/test_{subject}.py")))
        .run()
}

/// The first program, delivery and a part of the tests on each Node.js.
pub fn node() -> StepResult {
    let root = alpine()?;
    let package = workspace::root().join("bindings-node");
    let module = format!("prebuilds/{}/spanprof.node", Target::X64Musl.npm().0);
    copy(&artifact::dev_library("spanprof-node", Target::X64Musl)?, &package.join(module))?;
    runtimes::install_locked("dependencies of the tests in Node.js", &package)?;
    for (major, program) in NODES {
        script("fetch Node.js for Alpine", "node.sh").arg(&root).args([NODE_PLATFORM, major]).run()?;
        let directory = first_program_of_node(&root, program)?;
        delivery_in_musl_root("node-musl", &root, program)?
            .arg(workspace::root().join("xtask/live/platforms/deliver.js"))
            .env("NODE_PATH", directory.join("node_modules"))
            .run()?;
        in_musl_root(&format!("tests in Node.js {major} on Alpine"), &root, program)
            .args(["--test", "--test-reporter=tap", NOT_ON_ALPINE])
            .args(NODE_TESTS.map(|subject| format!("tests/{subject}.test.js")))
            .in_directory(&package)
            .time_limit(at_most(20))
            .run()?;
    }
    Ok(())
}

/// The first program of Node.js with the musl of Debian sid, whose root needs no other programs to make.
pub fn node_on_debians_musl() -> StepResult {
    let root = debian_root::with_packages("musl", "sid", "amd64", &["musl"])?;
    script("fetch Node.js for musl", "node.sh").arg(&root).arg(NODE_PLATFORM).run()?;
    first_program_of_node(&root, "/opt/node/bin/node").map(drop)
}

/// Runs the first program in a root with musl; returns its directory.
fn first_program_of_node(root: &Path, program: &str) -> StepResult<PathBuf> {
    let directory = node_directory(&workspace::target().join("platforms/node-musl"), Target::X64Musl)?;
    let first_run = in_musl_root("first run of Node.js with musl", root, program).arg("first_run.mjs");
    first_run.in_directory(&directory).run()?;
    shows_function(&profiles_in(&directory)?, "anonymous")?;
    Ok(directory)
}

/// The library for Java is loaded with all of its symbols bound; no registry has a JVM for musl that could run it.
pub fn java() -> StepResult {
    let directory = scratch::empty("platforms/java-musl")?;
    let library = artifact::dev_library("spanprof-java", Target::X64Musl)?;
    artifact::audit("library", &library, Target::X64Musl, artifact::Glibc(2, 17))?;
    let program = directory.join("load_library");
    ProcessStep::new("build the program that loads it", "musl-gcc")
        .args(["-O1", "xtask/live/platforms/load_library.c", "-o"])
        .arg(&program)
        .install_hint("apt-get install musl-tools")
        .run()?;
    in_musl_root("load the library for Java on Alpine", &alpine()?, &program)
        .arg(&library)
        .args(["JNI_OnLoad", "Agent_OnLoad", "Agent_OnAttach"])
        .run()
}

/// A program in a root with musl.
fn in_musl_root(name: &str, root: &Path, program: impl AsRef<std::ffi::OsStr>) -> ProcessStep {
    // A library of the dev profile can take longer than the default to stop on a busy machine.
    ProcessStep::in_root(name, Some(root), program).without_cpu_budget().env("SPANPROF_STOP_TIMEOUT", "20")
}

/// Delivery over TLS by HTTP and by gRPC of the program that is added, whose profiles must have a function.
fn delivery(directory: &str, function: &str) -> StepResult<ProcessStep> {
    Ok(ProcessStep::new(format!("delivery over TLS, {directory}"), interpreters::preferred()?.program)
        .arg(workspace::root().join("xtask/live/platforms/delivery.py"))
        .arg(artifact::command_line()?)
        .arg(scratch::empty(&format!("platforms/{directory}/delivery"))?)
        .arg(function)
        .env("SPANPROF_STOP_TIMEOUT", "20"))
}

/// As [`delivery`], of a program in the root of Alpine.
fn delivery_in_musl_root(directory: &str, root: &Path, program: &str) -> StepResult<ProcessStep> {
    let tree = workspace::root();
    Ok(delivery(directory, "burn")?.arg("sh").arg(tree.join(IN_ROOT)).arg(root).arg(&tree).arg(program))
}

/// The root of Alpine.
pub(in crate::verbs::live) fn alpine() -> StepResult<PathBuf> {
    let root = workspace::target().join("live/alpine");
    script("fetch Alpine", "alpine.sh").arg(&root).run()?;
    script("fetch Node.js for Alpine", "node.sh").arg(&root).arg(NODE_PLATFORM).run()?;
    Ok(root)
}
