//! The error of an agent.

/// The reason that an agent could not be built or started.
#[derive(Debug)]
#[non_exhaustive]
pub enum PyroscopeError {
    /// The reason in words.
    AdHoc(String),
}

impl PyroscopeError {
    /// An error with this reason.
    pub fn new(reason: &str) -> Self {
        Self::AdHoc(reason.to_owned())
    }
}

impl std::fmt::Display for PyroscopeError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::AdHoc(reason) = self;
        formatter.write_str(reason)
    }
}

impl std::error::Error for PyroscopeError {}

impl From<spanprof_config::Error> for PyroscopeError {
    fn from(error: spanprof_config::Error) -> Self {
        Self::AdHoc(error.to_string())
    }
}

/// The result of a function of this module.
pub type Result<T> = std::result::Result<T, PyroscopeError>;
