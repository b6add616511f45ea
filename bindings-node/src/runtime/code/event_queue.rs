//! The queue of code events, and the map of code that they are applied to: by the drain thread, or while none runs, by the thread
//! that finds the queue full. Neither side waits for the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crossbeam_queue::SegQueue;
use spanprof_aggregate::runtime::EndedCode;
use spanprof_signal::Inbox;

use super::code_map::{CodeChange, CodeEvent, CodeMap};
use super::code_metadata;
use crate::runtime::walk::ring_position::RingPosition;

/// Queue limit while profiling is stopped, in addition to listed code: a listing precedes a start.
const MAX_STOPPED_BYTES: usize = 4 << 20;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Size at which the drain is woken: the memory of a long queue stays with the allocator.
const WAKE_BYTES: usize = 1 << 20;

static QUEUE: SegQueue<CodeEvent> = SegQueue::new();
static QUEUED_BYTES: AtomicUsize = AtomicUsize::new(0);
static STOPPED_LIMIT_BYTES: AtomicUsize = AtomicUsize::new(MAX_STOPPED_BYTES);
static LOST: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The map of this process, used by the drain thread.
pub fn map() -> &'static Mutex<CodeMap> {
    static MAP: OnceLock<Mutex<CodeMap>> = OnceLock::new();
    MAP.get_or_init(Mutex::default)
}

/// Queues an event. `is_listed`: it describes code that V8 lists, which may exceed the limit of a stopped profiler.
pub fn push(event: CodeEvent, is_listed: bool) {
    let bytes = bytes_of(&event.change);
    if QUEUED_BYTES.load(Ordering::Relaxed) > MAX_QUEUED_BYTES {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let before = QUEUED_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let has_drain = current_run() != 0;
    if before > STOPPED_LIMIT_BYTES.load(Ordering::Relaxed) && !is_listed && !has_drain {
        apply_some();
    }
    QUEUE.push(event);
    if has_drain && before < WAKE_BYTES && before + bytes >= WAKE_BYTES {
        spanprof_os::inbox_in_use().into_iter().for_each(Inbox::wake);
    }
}

/// After a listing: its events stay queued until a drain takes them.
pub fn raise_stopped_limit() {
    STOPPED_LIMIT_BYTES.fetch_max(QUEUED_BYTES.load(Ordering::Relaxed) + MAX_STOPPED_BYTES, Ordering::Relaxed);
}

fn next() -> Option<CodeEvent> {
    let Some(event) = QUEUE.pop() else {
        STOPPED_LIMIT_BYTES.store(MAX_STOPPED_BYTES, Ordering::Relaxed);
        return None;
    };
    QUEUED_BYTES.fetch_sub(bytes_of(&event.change), Ordering::Relaxed);
    TAKEN.fetch_add(1, Ordering::Relaxed);
    Some(event)
}

/// Number of events lost because the queue was full.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Number of events applied.
pub fn taken() -> u64 {
    TAKEN.load(Ordering::Relaxed)
}

/// Applies queued events to the map.
///
/// `resolved_up_to`: every sample below it is resolved.
pub fn apply(map: &mut CodeMap, max_events: usize, ring: usize, resolved_up_to: u64, ended: &mut Vec<EndedCode>) {
    map.begin_drain(ring, resolved_up_to);
    for event in std::iter::from_fn(next).take(max_events) {
        map.apply(event, ended);
    }
    map.sweep(&code_metadata::may_be_present, &|| RingPosition::now().head, ended);
}

/// Applies some queued events while no drain thread runs. Called on a JavaScript thread, so the batch is small.
fn apply_some() {
    const BATCH_EVENTS: usize = 16;
    let Ok(mut map) = map().try_lock() else { return };
    let RingPosition { ring, head } = RingPosition::now();
    // Without a drain, no sample is resolved either.
    apply(&mut map, BATCH_EVENTS, ring, head, &mut Vec::new());
}

/// Number of the run whose drain takes the events; 0 without one.
static DRAINING_RUN: AtomicU64 = AtomicU64::new(0);

/// A run begins, whose drain takes the events until `end_run`. Must precede the first sample of the run.
pub fn begin_run() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    DRAINING_RUN.store(run, Ordering::Release);
    run
}

/// The current run, which may be about to end.
pub fn current_run() -> u64 {
    DRAINING_RUN.load(Ordering::Acquire)
}

/// The drain of `run` takes no more events; without effect when another run has begun.
pub fn end_run(run: u64) {
    let _ = DRAINING_RUN.compare_exchange(run, 0, Ordering::AcqRel, Ordering::Relaxed);
}

fn bytes_of(change: &CodeChange) -> usize {
    size_of::<CodeEvent>()
        + match change {
            CodeChange::Added { logged, inlining, .. } => {
                logged.bytes() + inlining.as_ref().map_or(0, |inlining| inlining.bytes())
            }
            CodeChange::Unlisted { inlining, .. } => inlining.as_ref().map_or(0, |inlining| inlining.bytes()),
            CodeChange::Script { info, .. } => info.bytes(),
            CodeChange::Existing { functions, .. } => size_of_val(functions.as_slice()),
            CodeChange::Table { bytes, .. } => bytes.bytes(),
            CodeChange::Baseline { baseline, .. } => baseline.bytes(),
            CodeChange::Lines { positions, .. } => positions.bytes(),
            _ => 0,
        }
}
