//! The callbacks of JVMTI events. Registers Java threads: those that live when the runtime is created, and later ones by JVMTI
//! events. Not for signal handlers.

use std::sync::atomic::{AtomicUsize, Ordering};

use jni::sys::{jfieldID, jobject, JNIEnv};
use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::ProfilerHandle;

use super::capture::call_trace;
use super::events::{allocations, gc_pauses, monitors, virtual_threads};
use super::jvmti::this_vm;
use super::jvmti::{Callbacks, Environment, Jvmti, JvmtiEvent};
use super::names::{method_ids, stub_names};
use super::threads::{inherited, registry};
use super::vm::memory::{int, pointer};
use super::vm::structs::VmStructs;

/// The field of `java.lang.Thread` with the address of its JavaThread; null before it is looked up.
static EETOP: AtomicUsize = AtomicUsize::new(0);

/// Offsets to the kernel's thread id: in JavaThread, and in the OSThread that it points to.
#[derive(Clone, Copy, Debug)]
pub struct OsThreadOffsets {
    os_thread: usize,
    thread_id: usize,
}

impl OsThreadOffsets {
    /// The offsets from VMStructs; the error names the one that they lack.
    pub fn of(structures: &VmStructs) -> Result<Self, String> {
        let os_thread =
            ["JavaThread", "Thread"].iter().find_map(|owner| structures.offset_if_known(owner, "_osthread"));
        Ok(Self {
            os_thread: os_thread.ok_or("VMStructs lack Thread::_osthread")?,
            thread_id: structures
                .offset("OSThread", "_thread_id")
                .map_err(|missing| format!("VMStructs lack {missing}"))?,
        })
    }
}

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
    // SAFETY: guaranteed by the caller; the names are NUL-terminated. Both calls leave a pending exception if they fail.
    let field = unsafe {
        let thread = ((**env).v1_1.FindClass)(env, c"java/lang/Thread".as_ptr());
        if thread.is_null() {
            std::ptr::null_mut()
        } else {
            let field = ((**env).v1_1.GetFieldID)(env, thread, c"eetop".as_ptr(), c"J".as_ptr());
            ((**env).v1_1.DeleteLocalRef)(env, thread);
            field
        }
    };
    if field.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { ((**env).v1_1.ExceptionClear)(env) };
        return Err("java.lang.Thread has no field `eetop`".to_owned());
    }
    EETOP.store(field as usize, Ordering::Release);
    jvmti.notify(JvmtiEvent::VmDeath, true)?;
    jvmti.notify(JvmtiEvent::DynamicCodeGenerated, true)?;
    jvmti.generate_events(JvmtiEvent::DynamicCodeGenerated)?;
    jvmti.notify(JvmtiEvent::ThreadEnd, true)?;
    jvmti.notify(JvmtiEvent::ThreadStart, true)?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        jvmti.each_thread(env, |thread| {
            let java_thread = java_thread(env, thread);
            let os_thread = java_thread.and_then(|address| pointer(address + offsets.os_thread));
            let thread_id = os_thread.and_then(|address| int(address + offsets.thread_id)).filter(|id| *id > 0);
            if let (Some(java_thread), Some(thread_id)) = (java_thread, thread_id) {
                registry::register(thread_id as u32, java_thread);
                // The `ThreadEnd` event of a thread that has ended meanwhile came before its registration.
                if self::java_thread(env, thread).is_none() {
                    registry::unregister(thread_id as u32);
                }
            }
        })
    }
}

/// Address of a platform thread's JavaThread; `None` before it runs, after it has ended, and for virtual threads.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `thread` a reference of it to a thread.
unsafe fn java_thread(env: *mut JNIEnv, thread: jobject) -> Option<usize> {
    let field = EETOP.load(Ordering::Acquire) as jfieldID;
    if field.is_null() || thread.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller; the field belongs to `java.lang.Thread`.
    let address = unsafe { ((**env).v1_1.GetLongField)(env, thread, field) } as usize;
    (address != 0).then_some(address)
}

/// `ThreadStart`, on the new thread.
unsafe extern "system" fn on_start(_: *mut Environment, env: *mut JNIEnv, thread: jobject) {
    ffi_guard((), || {
        // SAFETY: the VM passes the new thread's environment and a reference to it.
        let java_thread = unsafe { java_thread(env, thread) };
        if let Some(row) = registry::register(spanprof_os::thread_id(), java_thread.unwrap_or(0)) {
            allocations::thread_starts(row);
        }
        if let Some(profiler) = ProfilerHandle::running() {
            profiler.register_current_thread();
        }
        // SAFETY: the VM passes the new thread's environment; a thread may run Java in its `ThreadStart` event.
        unsafe { inherited::begin(env) };
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
