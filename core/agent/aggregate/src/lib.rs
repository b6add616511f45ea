//! Aggregates raw samples into profiles; never knows a clock, a thread, a file or the configuration: times, names and settings are
//! arguments.
//!
//! A sample's path: `drain` reads the ring, `resolve` turns raw frames into locations and stacks, `window` sums up samples by
//! stack, labels and link, and becomes a profile when it closes. `context`, `labels` and `thread_names` are written by host
//! threads and read here; `heap` estimates live objects; `retention` holds back samples of unfinished requests. `engine` owns all
//! of these. A language implements `runtime`.

pub mod context;
mod counters;
mod drain;
mod engine;
pub mod hash;
mod heap;
pub mod labels;
mod resolve;
mod resource;
mod retention;
pub mod runtime;
pub mod sample_rate;
#[cfg(test)]
mod scripted_engine_testing;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread_names;
pub mod window;

pub use counters::{Counter, Counters, StatDoc, StatKind, StatValue, COUNTERS};
pub use engine::{CollectionTime, Engine, EngineSettings, HeapAtPeak, SystemAccess, WindowEnd, MAX_STACKS};
pub use resolve::native_symbols::{native_frame, NativeCode, NativeFunction, NativeSymbols, OWN_CODE};
pub use resource::{Resource, ResourceAttribute, MAX_RESOURCE_ATTRIBUTES};
pub use retention::{SlowLimit, TailPolicy};
pub use window::captured::MAX_CAPTURES;
pub use window::sum::{SumLabels, WindowSum};
pub use window::{ClosedWindow, SampleSelection, ThreadName, WindowSettings};
