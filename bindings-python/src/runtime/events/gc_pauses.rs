//! Pauses for garbage collection as samples: the time from the start of a collection to its end, on the thread that caused it,
//! with its stack, labels and span. A function in `gc.callbacks` measures them, as long as the profiler runs with `gc`.
//! Collections of young objects are frequent and short, so short pauses are sampled ([`sample_event`]). The part of a pause in
//! which the thread did not run, on a busy machine, is a sample of its own: it is no CPU time.
//!
//! A collection counts as requested (`gc.collect()`) if the count of young objects has not exceeded its threshold, or if
//! automatic collection is off.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 to 3.15 | the callbacks run before the counts are reset (`Modules/gcmodule.c`, since 3.13 `Python/gc.c`) | `is_automatic` |

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use spanprof_profiler::binding::{ffi_guard, sample_event};
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{RawFrame, RawSample, RawStack, SampleKind, SyntheticFrame};

use crate::runtime::capture::{frames_or_reason, walk_calling_thread};
use crate::runtime::detection;

/// Shorter pauses are sampled.
const THRESHOLD_NS: u64 = 100_000;

/// Frames above the stack of the thread: `[scheduled out]` or not, the cause, the generation, `[GC]`.
const OWN_FRAMES: usize = 4;

/// The start of the collection in progress, 0 for none: an interpreter has at most one. Monotonic.
static STARTED_NS: AtomicU64 = AtomicU64::new(0);
/// CPU time of the thread at that start.
static STARTED_CPU_NS: AtomicU64 = AtomicU64::new(0);
static STARTED_BY_ITSELF: AtomicBool = AtomicBool::new(false);

/// Objects of the main interpreter, looked up once.
struct GcFunctions {
    /// The object in `gc.callbacks`.
    callback: Py<PyAny>,
    get_count: Py<PyAny>,
    get_threshold: Py<PyAny>,
    is_enabled: Py<PyAny>,
}

static FUNCTIONS: PyOnceLock<GcFunctions> = PyOnceLock::new();

/// Reports pauses from now on, or no longer. A program that clears `gc.callbacks` ends the reports. Does nothing in a
/// subinterpreter.
pub fn set_reported(py: Python<'_>, is_reported: bool) -> PyResult<()> {
    if detection::require_main(py).is_err() {
        return Ok(());
    }
    let gc = py.import("gc")?;
    let functions = FUNCTIONS.get_or_try_init(py, || {
        let function = |name| gc.getattr(name).map(Bound::unbind);
        PyResult::Ok(GcFunctions {
            callback: wrap_pyfunction!(on_collection, py)?.into_any().unbind(),
            get_count: function("get_count")?,
            get_threshold: function("get_threshold")?,
            is_enabled: function("isenabled")?,
        })
    })?;
    let callbacks = gc.getattr("callbacks")?.cast_into::<PyList>()?;
    let position = callbacks.iter().position(|other| other.is(&functions.callback));
    match (is_reported, position) {
        (true, None) => callbacks.append(&functions.callback),
        (false, Some(at)) => callbacks.del_item(at),
        _ => Ok(()),
    }
}

/// Called by the interpreter at both ends of a collection.
#[pyfunction]
fn on_collection(py: Python<'_>, phase: &str, info: &Bound<'_, PyDict>) {
    ffi_guard((), || {
        if phase == "start" {
            STARTED_BY_ITSELF.store(is_automatic(py).unwrap_or(true), Ordering::Relaxed);
            STARTED_CPU_NS.store(spanprof_os::current_thread_cpu_ns(), Ordering::Relaxed);
            STARTED_NS.store(spanprof_os::monotonic_ns(), Ordering::Relaxed);
            return;
        }
        let started_ns = STARTED_NS.swap(0, Ordering::Relaxed);
        let now_ns = spanprof_os::monotonic_ns();
        if started_ns == 0 {
            return;
        }
        let pause_ns = now_ns.saturating_sub(started_ns);
        if let Some(pause) = sample_event(pause_ns, THRESHOLD_NS) {
            let cpu_ns = spanprof_os::current_thread_cpu_ns().saturating_sub(STARTED_CPU_NS.load(Ordering::Relaxed));
            // The kernel takes a processor for longer; less is the cost of both readings.
            let without_processor_ns =
                Some(pause_ns.saturating_sub(cpu_ns)).filter(|ns| *ns >= THRESHOLD_NS).unwrap_or(0);
            let generation = info.get_item(intern!(py, "generation")).ok().flatten().and_then(|it| it.extract().ok());
            let parts_ns = [pause.duration_ns.saturating_sub(without_processor_ns), without_processor_ns];
            submit(parts_ns, now_ns, generation.unwrap_or(2));
        }
    });
}

fn is_automatic(py: Python<'_>) -> PyResult<bool> {
    let Some(functions) = FUNCTIONS.get(py) else { return Ok(true) };
    let of_young = |function: &Py<PyAny>| function.call0(py)?.bind(py).get_item(0)?.extract::<u64>();
    Ok(of_young(&functions.get_count)? > of_young(&functions.get_threshold)?
        && functions.is_enabled.call0(py)?.extract(py)?)
}

/// Submits the parts of a pause: with a processor, and without one.
fn submit(parts_ns: [u64; 2], now_ns: u64, generation: u64) {
    let Some(profiler) = ProfilerHandle::running() else { return };
    let mut frames = vec![RawFrame::default(); profiler.config().max_stack_depth as usize];
    let (own, of_thread) = frames.split_at_mut(OWN_FRAMES);
    let cause =
        if STARTED_BY_ITSELF.load(Ordering::Relaxed) { SyntheticFrame::Automatic } else { SyntheticFrame::Requested };
    let of_pause = [SyntheticFrame::ScheduledOut, cause, SyntheticFrame::generation(generation), SyntheticFrame::Gc];
    own.copy_from_slice(&of_pause.map(RawFrame::synthetic));
    let mut stack = RawStack::new(of_thread);
    let captured = walk_calling_thread(&mut stack);
    let flags = frames_or_reason(captured, &mut stack);
    let (context, walked) = (stack.context, stack.frames().len());
    for (part_ns, first) in parts_ns.into_iter().zip([1, 0]).filter(|(part_ns, _)| *part_ns > 0) {
        // A loss is counted.
        let _ = profiler.submit(&RawSample {
            kind: SampleKind::Gc,
            flags,
            thread_id: spanprof_os::thread_id(),
            time_ns: now_ns,
            values: [part_ns, 0],
            key: 0,
            context,
            frames: &frames[first..OWN_FRAMES + walked],
        });
    }
}
