//! The callbacks of JVMTI events. Registers Java threads: those that live when the runtime is created, and later ones by JVMTI
//! events. Not for signal handlers.

use jni::sys::{jobject, JNIEnv};
use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::ProfilerHandle;

use super::capture::call_trace;
use super::events::{allocations, gc_pauses, monitors, virtual_threads};
use super::jvmti::this_vm;
use super::jvmti::{Callbacks, Environment, Jvmti, JvmtiEvent};
use super::names::{method_ids, stub_names};
use super::threads::java_threads::{self, OsThreadOffsets};
use super::threads::{inherited, registry};

/// The JVMTI callbacks; with those of class events if `AsyncGetCallTrace` walks, whose methods need ids.
pub fn callbacks(with_classes: bool) -> Callbacks {
    let mut callbacks = Callbacks::none();
    callbacks.on_thread(JvmtiEvent::ThreadStart, on_start);
    callbacks.on_thread(JvmtiEvent::ThreadEnd, on_end);
    callbacks.on_thread(JvmtiEvent::VirtualThreadStart, inherited::on_virtual_start);
    callbacks.on_thread(JvmtiEvent::VirtualThreadEnd, virtual_threads::on_end);
    callbacks.on_code(stub_names::on_code);
    callbacks.on_allocation(allocations::on_allocation);
    callbacks.on_monitor(JvmtiEvent::MonitorContendedEnter, monitors::on_enter);
    callbacks.on_monitor(JvmtiEvent::MonitorContendedEntered, monitors::on_entered);
    callbacks.on_collection(JvmtiEvent::GarbageCollectionStart, gc_pauses::on_start);
    callbacks.on_collection(JvmtiEvent::GarbageCollectionFinish, gc_pauses::on_finish);
    callbacks.on_end(on_vm_death);
    if with_classes {
        callbacks.on_class(JvmtiEvent::ClassLoad, method_ids::on_load);
        callbacks.on_class(JvmtiEvent::ClassPrepare, method_ids::on_prepare);
    }
    callbacks
}

/// Enables the events, then registers all live threads.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
pub unsafe fn begin(jvmti: Jvmti, env: *mut JNIEnv, offsets: OsThreadOffsets) -> Result<(), String> {
    // SAFETY: guaranteed by the caller.
    unsafe { java_threads::find(env, offsets) }?;
    jvmti.notify(JvmtiEvent::VmDeath, true)?;
    jvmti.notify(JvmtiEvent::DynamicCodeGenerated, true)?;
    jvmti.generate_events(JvmtiEvent::DynamicCodeGenerated)?;
    jvmti.notify(JvmtiEvent::ThreadEnd, true)?;
    jvmti.notify(JvmtiEvent::ThreadStart, true)?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        jvmti.each_thread(env, |thread| {
            if let Some((java_thread, thread_id)) = java_threads::java_thread_and_id(env, thread) {
                registry::register(thread_id, java_thread);
                // The `ThreadEnd` event of a thread that has ended meanwhile came before its registration.
                if java_threads::java_thread(env, thread).is_none() {
                    registry::unregister(thread_id);
                }
            }
        })
    }
}

/// `ThreadStart`, on the new thread.
unsafe extern "system" fn on_start(_: *mut Environment, env: *mut JNIEnv, thread: jobject) {
    ffi_guard((), || {
        // SAFETY: the VM passes the new thread's environment and a reference to it.
        let java_thread = unsafe { java_threads::java_thread(env, thread) };
        if let Some(row) = registry::register(spanprof_os::thread_id(), java_thread.unwrap_or(0)) {
            allocations::thread_starts(row);
        }
        if let Some(profiler) = ProfilerHandle::running() {
            profiler.register_current_thread();
        }
        // SAFETY: the VM passes the new thread's environment and a reference to it; a thread may run Java in its `ThreadStart` event.
        unsafe {
            java_threads::report_name(env, thread);
            inherited::begin(env);
        }
    });
}

/// `ThreadEnd`, on the ending thread.
unsafe extern "system" fn on_end(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    ffi_guard((), || registry::unregister(spanprof_os::thread_id()));
}

/// `VMDeath`; the VM's threads may still run for a moment.
unsafe extern "system" fn on_vm_death(_: *mut Environment, _: *mut JNIEnv) {
    call_trace::withdraw();
    this_vm::end();
}

/// Address of the calling platform thread's scope words, which Java writes.
pub fn own_scope() -> Option<usize> {
    registry::register(spanprof_os::thread_id(), 0).map(|row| row.scope.address())
}
