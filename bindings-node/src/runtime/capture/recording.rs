//! Records a walk of the requesting thread: walks the interrupted thread a second time and saves the words that the walk reads.
//! Runs in the signal handler, in builds with the feature `record-stacks` only. `record::writer` writes the fixture.

use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof_recorded_stack::{Recorder, MAX_FRAMES};
use spanprof_signal::{ProcessMemory, RawFrame, RawStack};

use crate::runtime::walk::context;
use crate::runtime::walk::frame_pointers::{FramePointerWalk, WalkedThread};
use crate::runtime::walk::js_thread::JsThread;
use crate::runtime::walk::native_code::StackRegisters;
use crate::runtime::walk::ring_position::RingPosition;

pub static RECORDER: Recorder = Recorder::new();
/// Address of the thread whose next walk is recorded.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// Names of the numbers of a recording: registers, tables that are one number, and the ring position at which its frames are
/// resolved.
pub const REGISTER_NAMES: [&str; 4] = ["pc", "sp", "fp", "link"];
pub const TABLE_NAMES: [&str; 9] = [
    "remapped_builtins",
    "root",
    "stack_high",
    "bytecode_array",
    "bytecode_offset",
    "bytecode_map",
    "continuation_slot",
    "storage",
    "context",
];

/// Requests a recording of the next walk of this thread.
pub fn request(thread: &JsThread) {
    THREAD.store(std::ptr::from_ref(thread) as usize, Ordering::Relaxed);
    RECORDER.arm();
}

/// Records the walk from these registers along frame pointers, if it is requested and finds the same frames twice.
pub fn record<T: WalkedThread>(
    walk: &FramePointerWalk<'_, ProcessMemory, T>,
    thread: &JsThread,
    registers: &StackRegisters,
    activity: Option<RawFrame>,
) {
    if THREAD.load(Ordering::Relaxed) != std::ptr::from_ref(thread) as usize {
        return;
    }
    let Some(recording) = RECORDER.begin() else { return };
    let (again, tables) = walk.with_memory(&recording);
    let bytecode_map = tables.bytecode_map.load(Ordering::Relaxed);
    let mut frames = [[RawFrame::default(); MAX_FRAMES]; 2];
    let [mut first, mut second] = frames.each_mut().map(|frames| RawStack::new(frames));
    walk.walk_frame_pointers(registers, activity, &mut first);
    let is_walked = again.walk_frame_pointers(registers, activity, &mut second);
    if !is_walked || second.is_truncated() || second.frames() != first.frames() {
        return;
    }
    let storage = thread.storage.load(Ordering::Relaxed);
    let slot = match thread.continuation_offset.load(Ordering::Relaxed) {
        0 => 0,
        offset => thread.isolate.load(Ordering::Relaxed).wrapping_add(offset),
    };
    // During a collection objects move; the handler reads the context at its start instead.
    let is_read = slot != 0 && thread.active_collections.load(Ordering::Relaxed) == 0;
    let context = is_read.then(|| context::stored(&recording, slot, storage)).flatten();
    let tables = [
        tables.remapped_builtins as u64,
        tables.root as u64,
        tables.stack_high as u64,
        tables.bytecode_array as u64,
        tables.bytecode_offset as u64,
        bytecode_map,
        if is_read { slot as u64 } else { 0 },
        storage as u64,
        context.unwrap_or(0),
    ];
    let mut numbers = [0; REGISTER_NAMES.len() + TABLE_NAMES.len() + 1];
    let registers = [registers.pc, registers.sp, registers.fp, registers.link].map(|word| word as u64);
    let position = RingPosition::now().head;
    for (slot, number) in numbers.iter_mut().zip(registers.into_iter().chain(tables).chain([position])) {
        *slot = number;
    }
    recording.keep(&numbers, second.frames());
}
