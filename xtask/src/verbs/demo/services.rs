//! The services of `examples/` for the demo: preparation, start, and the function that one slow request runs. Called by the
//! demo.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::ValueEnum;

use super::prepared::Prepared;
use super::DemoServer;
use crate::artifact;
use crate::languages::java::{self, JavaToolchain};
use crate::languages::node::{self, NodeToolchain};
use crate::languages::python::{self, PythonToolchain, Venv};
use crate::languages::{self, Packages, Toolchain};
use crate::step::{ProcessStep, Running, StepFailure, StepResult};
use crate::{http, workspace};

/// One of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Example {
    FastApi,
    Express,
    Fastify,
    Spring,
}

/// Builds the command line and the libraries of the packages; must be called before a service is prepared.
pub fn build_command_line(packages: Packages) -> StepResult<PathBuf> {
    match packages {
        Packages::ForTests => artifact::command_line(),
        Packages::Optimized => {
            let installed = languages::ALL.iter().filter(|language| language.installed_runtimes().is_ok());
            // One cargo call: separate ones would rebuild dependencies with other features. Without object storage, which the
            // demo does not use.
            ProcessStep::cargo("build the command line and the libraries")
                .args(["build", "--locked", "--profile", "optimized", "--no-default-features", "-p", "spanprof-cli"])
                .args(installed.flat_map(|language| language.crates()).flat_map(|name| ["-p", name]))
                // As maturin does: the library of Python is not linked to an interpreter.
                .env("PYO3_BUILD_EXTENSION_MODULE", "1")
                .run()?;
            Ok(workspace::target().join("optimized/spanprof"))
        }
    }
}

/// Libraries built for a package; none for tests, which pack them each time.
fn libraries(language: &dyn Toolchain, packages: Packages) -> Vec<PathBuf> {
    let file = |name: &&str| workspace::target().join(format!("optimized/lib{}.so", name.replace('-', "_")));
    match packages {
        Packages::ForTests => Vec::new(),
        Packages::Optimized => language.crates().iter().map(file).collect(),
    }
}

/// A service that can be started.
pub struct ServiceProgram {
    example: Example,
    program: PathBuf,
    words: Vec<String>,
    inside: PathBuf,
}

/// One of each language: the default of the demo.
pub const DEFAULT: [Example; 3] = [Example::FastApi, Example::Express, Example::Spring];

impl Example {
    /// One of each language with installed tools; prints the missing tools of the others.
    pub fn available() -> Vec<Self> {
        let has_tools = |example: &Self| match example.tools() {
            Ok(()) => true,
            Err(missing) => {
                println!("without {}: {missing}", example.service_name());
                false
            }
        };
        DEFAULT.into_iter().filter(has_tools).collect()
    }

    fn tools(self) -> StepResult {
        self.language().installed_runtimes().map(drop)
    }

