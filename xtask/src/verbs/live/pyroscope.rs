//! Pyroscope 1.21: programs in Rust and Python send to it directly and through the Collector; series, labels, spans, a diff and
//! totals are queried and compared with the sent profiles, for one program of every profile type too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{collector, free_port, go_program};
use crate::arguments::LiveArguments;
use crate::languages::python::{self, Venv};
use crate::step::{all_passed, ProcessStep, Running, StepFailure, StepResult};
use crate::{artifact, http, scratch, workspace};

/// Newest version with a Go module that builds; like 1.20 to 2.0, it stores trace ids as labels.
const VERSION: &str = "1.21.0";
const REQUESTS: u32 = 500;
const LANGUAGES: [&str; 2] = ["rust", "python"];
/// Deadline for readiness; the ingester is ready 15 s after its start.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Route of a profile to Pyroscope.
#[derive(Clone, Copy)]
struct Route {
    name: &'static str,
    protocol: &'static str,
}

const ROUTES: [Route; 4] = [
    Route { name: "direct_http", protocol: "http/protobuf" },
    Route { name: "direct_grpc", protocol: "grpc" },
    // The Collector exports by the protocol of the receiver.
    Route { name: "collector_grpc", protocol: "grpc" },
    Route { name: "collector_http", protocol: "http/protobuf" },
];

/// The running servers and the built programs.
struct PyroscopeSetup {
    directory: PathBuf,
    pyroscope: u16,
    collector_grpc: u16,
    collector_http: u16,
    venv: Venv,
    spanprof: PathBuf,
    rust: PathBuf,
}

pub fn run(_: &LiveArguments) -> StepResult {
    let server = built()?;
    let collector = collector::built()?;
    let setup = PyroscopeSetup::prepare()?;
    let _pyroscope = setup.start_pyroscope(&server)?;
    let config = setup.collector_config()?;
    let _collector = collector::start(&collector, &config, &[collector::GATE], &setup.directory.join("collector.log"))?;
    println!("| language | route | link | sampled s | Collector s | Pyroscope s | span s | series | service_name |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut failed = Vec::new();
    let mut record = |name: String, outcome: StepResult| {
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            failed.push(name);
        }
    };
    for language in LANGUAGES {
        for route in ROUTES {
            record(format!("{language} {}", route.name), setup.cell(language, route, "span"));
        }
    }
    for link in ["trace_and_span", "none"] {
        record(format!("link={link}"), setup.cell("python", ROUTES[0], link));
    }
    record("label_names".to_owned(), setup.label_names());
    for route in ROUTES.iter().filter(|route| route.protocol == "http/protobuf") {
        record(format!("every type {}", route.name), setup.every_type(*route, "otlp"));
    }
    record("every type push".to_owned(), setup.every_type(ROUTES[0], "pyroscope"));
    all_passed("live pyroscope", &failed)
}

/// Pyroscope's program.
pub(super) fn built() -> StepResult<PathBuf> {
    go_program("pyroscope", "github.com/grafana/pyroscope/cmd/pyroscope", VERSION)
}

impl PyroscopeSetup {
    fn prepare() -> StepResult<Self> {
        let wheel = python::package::build_for_tests()?;
        let venv = Venv::with("live", &python::runtimes::preferred()?, &[])?;
        venv.install_wheel(&wheel)?;
        Ok(Self {
            directory: scratch::empty("live-pyroscope")?,
            pyroscope: free_port()?,
            collector_grpc: free_port()?,
            collector_http: free_port()?,
            spanprof: venv.program("spanprof"),
            venv,
            rust: artifact::for_tests()?.join("spanprof-live"),
        })
    }

    fn start_pyroscope(&self, server: &Path) -> StepResult<Running> {
        let config = workspace::root().join("xtask/live/pyroscope/pyroscope.yaml");
        let mut running = ProcessStep::new("Pyroscope", server)
            .arg(format!("-config.file={}", config.display()))
            .arg(format!("-server.http-listen-port={}", self.pyroscope))
            .arg(format!("-server.grpc-listen-port={}", free_port()?))
            .arg(format!("-memberlist.bind-port={}", free_port()?))
            .in_directory(&self.directory)
            .start(&self.directory.join("pyroscope.log"))?;
        let ready = |_: &str| matches!(http::get(self.pyroscope, "/ready"), Ok((200, _))).then_some(());
        running.wait_until(START_LIMIT, ready)?;
        println!("Pyroscope {VERSION} is ready");
        Ok(running)
    }

