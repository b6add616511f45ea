//! Records a walk of the requested shape: walks the interrupted thread a second time and saves the words that the walk
//! reads. Runs in the signal handler, in builds with the feature `record-stacks` only. `record::writer` writes the fixture.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use spanprof_recorded_stack::{Recorder, MAX_FRAMES};
use spanprof_signal::{RawFrame, RawStack};

use crate::runtime::vm::layout::VmLayout;
use crate::runtime::walk::observed::{ObservedMemory, WalkObservation};
use crate::runtime::walk::recorded_shape::{is_osr, StackShape};
use crate::runtime::walk::registers::JavaRegisters;
use crate::runtime::walk::walker::walk;

pub static RECORDER: Recorder = Recorder::new();
static SHAPE: AtomicPtr<StackShape> = AtomicPtr::new(std::ptr::null_mut());
/// Offset of `nmethod::_entry_bci`.
static ENTRY_BCI: AtomicUsize = AtomicUsize::new(0);
/// Names of the saved registers.
pub const REGISTER_NAMES: [&str; 12] = [
    "pc",
    "sp",
    "fp",
    "bcp",
    "method",
    "saved_return",
    "link",
    "java_thread",
    "native_caller_pc",
    "native_caller_sp",
    "native_caller_fp",
    "native_caller_context",
];

/// Requests walks of this shape. `entry_bci` is the offset of `nmethod::_entry_bci`.
pub fn request(shape: &'static StackShape, entry_bci: usize) {
    ENTRY_BCI.store(entry_bci, Ordering::Relaxed);
    SHAPE.store(std::ptr::from_ref(shape).cast_mut(), Ordering::Release);
    RECORDER.arm();
}

/// Records the walk from these registers if it has the requested shape.
pub fn record(layout: &VmLayout, registers: &JavaRegisters, context: &libc::ucontext_t, java_thread: usize) {
    // SAFETY: only references to statics are stored there.
    let Some(shape) = (unsafe { SHAPE.load(Ordering::Acquire).as_ref() }) else { return };
    if java_thread == 0 {
        return;
    }
    let Some(recording) = RECORDER.begin() else { return };
    let observed = WalkObservation::default();
    let memory = ObservedMemory { memory: &recording, observed: &observed, native_caller: None };
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut stack = RawStack::new(&mut frames);
    walk(memory, layout, (registers, Some(context)), java_thread, None, &mut stack);
    let is_osr = is_osr(memory, layout, registers.pc, ENTRY_BCI.load(Ordering::Relaxed));
    let is_complete = !stack.is_truncated() && stack.frames().iter().all(|frame| frame.as_reason().is_none());
    if !is_complete || !(shape.is_met)(&observed) || (shape.is_osr && !is_osr) {
        return;
    }
    let caller = observed.native_caller();
    let saved = [
        registers.pc,
        registers.sp,
        registers.fp,
        registers.bcp,
        registers.method,
        registers.saved_return,
        registers.link,
        java_thread,
        caller.pc,
        caller.sp,
        caller.fp,
        caller.context,
    ];
    recording.keep(&saved.map(|register| register as u64), stack.frames());
}
