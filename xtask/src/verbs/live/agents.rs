//! Profilers of others that send to `spanprof serve`: the agents of Pyroscope for Python (push requests) and Node.js
//! (`/ingest`), and curl. Functions, labels and services must be those of their programs.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages::{node, python};
use crate::scratch;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::verbs::demo::{DemoServer, Ports};

const PYTHON_AGENT: &str = "pyroscope-io==1.4.0";
const NODE_AGENT: &str = "@pyroscope/nodejs@0.6.4";

/// Functions of the programs: one runs with the label, the other without it.
const WITH_LABEL: &str = "burn_with_label";
const WITHOUT_LABEL: &str = "burn_alone";

struct AgentSuite {
    spanprof: PathBuf,
    address: String,
}

pub fn run(_: &LiveArguments) -> StepResult {
    let directory = scratch::empty("live-agents")?;
    let spanprof = artifact::command_line()?;
    let server = DemoServer::start(&spanprof, &directory, &Ports::free()?)?;
    let suite = AgentSuite { spanprof, address: format!("http://127.0.0.1:{}", server.http_port) };

    let venv = python::Venv::with("live-agents", &python::runtimes::preferred()?, &[PYTHON_AGENT.to_owned()])?;
    suite.run_agent(ProcessStep::new(PYTHON_AGENT, venv.python()).arg("xtask/live/agents/agent.py"), "agent-python")?;
    suite.check("agent-python", "cpu")?;

    let modules = node::runtimes::install(Path::new(NODE_AGENT), &[], "live-agents-node")?;
    let program = ProcessStep::new(NODE_AGENT, &node::runtimes::preferred()?.program).env("NODE_PATH", modules);
    suite.run_agent(program.arg("xtask/live/agents/agent.js"), "agent-node")?;
    suite.check("agent-node", "wall")?;

    let file = directory.join("cpu.pb.gz");
    ProcessStep::new("write a pprof file", &suite.spanprof)
        .args(["convert", suite.address.as_str(), "--service", "agent-python", "--to", "pprof", "-o"])
        .arg(&file)
        .run()?;
    suite.curl(&["--data-binary", &format!("@{}", file.display())], "curl-body")?;
    suite.check("curl-body", "cpu")?;
    suite.curl(&["--form", &format!("profile=@{}", file.display())], "curl-form")?;
    suite.check("curl-form", "cpu")?;
    println!("profiles of {PYTHON_AGENT}, {NODE_AGENT} and curl have their functions, labels and services");
    Ok(())
}

impl AgentSuite {
    fn run_agent(&self, program: ProcessStep, service: &str) -> StepResult {
        program.args([self.address.as_str(), service]).run()
    }

    fn curl(&self, content: &[&str], service: &str) -> StepResult {
        let url = format!("{}/ingest?name={service}%7Bregion%3Deu%7D", self.address);
        ProcessStep::new("curl", "curl").args(["--silent", "--show-error", "--fail"]).args(content).arg(url).run()
    }

    /// The label selects the time of one function only, and the tag of the agent selects both.
    fn check(&self, service: &str, type_name: &str) -> StepResult {
        for (label, is_alone_expected) in [("endpoint=/cart", false), ("region=eu", true)] {
            let top = ProcessStep::new(format!("query {service}"), &self.spanprof)
                .args(["top", self.address.as_str(), "--service", service, "--type", type_name])
                .args(["--label", label, "-n", "1000", "--json"])
                .capture()?;
            let top: Value = serde_json::from_str(&top)
                .map_err(|error| StepFailure::new("read JSON", format!("{error} in {top:.200}")))?;
            let names = top.to_string();
            let found = [WITH_LABEL, WITHOUT_LABEL].map(|name| names.contains(name));
            if found != [true, is_alone_expected] {
                let expected = format!("expected {WITH_LABEL}, and {WITHOUT_LABEL}: {is_alone_expected}");
                return Err(StepFailure::new(
                    "profiles of agents",
                    format!("{service} {label}: {expected}, got {names}"),
                ));
            }
        }
        Ok(())
    }
}
