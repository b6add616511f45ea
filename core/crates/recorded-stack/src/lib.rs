//! Recorded stacks: registers, tables and words of a real program, saved while a walker of this project read them. Tests
//! replay them without the runtime. A dependency of tests and of builds that record; no released package contains it.
//!
//! [`Recorder`] saves the reads of a walk inside a signal handler. [`RecordedStack`] is the fixture file. [`RecordedMemory`]
//! replays its words.

mod fixture;
mod memory;
mod recorder;

pub use fixture::{RecordedFrame, RecordedStack};
pub use memory::{RecordedMemory, RecordedWord};
pub use recorder::{Recorder, RecordingMemory};
