//! Reads the recording that the handler completed.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_recorded_stack::RecordedWord;
use spanprof_signal::RawFrame;

use crate::runtime::capture::recording::StackRecording;

pub struct CompleteRecording {
    /// Address of the thread state.
    pub thread: u64,
    /// The kernel's id of the thread; 0 except for `RecordedWalk::OtherThread`.
    pub thread_id: u32,
    /// The context id; 0: none.
    pub context: u64,
    /// Address of the interrupted instruction; 0 except for `RecordedWalk::LoopEntry`.
    pub program_counter: u64,
    /// General and vector registers, as `InterruptedRegisters::each` visits them; empty except for
    /// `RecordedWalk::LoopEntry`.
    pub registers: Vec<u64>,
    /// The words that the walk read.
    pub words: Vec<RecordedWord>,
    /// The frames of generation 0, leaf first.
    pub frames: Vec<RawFrame>,
}

impl CompleteRecording {
    /// The recording, once complete.
    pub fn take(recording: &StackRecording) -> Option<Self> {
        let words = recording.recorder.take()?;
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let frames = recording.frames.iter().take(recording.frame_count.load(Ordering::Relaxed));
        Some(Self {
            thread: load(&recording.thread),
            thread_id: recording.thread_id.load(Ordering::Relaxed),
            context: load(&recording.context),
            program_counter: load(&recording.program_counter),
            registers: recording
                .registers
                .iter()
                .take(recording.register_count.load(Ordering::Relaxed))
                .map(load)
                .collect(),
            words,
            frames: frames.map(|[code, at]| RawFrame { code: load(code), at: load(at) }).collect(),
        })
    }
}
