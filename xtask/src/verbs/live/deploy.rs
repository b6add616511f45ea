//! The examples of `examples/deploy`, each with the layout, user, variables and limits that its own files state, under the real
//! programs. There is no container engine: namespaces, overlayfs, control groups and seccomp filters are set up by
//! `xtask/live/deploy`. Cells are independent. Requires root.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::platforms::musl;
use super::{collector, field, objects, pyroscope};
use crate::arguments::LiveArguments;
use crate::languages::{java, node, python};
use crate::step::{self, all_passed, ProcessStep, StepFailure, StepResult};
use crate::target::Target;
use crate::{artifact, scratch, workspace};

/// A cell: its name, its program of `xtask/live/deploy` and the argument.
const CELLS: [(&str, &str, &str); 17] = [
    ("lambda-python", "lambda_layers.py", "python"),
    ("lambda-nodejs", "lambda_layers.py", "nodejs"),
    ("lambda-java", "lambda_layers.py", "java"),
    ("docker-python", "docker_images.py", "python"),
    ("docker-node", "docker_images.py", "node"),
    ("docker-node-alpine", "docker_images.py", "node-alpine"),
    ("docker-java", "docker_images.py", "java"),
    ("docker-rust", "docker_images.py", "rust"),
    ("operator-java", "operator_images.py", "java"),
    ("operator-python", "operator_images.py", "python"),
    ("operator-nodejs", "operator_images.py", "nodejs"),
    ("operator-nodejs-alpine", "operator_images.py", "nodejs-alpine"),
    ("systemd-python", "systemd_units.py", "python"),
    ("systemd-node", "systemd_units.py", "node"),
    ("systemd-java", "systemd_units.py", "java"),
    ("compose", COMPOSE, "compose"),
    ("pyroscope-distributed", COMPOSE, "pyroscope-distributed"),
];
/// The program of the cells that run Compose files.
const COMPOSE: &str = "compose_stack.py";
/// Beyond the builds of the images, which install the requirements of the programs.
const LIMIT: Duration = Duration::from_secs(900);

pub fn run(arguments: &LiveArguments) -> StepResult {
    if !rustix::process::geteuid().is_root() {
        println!("live deploy: NOT RUN: namespaces, overlayfs and control groups need root");
        return Ok(());
    }
    let is_chosen =
        |name: &str| arguments.cell.is_empty() || arguments.cell.iter().any(|cell| name.starts_with(cell.as_str()));
    let chosen: Vec<_> = CELLS.iter().filter(|(name, ..)| is_chosen(name)).collect();
    if chosen.is_empty() {
        let names = CELLS.map(|(name, ..)| name).join(", ");
        return Err(StepFailure::new("live deploy", format!("no cell of that name; the cells are: {names}")));
    }
    // The operator's images have the packages of both C libraries.
    let has_musl = chosen.iter().any(|(name, ..)| name.starts_with("operator-") || name.ends_with("-alpine"));
    let packages = packages(arguments.release, has_musl)?;
    let python = python::runtimes::preferred()?;
    let venv = python::Venv::with("live-deploy", &python, &["pyyaml==6.0.3".to_owned()])?;
    venv.install_wheel(&packages.wheel)?;
    let node = node::runtimes::preferred()?.program;
    let mut variables = vec![
        ("DEPLOY_SCRATCH", scratch::empty("live-deploy")?),
        ("DEPLOY_EXAMPLES", workspace::root().join("examples/deploy")),
        ("DEPLOY_PACKAGES", packages.directory),
        ("DEPLOY_SPANPROF", venv.program("spanprof")),
        ("DEPLOY_JAVA_HOME", java::runtimes::preferred()?.home),
        // A link of the name alone would point to itself.
        ("DEPLOY_NODE", step::on_path(&node).unwrap_or(node)),
    ];
    if chosen.iter().any(|(_, program, _)| *program == COMPOSE) {
        variables.extend([("DEPLOY_COLLECTOR", collector::built()?), ("DEPLOY_PYROSCOPE", pyroscope::built()?)]);
        variables.push(("DEPLOY_OBJECTS", objects::built()?));
    }
    let alpine = chosen.iter().any(|(name, ..)| name.ends_with("-alpine")).then(musl::alpine).transpose()?;
    variables.extend(alpine.map(|root| ("DEPLOY_ALPINE", root)));
    let mut failed = Vec::new();
    for (name, program, word) in chosen {
        let step = ProcessStep::new(*name, venv.python()).arg(Path::new("xtask/live/deploy").join(program)).arg(word);
        let step = variables.iter().fold(step, |step, (key, value)| step.env(key, value));
        if let Err(failure) = step.time_limit(LIMIT).run() {
            eprintln!("{failure}");
            failed.push(*name);
        }
    }
    all_passed("live deploy", &failed)
}

/// A directory with the packages, as a user has after `wheel`, `addon` and `jar`.
struct DeployedPackages {
    directory: PathBuf,
    wheel: PathBuf,
}

/// The release packages, or the packages of the tests: the same code, not optimized; on request those for musl too.
fn packages(is_release: bool, has_musl: bool) -> StepResult<DeployedPackages> {
    if is_release {
        let wheel = field::released("wheel", &Target::HOST.wheel().1)?;
        return Ok(DeployedPackages { directory: workspace::target().join("dist"), wheel });
    }
    let directory = scratch::empty("live-deploy-packages")?;
    node::package::build_for_tests()?;
    let wheel = python::package::build_for_tests()?;
    let built = [wheel.clone(), node::package::pack_for_tests()?, java::package::for_tests()?];
    for file in &built {
        artifact::copy(file, &directory.join(file.file_name().unwrap_or_default()))?;
    }
    if has_musl {
        python::package::build_for_platform(Target::X64Musl, &directory)?;
        let package = node::package::build_for_platform(Target::X64Musl)?;
        artifact::copy(&package, &directory.join(package.file_name().unwrap_or_default()))?;
    }
    Ok(DeployedPackages { directory, wheel })
}
