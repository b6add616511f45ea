//! The real OpenTelemetry Collector: accepts every transport, gives back what was sent, and says what it says when the
//! profiles signal is off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{free_port, go_program, rust_half};
use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Running, Step};
use crate::{javas, nodes, pythons, scratch, verbs};

/// Newest version of which every module could be had when this was written.
const VERSION: &str = "0.161.0";
pub(super) const GATE: &str = "--feature-gates=service.profilesSupport";
/// What the Collector says without the gate; docs/troubleshooting.md quotes it.
const WITHOUT_GATE: &str =
    "profiling signal support is at alpha level, gated under the \"service.profilesSupport\" feature gate";

pub fn run(_: &Arguments) -> Outcome {
    let collector = built()?;
    let folder = scratch::empty("live-collector")?;
    example(&collector)?;
    without_gate(&collector, &folder)?;
    without_pipeline(&collector, &folder)?;
    every_transport(&collector, &folder)
}

/// The Collector's program.
pub(super) fn built() -> Outcome<PathBuf> {
    go_program("collector", ".", VERSION)
}

/// The configuration that users copy is one that this Collector takes.
fn example(collector: &Path) -> Outcome {
    Step::new("examples/collector/collector.yaml is valid", collector)
        .args(["validate", "--config", "examples/collector/collector.yaml", GATE])
        .run()
}

/// Two free ports: gRPC and HTTP.
fn ports() -> Outcome<(u16, u16)> {
    Ok((free_port()?, free_port()?))
}

fn receiver(grpc: u16, http: u16) -> String {
    format!(
        "receivers:\n  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:{grpc}}}, http: {{endpoint: 127.0.0.1:{http}}}}}}}\n"
    )
}

fn profiles_config(folder: &Path, grpc: u16, http: u16) -> Outcome<PathBuf> {
    let file = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "{receiver}\
         processors:\n  memory_limiter: {{check_interval: 1s, limit_mib: 512}}\n  \
         resource: {{attributes: [{{key: deployment.environment.name, value: live, action: upsert}}]}}\n\
         exporters:\n  debug: {{verbosity: detailed}}\n  \
         file/json: {{path: {json}, flush_interval: 200ms}}\n  \
         file/proto: {{path: {proto}, format: proto, flush_interval: 200ms}}\n  \
         file/resource: {{path: {resource}, flush_interval: 200ms}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}, logs: {{level: info}}}}\n  pipelines:\n    \
         profiles: {{receivers: [otlp], processors: [memory_limiter], exporters: [debug, file/json, file/proto]}}\n    \
         profiles/resource: {{receivers: [otlp], processors: [memory_limiter, resource], exporters: [file/resource]}}\n",
        receiver = receiver(grpc, http),
        json = file("written.jsonl"),
        proto = file("written.pb"),
        resource = file("resource.jsonl"),
    );
    let path = folder.join("collector.yaml");
    scratch::write(&path, &config)?;
    Ok(path)
}

fn without_gate(collector: &Path, folder: &Path) -> Outcome {
    let (grpc, http) = ports()?;
    let config = profiles_config(folder, grpc, http)?;
    let (status, said) =
        Step::new("Collector without the feature gate", collector).arg("--config").arg(config).capture_any()?;
    if status.success() || !said.contains(WITHOUT_GATE) {
        return Err(Failure::new(
            "Collector without the feature gate",
            format!("expected `{WITHOUT_GATE}`, got {status}:\n{said}"),
        ));
    }
    let page = scratch::read(&crate::workspace::root().join("docs/troubleshooting.md"))?;
    if !page.contains(WITHOUT_GATE) {
        return Err(Failure::new(
            "troubleshooting page",
            format!("docs/troubleshooting.md does not quote `{WITHOUT_GATE}`"),
        ));
    }
    println!("without the feature gate: refuses to start, as documented");
    Ok(())
}

/// A Collector that takes traces only answers 404 and UNIMPLEMENTED; our message must name the gate.
fn without_pipeline(collector: &Path, folder: &Path) -> Outcome {
    let (grpc, http) = ports()?;
    let config = folder.join("traces-only.yaml");
    let text = format!(
        "{}exporters:\n  debug: {{}}\nservice:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
         traces: {{receivers: [otlp], exporters: [debug]}}\n",
        receiver(grpc, http)
    );
    scratch::write(&config, &text)?;
    let _running = start(collector, &config, &[], &folder.join("traces-only.log"))?;
    rust_half("refusal over HTTP", &["refused", "http", &format!("http://127.0.0.1:{http}")])?;
    rust_half("refusal over gRPC", &["refused", "grpc", &format!("http://127.0.0.1:{grpc}")])
}

fn every_transport(collector: &Path, folder: &Path) -> Outcome {
    let (grpc, http) = ports()?;
    let config = profiles_config(folder, grpc, http)?;
    let _running = start(collector, &config, &[GATE], &folder.join("collector.log"))?;
    let (grpc_url, http_url) = (format!("http://127.0.0.1:{grpc}"), format!("http://127.0.0.1:{http}"));
    let json = folder.join("written.jsonl").display().to_string();
    let proto = folder.join("written.pb").display().to_string();
    rust_half("send over every transport and read back", &["collector", &grpc_url, &http_url, &json, &proto])?;
    from_programs(&grpc_url, &http_url, &json)?;
    let resource = scratch::read(&folder.join("resource.jsonl"))?;
    if !resource.contains("deployment.environment.name") {
        return Err(Failure::new("resource processor", "its attribute is not in the written profiles"));
    }
    println!("the resource processor added its attribute");
    Ok(())
}

/// A real program in Python, one in Node.js and one in Java over each transport; what each did must be found in what the Collector wrote.
fn from_programs(grpc: &str, http: &str, written: &str) -> Outcome {
    let python = pythons::preferred()?;
    let wheel = verbs::wheel::build_for_tests()?;
    let venv = crate::venv::Venv::with("live", &python, &[])?;
    venv.install_wheel(&wheel)?;
    let node = nodes::preferred()?.program;
    let modules = super::node::installed()?;
    let java = javas::all()?.remove(0);
    let classes = super::java::compiled()?;
    for (protocol, endpoint, compression) in [
        ("grpc", grpc, "none"),
        ("grpc", grpc, "gzip"),
        ("http/protobuf", http, "none"),
        ("http/protobuf", http, "gzip"),
    ] {
        for language in ["python", "node", "java"] {
            let service = format!("live-{language}-{}-{compression}", &protocol[..4]);
            let sampled = format!("{written}.{service}.ns");
            let name = format!("a program in {language} over {protocol}, compression {compression}");
            let program = match language {
                "python" => Step::new(name, venv.python()).arg("xtask/live/collector/program.py"),
                "node" => Step::new(name, &node).arg("xtask/live/collector/program.js").env("NODE_PATH", &modules),
                _ => super::java::program(&java, &name, &classes).arg("Program"),
            };
            program.args([endpoint, protocol, compression, &service, &sampled]).run()?;
            Step::new(format!("read {service} back"), venv.python())
                .arg("xtask/live/collector/read_back.py")
                .arg(venv.program("spanprof"))
                .args([written, &service, &sampled])
                .run()?;
        }
    }
    Ok(())
}

/// Starts the Collector and waits until it is ready.
pub(super) fn start(collector: &Path, config: &Path, words: &[&str], log: &Path) -> Outcome<Running> {
    let mut running = Step::new("Collector", collector).arg("--config").arg(config).args(words).start(log)?;
    running.wait_until(Duration::from_secs(20), |log| log.contains("Everything is ready").then_some(()))?;
    Ok(running)
}
