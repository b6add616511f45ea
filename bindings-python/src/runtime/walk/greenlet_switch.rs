//! Detects samples inside a greenlet switch. greenlet replaces a thread's frames and its context in separate stores. In
//! between, the thread has the frames of one greenlet and the context of another. A sample taken there keeps its stack, gets no
//! context and is counted, because a missing label is better than a wrong one. Runs in handlers. Not here: the search for greenlet's library
//! (`greenlet`).
//!
//! Compared with greenlet's code segment: the interrupted instruction, and the return address of a leaf function (greenlet
//! copies parts of the C stack with the C library's `memcpy`).
//!
//! Not covered: once per greenlet, for about 100 ns after its end, its context is still set over its parent's frames. Nor the
//! wall walk, which reads no registers: it errs if the thread is preempted between the two stores, which are a few instructions
//! apart.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::Memory;

use super::activation::InterruptedRegisters;

/// Executable segment of greenlet's library; empty until [`set_segment`].
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static SAMPLES: AtomicU64 = AtomicU64::new(0);

/// Number of samples taken inside a switch.
pub fn samples() -> u64 {
    SAMPLES.load(Ordering::Relaxed)
}

/// Whether the thread was interrupted inside a switch.
#[inline]
pub fn is_switching(memory: &impl Memory, registers: Option<&InterruptedRegisters<'_>>) -> bool {
    let bytes = BYTES.load(Ordering::Acquire) as u64;
    if bytes == 0 {
        return false;
    }
    let begin = BEGIN.load(Ordering::Relaxed) as u64;
    let is_inside = |address: u64| address.wrapping_sub(begin) < bytes;
    let Some(registers) = registers else { return false };
    let switching =
        is_inside(registers.program_counter()) || registers.return_address_of_a_leaf(memory).is_some_and(is_inside);
    if switching {
        SAMPLES.fetch_add(1, Ordering::Relaxed);
    }
    switching
}

/// Sets the executable segment of greenlet's library. Only the first call counts.
pub fn set_segment(begin: usize, bytes: usize) {
    if is_watching() {
        return;
    }
    BEGIN.store(begin, Ordering::Relaxed);
    // Release: a handler that sees the length also sees the start.
    BYTES.store(bytes, Ordering::Release);
}

/// Whether the segment is set.
pub fn is_watching() -> bool {
    BYTES.load(Ordering::Relaxed) != 0
}
