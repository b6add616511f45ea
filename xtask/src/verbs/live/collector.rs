//! The OpenTelemetry Collector: accepts every transport, writes profiles equal to those sent, and the metrics of
//! programs, and reports the documented error without the feature gate of the profiles signal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{free_port, go_program, run_spanprof_live};
use crate::arguments::LiveArguments;
use crate::languages::python;
use crate::scratch;
use crate::step::{ProcessStep, Running, StepFailure, StepResult};

/// Newest version with all modules available.
const VERSION: &str = "0.161.0";
pub(super) const GATE: &str = "--feature-gates=service.profilesSupport";
/// The Collector's error without the gate; docs/guides/troubleshooting.md quotes it.
const WITHOUT_GATE: &str =
    "profiling signal support is at alpha level, gated under the \"service.profilesSupport\" feature gate";

pub fn run(_: &LiveArguments) -> StepResult {
    let collector = built()?;
    let directory = scratch::empty("live-collector")?;
    example(&collector)?;
    without_gate(&collector, &directory)?;
    without_pipeline(&collector, &directory)?;
    every_transport(&collector, &directory)
}

/// The Collector's program.
pub(super) fn built() -> StepResult<PathBuf> {
    go_program("collector", ".", VERSION)
}

/// Validates the example configuration.
fn example(collector: &Path) -> StepResult {
    ProcessStep::new("examples/collector/collector.yaml is valid", collector)
        .args(["validate", "--config", "examples/collector/collector.yaml", GATE])
        .run()
}

/// Two free ports: gRPC and HTTP.
fn ports() -> StepResult<(u16, u16)> {
    Ok((free_port()?, free_port()?))
}

fn receiver(grpc: u16, http: u16) -> String {
    format!(
        "receivers:\n  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:{grpc}}}, http: {{endpoint: 127.0.0.1:{http}}}}}}}\n"
    )
}

fn profiles_config(directory: &Path, grpc: u16, http: u16) -> StepResult<PathBuf> {
    let file = |name: &str| directory.join(name).display().to_string();
    let config = format!(
        "{receiver}\
         processors:\n  memory_limiter: {{check_interval: 1s, limit_mib: 512}}\n  \
         resource: {{attributes: [{{key: deployment.environment.name, value: live, action: upsert}}]}}\n\
         exporters:\n  debug: {{verbosity: detailed}}\n  \
         file/json: {{path: {json}, flush_interval: 200ms}}\n  \
         file/proto: {{path: {proto}, format: proto, flush_interval: 200ms}}\n  \
         file/resource: {{path: {resource}, flush_interval: 200ms}}\n  \
         file/metrics: {{path: {metrics}, flush_interval: 200ms}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}, logs: {{level: info}}}}\n  pipelines:\n    \
         profiles: {{receivers: [otlp], processors: [memory_limiter], exporters: [debug, file/json, file/proto]}}\n    \
         profiles/resource: {{receivers: [otlp], processors: [memory_limiter, resource], exporters: [file/resource]}}\n    \
         metrics: {{receivers: [otlp], processors: [memory_limiter], exporters: [file/metrics]}}\n",
        receiver = receiver(grpc, http),
        json = file("written.jsonl"),
        proto = file("written.pb"),
        resource = file("resource.jsonl"),
        metrics = file("metrics.jsonl"),
    );
    let path = directory.join("collector.yaml");
    scratch::write(&path, &config)?;
    Ok(path)
}

fn without_gate(collector: &Path, directory: &Path) -> StepResult {
    let (grpc, http) = ports()?;
    let config = profiles_config(directory, grpc, http)?;
    let (status, output) =
        ProcessStep::new("Collector without the feature gate", collector).arg("--config").arg(config).capture_any()?;
    if status.success() || !output.contains(WITHOUT_GATE) {
        return Err(StepFailure::new(
            "Collector without the feature gate",
            format!("expected `{WITHOUT_GATE}`, got {status}:\n{output}"),
        ));
    }
    let page = scratch::read(&crate::workspace::root().join("docs/guides/troubleshooting.md"))?;
    if !page.contains(WITHOUT_GATE) {
        return Err(StepFailure::new(
            "troubleshooting page",
            format!("docs/guides/troubleshooting.md does not quote `{WITHOUT_GATE}`"),
        ));
    }
    println!("without the feature gate: refuses to start, as documented");
    Ok(())
}

