//! The error type of the public API: kind, message, hint. Only `start`, `update` and the loading of a configuration return
//! it. After `start` nothing is raised into the host; losses are counted instead.

use std::fmt;

macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// Kind of a failure, with the same names in every language.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[doc = $doc])+ $variant,)+ }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$variant,)+];

            /// The kind's name in every language and in the documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Description of the kind in one sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }

            /// Whether the caller passed an impossible argument. Only these errors are raised into a program; every other one is a
            /// line of the log, since it comes from the system on which the program runs.
            pub const fn is_argument(self) -> bool {
                matches!(self, Self::InvalidConfig)
            }
        }
    };
}

error_kinds! {
    /// A configuration value or combination of values is invalid.
    InvalidConfig = "invalid_config";
    /// The configuration file could not be read.
    ConfigFile = "config_file";
    /// This runtime, its version or its build cannot be profiled.
    UnsupportedRuntime = "unsupported_runtime";
    /// The operating system denied every clock that the configuration permits.
    NoClock = "no_clock";
    /// Another copy of the library already profiles this process.
    SecondCopy = "second_copy";
    /// A destination cannot be set up: its certificate or directory cannot be used.
    InvalidDestination = "invalid_destination";
    /// The system refused a resource of the profiler (a thread, memory).
    System = "system";
}

/// A failure of `start`, `update` or of loading a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Kind of the failure.
    pub kind: ErrorKind,
    /// The failure: actual and expected values.
    pub message: String,
    /// The remedy; empty when there is none.
    pub hint: String,
}

impl Error {
    /// An error with its remedy.
    pub fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into() }
    }

    /// Message and hint in one line, for the log.
    pub fn line(&self) -> String {
        self.to_string().replace("\nhint: ", "; ")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(formatter, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_its_message_and_then_its_hint() {
        let error =
            Error::new(ErrorKind::InvalidConfig, "sample_rate is 0 Hz; expected 1 to 10000", "set sample_rate=100");
        assert_eq!(error.to_string(), "sample_rate is 0 Hz; expected 1 to 10000\nhint: set sample_rate=100");
        assert_eq!(error.line(), "sample_rate is 0 Hz; expected 1 to 10000; set sample_rate=100");
    }

    #[test]
    fn every_kind_has_its_own_name() {
        let mut names: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorKind::ALL.len());
    }
}
