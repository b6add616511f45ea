//! Interpreters newer than the installed ones: Debian's packages, unpacked into a separate directory and run by chroot; and
//! single programs of this machine's Debian release. Nothing is installed on the machine. Called by the suites `python` and `field`.

use std::path::{Path, PathBuf};

use super::runtimes;
use crate::proc_mount::ProcMount;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{scratch, workspace};

/// Root directory of the interpreters, and their versions.
pub struct Debian {
    root: PathBuf,
    /// `3.14`, `3.15`
    pub versions: Vec<String>,
    /// While a suite is installed.
    proc: Option<ProcMount>,
}

/// Unpacks a package and its missing dependencies into a separate directory, and returns the directory.
pub fn unpacked(package: &str) -> StepResult<PathBuf> {
    let root = workspace::target().join("live").join(package);
    let step = ProcessStep::new(format!("fetch {package} from Debian"), "bash");
    step.arg("xtask/live/debian-program.sh").arg(&root).arg(package).run()?;
    Ok(root)
}

impl Debian {
    /// The selected versions that apt has, or all of them when none is selected, with the wheel and the suite's programs.
    /// Without Debian or root, prints the reason and has none.
    ///
    /// # Errors
    /// A selected version that is not available.
    pub fn with_wheel(wheel: &Path, selected: &[String]) -> StepResult<Self> {
        let mut debian = Self::fetch()?;
        debian.select(selected)?;
        if !debian.versions.is_empty() {
            debian.install(wheel)?;
        }
        Ok(debian)
    }

    /// The versions, such as `3.14`.
    pub fn versions(&self) -> &[String] {
        &self.versions
    }

    /// Fetches the versions that apt has; without Debian or root, prints the reason and returns none.
    fn fetch() -> StepResult<Self> {
        let root = workspace::target().join("live/debian");
        println!("fetching CPython 3.14 and 3.15 from Debian, where apt has them");
        let (status, output) = ProcessStep::new("fetch CPython from Debian", "bash")
            .arg("xtask/live/debian-python.sh")
            .arg(&root)
            .capture_any()?;
        let versions: Vec<String> = output.lines().filter(|line| line.starts_with("3.")).map(str::to_owned).collect();
        if versions.is_empty() {
            println!(
                "CPython 3.14 and 3.15 from Debian: left out ({status}): {}",
                output.lines().last().unwrap_or_default()
            );
        }
        Ok(Self { root, versions, proc: None })
    }

    /// Keeps the selected versions, or all of them when none is selected.
    fn select(&mut self, selected: &[String]) -> StepResult {
        if let Some(missing) = selected.iter().find(|version| !self.versions.contains(version)) {
            return Err(StepFailure::new(
                "find Python",
                format!("CPython {missing} is neither installed nor available from Debian"),
            ));
        }
        self.versions.retain(|version| selected.is_empty() || selected.contains(version));
        Ok(())
    }

    /// Copies the unpacked wheel and the suite's programs into the root directory.
    fn install(&mut self, wheel: &Path) -> StepResult {
        let suite = self.root.join("suite");
        let _ = std::fs::remove_dir_all(&suite);
        let made = std::fs::create_dir_all(suite.join("package"));
        made.map_err(|error| StepFailure::new("prepare Debian's root", error.to_string()))?;
        let python = runtimes::preferred()?;
        ProcessStep::new("unpack the wheel", &python.program)
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(suite.join("package"))
            .run()?;
        ProcessStep::new("copy the suite", "cp")
            .arg("-r")
            .arg(workspace::root().join("xtask/live/python"))
            .arg(&suite)
            .run()?;
        self.proc = Some(ProcMount::below(&self.root)?);
        scratch::write(&self.root.join("suite/made"), "")
    }

    /// A step that runs a program of the suite.
    pub fn step(&self, name: &str, version: &str, program: &str) -> ProcessStep {
        ProcessStep::new(name, "chroot")
            .without_cpu_budget()
            .arg(&self.root)
            // The root contains only an interpreter: the environment is inherited through chroot.
            .env("PYTHONPATH", "/suite/package")
            .env("PYTHONFAULTHANDLER", "1")
            .arg(format!("/usr/bin/python{version}"))
            .arg(format!("/suite/python/{program}"))
    }
}
