//! The settings of an agent, as settings of the profiler.

use std::collections::HashMap;
use std::time::Duration;

use super::agent::{PyroscopeAgent, PyroscopeAgentBare, PyroscopeAgentReady};
use super::error::Result;
use spanprof_config::{basic_authorization, Config, ConfigBuilder, Headers};

/// Settings of the samples.
#[derive(Clone, Copy, Debug)]
pub struct PprofConfig {
    /// CPU samples per second of CPU time of a thread, in Hz, from 1 to 10,000. Default: 100.
    pub sample_rate: u32,
}

impl Default for PprofConfig {
    fn default() -> Self {
        Self { sample_rate: 100 }
    }
}

impl PprofConfig {
    /// The default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the rate, Hz.
    pub fn sample_rate(self, sample_rate: u32) -> Self {
        Self { sample_rate }
    }
}

/// Labels of every sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackendConfig {
    /// Whether samples carry `thread.id` and `thread.name`. Default: false.
    pub report_thread_id: bool,
    /// As `report_thread_id`.
    pub report_thread_name: bool,
    /// Has no effect: the resource has `process.pid`.
    pub report_pid: bool,
}

/// The settings of [`pprof_backend`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PprofBackend {
    samples: PprofConfig,
    labels: BackendConfig,
}

/// The backend: CPU samples.
pub fn pprof_backend(config: PprofConfig, backend_config: BackendConfig) -> PprofBackend {
    PprofBackend { samples: config, labels: backend_config }
}

/// As [`pprof_backend`], with the arguments of version 0.5.
pub fn pprof_backend_of(config: PprofConfig) -> PprofBackend {
    pprof_backend(config, BackendConfig::default())
}

/// The static labels of an agent: a vector, an array or a slice of pairs.
pub trait AgentTags {
    /// The pairs of key and value.
    fn pairs(&self) -> &[(&str, &str)];
}

impl AgentTags for Vec<(&str, &str)> {
    fn pairs(&self) -> &[(&str, &str)] {
        self
    }
}

impl AgentTags for &[(&str, &str)] {
    fn pairs(&self) -> &[(&str, &str)] {
        self
    }
}

impl<const N: usize> AgentTags for [(&str, &str); N] {
    fn pairs(&self) -> &[(&str, &str)] {
        self
    }
}

impl<const N: usize> AgentTags for &[(&str, &str); N] {
    fn pairs(&self) -> &[(&str, &str)] {
        *self
    }
}

/// Settings of a [`PyroscopeAgent`].
pub struct PyroscopeAgentBuilder {
    backend: PprofBackend,
    url: String,
    application_name: String,
    tags: HashMap<String, String>,
    headers: Headers,
    upload_interval: Duration,
}

impl PyroscopeAgent<PyroscopeAgentBare> {
    /// Settings for a server and an application, as in version 0.5. 100 Hz unless a backend has another rate.
    pub fn builder(url: impl AsRef<str>, application_name: impl AsRef<str>) -> PyroscopeAgentBuilder {
        PyroscopeAgentBuilder::of(url.as_ref(), application_name.as_ref())
    }
}

impl PyroscopeAgentBuilder {
    /// For a server and an application. The rate is that of the backend; the name and the version of the spy have no effect.
    pub fn new(
        url: impl AsRef<str>,
        application_name: impl AsRef<str>,
        _sample_rate: u32,
        _spy_name: impl AsRef<str>,
        _spy_version: impl AsRef<str>,
        backend: PprofBackend,
    ) -> Self {
        Self::of(url.as_ref(), application_name.as_ref()).backend(backend)
    }

    fn of(url: &str, application_name: &str) -> Self {
        Self {
            backend: PprofBackend::default(),
            url: url.to_owned(),
            application_name: application_name.to_owned(),
            tags: HashMap::new(),
            headers: Headers::default(),
            upload_interval: Duration::from_secs(10),
        }
    }

    /// Replaces the settings of the samples.
    pub fn backend(self, backend: PprofBackend) -> Self {
        Self { backend, ..self }
    }

