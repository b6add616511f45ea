//! The services of `examples/` that the demo can show: what each needs, how it starts, and which of its functions one
//! heavy request runs. Called by the demo.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::prepared::Prepared;
use super::Server;
use crate::step::{Failure, Outcome, Running, Step};
use crate::venv::Venv;
use crate::verbs::{addon, jar, live, wheel};
use crate::{http, javas, nodes, pythons, workspace};

/// One of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    FastApi,
    Express,
    Fastify,
    Spring,
}

/// Which packages the services run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packages {
    /// Those of the workspace's tests, which are built already where tests run.
    ForTests,
    /// As users get them, but without link-time optimization, which takes minutes, and for this machine only.
    Optimized,
}

impl Packages {
    /// Builds the command line, and the libraries of the packages; the first to be called.
    pub fn command_line(self) -> Outcome<PathBuf> {
        match self {
            Self::ForTests => live::command_line(),
            Self::Optimized => {
                // All in one step: by itself, each would build the others' dependencies again with its own features.
                Step::cargo("build the command line and the libraries")
                    .args(["build", "--locked", "--profile", "optimized", "-p", "spanprof-cli", "-p", "spanprof-node"])
                    .args(["-p", "spanprof-java", "-p", "spanprof-java-opener"])
                    .run()?;
                Ok(workspace::target().join("optimized/spanprof"))
            }
        }
    }

    /// What was built for a package. Nothing for tests, which pack theirs each time.
    fn libraries(self, names: &[&str]) -> Vec<PathBuf> {
        match self {
            Self::ForTests => Vec::new(),
            Self::Optimized => names.iter().map(|name| workspace::target().join("optimized").join(name)).collect(),
        }
    }

    fn wheel(self) -> Outcome<PathBuf> {
        match self {
            Self::ForTests => wheel::build_for_tests(),
            Self::Optimized => wheel::build_for_demo(),
        }
    }

    fn npm_package(self) -> Outcome<PathBuf> {
        match self {
            Self::ForTests => addon::build_for_tests(),
            Self::Optimized => addon::pack_for_demo(),
        }
    }

    fn jar(self) -> Outcome<PathBuf> {
        match self {
            Self::ForTests => jar::for_tests(),
            Self::Optimized => jar::pack_for_demo(),
        }
    }
}

/// A service that can be started.
pub struct Program {
    example: Example,
    program: PathBuf,
    words: Vec<String>,
    inside: PathBuf,
}

/// Every service, by its name.
const ALL: [(&str, Example); 4] = [
    ("fastapi", Example::FastApi),
    ("express", Example::Express),
    ("fastify", Example::Fastify),
    ("spring", Example::Spring),
];
/// One of each language: what the demo shows when nobody names services.
pub const USUAL: [Example; 3] = [Example::FastApi, Example::Express, Example::Spring];

impl Example {
    /// Those of `fastapi,spring`.
    pub fn named(names: &str) -> Outcome<Vec<Self>> {
        names.split(',').map(|name| Self::one(name.trim())).collect()
    }

