//! The agent: the profiler with the states of its life as types.

use std::marker::PhantomData;

use super::error::Result;
use super::thread_tags;
use crate::api::profiler::Profiler;
use spanprof_config::Config;

/// A state of [`PyroscopeAgent`].
pub trait PyroscopeAgentState {}

/// No agent yet.
#[derive(Debug)]
pub struct PyroscopeAgentBare;
/// Built or stopped.
#[derive(Debug)]
pub struct PyroscopeAgentReady;
/// Takes samples.
#[derive(Debug)]
pub struct PyroscopeAgentRunning;

impl PyroscopeAgentState for PyroscopeAgentBare {}
impl PyroscopeAgentState for PyroscopeAgentReady {}
impl PyroscopeAgentState for PyroscopeAgentRunning {}

/// The profiler under the name of its agent. A running one that is dropped continues until the program ends.
pub struct PyroscopeAgent<S: PyroscopeAgentState> {
    config: Config,
    profiler: Option<Profiler>,
    _state: PhantomData<S>,
}

impl<S: PyroscopeAgentState> PyroscopeAgent<S> {
    /// Stops the profiler if it runs, and sends the last profile.
    pub fn shutdown(self) {
        if let Some(profiler) = self.profiler {
            profiler.stop();
        }
    }
}

impl PyroscopeAgent<PyroscopeAgentReady> {
    pub(super) fn ready(config: Config) -> Self {
        Self { config, profiler: None, _state: PhantomData }
    }

    /// Starts to take samples and to send profiles.
    ///
    /// # Errors
    /// As [`Profiler::start`].
    pub fn start(self) -> Result<PyroscopeAgent<PyroscopeAgentRunning>> {
        let profiler = Some(Profiler::start(self.config.clone())?);
        Ok(PyroscopeAgent { config: self.config, profiler, _state: PhantomData })
    }
}

impl PyroscopeAgent<PyroscopeAgentRunning> {
    /// Stops, and sends the last profile. The agent can be started again.
    ///
    /// # Errors
    /// None; the result has the type of the crate `pyroscope`.
    pub fn stop(self) -> Result<PyroscopeAgent<PyroscopeAgentReady>> {
        if let Some(profiler) = self.profiler {
            profiler.stop();
        }
        Ok(PyroscopeAgent::ready(self.config))
    }

    /// Two functions that add a tag to the calling thread, and remove it. They never fail.
    #[allow(clippy::type_complexity)] // The type of the crate `pyroscope`.
    pub fn tag_wrapper(
        &self,
    ) -> (impl Fn(String, String) -> Result<()> + use<>, impl Fn(String, String) -> Result<()> + use<>) {
        let add = |key: String, value: String| {
            thread_tags::add(&key, &value);
            Ok(())
        };
        let remove = |key: String, value: String| {
            thread_tags::remove(&key, &value);
            Ok(())
        };
        (add, remove)
    }
}
