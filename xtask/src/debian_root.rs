//! Root directories with packages of Debian, in which programs run. Nothing is installed on the machine. Called by the modules of the
//! languages and by the live suites.

use std::path::PathBuf;

use crate::step::{ProcessStep, StepResult};
use crate::workspace;

/// The root directory `target/live/<name>` with packages of a release and their dependencies, fetched once; the release `.` is that of
/// this machine.
pub fn with_packages(name: &str, release: &str, architecture: &str, packages: &[&str]) -> StepResult<PathBuf> {
    let root = workspace::target().join("live").join(name);
    ProcessStep::new(format!("fetch {} from Debian", packages.join(", ")), "bash")
        .arg("xtask/live/debian-root.sh")
        .arg(&root)
        .args([release, architecture])
        .args(packages)
        .run()?;
    Ok(root)
}