    fn one(name: &str) -> Outcome<Self> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, example)| *example).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|(known, _)| *known).collect();
            Failure::new("--service", format!("`{name}` is none of {}", known.join(", ")))
        })
    }

    /// One of each language for which the tools are here; what is missing for another is said.
    pub fn usual() -> Vec<Self> {
        let has_tools = |example: &Self| match example.tools() {
            Ok(()) => true,
            Err(missing) => {
                println!("without {}: {missing}", example.service_name());
                false
            }
        };
        USUAL.into_iter().filter(has_tools).collect()
    }

    fn tools(self) -> Outcome {
        match self {
            Self::FastApi => pythons::preferred().map(drop),
            Self::Express | Self::Fastify => nodes::preferred().map(drop),
            Self::Spring => javas::all().map(drop),
        }
    }

    /// What the service calls itself.
    pub fn service_name(self) -> String {
        let name = ALL.iter().find(|(_, example)| *example == self).map_or("", |(name, _)| *name);
        format!("checkout-{name}")
    }

    fn folder(self) -> PathBuf {
        let name = match self {
            Self::FastApi => "python-fastapi",
            Self::Express => "node-express",
            Self::Fastify => "node-fastify",
            Self::Spring => "java-spring",
        };
        workspace::root().join("examples").join(name)
    }

    /// Whether a row of `spanprof top --json` is a function of the service, not of a library, a runtime or the profiler.
    pub fn is_own(self, function: &str, file: &str) -> bool {
        match self {
            Self::FastApi => file.ends_with("examples/python-fastapi/app.py"),
            Self::Express | Self::Fastify => {
                (file.ends_with("/app.js") || file.ends_with("/shop.js")) && !file.contains("node_modules")
            }
            Self::Spring => function.starts_with("shop."),
        }
    }

    /// The function that the heavy request runs, and one that it must not show.
    pub fn functions(self) -> (&'static str, &'static str) {
        match self {
            Self::FastApi => ("render_report", "price_cart"),
            Self::Express | Self::Fastify | Self::Spring => ("renderReport", "priceCart"),
        }
    }

    /// Below this share of its samples the link to the spans is broken: requests are most of what the service does. Sockets
    /// are accepted and read outside of spans, and under Node.js and in Java other threads compile and collect, the more the
    /// younger the process is. Seen: 80 to 86, 61 to 71 and 37 to 43 %.
    pub fn least_linked_share(self) -> f64 {
        match self {
            Self::FastApi => 0.60,
            Self::Express | Self::Fastify => 0.40,
            Self::Spring => 0.20,
        }
    }

    /// Builds the package and installs it with what the service needs.
    pub fn prepare(self, packages: Packages) -> Outcome<Program> {
        match self {
            Self::FastApi => self.in_python(packages),
            Self::Express | Self::Fastify => self.in_node(packages),
            Self::Spring => self.in_java(packages),
        }
    }

    fn in_python(self, packages: Packages) -> Outcome<Program> {
        let requirements = ["-r".to_owned(), "examples/python-fastapi/requirements.txt".to_owned()];
        let venv = Venv::with("demo", &pythons::preferred()?, &requirements)?;
        venv.install_wheel(&packages.wheel()?)?;
        let words = ["-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--log-level", "warning", "--port"];
        let words = words.map(str::to_owned).to_vec();
        Ok(Program { example: self, program: venv.python(), words, inside: self.folder() })
    }

    fn in_node(self, packages: Packages) -> Outcome<Program> {
        let node = nodes::preferred()?;
        let sources = ["bindings-node/lib/", "bindings-node/types/", "bindings-node/package.json"];
        let prepared = self.prepared(&sources, &packages.libraries(&["libspanprof_node.so"]), &node.version)?;
        if !prepared.is_current() {
            let package = packages.npm_package()?;
            prepared.begin(&self.folder(), &["app.js", "shop.js", "package.json"])?;
            nodes::npm("what the service needs")
                .args(["install", "--ignore-scripts"])
                .arg(&package)
                .inside(&prepared.folder)
                .within(Duration::from_secs(600))
                .run()?;
            prepared.complete()?;
        }
        let words = vec!["app.js".to_owned()];
        Ok(Program { example: self, program: node.program, words, inside: prepared.folder })
    }

    fn in_java(self, packages: Packages) -> Outcome<Program> {
        // The newest: what it says about native code is what users will see.
        let javas = javas::all()?;
        let java = &javas[javas.len() - 1];
        let built = packages.libraries(&["libspanprof_java.so", "libspanprof_java_opener.so"]);
        let sources = ["bindings-java/src/main/", "bindings-java/pom.xml"];
        let prepared = self.prepared(&sources, &built, &java.version.to_string())?;
        if !prepared.is_current() {
            let version = jar::into_local_repository(java, &packages.jar()?)?;
            let source = "src/main/java/shop/";
            let classes =
                ["Application.java", "Pages.java", "Shop.java", "Tracing.java"].map(|file| format!("{source}{file}"));
            let mut files = vec!["pom.xml", "src/main/resources/application.properties"];
            files.extend(classes.iter().map(String::as_str));
            prepared.begin(&self.folder(), &files)?;
            javas::maven("what the service needs", java)
                .args(["--quiet", "package", &format!("-Dspanprof.version={version}")])
                .inside(&prepared.folder)
                .within(Duration::from_secs(900))
                .run()?;
            prepared.complete()?;
        }
        let words = ["-Xmx256m", "-jar", "target/checkout.jar"].map(str::to_owned).to_vec();
        Ok(Program { example: self, program: java.home.join("bin/java"), words, inside: prepared.folder })
    }

    /// The service in a folder of its own, so that what is installed for it is not left in the work tree.
    fn prepared(self, sources: &[&str], built: &[PathBuf], version: &str) -> Outcome<Prepared> {
        let example = self.folder();
        let own = example.strip_prefix(workspace::root()).unwrap_or(&example).to_string_lossy().into_owned() + "/";
        Prepared::of(&self.service_name(), &[sources, &[own.as_str()]].concat(), built, version)
    }
}

impl Program {
    /// Starts it on a free port, and waits until it answers.
    pub fn start(&self, folder: &Path, server: &Server) -> Outcome<(Running, u16)> {
        let port = http::free_port().map_err(|error| Failure::new("free port", error.to_string()))?;
        let text = port.to_string();
        let name = self.example.service_name();
        let with_port = (self.example == Example::FastApi).then_some(&text);
        let mut service = Step::new(&name, &self.program)
            .args(&self.words)
            .args(with_port)
            .env("PORT", &text)
            .env("OTEL_SERVICE_NAME", &name)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", server.http_port))
            .env("SPANPROF_UPLOAD_INTERVAL", "2")
            .inside(&self.inside)
            .start(&folder.join(format!("{name}.log")))?;
        service.wait_until(Duration::from_secs(60), |_| {
            http::get(port, "/health").ok().filter(|(status, _)| *status == 200)
        })?;
        Ok((service, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_is_not_there_is_named_with_those_that_are() {
        let said = Example::named("fastapi,rails").unwrap_err().to_string();
        assert!(said.contains("`rails`") && said.contains("express"), "{said}");
        assert_eq!(Example::named("spring, fastapi").unwrap(), [Example::Spring, Example::FastApi]);
    }
}
