//! What scopes on virtual threads say: kept with the virtual thread, copied to the row of whatever thread carries it. The
//! VM tells of each mount and unmount, which costs every virtual thread: asked for while any of them is labelled only.
//! Normal threads only.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use jni::sys::{jobject, JNIEnv};
use spanprof::sys;

use super::jvmti::{Environment, Event, ExtensionEvent, Jvmti};
use super::threads_signal;
use crate::context_calls::Words;

static MOUNTS: AtomicU64 = AtomicU64::new(0);
static TOLD: Mutex<Told> = Mutex::new(Told { labelled: 0, events: None, on: false });

struct Told {
    /// Virtual threads with labels now.
    labelled: u64,
    /// Mount and unmount; none where the VM does not tell of them.
    events: Option<[ExtensionEvent; 2]>,
    on: bool,
}

/// Mounts told of so far, and virtual threads with labels now.
pub fn counts() -> (u64, u64) {
    (MOUNTS.load(Ordering::Relaxed), TOLD.lock().unwrap_or_else(PoisonError::into_inner).labelled)
}

/// What the calling virtual thread's scopes say.
pub fn words() -> Words {
    let kept = super::tools().and_then(|jvmti| jvmti.thread_word(std::ptr::null_mut()));
    kept.and_then(read).unwrap_or_default()
}

/// Sets what the calling virtual thread's scopes say. False where virtual threads cannot be followed.
pub fn set(words: &Words) -> bool {
    // Also before the profiler is started.
    let Some(jvmti) = super::tools() else { return false };
    let before = jvmti.thread_word(std::ptr::null_mut()).unwrap_or(0);
    let says_something = words.iter().any(|word| *word != 0);
    if says_something && before == 0 && !follow_one_more(jvmti) {
        return false;
    }
    let kept = if says_something { Box::into_raw(Box::new(*words)) as usize } else { 0 };
    if jvmti.set_thread_word(kept).is_err() {
        return false;
    }
    if before != 0 {
        // SAFETY: a box that `set` made on this virtual thread, which is mounted here and so not being copied elsewhere.
        drop(unsafe { Box::from_raw(before as *mut Words) });
        if !says_something {
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            told.labelled = told.labelled.saturating_sub(1);
        }
    }
    if let Some(row) = threads_signal::of(sys::thread_id()) {
        row.scope.write(words);
    }
    true
}

/// Follows no virtual thread any more when none is labelled. Called now and then on a thread of the VM's.
pub fn rest() {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if let (true, 0, Some(jvmti), Some(events)) = (told.on, told.labelled, super::tools(), told.events) {
        told.on = events.iter().any(|event| jvmti.notify_extension(*event, false).is_err());
        let _ = jvmti.notify(Event::VirtualThreadEnd, false);
    }
}

fn follow_one_more(jvmti: Jvmti) -> bool {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.events.is_none() {
        told.events = jvmti.follow_virtual_threads(on_mount, on_unmount);
    }
    let Some(events) = told.events else { return false };
    if !told.on {
        told.on = jvmti.notify(Event::VirtualThreadEnd, true).is_ok()
            && events.iter().all(|event| jvmti.notify_extension(*event, true).is_ok());
    }
    told.labelled += u64::from(told.on);
    told.on
}

fn read(kept: usize) -> Option<Words> {
    // SAFETY: the word is 0 or a box that `set` made, freed only by its own virtual thread.
    unsafe { (kept as *const Words).as_ref() }.copied()
}

unsafe extern "C" fn on_mount(_: *mut Environment, _: *mut JNIEnv, thread: jobject) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        MOUNTS.fetch_add(1, Ordering::Relaxed);
        let kept = super::tools().and_then(|jvmti| jvmti.thread_word(thread)).and_then(read);
        if let (Some(words), Some(row)) = (kept, threads_signal::enrol(sys::thread_id(), 0)) {
            row.scope.write(&words);
        }
    }));
}

unsafe extern "C" fn on_unmount(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    let _ = catch_unwind(|| {
        if let Some(row) = threads_signal::of(sys::thread_id()) {
            row.scope.write(&[0; 5]);
        }
    });
}

/// A virtual thread's last words: a scope that nobody closed ends with it.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_end(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    let _ = catch_unwind(|| {
        if words().iter().any(|word| *word != 0) {
            set(&[0; 5]);
        }
    });
}
