//! Allocation samples: JVMTI's `SampledObjectAlloc` event on the allocating thread, with the thread's stack and context, and
//! the object's class as the leaf frame. Not for signal handlers. Not here: weights (the core), names (`class_names`), samples
//! that were not due (`allocation_buffers`).
//!
//! # The VM's sampler
//! Each thread has a distance in bytes to its next sample, which is geometric with the mean interval
//! (`ThreadHeapSampler::pick_next_sample`, `hotspot/share/runtime/threadHeapSampler.cpp`, JDK 11 to 25). The object that
//! exceeds it is the sample, and the next distance begins at its end: JDK 17 to 24 ignore the overflow that they are passed; 11
//! subtracts it if the distance is longer.
//! An object of S bytes is thus selected with probability 1 − e^(−S/R), as the core's weights require. A thread draws its
//! first distance when it is created, with the interval of that time.
//!
//! # When the event may come
//! In the live phase only, on a thread with or without Java frames: class loading, attached native threads, threads that end.
//! Never in a transition of a virtual thread (`JvmtiExport::post_sampled_object_alloc`). The thread is in native code and
//! its frame anchor is set, so that its own stack walk begins there. The callback allocates no Java object and takes no lock
//! under which this library calls the VM.
//!
//! # Other agents
//! The capability for this event belongs to one JVMTI environment at a time, and is needed to change the interval. It is
//! held only while the heap profile runs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use jni::sys::{jclass, jlong, jobject, JNIEnv};
use spanprof_profiler::binding::{ffi_guard, random_fraction};
use spanprof_signal::heap::{SelectedObject, HEAP};
use spanprof_signal::{Context, LiveSet};

use super::{allocation_buffers, frame_buffers, live_references, own_stack};
use crate::runtime::capture::thread_rows::{self, ThreadRow, ROWS};
use crate::runtime::jvmti::{this_vm, Environment, JvmtiEvent, CAN_SAMPLE_ALLOCATIONS, CAN_SUPPORT_VIRTUAL_THREADS};
use crate::runtime::names::class_names;
use crate::runtime::threads::attached_thread;
use crate::runtime::vm::memory::word;

/// The first version of Java with `SampledObjectAlloc` (JEP 331).
pub const SINCE: u32 = 11;
/// HotSpot's interval before any agent sets one (`ThreadHeapSampler::_sampling_interval`).
const DEFAULT_INTERVAL: u32 = 512 * 1024;
/// Surplus samples, and their share of all (one in so many), from which the VM loses bytes that matter.
const MANY_SURPLUS: (u64, u64) = (16, 64);
/// An eighth of the interval leaves a twentieth to a quarter of the error. A dropped sample costs 1 µs.
const REDUCED_INTERVAL: u64 = 8;

/// The VM's mean interval, bytes.
static INTERVAL: AtomicU32 = AtomicU32::new(DEFAULT_INTERVAL);
/// The interval with which a thread's next sample was drawn, by the index of its row; 0: the default.
static DRAWN_WITH: [AtomicU32; ROWS] = [const { AtomicU32::new(0) }; ROWS];
/// Whether the events are on.
static IS_ENABLED: Mutex<bool> = Mutex::new(false);
static EVENTS: AtomicU64 = AtomicU64::new(0);
static SURPLUS: AtomicU64 = AtomicU64::new(0);
/// Samples that the VM reports for each one that is kept, on average.
static OVERSAMPLING: AtomicU64 = AtomicU64::new(1);
static WITHOUT_STACK: AtomicU64 = AtomicU64::new(0);

/// Turns the event on; it does nothing until the heap profile runs.
pub fn enable() -> Result<(), String> {
    let jvmti = this_vm::jvmti().ok_or("this VM has no JVMTI")?;
    let mut is_enabled = IS_ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_enabled {
        return Ok(());
    }
    jvmti.add_capability(CAN_SAMPLE_ALLOCATIONS).map_err(|error| {
        format!("another agent of this process samples allocations, or this VM cannot sample them ({error})")
    })?;
    // Without it the VM reports no events of virtual threads. VMs without virtual threads refuse it.
    let _ = jvmti.add_capability(CAN_SUPPORT_VIRTUAL_THREADS);
    if let Err(error) = jvmti.notify(JvmtiEvent::SampledObjectAlloc, true) {
        let _ = jvmti.relinquish_capability(CAN_SAMPLE_ALLOCATIONS);
        return Err(format!("this VM does not report sampled allocations ({error})"));
    }
    *is_enabled = true;
    Ok(())
}

/// Sets the VM's interval.
fn set_interval() {
    let Some(jvmti) = this_vm::jvmti() else { return };
    let interval = (HEAP.interval() / OVERSAMPLING.load(Ordering::Relaxed)).clamp(1, i32::MAX as u64) as u32;
    if jvmti.set_heap_sampling_interval(interval as i32).is_ok() {
        INTERVAL.store(interval, Ordering::Relaxed);
    }
}

/// The heap profile got another interval.
pub fn follow_interval() {
    if HEAP.is_running() {
        set_interval();
    }
}

/// The heap profile was started, stopped or got another interval.
pub fn follow_sampling() {
    follow_interval();
    if HEAP.is_running() {
        return;
    }
    if !this_vm::has_ended() {
        let mut is_enabled = IS_ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jvmti) = this_vm::jvmti().filter(|_| std::mem::take(&mut *is_enabled)) {
            // If the VM refuses, the callback still returns at once.
            let _ = jvmti.notify(JvmtiEvent::SampledObjectAlloc, false);
            let _ = jvmti.relinquish_capability(CAN_SAMPLE_ALLOCATIONS);
        }
        drop(is_enabled);
        // The last in-use profile is complete.
        if HEAP.live_set().is_none_or(LiveSet::is_empty) {
            remove_collected();
        }
    }
}

