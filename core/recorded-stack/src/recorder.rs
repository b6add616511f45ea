//! Saves each word that a walker reads, and what the walk began with and found. Writing happens inside a signal handler: no allocation, no lock, no panic.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::{Memory, ProcessMemory, RawFrame};

use crate::RecordedWord;

const IDLE: u32 = 0;
const ARMED: u32 = 1;
const WRITING: u32 = 2;
const COMPLETE: u32 = 3;

/// Maximum number of reads in one walk, repeated ones included.
const MAX_READS: usize = 1 << 16;

/// Maximum number of frames of a recorded stack; deeper ones are not recorded.
pub const MAX_FRAMES: usize = 64;

/// Maximum number of registers and other numbers of a walk.
const MAX_NUMBERS: usize = 64;

/// A complete recording.
#[derive(Debug, PartialEq, Eq)]
pub struct CompleteRecording {
    /// The registers and other numbers of the walk, in the order in which they were kept.
    pub numbers: Vec<u64>,
    /// The words that the walk read, in the order of their first read.
    pub words: Vec<RecordedWord>,
    /// The frames that it found, leaf first.
    pub frames: Vec<RawFrame>,
}

/// A buffer for the reads of one walk at a time; one `static` per binding.
pub struct Recorder {
    state: AtomicU32,
    /// Number of reads, at most `MAX_READS`.
    len: AtomicUsize,
    /// Addresses and values in turns. Atomics, because the handler and the reading thread share them; `state` orders them.
    reads: [AtomicU64; 2 * MAX_READS],
    number_count: AtomicUsize,
    numbers: [AtomicU64; MAX_NUMBERS],
    frame_count: AtomicUsize,
    frames: [[AtomicU64; 2]; MAX_FRAMES],
}

impl Recorder {
    /// An idle recorder.
    #[allow(clippy::new_without_default, reason = "a `static` needs a constant function")]
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            len: AtomicUsize::new(0),
            reads: [const { AtomicU64::new(0) }; 2 * MAX_READS],
            number_count: AtomicUsize::new(0),
            numbers: [const { AtomicU64::new(0) }; MAX_NUMBERS],
            frame_count: AtomicUsize::new(0),
            frames: [const { [const { AtomicU64::new(0) }; 2] }; MAX_FRAMES],
        }
    }

    /// Requests a recording of the next walk; discards a complete one. False while a handler writes.
    pub fn arm(&self) -> bool {
        [IDLE, COMPLETE].into_iter().any(|state| self.change(state, ARMED))
            || self.state.load(Ordering::Acquire) == ARMED
    }

    /// Begins a recording. `None` unless one was requested. For handlers.
    pub fn begin(&self) -> Option<RecordingMemory<'_>> {
        self.change(ARMED, WRITING).then(|| {
            self.len.store(0, Ordering::Relaxed);
            RecordingMemory { recorder: self }
        })
    }

    /// The complete recording; the recorder is idle afterwards.
    pub fn take(&self) -> Option<CompleteRecording> {
        if self.state.load(Ordering::Acquire) != COMPLETE {
            return None;
        }
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let mut seen = std::collections::HashSet::new();
        let reads = self.reads.chunks_exact(2).take(self.len.load(Ordering::Relaxed));
        let words = reads.filter_map(|read| match read {
            [address, value] => {
                let address = load(address);
                seen.insert(address).then(|| RecordedWord { address, value: load(value) })
            }
            _ => None,
        });
        let numbers = self.numbers.iter().take(self.number_count.load(Ordering::Relaxed));
        let frames = self.frames.iter().take(self.frame_count.load(Ordering::Relaxed));
        let walk = CompleteRecording {
            numbers: numbers.map(load).collect(),
            words: words.collect(),
            frames: frames.map(|[code, at]| RawFrame { code: load(code), at: load(at) }).collect(),
        };
        self.change(COMPLETE, IDLE).then_some(walk)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The memory of this process; saves each word that is read. Unreadable words are not saved: they are absent in the replay.
pub struct RecordingMemory<'a> {
    recorder: &'a Recorder,
}