    /// Replaces the URL of the server.
    pub fn url(self, url: impl AsRef<str>) -> Self {
        Self { url: url.as_ref().to_owned(), ..self }
    }

    /// Static labels on every sample; replaces those set before.
    pub fn tags(self, tags: impl AgentTags) -> Self {
        let tags = tags.pairs().iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Self { tags, ..self }
    }

    /// User and password of each request.
    pub fn basic_auth(self, username: impl AsRef<str>, password: impl AsRef<str>) -> Self {
        self.with_header("Authorization", basic_authorization(username.as_ref(), password.as_ref()))
    }

    /// Bearer token of each request.
    pub fn auth_token(self, auth_token: impl AsRef<str>) -> Self {
        self.with_header("Authorization", format!("Bearer {}", auth_token.as_ref()))
    }

    /// The tenant of a server with several ones.
    pub fn tenant_id(self, tenant_id: String) -> Self {
        self.with_header("X-Scope-OrgID", tenant_id)
    }

    /// Headers of each request, beside those set before.
    pub fn http_headers(self, http_headers: HashMap<String, String>) -> Self {
        http_headers.into_iter().fold(self, |builder, (name, value)| builder.with_header(&name, value))
    }

    /// Length of a profile, from 0.1 s to 1 h. Default: 10 s.
    pub fn upload_interval(self, upload_interval: Duration) -> Self {
        Self { upload_interval, ..self }
    }

    fn with_header(mut self, name: &str, value: String) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Checks the settings. Variables of the environment apply to the keys that are not set here.
    ///
    /// # Errors
    /// A setting is outside its bounds, or the URL is not one.
    pub fn build(self) -> Result<PyroscopeAgent<PyroscopeAgentReady>> {
        Ok(PyroscopeAgent::ready(self.settings().load()?))
    }

    fn settings(self) -> ConfigBuilder {
        let builder = Config::builder()
            .endpoint(self.url)
            .service_name(self.application_name)
            .sample_rate(self.backend.samples.sample_rate)
            .upload_interval(self.upload_interval);
        let labels = self.backend.labels;
        let builder =
            if labels.report_thread_id || labels.report_thread_name { builder.thread_labels(true) } else { builder };
        let builder = if self.tags.is_empty() { builder } else { builder.tags(self.tags) };
        if self.headers.is_empty() {
            builder
        } else {
            builder.headers(self.headers)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_config::Environment;

    #[test]
    fn the_settings_of_an_agent_are_settings_of_the_profiler() {
        let labels = BackendConfig { report_thread_name: true, ..BackendConfig::default() };
        let backend = pprof_backend(PprofConfig { sample_rate: 250 }, labels);
        let builder = PyroscopeAgentBuilder::new("http://localhost:1", "shop", 100, "spy", "1", backend)
            .url("http://localhost:4040")
            .tags(vec![("region", "eu")])
            .basic_auth("user", "word")
            .tenant_id("a".to_owned())
            .upload_interval(Duration::from_secs(5));
        let config = builder.settings().load_with(&Environment::default()).unwrap();
        assert_eq!((config.service_name.as_str(), config.sample_rate, config.thread_labels), ("shop", 250, true));
        assert_eq!(config.endpoint.as_deref(), Some("http://localhost:4040"));
        assert_eq!((config.tags["region"].as_str(), config.upload_interval), ("eu", Duration::from_secs(5)));
        let headers: Vec<_> = config.headers.reveal().collect();
        assert_eq!(headers, [("authorization", "Basic dXNlcjp3b3Jk"), ("x-scope-orgid", "a")]);
    }

    #[test]
    fn a_rate_outside_its_bounds_is_an_error_of_build() {
        let backend = pprof_backend_of(PprofConfig::new().sample_rate(0));
        let error = PyroscopeAgentBuilder::of("http://localhost:4040", "shop").backend(backend).build().err().unwrap();
        assert!(error.to_string().contains("sample_rate must lie between"), "{error}");
    }
}