    /// Profiles received by gRPC are exported by `otlp_grpc`, those received by HTTP by `otlp_http`; both also go to a file.
    fn collector_config(&self) -> StepResult<PathBuf> {
        let Self { pyroscope, collector_grpc, collector_http, .. } = self;
        let text = format!(
            "receivers:\n  otlp/grpc: {{protocols: {{grpc: {{endpoint: 127.0.0.1:{collector_grpc}}}}}}}\n  \
             otlp/http: {{protocols: {{http: {{endpoint: 127.0.0.1:{collector_http}}}}}}}\n\
             exporters:\n  file: {{path: {file}, flush_interval: 200ms}}\n  \
             otlp_grpc/pyroscope: {{endpoint: 127.0.0.1:{pyroscope}, tls: {{insecure: true}}}}\n  \
             otlp_http/pyroscope: {{endpoint: http://127.0.0.1:{pyroscope}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}, logs: {{level: info}}}}\n  pipelines:\n    \
             profiles/grpc: {{receivers: [otlp/grpc], exporters: [file, otlp_grpc/pyroscope]}}\n    \
             profiles/http: {{receivers: [otlp/http], exporters: [file, otlp_http/pyroscope]}}\n",
            file = self.written().display(),
        );
        let path = self.directory.join("collector.yaml");
        scratch::write(&path, &text)?;
        Ok(path)
    }

    /// The Collector's file.
    fn written(&self) -> PathBuf {
        self.directory.join("written.jsonl")
    }

    fn endpoint(&self, route: Route) -> String {
        let port = match route.name {
            "collector_grpc" => self.collector_grpc,
            "collector_http" => self.collector_http,
            _ => self.pyroscope,
        };
        format!("http://127.0.0.1:{port}")
    }

    /// The program of a language; its settings come from the environment, as in a deployment.
    fn program(&self, language: &str, name: String) -> ProcessStep {
        match language {
            "rust" => ProcessStep::new(name, &self.rust).arg("requests"),
            _ => ProcessStep::new(name, self.venv.python()).arg("xtask/live/pyroscope/program.py"),
        }
    }

    /// Runs one program over one route, and compares the profiles that Pyroscope stored.
    fn cell(&self, language: &str, route: Route, link: &str) -> StepResult {
        let service = format!("live-{language}-{}-{link}", route.name.replace('_', "-"));
        let figure = self.directory.join(format!("{service}.ns"));
        let program = self.program(language, service.clone()).env("SPANPROF_LINK", link);
        let requests = REQUESTS.to_string();
        program.args([&self.endpoint(route), route.protocol, &service, &requests]).arg(&figure).run()?;
        let mut query = ProcessStep::new(format!("query {service}"), self.venv.python())
            .arg("xtask/live/pyroscope/query.py")
            .args([service.as_str(), language, route.name, link])
            .arg(&figure)
            .args(["--port", &self.pyroscope.to_string(), "--requests", &requests]);
        if route.name.starts_with("collector") {
            query = query.arg("--collector").arg(&self.spanprof).arg(self.written());
        }
        query.run()
    }

    /// Every profile of one program: each type has the same total in Pyroscope as in the program's files; in Pyroscope's own protocol
    /// also the names of its dashboards, and a span.
    fn every_type(&self, route: Route, protocol: &str) -> StepResult {
        let service = format!("live-every-type-{}-{protocol}", route.name.replace('_', "-"));
        let files = scratch::empty(&service)?;
        ProcessStep::new(service.clone(), self.venv.python())
            .arg("xtask/live/pyroscope/every_type.py")
            .arg(self.endpoint(route))
            .arg(&files)
            .args([&service, protocol])
            .run()?;
        ProcessStep::new(format!("query {service}"), self.venv.python())
            .arg("xtask/live/pyroscope/query_types.py")
            .arg(&self.spanprof)
            .arg(&files)
            .args([&self.pyroscope.to_string(), &service, protocol])
            .run()
    }

    /// A label name that Pyroscope 1.x refuses: the error has its reason.
    fn label_names(&self) -> StepResult {
        let program = self
            .program("python", "label names".to_owned())
            .args([self.endpoint(ROUTES[0]).as_str(), "http/protobuf", "live-label-names", "2"])
            .arg(self.directory.join("label-names.ns"))
            .env("EXTRA_LABEL", "user-tier");
        let (status, output) = program.capture_any()?;
        let expected = ["refuses every request with the label name `user-tier`", "invalid label name 'user-tier'"];
        if status.success() || !expected.iter().all(|part| output.contains(part)) {
            return Err(StepFailure::new("label names", format!("expected {expected:?}, got {status}:\n{output}")));
        }
        println!("label names: a name is refused with its reason");
        Ok(())
    }
}
