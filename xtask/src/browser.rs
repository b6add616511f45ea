//! Chromium without a window: pictures of pages. Used by the demo.

use std::path::Path;

use crate::step::{on_path, ProcessStep, StepFailure, StepResult};

/// Writes a picture of a page after its scripts ran, 1400 pixels wide. Chromium has a profile of its own in `directory`.
pub fn screenshot(directory: &Path, address: &str, file: &Path, height: u32) -> StepResult {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let program = names.iter().find_map(|name| on_path(Path::new(name))).ok_or_else(|| {
        StepFailure::new("find Chromium", "no chromium on PATH").with_hint("apt-get install chromium")
    })?;
    let options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--virtual-time-budget=8000",
    ];
    let data = format!("--user-data-dir={}", directory.join("browser").display());
    let picture = [format!("--screenshot={}", file.display()), format!("--window-size=1400,{height}")];
    let step = ProcessStep::new("screenshot of the page", program).args(options).arg(data).args(picture);
    step.arg(address).capture_any().map(drop)
}