impl RecordingMemory<'_> {
    /// Completes the recording with the numbers and the frames of the walk. Discards it if one of them, or what the walk read, is
    /// more than the recorder holds.
    pub fn keep(self, numbers: &[u64], frames: &[RawFrame]) {
        let recorder = self.recorder;
        if numbers.len() > MAX_NUMBERS || frames.len() > MAX_FRAMES || recorder.len.load(Ordering::Relaxed) >= MAX_READS
        {
            return;
        }
        for (slot, number) in recorder.numbers.iter().zip(numbers) {
            slot.store(*number, Ordering::Relaxed);
        }
        for ([code, at], frame) in recorder.frames.iter().zip(frames) {
            code.store(frame.code, Ordering::Relaxed);
            at.store(frame.at, Ordering::Relaxed);
        }
        recorder.number_count.store(numbers.len(), Ordering::Relaxed);
        recorder.frame_count.store(frames.len(), Ordering::Relaxed);
        recorder.change(WRITING, COMPLETE);
    }
}

impl Drop for RecordingMemory<'_> {
    /// Discards a recording that was not kept: the next walk is recorded.
    fn drop(&mut self) {
        self.recorder.change(WRITING, ARMED);
    }
}

impl Memory for RecordingMemory<'_> {
    fn word(&self, address: usize) -> Option<usize> {
        let value = ProcessMemory.word(address)?;
        let read = self.recorder.len.load(Ordering::Relaxed);
        if let Some([saved_address, saved_value]) = self.recorder.reads.get(2 * read..).and_then(|reads| reads.get(..2))
        {
            saved_address.store(address as u64, Ordering::Relaxed);
            saved_value.store(value as u64, Ordering::Relaxed);
            self.recorder.len.store(read + 1, Ordering::Relaxed);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_twice(memory: &impl Memory, words: &[u64; 3]) {
        for word in [&words[2], &words[0], &words[2]] {
            assert_eq!(memory.word(std::ptr::from_ref(word) as usize), Some(*word as usize));
        }
        assert_eq!(memory.word(8), None);
    }

    #[test]
    fn a_kept_walk_has_each_word_once_in_the_order_of_the_first_read() {
        static RECORDER: Recorder = Recorder::new();
        let words = [7, 8, 9];
        assert!(RECORDER.begin().is_none(), "not requested");
        assert!(RECORDER.arm());
        let memory = RECORDER.begin().unwrap();
        read_twice(&memory, &words);
        assert!(RECORDER.take().is_none(), "still written");
        let frames = [RawFrame { code: 5, at: 6 }];
        memory.keep(&[3, 4], &frames);
        let at = |index: usize| std::ptr::from_ref(&words[index]) as u64;
        let expected = [RecordedWord { address: at(2), value: 9 }, RecordedWord { address: at(0), value: 7 }];
        let walk = CompleteRecording { numbers: vec![3, 4], words: expected.into(), frames: frames.into() };
        assert_eq!(RECORDER.take(), Some(walk));
        assert!(RECORDER.take().is_none() && RECORDER.begin().is_none());
    }

    #[test]
    fn after_a_discarded_walk_the_next_one_is_recorded() {
        static RECORDER: Recorder = Recorder::new();
        let words = [1, 2, 3];
        assert!(RECORDER.arm());
        read_twice(&RECORDER.begin().unwrap(), &words);
        assert!(RECORDER.take().is_none());
        let memory = RECORDER.begin().unwrap();
        memory.word(std::ptr::from_ref(&words[1]) as usize);
        memory.keep(&[], &[]);
        assert_eq!(RECORDER.take().unwrap().words.len(), 1);
    }

    #[test]
    fn a_stack_that_is_deeper_than_the_recorder_holds_is_discarded() {
        static RECORDER: Recorder = Recorder::new();
        assert!(RECORDER.arm());
        RECORDER.begin().unwrap().keep(&[], &[RawFrame::default(); MAX_FRAMES + 1]);
        assert!(RECORDER.take().is_none());
    }

    #[test]
    fn a_walk_that_reads_more_than_the_recorder_holds_is_discarded() {
        static RECORDER: Recorder = Recorder::new();
        let word = 5u64;
        assert!(RECORDER.arm());
        let memory = RECORDER.begin().unwrap();
        for _ in 0..=MAX_READS {
            memory.word(std::ptr::from_ref(&word) as usize);
        }
        memory.keep(&[], &[]);
        assert!(RECORDER.take().is_none());
    }
}
