//! The names of the crate `pprof` 0.15 (tikv/pprof-rs): programs written for it run with only the import changed.
//!
//! ```
//! use spanprof::pprof;
//!
//! # fn main() -> Result<(), pprof::Error> {
//! let guard = pprof::ProfilerGuardBuilder::default().frequency(100).blocklist(&["libc", "vdso"]).build()?;
//! let report = guard.report().build()?;
//! report.flamegraph(Vec::new())?;
//! println!("{report:?}");
//! # Ok(())
//! # }
//! ```
//!
//! Without a running profiler, a guard starts one that only takes CPU samples, and stops it when it is dropped. Beside a
//! running profiler, it collects the samples of that, at its rate; the profiles that this sends stay unchanged.
//!
//! Differences to the crate `pprof`:
//! - The signal handler does not call an unwinder, so a blocklist has no effect. No sample is left out, since
//!   totals would lose its CPU time.
//! - Frames are resolved while the program runs. `build_unresolved` returns them too, and [`Symbol::addr`] is always `None`.
//! - Flame graphs have the options of [`flamegraph::Options`] only.
//! - Not here: the integration into `criterion`, `Collector`, `HashCounter`, `validate`, `MAX_DEPTH` and `Error::NixError`.

mod error;
mod frames;
mod guard;
mod report;
mod samples;
mod wire;

pub use error::GuardError as Error;
pub use frames::{Frames, Symbol, UnresolvedFrames};
pub use guard::{ProfilerGuard, ProfilerGuardBuilder};
pub use report::{CpuReport as Report, ReportBuilder, ReportTiming, UnresolvedReport};

/// Options of flame graphs.
pub mod flamegraph {
    pub use super::report::FlameGraphOptions as Options;
}

/// The messages of `profile.proto`.
pub mod protos {
    pub use super::wire::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
    pub use prost::Message;
}

/// Maximum length of a thread's name, with its terminator, in bytes.
pub const MAX_THREAD_NAME: usize = 16;

/// The result of a function of this module.
pub type Result<T> = std::result::Result<T, Error>;
