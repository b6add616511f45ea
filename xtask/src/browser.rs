//! Chromium without a window: pictures and the DOM of pages. Used by the live suite of the page and by the demo.

use std::path::{Path, PathBuf};

use crate::scratch;
use crate::step::{on_path, ProcessStep, StepFailure, StepResult};

/// Chromium with a profile of its own.
pub struct Browser {
    program: PathBuf,
    /// Directory of its profile, and of the last page.
    pub directory: PathBuf,
}

impl Browser {
    /// The browser on PATH.
    pub fn find(directory: PathBuf) -> StepResult<Self> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let program = names.iter().find_map(|name| on_path(Path::new(name))).ok_or_else(|| {
            StepFailure::new("find Chromium", "no chromium on PATH").with_hint("apt-get install chromium")
        })?;
        Ok(Self { program, directory })
    }

    fn step(&self, name: &str) -> ProcessStep {
        let options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,900",
            "--virtual-time-budget=8000",
        ];
        let own = format!("--user-data-dir={}", self.directory.join("browser").display());
        ProcessStep::new(name, &self.program).args(options).arg(own)
    }

    /// Writes a picture of the page after its scripts ran, 1400 pixels wide.
    pub fn screenshot(&self, address: &str, file: &Path, height: u32) -> StepResult {
        let options = [format!("--screenshot={}", file.display()), format!("--window-size=1400,{height}")];
        self.step("screenshot of the page").args(options).arg(address).capture_any().map(drop)
    }

    /// The DOM of the page after its scripts ran.
    pub fn page(&self, address: &str) -> StepResult<String> {
        // Standard error has warnings about the missing desktop; only the page matters.
        let (status, page) =
            self.step("page in Chromium").args(["--log-level=3", "--dump-dom", address]).capture_any()?;
        if !status.success() {
            return Err(StepFailure::new("page in Chromium", format!("ended with {status}: {page}")));
        }
        scratch::write(&self.directory.join("page.html"), &page)?;
        Ok(page)
    }

    pub fn wrong(&self, message: &str) -> StepFailure {
        let kept = self.directory.join("page.html");
        StepFailure::new("page in Chromium", format!("{message}; the page is kept in {}", kept.display()))
    }
}