/// A Collector with only a traces pipeline returns 404 and UNIMPLEMENTED; the exporter's message must name the gate.
fn without_pipeline(collector: &Path, directory: &Path) -> StepResult {
    let (grpc, http) = ports()?;
    let config = directory.join("traces-only.yaml");
    let text = format!(
        "{}exporters:\n  debug: {{}}\nservice:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n    \
         traces: {{receivers: [otlp], exporters: [debug]}}\n",
        receiver(grpc, http)
    );
    scratch::write(&config, &text)?;
    let _running = start(collector, &config, &[], &directory.join("traces-only.log"))?;
    run_spanprof_live("refusal over HTTP", &["refused", "http", &format!("http://127.0.0.1:{http}")])?;
    run_spanprof_live("refusal over gRPC", &["refused", "grpc", &format!("http://127.0.0.1:{grpc}")])?;
    for (protocol, port) in [("http", http), ("grpc", grpc)] {
        let words = ["metrics-refused", protocol, &format!("http://127.0.0.1:{port}")];
        run_spanprof_live(&format!("refusal of metrics over {protocol}"), &words)?;
    }
    Ok(())
}

fn every_transport(collector: &Path, directory: &Path) -> StepResult {
    let (grpc, http) = ports()?;
    let config = profiles_config(directory, grpc, http)?;
    let _running = start(collector, &config, &[GATE], &directory.join("collector.log"))?;
    let (grpc_url, http_url) = (format!("http://127.0.0.1:{grpc}"), format!("http://127.0.0.1:{http}"));
    let json = directory.join("written.jsonl").display().to_string();
    let proto = directory.join("written.pb").display().to_string();
    run_spanprof_live("send over every transport and read back", &["collector", &grpc_url, &http_url, &json, &proto])?;
    let metrics = directory.join("metrics.jsonl").display().to_string();
    from_programs(&grpc_url, &http_url, &json, &metrics)?;
    let resource = scratch::read(&directory.join("resource.jsonl"))?;
    if !resource.contains("deployment.environment.name") {
        return Err(StepFailure::new("resource processor", "its attribute is not in the written profiles"));
    }
    println!("the resource processor added its attribute");
    Ok(())
}

/// Runs a program in Python over each transport; the Collector's files must contain its profiles and its metrics.
fn from_programs(grpc: &str, http: &str, written: &str, metrics: &str) -> StepResult {
    let venv = python::Venv::with("live", &python::runtimes::preferred()?, &[])?;
    venv.install_wheel(&python::package::build_for_tests()?)?;
    for (protocol, endpoint, compression) in [
        ("grpc", grpc, "none"),
        ("grpc", grpc, "gzip"),
        ("http/protobuf", http, "none"),
        ("http/protobuf", http, "gzip"),
    ] {
        let service = format!("live-{}-{compression}", &protocol[..4]);
        let sampled = format!("{written}.{service}.ns");
        ProcessStep::new(format!("a program over {protocol}, compression {compression}"), venv.python())
            .arg("xtask/live/collector/program.py")
            .env("SPANPROF_METRICS", "true")
            .args([endpoint, protocol, compression, &service, &sampled])
            .run()?;
        ProcessStep::new(format!("read {service} back"), venv.python())
            .arg("xtask/live/collector/read_back.py")
            .arg(venv.program("spanprof"))
            .args([written, &service, &sampled])
            .run()?;
        // Sent by `stop`, before the file was read.
        if !scratch::read(Path::new(metrics))?.contains(&format!("\"{service}\"")) {
            return Err(StepFailure::new("metrics", format!("{metrics} has none of {service}")));
        }
    }
    Ok(())
}

/// Starts the Collector and waits until it is ready.
pub(super) fn start(collector: &Path, config: &Path, words: &[&str], log: &Path) -> StepResult<Running> {
    let mut running = ProcessStep::new("Collector", collector).arg("--config").arg(config).args(words).start(log)?;
    running.wait_until(Duration::from_secs(20), |log| log.contains("Everything is ready").then_some(()))?;
    Ok(running)
}
