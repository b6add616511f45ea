//! Version and build of the interpreter, from `Py_GetVersion`. They select the layout.

use std::ffi::CStr;

use pyo3::Python;

use super::error::{RuntimeError, RuntimeErrorKind};

/// Version and build of the running interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterVersion {
    /// Major and minor number, which select the layout.
    pub major_minor: (u8, u8),
    /// The full version, e.g. `3.11.7`.
    pub text: String,
    /// A build without the GIL.
    pub free_threaded: bool,
}

impl InterpreterVersion {
    /// The interpreter of this process.
    pub fn running(_py: Python<'_>) -> Result<Self, RuntimeError> {
        // SAFETY: Py_GetVersion returns a pointer to a static, NUL-terminated string.
        let text = unsafe { CStr::from_ptr(pyo3::ffi::Py_GetVersion()) }.to_string_lossy();
        Self::parse(&text).ok_or_else(|| {
            RuntimeError::new(
                RuntimeErrorKind::UnknownVersion,
                format!("expected a version like '3.11.7 (…)' from the interpreter, got {text:?}"),
                "run on CPython 3.9 to 3.15",
            )
        })
    }

    /// Reads `3.13.0 experimental free-threading build (main, …)`.
    fn parse(text: &str) -> Option<Self> {
        let number = text.split_whitespace().next()?;
        let mut parts = number.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        Some(Self {
            major_minor: (major, minor),
            text: number.to_owned(),
            free_threaded: text.contains("free-threading build"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_version_is_parsed() {
        let version = InterpreterVersion::parse("3.11.7 (main, May  9 2026, 07:31:17) [GCC 12.2.0]").unwrap();
        assert_eq!(version.major_minor, (3, 11));
        assert_eq!(version.text, "3.11.7");
        assert!(!version.free_threaded);
    }

    #[test]
    fn a_free_threaded_build_is_recognized() {
        assert!(InterpreterVersion::parse("3.13.0 experimental free-threading build (main)").unwrap().free_threaded);
        assert!(InterpreterVersion::parse("3.14.1 free-threading build (main)").unwrap().free_threaded);
    }

    #[test]
    fn a_pre_release_keeps_its_minor_number() {
        assert_eq!(InterpreterVersion::parse("3.15.0a2+ (heads/main)").unwrap().major_minor, (3, 15));
    }

    #[test]
    fn other_text_is_rejected() {
        assert_eq!(InterpreterVersion::parse("PyPy"), None);
        assert_eq!(InterpreterVersion::parse(""), None);
    }
}
