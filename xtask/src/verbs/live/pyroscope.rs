//! A real Pyroscope 1.21: one program per language sends to it directly and through the Collector; series, labels, spans,
//! a diff and totals are queried back and compared with what the program sent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{collector, free_port, go_program};
use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Running, Step};
use crate::venv::Venv;
use crate::{http, javas, nodes, pythons, scratch, verbs, workspace};

/// The newest version whose Go module can be built; it stores trace ids as labels, as 1.20 to 2.0 do.
const VERSION: &str = "1.21.0";
const REQUESTS: u32 = 500;
const LANGUAGES: [&str; 4] = ["rust", "python", "node", "java"];
/// Its ingester reports ready 15 s after its start.
const START: Duration = Duration::from_secs(120);

/// How a profile travels to Pyroscope.
#[derive(Clone, Copy)]
struct Route {
    name: &'static str,
    protocol: &'static str,
}

const ROUTES: [Route; 4] = [
    Route { name: "direct_http", protocol: "http/protobuf" },
    Route { name: "direct_grpc", protocol: "grpc" },
    // The Collector exports by the protocol that it received.
    Route { name: "collector_grpc", protocol: "grpc" },
    Route { name: "collector_http", protocol: "http/protobuf" },
];

/// The running servers and the built programs.
struct Field {
    folder: PathBuf,
    pyroscope: u16,
    collector_grpc: u16,
    collector_http: u16,
    venv: Venv,
    spanprof: PathBuf,
    node: PathBuf,
    node_modules: PathBuf,
    java: javas::Java,
    java_classes: String,
    rust: PathBuf,
}

pub fn run(_: &Arguments) -> Outcome {
    let server = go_program("pyroscope", "github.com/grafana/pyroscope/cmd/pyroscope", VERSION)?;
    let collector = collector::built()?;
    let field = Field::prepare()?;
    let _pyroscope = field.start_pyroscope(&server)?;
    let config = field.collector_config()?;
    let _collector = collector::start(&collector, &config, &[collector::GATE], &field.folder.join("collector.log"))?;
    println!("| language | route | link | sampled s | Collector s | Pyroscope s | span s | series | service_name |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut failed = Vec::new();
    let mut note = |name: String, outcome: Outcome| {
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            failed.push(name);
        }
    };
    for language in LANGUAGES {
        for route in ROUTES {
            note(format!("{language} {}", route.name), field.cell(language, route, "span", &[]));
        }
    }
    for link in ["trace_and_span", "none"] {
        note(format!("link={link}"), field.cell("python", ROUTES[0], link, &[]));
    }
    let shared = Route { name: "no_instance", ..ROUTES[0] };
    note(
        "instance_attributes=false".to_owned(),
        field.cell("python", shared, "span", &[("INSTANCE_ATTRIBUTES", "false")]),
    );
    note("label_names".to_owned(), field.label_names());
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("live pyroscope", format!("failed: {}", failed.join("; ")))),
    }
}

impl Field {
    fn prepare() -> Outcome<Self> {
        let wheel = verbs::wheel::build_for_tests()?;
        let venv = Venv::with("live", &pythons::preferred()?, &[])?;
        venv.install_wheel(&wheel)?;
        Step::cargo("build the Rust program").args(["build", "--quiet", "-p", "spanprof-live"]).run()?;
        Ok(Self {
            folder: scratch::empty("live-pyroscope")?,
            pyroscope: free_port()?,
            collector_grpc: free_port()?,
            collector_http: free_port()?,
            spanprof: venv.program("spanprof"),
            venv,
            node: nodes::preferred()?.program,
            node_modules: super::node::installed()?,
            java: javas::all()?.remove(0),
            java_classes: super::java::compiled()?,
            rust: workspace::target().join("debug/spanprof-live"),
        })
    }

    fn start_pyroscope(&self, server: &Path) -> Outcome<Running> {
        let config = workspace::root().join("xtask/live/pyroscope/pyroscope.yaml");
        let mut running = Step::new("Pyroscope", server)
            .arg(format!("-config.file={}", config.display()))
            .arg(format!("-server.http-listen-port={}", self.pyroscope))
            .arg(format!("-server.grpc-listen-port={}", free_port()?))
            .arg(format!("-memberlist.bind-port={}", free_port()?))
            .inside(&self.folder)
            .start(&self.folder.join("pyroscope.log"))?;
        let ready = |_: &str| matches!(http::get(self.pyroscope, "/ready"), Ok((200, _))).then_some(());
        running.wait_until(START, ready)?;
        println!("Pyroscope {VERSION} is ready");
        Ok(running)
    }

    /// What arrives by gRPC leaves by `otlp_grpc`, and what arrives by HTTP by `otlp_http`; both are also written to a file.
    fn collector_config(&self) -> Outcome<PathBuf> {
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
        let path = self.folder.join("collector.yaml");
        scratch::write(&path, &text)?;
        Ok(path)
    }

    /// The Collector's file.
    fn written(&self) -> PathBuf {
        self.folder.join("written.jsonl")
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
    fn program(&self, language: &str, name: String) -> Step {
        let python = |step: Step| step.arg("xtask/live/pyroscope/program.py");
        match language {
            "rust" => Step::new(name, &self.rust).arg("requests"),
            "node" => {
                Step::new(name, &self.node).arg("xtask/live/pyroscope/program.js").env("NODE_PATH", &self.node_modules)
            }
            "java" => super::java::program(&self.java, &name, &self.java_classes).arg("Requests"),
            _ => python(Step::new(name, self.venv.python())),
        }
    }

    /// One program over one route, and the comparison of what Pyroscope stored.
    fn cell(&self, language: &str, route: Route, link: &str, settings: &[(&str, &str)]) -> Outcome {
        let service = format!("live-{language}-{}-{link}", route.name.replace('_', "-"));
        let figure = self.folder.join(format!("{service}.ns"));
        let mut program = self.program(language, service.clone()).env("SPANPROF_LINK", link);
        for (key, value) in settings {
            program = program.env(&format!("SPANPROF_{key}"), value);
        }
        let requests = REQUESTS.to_string();
        program.args([&self.endpoint(route), route.protocol, &service, &requests]).arg(&figure).run()?;
        let mut query = Step::new(format!("query {service}"), self.venv.python())
            .arg("xtask/live/pyroscope/query.py")
            .args([service.as_str(), language, route.name, link])
            .arg(&figure)
            .args(["--port", &self.pyroscope.to_string(), "--requests", &requests]);
        if route.name.starts_with("collector") {
            query = query.arg("--collector").arg(&self.spanprof).arg(self.written());
        }
        query.run()
    }

    /// A name that Pyroscope 1.x refuses: the refusal and its reason are visible, and `strict` is accepted.
    fn label_names(&self) -> Outcome {
        let figure = self.folder.join("label-names.ns");
        let endpoint = self.endpoint(ROUTES[0]);
        let program = |names: &str| {
            self.program("python", format!("label_names={names}"))
                .args([endpoint.as_str(), "http/protobuf", "live-label-names", "2"])
                .arg(&figure)
                .env("SPANPROF_LABEL_NAMES", names)
                .env("EXTRA_LABEL", "user-tier")
        };
        program("strict").run()?;
        let (status, said) = program("as_is").capture_any()?;
        let expected = ["refuses every request with the label name `user-tier`", "invalid label name 'user-tier'"];
        if status.success() || !expected.iter().all(|part| said.contains(part)) {
            return Err(Failure::new("label_names=as_is", format!("expected {expected:?}, got {status}:\n{said}")));
        }
        println!("label_names: as_is is refused with its reason, strict is accepted");
        Ok(())
    }
}
