//! /proc in a root directory, for programs that run there by chroot: the profiler reads it. Called by the live suites; needs root.

use std::path::{Path, PathBuf};

use crate::step::{ProcessStep, StepResult};

/// A mounted /proc, until it is dropped.
#[derive(Debug)]
pub struct ProcMount {
    at: PathBuf,
}

impl ProcMount {
    /// Mounts /proc below a root directory; an existing mount is kept.
    pub fn below(root: &Path) -> StepResult<Self> {
        let at = root.join("proc");
        if !at.join("self").exists() {
            ProcessStep::new("mount /proc", "mount").args(["-t", "proc", "proc"]).arg(&at).run()?;
        }
        Ok(Self { at })
    }
}

impl Drop for ProcMount {
    fn drop(&mut self) {
        let _ = ProcessStep::new("unmount /proc", "umount").arg(&self.at).capture_any();
    }
}
