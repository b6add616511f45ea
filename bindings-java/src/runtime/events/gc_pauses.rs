//! Pauses for garbage collection as samples: the time in which a collection stops all Java threads, without the time that they
//! take to reach the safepoint. Each pause is a sample with the frames `[GC]`, collector and cause. It belongs to no thread of
//! the program and has no labels. Not for signal handlers.
//!
//! # Events
//! JVMTI reports both ends of each pause on the VM thread, at the safepoint (`SvcGCMarker`,
//! `hotspot/share/gc/shared/vmGCOperations.hpp`, JDK 8 to 25). The callbacks may not call JNI. They take no lock, since its
//! owner may wait for the end of the safepoint.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind, SyntheticFrame};

use crate::runtime::jvmti::{Environment, Jvmti, JvmtiEvent, CAN_REPORT_COLLECTIONS};
use crate::runtime::vm::memory::word;
use crate::runtime::vm::perf_data::{text, PerfData};
use crate::runtime::vm::raw_frame;
use crate::runtime::vm::structs::VmStructs;

/// Collectors and causes: HotSpot has about 40.
const MAX_NAMES: usize = 64;
const OTHER: &str = "other";
/// The cause while no collection is in progress.
const NO_COLLECTION: &str = "No GC";

static NAMES: [OnceLock<String>; MAX_NAMES] = [const { OnceLock::new() }; MAX_NAMES];
static PERF_DATA: OnceLock<Option<CollectionData>> = OnceLock::new();
static IS_REPORTED: AtomicBool = AtomicBool::new(false);
/// The start of the pause in progress, 0 for none. Monotonic.
static STARTED_NS: AtomicU64 = AtomicU64::new(0);
/// The largest entry time of all collectors at the end of the last pause.
static LAST_ENTRY: AtomicU64 = AtomicU64::new(0);
static CAUSE: AtomicU32 = AtomicU32::new(0);
static PAUSES: AtomicU64 = AtomicU64::new(0);
static PAUSE_NS: AtomicU64 = AtomicU64::new(0);

/// Addresses in the VM's performance data.
struct CollectionData {
    cause: usize,
    last_cause: usize,
    /// The number of each collector's name, and the address of the time at which it was last entered.
    collectors: Vec<(u32, usize)>,
}

/// Finds collectors and cause in the VM's performance data. Without it, samples have the frame `[GC]` alone.
pub fn find_perf_data(structures: &VmStructs) {
    PERF_DATA.get_or_init(|| {
        let data = PerfData::read(structures)?;
        let collectors = (0..8).filter_map(|index| {
            let address = |item: &str| data.address(&format!("sun.gc.collector.{index}.{item}"));
            let name = text(address("name")?);
            Some((number_of(name.strip_suffix(" pauses").unwrap_or(&name)), address("lastEntryTime")?))
        });
        let (cause, last_cause) = (data.address("sun.gc.cause")?, data.address("sun.gc.lastCause")?);
        Some(CollectionData { cause, last_cause, collectors: collectors.collect() })
    });
}

/// Reports pauses from now on, or no longer.
pub fn set_reported(jvmti: Jvmti, is_reported: bool) -> Result<(), String> {
    if IS_REPORTED.load(Ordering::Acquire) == is_reported {
        return Ok(());
    }
    if is_reported {
        jvmti.add_capability(CAN_REPORT_COLLECTIONS)?;
    }
    STARTED_NS.store(0, Ordering::Relaxed);
    jvmti.notify(JvmtiEvent::GarbageCollectionStart, is_reported)?;
    jvmti.notify(JvmtiEvent::GarbageCollectionFinish, is_reported)?;
    IS_REPORTED.store(is_reported, Ordering::Release);
    Ok(())
}

/// The number of a collector or cause; `MAX_NAMES` if all numbers are taken. Lock-free, except for the first use of a number.
fn number_of(name: &str) -> u32 {
    NAMES.iter().position(|known| known.get_or_init(|| name.to_owned()) == name).unwrap_or(MAX_NAMES) as u32
}

/// The name with this number.
pub fn name(number: u32) -> &'static str {
    NAMES.get(number as usize).and_then(OnceLock::get).map_or(OTHER, String::as_str)
}

/// `GarbageCollectionStart`, on the VM thread.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_start(_: *mut Environment) {
    ffi_guard((), || {
        STARTED_NS.store(spanprof_os::monotonic_ns(), Ordering::Relaxed);
        if let Some(Some(data)) = PERF_DATA.get() {
            CAUSE.store(number_of(&text(data.cause)), Ordering::Relaxed);
        }
    });
}

/// `GarbageCollectionFinish`, on the VM thread.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_finish(_: *mut Environment) {
    ffi_guard((), || {
        let now_ns = spanprof_os::monotonic_ns();
        let started_ns = STARTED_NS.swap(0, Ordering::Relaxed);
        if started_ns == 0 {
            return;
        }
        let pause_ns = now_ns.saturating_sub(started_ns);
        PAUSES.fetch_add(1, Ordering::Relaxed);
        PAUSE_NS.fetch_add(pause_ns, Ordering::Relaxed);
        submit(pause_ns, now_ns);
    });
}

/// The cause of the pause that ends. Some collectors set the cause only within the pause (Serial and Parallel, JDK 17).
fn cause(data: &CollectionData) -> Option<u32> {
    let at_start = CAUSE.load(Ordering::Relaxed);
    let later = [data.cause, data.last_cause].into_iter().map(|address| number_of(&text(address)));
    std::iter::once(at_start).chain(later).find(|cause| name(*cause) != NO_COLLECTION)
}

/// The collector that was entered since the last pause.
fn entered_collector(data: &CollectionData) -> Option<u32> {
    let entries = data.collectors.iter().filter_map(|(number, entered)| Some((word(*entered)? as u64, *number)));
    let (entry, number) = entries.max()?;
    (LAST_ENTRY.swap(entry, Ordering::Relaxed) < entry).then_some(number)
}

fn submit(pause_ns: u64, now_ns: u64) {
    let Some(profiler) = ProfilerHandle::running() else { return };
    let mut frames = Vec::with_capacity(3);
    if let Some(Some(data)) = PERF_DATA.get() {
        frames.extend(cause(data).map(raw_frame::collection));
        frames.extend(entered_collector(data).map(raw_frame::collection));
    }
    frames.push(RawFrame::synthetic(SyntheticFrame::Gc));
    // A loss is counted.
    let _ = profiler.submit(&RawSample {
        kind: SampleKind::Gc,
        flags: SampleFlags(0),
        thread_id: spanprof_os::thread_id(),
        time_ns: now_ns,
        values: [pause_ns, 0],
        key: 0,
        context: Context::None,
        frames: &frames,
    });
}

/// For `stats()`.
pub fn stats(out: &mut Vec<(&'static str, String)>) {
    out.push(("java.gc_pauses", PAUSES.load(Ordering::Relaxed).to_string()));
    out.push(("java.gc_pause_ns", PAUSE_NS.load(Ordering::Relaxed).to_string()));
}
