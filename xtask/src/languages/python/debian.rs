//! Interpreters newer than the installed ones: Debian's packages, unpacked into a root directory of their own, in which they run; and
//! single programs of this machine's Debian release. Nothing is installed on the machine. Called by the suites `python` and `field`.

use std::path::PathBuf;

use super::runtimes::{self, Python};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{debian_root, workspace};

/// The minor versions in Debian sid.
const MINORS: [u32; 2] = [14, 15];

/// Unpacks a package and its missing dependencies into a separate directory, and returns the directory.
pub fn unpacked(package: &str) -> StepResult<PathBuf> {
    let root = workspace::target().join("live").join(package);
    let step = ProcessStep::new(format!("fetch {package} from Debian"), "bash");
    step.arg("xtask/live/debian-program.sh").arg(&root).arg(package).run()?;
    Ok(root)
}

/// The selected interpreters, those of this machine and Debian's newer ones, oldest first; all of them when none is selected.
///
/// # Errors
/// A selected version that is not available.
pub fn installed_and_newer(selected: &[String]) -> StepResult<Vec<Python>> {
    let (mut chosen, missing) = runtimes::chosen_or_missing(selected)?;
    for minor in MINORS.map(|minor| format!("3.{minor}")) {
        let is_installed = chosen.iter().any(|python| python.minor() == minor);
        if missing.contains(&minor) || (selected.is_empty() && !is_installed) {
            match of_debian(&minor) {
                Ok(python) => chosen.push(python),
                Err(failure) => println!("CPython {minor} from Debian: left out: {failure}"),
            }
        }
    }
    match missing.iter().find(|minor| chosen.iter().all(|python| python.minor() != **minor)) {
        None => Ok(chosen),
        Some(minor) => {
            let message = format!("CPython {minor} is neither installed nor available from Debian");
            Err(StepFailure::new("find Python", message))
        }
    }
}

fn of_debian(minor: &str) -> StepResult<Python> {
    let packages = [&format!("python{minor}"), &format!("python{minor}-venv"), "ca-certificates"];
    let root = debian_root::with_packages("debian", "sid", "amd64", &packages)?;
    Python::in_root(&root, &format!("/usr/bin/python{minor}"))
}
