//! Labels that new threads inherit, platform or virtual, if `inheritThreads` is set. Java stores them when the thread is
//! created (`InheritedScope`); a callback opens them on the new thread before its work begins. The VM reports each start of
//! a virtual thread, at a cost for every virtual thread; the event is enabled only while threads inherit. Not here: which
//! threads inherit (Java). Not for signal handlers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jclass, jmethodID, jobject, JNIEnv};
use spanprof_profiler::binding::ffi_guard;

use crate::runtime::jvmti::{this_vm, Environment, JvmtiEvent};

/// A class, held weakly, and its method `begin`: one per class loader that labels threads.
struct StartCallback {
    class: usize,
    method: usize,
}

/// Whether any thread may inherit. Changed only under the lock.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Vec<StartCallback>> {
    static CALLBACKS: Mutex<Vec<StartCallback>> = Mutex::new(Vec::new());
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `static void begin()` of a class on each new thread while the class lives. False if that is not possible.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `class` a reference of it.
pub unsafe fn register(env: *mut JNIEnv, class: jclass) -> bool {
    let mut callbacks = lock();
    // SAFETY: guaranteed by the caller; weak references are used and deleted only under the lock. Failed calls leave a
    // pending exception.
    unsafe {
        callbacks.retain(|callback| {
            let is_gone = ((**env).v1_1.IsSameObject)(env, callback.class as jobject, std::ptr::null_mut());
            if is_gone {
                ((**env).v1_2.DeleteWeakGlobalRef)(env, callback.class as jobject);
            }
            !is_gone
        });
        if callbacks.iter().any(|callback| ((**env).v1_1.IsSameObject)(env, callback.class as jobject, class)) {
            enable();
            return true;
        }
        let method = ((**env).v1_1.GetStaticMethodID)(env, class, c"begin".as_ptr(), c"()V".as_ptr());
        let weak = if method.is_null() { std::ptr::null_mut() } else { ((**env).v1_2.NewWeakGlobalRef)(env, class) };
        if weak.is_null() {
            ((**env).v1_1.ExceptionClear)(env);
            return false;
        }
        callbacks.push(StartCallback { class: weak as usize, method: method as usize });
    }
    enable();
    true
}

/// Called under the lock.
fn enable() {
    if !IS_ENABLED.swap(true, Ordering::AcqRel) {
        // If the VM has no virtual threads or no events for them, platform threads still inherit.
        let _ = this_vm::jvmti().map(|jvmti| jvmti.notify_virtual_threads(JvmtiEvent::VirtualThreadStart, true));
    }
}

/// Disables inheritance until the next [`register`]: the profiler has stopped.
pub fn disable() {
    let _callbacks = lock();
    if IS_ENABLED.swap(false, Ordering::AcqRel) {
        let _ = this_vm::jvmti().map(|jvmti| jvmti.notify(JvmtiEvent::VirtualThreadStart, false));
    }
}

/// `VirtualThreadStart`, on the new virtual thread.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_virtual_start(_: *mut Environment, env: *mut JNIEnv, _: jobject) {
    // SAFETY: the VM passes the carrier's JNI environment; a virtual thread may run Java in its start event.
    ffi_guard((), || unsafe { begin(env) });
}

/// Runs the callbacks on the calling thread, which has just started.
///
/// # Safety
/// `env` is the JNI environment of the calling thread, which may run Java.
pub unsafe fn begin(env: *mut JNIEnv) {
    if !IS_ENABLED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: guaranteed by the caller; a non-null reference keeps the class and its method alive.
    unsafe {
        let held: Vec<(jobject, usize)> = lock()
            .iter()
            .map(|callback| (((**env).v1_2.NewLocalRef)(env, callback.class as jobject), callback.method))
            .filter(|(class, _)| !class.is_null())
            .collect();
        for (class, method) in held {
            ((**env).v1_1.CallStaticVoidMethodA)(env, class, method as jmethodID, std::ptr::null());
            ((**env).v1_1.ExceptionClear)(env);
            ((**env).v1_1.DeleteLocalRef)(env, class);
        }
    }
}
