//! The services of `examples/` that the demo can show: what each needs, how it starts, and which of its functions one
//! heavy request runs. Called by the demo.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Server, SERVICE};
use crate::step::{Failure, Outcome, Running, Step};
use crate::venv::Venv;
use crate::verbs::{addon, wheel};
use crate::{http, nodes, pythons, scratch, workspace};

/// One of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    FastApi,
    Express,
    Fastify,
}

/// A service that can be started.
pub struct Program {
    example: Example,
    program: PathBuf,
    inside: PathBuf,
}

impl Example {
    /// The one of that name; FastAPI when none is given.
    pub fn named(name: Option<&str>) -> Outcome<Self> {
        match name {
            None | Some("fastapi") => Ok(Self::FastApi),
            Some("express") => Ok(Self::Express),
            Some("fastify") => Ok(Self::Fastify),
            Some(other) => Err(Failure::new("--service", format!("`{other}` is none of fastapi, express, fastify"))),
        }
    }

    fn folder(self) -> PathBuf {
        let name = match self {
            Self::FastApi => "python-fastapi",
            Self::Express => "node-express",
            Self::Fastify => "node-fastify",
        };
        workspace::root().join("examples").join(name)
    }

    /// The function that the heavy request runs, and one that it must not show.
    pub fn functions(self) -> (&'static str, &'static str) {
        match self {
            Self::FastApi => ("render_report", "price_cart"),
            Self::Express | Self::Fastify => ("renderReport", "priceCart"),
        }
    }

    /// Below this share of its samples the link to the spans is broken: requests are most of what the service does. Under
    /// Node.js other threads compile and collect for it, the more the younger the process is.
    pub fn least_linked_share(self) -> f64 {
        match self {
            Self::FastApi => 0.80,
            Self::Express | Self::Fastify => 0.60,
        }
    }

    /// Builds the package and installs it with what the service needs.
    pub fn prepare(self) -> Outcome<Program> {
        let (program, inside) = match self {
            Self::FastApi => {
                let requirements = ["-r".to_owned(), "examples/python-fastapi/requirements.txt".to_owned()];
                let venv = Venv::with("demo", &pythons::preferred()?, &requirements)?;
                venv.install_wheel(&wheel::build_for_tests()?)?;
                (venv.python(), self.folder())
            }
            Self::Express | Self::Fastify => {
                let package = addon::build_for_tests()?;
                let inside = scratch::empty("demo/service")?;
                for file in ["app.js", "shop.js", "package.json"] {
                    scratch::write(&inside.join(file), &scratch::read(&self.folder().join(file))?)?;
                }
                nodes::npm("what the service needs")
                    .args(["install", "--ignore-scripts"])
                    .arg(&package)
                    .inside(&inside)
                    .within(Duration::from_secs(600))
                    .run()?;
                (nodes::preferred()?.program, inside)
            }
        };
        Ok(Program { example: self, program, inside })
    }
}

impl Program {
    /// Starts it on a free port, and waits until it answers.
    pub fn start(&self, folder: &Path, server: &Server) -> Outcome<(Running, u16)> {
        let port = http::free_port().map_err(|error| Failure::new("free port", error.to_string()))?;
        let text = port.to_string();
        let words = match self.example {
            Example::FastApi => {
                vec!["-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--log-level", "warning", "--port", &text]
            }
            Example::Express | Example::Fastify => vec!["app.js"],
        };
        let mut service = Step::new("the service", &self.program)
            .args(words)
            .env("PORT", &text)
            .env("OTEL_SERVICE_NAME", SERVICE)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", server.http_port))
            .env("SPANPROF_UPLOAD_INTERVAL", "2")
            .inside(&self.inside)
            .start(&folder.join("service.log"))?;
        service.wait_until(Duration::from_secs(30), |_| {
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
        let said = Example::named(Some("rails")).unwrap_err().to_string();
        assert!(said.contains("`rails`") && said.contains("express"), "{said}");
        assert_eq!(Example::named(None).unwrap(), Example::FastApi);
    }
}
