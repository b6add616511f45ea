//! Records the memory that a walk reads, for the tests that replay it (feature `record-stacks`). After a walk with the shape
//! that was requested, the handler walks once more and saves each word. Runs in handlers. Not here: reading the
//! recording (`record`).

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

use spanprof_recorded_stack::{Recorder, RecordingMemory, MAX_FRAMES};
use spanprof_signal::{Captured, Context, RawFrame, RawStack};

use crate::runtime::interpreter::Interpreter;
use crate::runtime::walk::activation::{self, InterruptedRegisters};
use crate::runtime::walk::frame::FrameReader;
use crate::runtime::walk::sampled_code::SampledCode;

/// Names of the first numbers of a recording: address and kernel id of the thread (the latter only of another thread), context id,
/// address of the interrupted instruction (only of [`RecordedWalk::LoopEntry`]). Registers follow.
pub const NUMBER_NAMES: [&str; 4] = ["thread", "thread_id", "context", "program_counter"];
/// Maximum number of recorded registers: general and vector registers of x86-64.
const MAX_REGISTERS: usize = 48;

/// The walk to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordedWalk {
    /// The walk in the handler.
    Handler = 0,
    /// The walk in the handler, interrupted where the thread's chain starts at a record in a register.
    LoopEntry = 1,
    /// The walk of another thread.
    OtherThread = 2,
}

/// The recording of the process.
pub static RECORDING: StackRecording = StackRecording::new();

/// The recorder, and the request for a walk.
pub struct StackRecording {
    pub recorder: Recorder,
    /// Only of the recorded walk, so that it validates every code object.
    sampled_code: SampledCode,
    leaf: AtomicU64,
    walk: AtomicU8,
}

impl StackRecording {
    const fn new() -> Self {
        Self {
            recorder: Recorder::new(),
            sampled_code: SampledCode::new(),
            leaf: AtomicU64::new(0),
            walk: AtomicU8::new(0),
        }
    }

    /// Requests a recording of the next such walk that has the code object at `leaf` as its leaf.
    pub fn request(&self, walk: RecordedWalk, leaf: u64) {
        self.leaf.store(leaf, Ordering::Relaxed);
        self.walk.store(walk as u8, Ordering::Relaxed);
        self.recorder.arm();
    }

    /// After a walk in the handler, which `walk` repeats.
    pub fn record(
        &self,
        interpreter: &Interpreter,
        thread: usize,
        registers: Option<&InterruptedRegisters<'_>>,
        captured: Captured,
        stack: &RawStack<'_>,
        walk: impl FnOnce(&FrameReader<'_, RecordingMemory<'_>>, &mut RawStack<'_>) -> Captured,
    ) {
        let reader = FrameReader::of_process(interpreter);
        let entry = registers.filter(|_| activation::start_below(&reader, thread, registers).is_some());
        let recorded = if entry.is_some() { RecordedWalk::LoopEntry } else { RecordedWalk::Handler };
        if self.is_requested(recorded, captured, stack) {
            self.again(interpreter, thread, 0, entry, stack, walk);
        }
    }

    /// After a walk of another thread, which `walk` repeats.
    pub fn record_other(
        &self,
        interpreter: &Interpreter,
        thread: usize,
        thread_id: u32,
        captured: Captured,
        stack: &RawStack<'_>,
        walk: impl FnOnce(&FrameReader<'_, RecordingMemory<'_>>, &mut RawStack<'_>) -> Captured,
    ) {
        if self.is_requested(RecordedWalk::OtherThread, captured, stack) {
            self.again(interpreter, thread, thread_id, None, stack, walk);
        }
    }

    fn is_requested(&self, walk: RecordedWalk, captured: Captured, stack: &RawStack<'_>) -> bool {
        captured == Captured::Walked
            && !stack.is_truncated()
            && self.walk.load(Ordering::Relaxed) == walk as u8
            && stack.frames().first().is_some_and(|frame| frame.code == self.leaf.load(Ordering::Relaxed))
    }

    /// Walks again and keeps the recording if the frames are those of the first walk.
    fn again(
        &self,
        interpreter: &Interpreter,
        thread: usize,
        thread_id: u32,
        entry: Option<&InterruptedRegisters<'_>>,
        first: &RawStack<'_>,
        walk: impl FnOnce(&FrameReader<'_, RecordingMemory<'_>>, &mut RawStack<'_>) -> Captured,
    ) {
        let Some(memory) = self.recorder.begin() else { return };
        self.sampled_code.clear();
        let reader = FrameReader { memory: &memory, interpreter, sampled_code: &self.sampled_code };
        let mut frames = [RawFrame { code: 0, at: 0 }; MAX_FRAMES];
        let mut second = RawStack::new(&mut frames);
        let captured = walk(&reader, &mut second);
        // The upper half is the generation, which is 0 in the table of this walk.
        let is_same =
            |(first, second): (&RawFrame, &RawFrame)| first.code == second.code && first.at & 0xffff_ffff == second.at;
        if captured != Captured::Walked
            || second.context != first.context
            || second.len() != first.len()
            || !first.frames().iter().zip(second.frames()).all(is_same)
        {
            return;
        }
        let context = if let Context::Id(id) = second.context { id } else { 0 };
        let program_counter = entry.map_or(0, InterruptedRegisters::program_counter);
        let mut numbers = [0; NUMBER_NAMES.len() + MAX_REGISTERS];
        let mut count = 0;
        let mut add = |number: u64| {
            if let Some(slot) = numbers.get_mut(count) {
                *slot = number;
                count += 1;
            }
        };
        [thread as u64, u64::from(thread_id), context, program_counter].into_iter().for_each(&mut add);
        if let Some(registers) = entry {
            registers.each(add);
        }
        memory.keep(&numbers[..count], second.frames());
    }
}
