//! Waits for monitors (`synchronized`): JVMTI's `MonitorContendedEnter` and `MonitorContendedEntered`, on the waiting thread.
//! Not for signal handlers. Not here: `Object.wait`, which is no contention.
//!
//! # Virtual threads
//! To JDK 23 a virtual thread that waits for a monitor keeps its carrier. From JDK 24 on it may leave it (JEP 491), and the
//! second event can come on another carrier (`ObjectMonitor::enter_with_contention_mark`,
//! `hotspot/share/runtime/objectMonitor.cpp`).

use jni::sys::{jobject, JNIEnv};
use spanprof_profiler::binding::{ffi_guard, WaitStart};

use super::java_locks::JavaLocks;
use super::lock_waits::{self, PendingLockWait, WaitKind};
use crate::runtime::jvmti::{
    this_vm, Environment, Jvmti, JvmtiEvent, CAN_REPORT_MONITORS, CAN_SUPPORT_VIRTUAL_THREADS,
};

/// Turns the events on or off.
pub fn set_reported(jvmti: Jvmti, is_reported: bool) -> Result<(), String> {
    if is_reported {
        jvmti.add_capability(CAN_REPORT_MONITORS)?;
        // Without it the VM reports no events of virtual threads. VMs without virtual threads refuse it.
        let _ = jvmti.add_capability(CAN_SUPPORT_VIRTUAL_THREADS);
    }
    jvmti.notify(JvmtiEvent::MonitorContendedEnter, is_reported)?;
    jvmti.notify(JvmtiEvent::MonitorContendedEntered, is_reported)
}

/// `MonitorContendedEnter`: the calling thread is about to wait.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_enter(_: *mut Environment, env: *mut JNIEnv, thread: jobject, object: jobject) {
    ffi_guard(None, || {
        let (start, locks) = (WaitStart::now()?, JavaLocks::found()?);
        let row = lock_waits::waiting_row().filter(|_| !this_vm::has_ended())?;
        let jvmti = this_vm::jvmti()?;
        // SAFETY: the VM passes this thread's environment and live references.
        let (thread, class) = unsafe { (locks.thread_number(env, thread), locks.class_number(jvmti, env, object)) };
        PendingLockWait::begin(jvmti, row, class, start).store(thread, WaitKind::Monitor);
        Some(())
    });
}

/// `MonitorContendedEntered`: the calling thread owns the monitor.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_entered(_: *mut Environment, env: *mut JNIEnv, thread: jobject, _: jobject) {
    ffi_guard(None, || {
        // SAFETY: the VM passes this thread's environment and a live reference to it.
        let thread = unsafe { JavaLocks::found()?.thread_number(env, thread) };
        PendingLockWait::take(thread, WaitKind::Monitor)?.end();
        Some(())
    });
}
