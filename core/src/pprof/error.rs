//! The error of a guard or a report.

/// The reason that a guard could not be created or a report could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardError {
    /// A report could not be written.
    IoError(std::io::Error),
    /// No profiler could be started, or the running one takes no CPU samples; the log has the reason.
    CreatingError,
    /// There is already a guard.
    Running,
    /// The profiler has stopped.
    NotRunning,
}

impl std::fmt::Display for GuardError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::IoError(error) => error.fmt(formatter),
            Self::CreatingError => formatter.write_str("the profiler takes no CPU samples; the log has the reason"),
            Self::Running => formatter.write_str("there is already a guard; drop it first"),
            Self::NotRunning => formatter.write_str("the profiler has stopped"),
        }
    }
}

impl std::error::Error for GuardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::IoError(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for GuardError {
    fn from(error: std::io::Error) -> Self {
        Self::IoError(error)
    }
}