    /// The language of the service.
    pub fn language(self) -> &'static dyn Toolchain {
        match self {
            Self::FastApi => &PythonToolchain,
            Self::Express | Self::Fastify => &NodeToolchain,
            Self::Spring => &JavaToolchain,
        }
    }

    /// `service.name` of the service.
    pub fn service_name(self) -> String {
        let value = self.to_possible_value();
        format!("checkout-{}", value.as_ref().map_or("", PossibleValue::get_name))
    }

    fn directory(self) -> PathBuf {
        let name = match self {
            Self::FastApi => "python-fastapi",
            Self::Express => "node-express",
            Self::Fastify => "node-fastify",
            Self::Spring => "java-spring",
        };
        workspace::root().join("examples").join(name)
    }

    /// The function of the slow request, and one of other requests.
    pub fn functions(self) -> (&'static str, &'static str) {
        match self {
            Self::FastApi => ("render_report", "price_cart"),
            Self::Express | Self::Fastify | Self::Spring => ("renderReport", "priceCart"),
        }
    }

    /// Minimum share of linked samples. Most CPU time belongs to requests; sockets are accepted and read outside of spans, and in
    /// Node.js and Java other threads compile and collect garbage, mostly in young processes. Measured: 80 to 86, 61 to 71
    /// and 37 to 43 %.
    pub fn least_linked_share(self) -> f64 {
        match self {
            Self::FastApi => 0.60,
            Self::Express | Self::Fastify => 0.40,
            Self::Spring => 0.20,
        }
    }

    /// Builds the package and installs it with the dependencies of the service.
    pub fn prepare(self, packages: Packages) -> StepResult<ServiceProgram> {
        match self {
            Self::FastApi => self.in_python(packages),
            Self::Express | Self::Fastify => self.in_node(packages),
            Self::Spring => self.in_java(packages),
        }
    }

    fn in_python(self, packages: Packages) -> StepResult<ServiceProgram> {
        let requirements = ["-r".to_owned(), "examples/python-fastapi/requirements.txt".to_owned()];
        let venv = Venv::with("demo", &python::runtimes::preferred()?, &requirements)?;
        venv.install_wheel(&self.language().package(packages)?)?;
        let words = ["-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--log-level", "warning", "--port"];
        let words = words.map(str::to_owned).to_vec();
        Ok(ServiceProgram { example: self, program: venv.python(), words, inside: self.directory() })
    }

    fn in_node(self, packages: Packages) -> StepResult<ServiceProgram> {
        // Two examples pack the same files.
        static PACKAGE: Mutex<()> = Mutex::new(());
        let _alone = PACKAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let node = node::runtimes::preferred()?;
        let sources = ["bindings-node/lib/", "bindings-node/types/", "bindings-node/package.json"];
        let prepared = self.prepared(&sources, &libraries(self.language(), packages), &node.version)?;
        if !prepared.is_current() {
            let package = self.language().package(packages)?;
            prepared.begin(&self.directory(), &["app.js", "shop.js", "package.json"])?;
            node::runtimes::npm("dependencies of the service")
                .args(["install", "--ignore-scripts"])
                .arg(&package)
                .in_directory(&prepared.directory)
                .time_limit(Duration::from_secs(600))
                .run()?;
            prepared.complete()?;
        }
        let words = vec!["app.js".to_owned()];
        Ok(ServiceProgram { example: self, program: node.program, words, inside: prepared.directory })
    }

    fn in_java(self, packages: Packages) -> StepResult<ServiceProgram> {
        // The newest, which prints the current warnings about native code.
        let jdks = java::runtimes::all()?;
        let java = &jdks[jdks.len() - 1];
        let built = libraries(self.language(), packages);
        let sources = ["bindings-java/src/main/", "bindings-java/pom.xml"];
        let prepared = self.prepared(&sources, &built, &java.version.to_string())?;
        if !prepared.is_current() {
            let version = java::package::into_local_repository(java, &self.language().package(packages)?)?;
            let source = "src/main/java/shop/";
            let classes =
                ["Application.java", "Pages.java", "Shop.java", "Tracing.java"].map(|file| format!("{source}{file}"));
            let mut files = vec!["pom.xml", "src/main/resources/application.properties"];
            files.extend(classes.iter().map(String::as_str));
            prepared.begin(&self.directory(), &files)?;
            java::runtimes::maven("dependencies of the service", java)
                .args(["--quiet", "package", &format!("-Dspanprof.version={version}")])
                .in_directory(&prepared.directory)
                .time_limit(Duration::from_secs(900))
                .run()?;
            prepared.complete()?;
        }
        let words = ["-Xmx256m", "-jar", "target/checkout.jar"].map(str::to_owned).to_vec();
        Ok(ServiceProgram { example: self, program: java.home.join("bin/java"), words, inside: prepared.directory })
    }

    /// The service in a directory outside the work tree, for its installed dependencies.
    fn prepared(self, sources: &[&str], built: &[PathBuf], version: &str) -> StepResult<Prepared> {
        let example = self.directory();
        let own = example.strip_prefix(workspace::root()).unwrap_or(&example).to_string_lossy().into_owned() + "/";
        Prepared::of(&self.service_name(), &[sources, &[own.as_str()]].concat(), built, version)
    }
}

impl ServiceProgram {
    /// The service.
    pub fn example(&self) -> Example {
        self.example
    }

    /// The program that runs it: an interpreter, or a VM.
    pub fn executable(&self) -> &Path {
        &self.program
    }

    /// Starts it on a free port.
    pub fn start(&self, directory: &Path, server: &DemoServer, packages: Packages) -> StepResult<(Running, u16)> {
        let port = http::free_port().map_err(|error| StepFailure::new("free port", error.to_string()))?;
        let text = port.to_string();
        let name = self.example.service_name();
        let with_port = (self.example == Example::FastApi).then_some(&text);
        let service = ProcessStep::new(&name, &self.program);
        let service = match packages {
            // Without optimization the profiler exceeds its budget, and a single request would have no sample.
            Packages::ForTests => service.without_cpu_budget(),
            Packages::Optimized => service,
        };
        let running = service
            .args(&self.words)
            .args(with_port)
            .env("PORT", &text)
            .env("OTEL_SERVICE_NAME", &name)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", server.http_port))
            .env("SPANPROF_UPLOAD_INTERVAL", super::UPLOAD_INTERVAL.as_secs().to_string())
            .env("SPANPROF_HEAP_AGE", "true")
            .in_directory(&self.inside)
            .start(&directory.join(format!("{name}.log")))?;
        Ok((running, port))
    }
}

/// Waits until a started service responds.
pub fn wait_until_it_responds(running: &mut Running, port: u16) -> StepResult {
    let responds = || http::get(port, "/health").ok().filter(|(status, _)| *status == 200);
    running.wait_until(Duration::from_secs(60), |_| responds()).map(drop)
}
