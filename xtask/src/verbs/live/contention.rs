//! CPU time of labelled phases by the kernel beside the profile's, beside processes that occupy the processors: two busy
//! processes, a CPU quota, a real-time process. Every language, with every set of profiles, clock and rate. The packages of the
//! tests, or with `--release` those of the verbs `wheel`, `addon` and `jar`. Requires the right to create a cgroup.

use std::path::PathBuf;
use std::time::Duration;

use super::field::released;
use crate::arguments::LiveArguments;
use crate::languages::{java, node, python};
use crate::step::{ProcessStep, StepResult};
use crate::{scratch, workspace};

/// About 5 s for each of 192 cells, twice as long under a quota.
const LIMIT: Duration = Duration::from_secs(3_600);

pub fn run(given: &LiveArguments) -> StepResult {
    let source = |name: &str| workspace::root().join("xtask/live/contention").join(name);
    let venv = python::Venv::with("live-contention", &python::runtimes::preferred()?, &[])?;
    venv.install_wheel(&match given.release {
        true => released("wheel", "x86_64.whl")?,
        false => python::package::build_for_tests()?,
    })?;
    let package = if given.release {
        released("addon", ".tgz")?
    } else {
        node::package::build_for_tests()?;
        node::package::pack_for_tests()?
    };
    let modules = node::runtimes::install(&package, &[], "live-contention-node")?;
    let node = node::runtimes::chosen(&[])?.swap_remove(0);
    let jar = if given.release { released("jar", "0.jar")? } else { java::package::for_tests()? };
    let java = java::runtimes::preferred()?;
    let classes = scratch::empty("live-contention-java")?;
    ProcessStep::new("compile the Java program", java.home.join("bin/javac"))
        .args(["-Xlint:all", "-Werror", "-cp"])
        .arg(&jar)
        .arg("-d")
        .arg(&classes)
        .arg(source("Phases.java"))
        .run()?;
    ProcessStep::cargo("build the Rust program")
        .args(["build", "--quiet", "-p", "spanprof-live", "--bin", "rust-phases"])
        .run()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let programs = serde_json::json!({
        "python": [text(venv.python()), text(source("phases.py"))],
        "node": [text(node.program), text(source("phases.js"))],
        "java": [
            text(java.home.join("bin/java")),
            "-cp".to_owned(),
            format!("{}:{}", jar.display(), classes.display()),
            "Phases".to_owned(),
        ],
        "rust": [text(workspace::target().join("debug/rust-phases"))],
    });
    ProcessStep::new("live contention", venv.python())
        .arg(source("contention.py"))
        .args(&given.cell)
        .env("PROGRAMS", programs.to_string())
        .env("NODE_PATH", modules)
        .time_limit(LIMIT)
        .run()
}
