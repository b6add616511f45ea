//! Records a walk of the requesting thread: walks the interrupted thread a second time and saves the words that the walk reads.
//! Runs in the signal handler, in builds with the feature `record-stacks` only. `record::writer` writes the fixture.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use spanprof_recorded_stack::Recorder;
use spanprof_signal::{ProcessMemory, RawFrame, RawStack};

use crate::runtime::walk::context;
use crate::runtime::walk::frame_pointers::{FramePointerWalk, StackRegisters, WalkedThread};
use crate::runtime::walk::js_thread::JsThread;
use crate::runtime::walk::ring_position::RingPosition;

/// Deeper stacks are not recorded.
const MAX_FRAMES: usize = 64;

pub static RECORDER: Recorder = Recorder::new();
/// Address of the thread whose next walk is recorded.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The recorded walk's registers, tables, position and frames; the recorder's state orders the accesses.
static SAVED_REGISTERS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SAVED_TABLES: [AtomicU64; TABLE_NAMES.len()] = [const { AtomicU64::new(0) }; TABLE_NAMES.len()];
static SAVED_POSITION: AtomicU64 = AtomicU64::new(0);
static SAVED_FRAMES: [[AtomicU64; 2]; MAX_FRAMES] = [const { [const { AtomicU64::new(0) }; 2] }; MAX_FRAMES];
static SAVED_LEN: AtomicUsize = AtomicUsize::new(0);

/// Names of the saved registers, and of the tables that are one number.
pub const REGISTER_NAMES: [&str; 3] = ["pc", "sp", "fp"];
pub const TABLE_NAMES: [&str; 8] = [
    "remapped_builtins",
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

/// Records the walk from these registers, if it is requested and finds the frames of the `first` walk.
pub fn record<T: WalkedThread>(
    walk: &FramePointerWalk<'_, ProcessMemory, T>,
    thread: &JsThread,
    registers: &StackRegisters,
    first: &RawStack<'_>,
) {
    if THREAD.load(Ordering::Relaxed) != std::ptr::from_ref(thread) as usize {
        return;
    }
    let Some(recording) = RECORDER.begin() else { return };
    let (again, tables) = walk.with_memory(&recording);
    let bytecode_map = tables.bytecode_map.load(Ordering::Relaxed);
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut second = RawStack::new(&mut frames);
    let is_walked = again.walk_frame_pointers(registers, &mut second);
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
    let saved = [
        tables.remapped_builtins as u64,
        tables.stack_high as u64,
        tables.bytecode_array as u64,
        tables.bytecode_offset as u64,
        bytecode_map,
        if is_read { slot as u64 } else { 0 },
        storage as u64,
        context.unwrap_or(0),
    ];
    let save = |to: &[AtomicU64], from: &[u64]| {
        to.iter().zip(from).for_each(|(slot, value)| slot.store(*value, Ordering::Relaxed));
    };
    save(&SAVED_TABLES, &saved);
    save(&SAVED_REGISTERS, &[registers.pc, registers.sp, registers.fp].map(|word| word as u64));
    SAVED_POSITION.store(RingPosition::now().head, Ordering::Relaxed);
    for (slot, frame) in SAVED_FRAMES.iter().zip(second.frames()) {
        save(slot, &[frame.code, frame.at]);
    }
    SAVED_LEN.store(second.len(), Ordering::Relaxed);
    recording.keep();
}

/// The registers of the complete recording.
pub fn saved_registers() -> impl Iterator<Item = (&'static str, u64)> {
    REGISTER_NAMES.into_iter().zip(SAVED_REGISTERS.iter().map(|word| word.load(Ordering::Relaxed)))
}

/// The tables of the complete recording that are one number.
pub fn saved_tables() -> impl Iterator<Item = (&'static str, u64)> {
    TABLE_NAMES.into_iter().zip(SAVED_TABLES.iter().map(|word| word.load(Ordering::Relaxed)))
}

/// The frames of the complete recording.
pub fn saved_frames() -> impl Iterator<Item = RawFrame> {
    let saved = SAVED_FRAMES.iter().take(SAVED_LEN.load(Ordering::Relaxed));
    saved.map(|[code, at]| RawFrame { code: code.load(Ordering::Relaxed), at: at.load(Ordering::Relaxed) })
}

/// The ring position at which the frames of the complete recording are resolved.
pub fn saved_position() -> u64 {
    SAVED_POSITION.load(Ordering::Relaxed)
}
