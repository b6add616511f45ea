//! Labels that new threads start with, platform or virtual, where `inheritThreads` asks for it. Java knows them, having seen
//! the thread being made (its `InheritedScope`); it is asked on the new thread before the thread's work begins. The VM tells
//! of each virtual thread's start, which costs every virtual thread: asked for while threads inherit only. Not here: which
//! threads inherit (Java). Normal threads only.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jclass, jmethodID, jobject, JNIEnv};

use super::jvmti::{Environment, Event};

/// A class, held weakly, and its method `begin`: one for each class loader that labels threads.
struct Asked {
    class: usize,
    method: usize,
}

/// Whether any thread may inherit. Changed under the lock.
static ANY: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Vec<Asked>> {
    static ASKED: Mutex<Vec<Asked>> = Mutex::new(Vec::new());
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `static void begin()` of a class called on each new thread, as long as the class lives. False when that cannot be.
///
/// # Safety
/// `env` is the calling thread's, `class` a reference of it to a class.
pub unsafe fn register(env: *mut JNIEnv, class: jclass) -> bool {
    let mut asked = lock();
    // SAFETY: the caller's promise; weak references are deleted under the lock, under which alone they are used. What
    // fails leaves an exception behind.
    unsafe {
        asked.retain(|known| {
            let is_gone = ((**env).v1_1.IsSameObject)(env, known.class as jobject, std::ptr::null_mut());
            if is_gone {
                ((**env).v1_2.DeleteWeakGlobalRef)(env, known.class as jobject);
            }
            !is_gone
        });
        if asked.iter().any(|known| ((**env).v1_1.IsSameObject)(env, known.class as jobject, class)) {
            begin_asking();
            return true;
        }
        let method = ((**env).v1_1.GetStaticMethodID)(env, class, c"begin".as_ptr(), c"()V".as_ptr());
        let weak = if method.is_null() { std::ptr::null_mut() } else { ((**env).v1_2.NewWeakGlobalRef)(env, class) };
        if weak.is_null() {
            ((**env).v1_1.ExceptionClear)(env);
            return false;
        }
        asked.push(Asked { class: weak as usize, method: method as usize });
    }
    begin_asking();
    true
}

/// Under the lock.
fn begin_asking() {
    if !ANY.swap(true, Ordering::AcqRel) {
        // Where there are no virtual threads, or the VM does not tell of them, platform threads inherit all the same.
        let _ = super::tools().map(|jvmti| jvmti.notify_virtual_threads(Event::VirtualThreadStart, true));
    }
}

/// No thread inherits until the next [`register`]: the profiler stopped.
pub fn end_asking() {
    let _asked = lock();
    if ANY.swap(false, Ordering::AcqRel) {
        let _ = super::tools().map(|jvmti| jvmti.notify(Event::VirtualThreadStart, false));
    }
}

/// Each virtual thread's first words.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_virtual_start(_: *mut Environment, env: *mut JNIEnv, _: jobject) {
    // SAFETY: the VM passes the environment of the thread that carries it; one that tells of its start may run Java.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { begin(env) }));
}

/// The calling thread's first words.
///
/// # Safety
/// `env` is the calling thread's, which may run Java.
pub unsafe fn begin(env: *mut JNIEnv) {
    if !ANY.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the caller's promise; a reference that is not null keeps the class, and so its method, alive.
    unsafe {
        let held: Vec<(jobject, usize)> = lock()
            .iter()
            .map(|known| (((**env).v1_2.NewLocalRef)(env, known.class as jobject), known.method))
            .filter(|(class, _)| !class.is_null())
            .collect();
        for (class, method) in held {
            ((**env).v1_1.CallStaticVoidMethodA)(env, class, method as jmethodID, std::ptr::null());
            ((**env).v1_1.ExceptionClear)(env);
            ((**env).v1_1.DeleteLocalRef)(env, class);
        }
    }
}
