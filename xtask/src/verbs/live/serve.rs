//! The page of `spanprof serve` in a real browser: it must show the service, the flame graph and the table it was sent.

use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Step};
use crate::verbs::demo::{self, Server};
use crate::{pythons, scratch, venv, verbs};

pub fn run(_: &Arguments) -> Outcome {
    let browser = browser()?;
    let folder = scratch::empty("live-serve")?;
    let python = pythons::preferred()?;
    let venv = venv::Venv::with("live", &python, &[])?;
    venv.install_wheel(&verbs::wheel::build_for_tests()?)?;
    let server = Server::start(&super::command_line()?, &folder, &demo::Ports::free()?)?;
    let endpoint = format!("http://127.0.0.1:{}", server.http_port);
    Step::new("a Python program to look at", venv.python())
        .arg("xtask/live/collector/program.py")
        .args([&endpoint, "http/protobuf", "gzip", "live-page"])
        .run()?;
    let page = dump(&browser, &folder, &endpoint)?;
    for wanted in ["live-page", "burn", "cpu"] {
        if !page.contains(wanted) {
            let message = format!("`{wanted}` is not on the page; it is kept in {}", folder.display());
            return Err(Failure::new("page in Chromium", message));
        }
    }
    println!("the page shows the service, the type and the function; picture: {}", folder.join("page.png").display());
    Ok(())
}

fn browser() -> Outcome<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    let found =
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file());
    found.ok_or_else(|| Failure::new("find Chromium", "no chromium on PATH").with_way_out("apt-get install chromium"))
}

/// The page as the browser has it after its scripts ran, and a picture of it beside.
fn dump(browser: &Path, folder: &Path, address: &str) -> Outcome<String> {
    let quiet = [
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
    let step = |name: &str| {
        Step::new(name, browser).args(quiet).arg(format!("--user-data-dir={}", folder.join("browser").display()))
    };
    let picture = format!("--screenshot={}", folder.join("page.png").display());
    step("picture of the page").arg(picture).arg(address).capture_any()?;
    // Its standard error speaks of the desktop that is not there; what counts is the page.
    let (status, page) = step("page in Chromium").args(["--log-level=3", "--dump-dom", address]).capture_any()?;
    if !status.success() {
        return Err(Failure::new("page in Chromium", format!("ended with {status}: {page}")));
    }
    scratch::write(&folder.join("page.html"), &page)?;
    Ok(page)
}
