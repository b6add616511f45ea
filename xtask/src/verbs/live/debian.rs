//! Interpreters newer than the machine's: Debian's packages, unpacked into a folder of their own and entered by chroot; and
//! single programs of this machine's Debian. Nothing is installed on the machine. Called by the suites `python` and `field`.

use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step};
use crate::{pythons, scratch, workspace};

/// Where the interpreters lie, and which.
pub struct Debian {
    root: PathBuf,
    /// `3.14`, `3.15`
    pub versions: Vec<String>,
}

/// A package with what it needs and the machine lacks, unpacked into a folder of its own: the folder.
pub fn unpacked(package: &str) -> Outcome<PathBuf> {
    let root = workspace::target().join("live").join(package);
    let step = Step::new(format!("fetch {package} from Debian"), "bash");
    step.arg("xtask/live/debian-program.sh").arg(&root).arg(package).run()?;
    Ok(root)
}

impl Debian {
    /// Fetches what apt has; none where this is no Debian or not run by root, which is said.
    pub fn fetch() -> Outcome<Self> {
        let root = workspace::target().join("live/debian");
        println!("fetching CPython 3.14 and 3.15 from Debian, where apt has them");
        let (status, said) = Step::new("fetch CPython from Debian", "bash")
            .arg("xtask/live/debian-python.sh")
            .arg(&root)
            .capture_any()?;
        let versions: Vec<String> = said.lines().filter(|line| line.starts_with("3.")).map(str::to_owned).collect();
        if versions.is_empty() {
            println!(
                "CPython 3.14 and 3.15 from Debian: left out ({status}): {}",
                said.lines().last().unwrap_or_default()
            );
        }
        Ok(Self { root, versions })
    }

    /// Puts the unpacked wheel and the suite's programs where the interpreters see them.
    pub fn install(&self, wheel: &Path) -> Outcome {
        let suite = self.root.join("suite");
        let _ = std::fs::remove_dir_all(&suite);
        let made = std::fs::create_dir_all(suite.join("package"));
        made.map_err(|error| Failure::new("prepare Debian's root", error.to_string()))?;
        let python = pythons::preferred()?;
        Step::new("unpack the wheel", &python.program)
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(suite.join("package"))
            .run()?;
        Step::new("copy the suite", "cp")
            .arg("-r")
            .arg(workspace::root().join("xtask/live/python"))
            .arg(&suite)
            .run()?;
        // The profiler reads /proc/self; a mount that is there already stays.
        if !self.root.join("proc/self").exists() {
            Step::new("mount /proc", "mount").args(["-t", "proc", "proc"]).arg(self.root.join("proc")).run()?;
        }
        scratch::write(&self.root.join("suite/made"), "")
    }

    /// A step that runs a program of the suite.
    pub fn step(&self, name: &str, version: &str, program: &str) -> Step {
        Step::new(name, "chroot")
            .arg(&self.root)
            // The root has an interpreter and no other program: the environment is handed through chroot.
            .env("PYTHONPATH", "/suite/package")
            .env("PYTHONFAULTHANDLER", "1")
            .arg(format!("/usr/bin/python{version}"))
            .arg(format!("/suite/python/{program}"))
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        if self.root.join("proc/self").exists() {
            let _ = Step::new("unmount /proc", "umount").arg(self.root.join("proc")).capture_any();
        }
    }
}