/// Removes collected objects from the live set.
pub fn remove_collected() {
    if live_references::count() == 0 {
        return;
    }
    if let Some(env) = attached_thread::environment() {
        // SAFETY: the environment of this thread.
        unsafe { live_references::remove_collected(env) };
    }
}

/// A new thread has drawn its first sample.
pub fn thread_starts(row: &ThreadRow) {
    if let Some(drawn_with) = DRAWN_WITH.get(row.index()) {
        drawn_with.store(INTERVAL.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    allocation_buffers::thread_starts(row);
}

/// The interval with which a thread's current sample was drawn. The VM draws the next one before it reports this one.
fn drawn_with(row: Option<&ThreadRow>) -> u32 {
    let interval = INTERVAL.load(Ordering::Relaxed);
    match row.and_then(|row| DRAWN_WITH.get(row.index())) {
        Some(drawn_with) => match drawn_with.swap(interval, Ordering::Relaxed) {
            0 => DEFAULT_INTERVAL,
            drawn_with => drawn_with,
        },
        None => interval,
    }
}

/// Counts a surplus sample. Shortens the VM's interval once there are many.
fn count_surplus() {
    let surplus = SURPLUS.fetch_add(1, Ordering::Relaxed) + 1;
    let (least, one_in) = MANY_SURPLUS;
    let are_many = surplus >= least && surplus * one_in >= EVENTS.load(Ordering::Relaxed);
    if are_many && OVERSAMPLING.swap(REDUCED_INTERVAL, Ordering::Relaxed) != REDUCED_INTERVAL {
        set_interval();
    }
}

/// The probability with which an object is selected.
fn selected(size: u64, interval: u64) -> f64 {
    -(-(size as f64) / interval as f64).exp_m1()
}

/// `SampledObjectAlloc`, on the allocating thread.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_allocation(
    _: *mut Environment,
    env: *mut JNIEnv,
    _: jobject,
    object: jobject,
    class: jclass,
    size: jlong,
) {
    ffi_guard((), || {
        let row = thread_rows::of(spanprof_os::thread_id());
        let drawn_with = drawn_with(row);
        let is_surplus =
            word(object as usize).zip(row).is_some_and(|(address, row)| allocation_buffers::is_surplus(row, address));
        let is_own = row.is_some_and(ThreadRow::is_profiler_thread);
        if !HEAP.is_running() || is_own || this_vm::has_ended() {
            return;
        }
        let Some(jvmti) = this_vm::jvmti() else { return };
        EVENTS.fetch_add(1, Ordering::Relaxed);
        if is_surplus {
            count_surplus();
        }
        let (size, drawn_with) = (size.max(1) as u64, u64::from(drawn_with));
        let interval = HEAP.interval().max(drawn_with);
        let reported = if is_surplus { 1.0 } else { selected(size, drawn_with) };
        if random_fraction() * reported >= selected(size, interval) {
            return;
        }
        // SAFETY: the VM passes a live reference to the object's class.
        let signature = unsafe { jvmti.signature_of(class) };
        let class = signature.map_or(0, |signature| class_names::number_of(&signature));
        frame_buffers::with_buffer(|frames| {
            let depth = HEAP.max_stack_depth().min(frames.len());
            let stack = own_stack::below_class(jvmti, row, class, frames.get_mut(..depth).unwrap_or(&mut []));
            if !stack.has_java {
                WITHOUT_STACK.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the VM passes this thread's environment and a live reference to the object.
            let reference = live_references::choose(spanprof_os::monotonic_ns(), random_fraction())
                .and_then(|probability| Some((unsafe { live_references::create(env, object) }?, probability)));
            let sample = HEAP.record_selected(&SelectedObject {
                address: reference.map(|(weak, _)| weak),
                size,
                interval,
                live_interval: reference.map_or(interval, |(_, probability)| {
                    live_references::thinned_interval(size, interval, probability)
                }),
                context: row.map_or(Context::None, |row| row.scope.context()),
                frames: stack.frames,
                truncated: stack.truncated,
            });
            if let Some((weak, _)) = reference {
                // SAFETY: the VM passes this thread's environment; the reference was created here.
                unsafe { live_references::keep(env, weak, sample) };
            }
        });
    });
}

/// For `stats()`.
pub fn stats(out: &mut Vec<(&'static str, String)>) {
    out.push(("java.allocation_events", EVENTS.load(Ordering::Relaxed).to_string()));
    out.push(("java.allocations_not_due", SURPLUS.load(Ordering::Relaxed).to_string()));
    out.push(("java.allocations_without_stack", WITHOUT_STACK.load(Ordering::Relaxed).to_string()));
    out.push(("java.live_references", live_references::count().to_string()));
    out.push(("java.classes_named", class_names::count().to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::threads::registry;

    #[test]
    fn a_sample_has_the_interval_with_which_its_thread_drew_it() {
        let row = registry::register(900_301, 4096).unwrap();
        DRAWN_WITH[row.index()].store(0, Ordering::Relaxed);
        assert_eq!(drawn_with(Some(row)), DEFAULT_INTERVAL, "the thread is older than the library");
        let now = INTERVAL.load(Ordering::Relaxed);
        DRAWN_WITH[row.index()].store(4096, Ordering::Relaxed);
        assert_eq!([drawn_with(Some(row)), drawn_with(Some(row)), drawn_with(None)], [4096, now, now]);
        DRAWN_WITH[row.index()].store(4096, Ordering::Relaxed);
        thread_starts(row);
        assert_eq!(drawn_with(Some(row)), now, "another thread has the row");
        registry::unregister(900_301);
    }
}
