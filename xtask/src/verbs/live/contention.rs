//! CPU time of labelled phases by the kernel beside the profile's, beside processes that occupy the processors: two busy
//! processes, a CPU quota, a real-time process. Every language, with every set of profiles, clock and rate. The packages of the
//! tests, or with `--release` those of the verbs `wheel`, `addon` and `jar`. Requires the right to create a cgroup. CI runs the
//! short form: shorter phases at 1000 Hz by perf events, beside busy processes; and phases of 50 to 3,000 µs by the default clock.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use super::field::released;
use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages::{java, node, python};
use crate::scratch;
use crate::step::{ProcessStep, StepResult};
use crate::target::Target;
use crate::workspace::{self, VERSION};

/// About 5 s for each of 192 cells, twice as long under a quota.
const LIMIT: Duration = Duration::from_secs(3_600);

pub fn run(arguments: &LiveArguments) -> StepResult {
    run_cells(arguments.release, 250, 1, &arguments.cell)
}

/// The cells of CI: every language and set of profiles. A cell that fails runs again once.
pub fn short() -> StepResult {
    run_cells(false, 100, 2, &["perf-1000|sections", "alone|busy"])
}

/// Runs the cells whose names match all of `words`, each up to `attempts` times, with phases of `phase_ms`.
fn run_cells(release: bool, phase_ms: u32, attempts: u32, words: &[impl AsRef<OsStr>]) -> StepResult {
    let source = |name: &str| workspace::root().join("xtask/live/contention").join(name);
    let venv =
        python::Venv::with("live-contention", &python::runtimes::preferred()?, &["opentelemetry-api".to_owned()])?;
    venv.install_wheel(&if release {
        released("wheel", &Target::HOST.wheel().1)?
    } else {
        python::package::build_for_tests()?
    })?;
    let package = if release {
        released("addon", &format!("spanprof-{VERSION}.tgz"))?
    } else {
        node::package::build_for_tests()?;
        node::package::pack_for_tests()?
    };
    let beside = ["@opentelemetry/api@1", "@opentelemetry/context-async-hooks@2"];
    let modules = node::runtimes::install(&package, &beside, "live-contention-node")?;
    let node = node::runtimes::chosen(&[])?.swap_remove(0);
    let jar = if release { released("jar", "0.jar")? } else { java::package::for_tests()? };
    let java = java::runtimes::preferred()?;
    let (classes, libraries) =
        (scratch::empty("live-contention-java")?, scratch::empty("live-contention-java-libraries")?);
    java::runtimes::maven("OpenTelemetry's API for Java", &java)
        .args([
            "--quiet",
            "dependency:copy-dependencies",
            "-DincludeArtifactIds=opentelemetry-api,opentelemetry-context,opentelemetry-common",
        ])
        .arg(format!("-DoutputDirectory={}", libraries.display()))
        .arg("--file")
        .arg(workspace::root().join("bindings-java/pom.xml"))
        .run()?;
    let class_path = format!("{}:{}/*", jar.display(), libraries.display());
    ProcessStep::new("compile the Java program", java.home.join("bin/javac"))
        // The scope of a span is only closed.
        .args(["-Xlint:all,-try", "-Werror", "-cp"])
        .arg(&class_path)
        .arg("-d")
        .arg(&classes)
        .arg(source("Phases.java"))
        .run()?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let programs = serde_json::json!({
        "python": [text(venv.python()), text(source("phases.py"))],
        "node": [text(node.program), text(source("phases.js"))],
        "java": [
            text(java.home.join("bin/java")),
            "-cp".to_owned(),
            format!("{class_path}:{}", classes.display()),
            "Phases".to_owned(),
        ],
        "rust": [text(artifact::for_tests()?.join("rust-phases"))],
    });
    let mut failed = Vec::new();
    let outcome = ProcessStep::new("live contention", venv.python())
        .arg(source("contention.py"))
        .args(words.iter().map(AsRef::as_ref))
        .env("PROGRAMS", programs.to_string())
        .env("PHASE_MS", phase_ms.to_string())
        .env("ATTEMPTS", attempts.to_string())
        .env("NODE_PATH", modules)
        .time_limit(LIMIT)
        .run_with_lines(|line| failed.extend(line.contains("FAILED").then(|| line.to_owned())));
    outcome.map_err(|failure| failure.with_failed_tests(&failed))
}
