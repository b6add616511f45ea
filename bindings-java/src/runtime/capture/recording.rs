//! Records a walk of the requested shape: walks the interrupted thread a second time and saves the words that the walk
//! reads. Runs in the signal handler, in builds with the feature `record-stacks` only. `record::writer` writes the fixture.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use spanprof_recorded_stack::Recorder;
use spanprof_signal::{ProcessMemory, RawFrame, RawStack};

use crate::runtime::vm::layout::VmLayout;
use crate::runtime::walk::environment::WalkEnvironment;
use crate::runtime::walk::observed::{ObservedMemory, WalkObservation};
use crate::runtime::walk::recorded_shape::{is_osr, StackShape};
use crate::runtime::walk::registers::JavaRegisters;
use crate::runtime::walk::walker::walk;

/// Deeper stacks are not recorded.
const MAX_FRAMES: usize = 64;
const REGISTERS: usize = 8;

pub static RECORDER: Recorder = Recorder::new();
static SHAPE: AtomicPtr<StackShape> = AtomicPtr::new(std::ptr::null_mut());
/// Offset of `nmethod::_entry_bci`.
static ENTRY_BCI: AtomicUsize = AtomicUsize::new(0);
/// The recorded walk's registers and frames; the recorder's state orders the accesses.
static SAVED_REGISTERS: [AtomicU64; REGISTERS] = [const { AtomicU64::new(0) }; REGISTERS];
static SAVED_FRAMES: [[AtomicU64; 2]; MAX_FRAMES] = [const { [const { AtomicU64::new(0) }; 2] }; MAX_FRAMES];
static SAVED_LEN: AtomicUsize = AtomicUsize::new(0);

/// Names of the saved registers.
pub const REGISTER_NAMES: [&str; REGISTERS] =
    ["pc", "sp", "fp", "bcp", "method", "saved_return", "link", "java_thread"];

/// Requests walks of this shape. `entry_bci` is the offset of `nmethod::_entry_bci`.
pub fn request(shape: &'static StackShape, entry_bci: usize) {
    ENTRY_BCI.store(entry_bci, Ordering::Relaxed);
    SHAPE.store(std::ptr::from_ref(shape).cast_mut(), Ordering::Release);
    RECORDER.arm();
}

/// Records the walk from these registers if it has the requested shape.
pub fn record(layout: &VmLayout, registers: &JavaRegisters, java_thread: usize) {
    // SAFETY: only references to statics are stored there.
    let Some(shape) = (unsafe { SHAPE.load(Ordering::Acquire).as_ref() }) else { return };
    if java_thread == 0 {
        return;
    }
    let Some(recording) = RECORDER.begin() else { return };
    let observed = WalkObservation::default();
    let signal_trampoline = ProcessMemory.signal_trampoline().unwrap_or(0);
    let memory = ObservedMemory { memory: &recording, observed: &observed, signal_trampoline };
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut stack = RawStack::new(&mut frames);
    walk(memory, layout, registers, java_thread, None, &mut stack);
    let is_osr = is_osr(memory, layout, registers.pc, ENTRY_BCI.load(Ordering::Relaxed));
    let is_complete = !stack.is_truncated() && stack.frames().iter().all(|frame| frame.as_reason().is_none());
    if !is_complete || !(shape.is_met)(&observed) || (shape.is_osr && !is_osr) {
        return;
    }
    let saved = [
        registers.pc,
        registers.sp,
        registers.fp,
        registers.bcp,
        registers.method,
        registers.saved_return,
        registers.link,
        java_thread,
    ];
    for (slot, value) in SAVED_REGISTERS.iter().zip(saved) {
        slot.store(value as u64, Ordering::Relaxed);
    }
    for ([code, at], frame) in SAVED_FRAMES.iter().zip(stack.frames()) {
        code.store(frame.code, Ordering::Relaxed);
        at.store(frame.at, Ordering::Relaxed);
    }
    SAVED_LEN.store(stack.frames().len(), Ordering::Relaxed);
    recording.keep();
}

/// The registers of the complete recording.
pub fn saved_registers() -> [u64; REGISTERS] {
    std::array::from_fn(|index| SAVED_REGISTERS[index].load(Ordering::Relaxed))
}

/// The frames of the complete recording.
pub fn saved_frames() -> impl Iterator<Item = RawFrame> {
    let saved = SAVED_FRAMES.iter().take(SAVED_LEN.load(Ordering::Relaxed));
    saved.map(|[code, at]| RawFrame { code: code.load(Ordering::Relaxed), at: at.load(Ordering::Relaxed) })
}
