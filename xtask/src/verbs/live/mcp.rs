//! `spanprof mcp` with the official Python client: each tool on the profiles of a real program in a running `serve`.

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages::python;
use crate::scratch;
use crate::step::{ProcessStep, StepResult};
use crate::verbs::demo::{self, DemoServer};

/// The client of the revision 2026-07-28, which supports the older ones too.
const CLIENT: &str = "mcp==2.3.0";

pub fn run(_: &LiveArguments) -> StepResult {
    let python = python::runtimes::preferred()?;
    let venv = python::Venv::with("live", &python, &[])?;
    venv.install_wheel(&python::package::build_for_tests()?)?;
    let client = python::Venv::with("mcp", &python, &[CLIENT.to_owned()])?;
    let command = artifact::command_line()?;
    let server = DemoServer::start(&command, &scratch::empty("live-mcp")?, &demo::Ports::free()?)?;
    let endpoint = format!("http://127.0.0.1:{}", server.http_port);
    ProcessStep::new("a Python program that sends profiles", venv.python())
        .arg("xtask/live/pprof/program.py")
        .args([endpoint.as_str(), "live-mcp"])
        .run()?;
    ProcessStep::new("the official Python client", client.python())
        .arg("xtask/live/mcp/client.py")
        .arg(&command)
        .args(["mcp", endpoint.as_str(), "--source-path", "xtask/live/pprof"])
        .run()
}
