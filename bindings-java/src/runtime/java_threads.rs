//! Java threads on their way into the table of threads and out of it: those that live when we begin, and the VM's events
//! from then on. Normal threads only.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};

use jni::sys::{jfieldID, jobject, JNIEnv};
use spanprof::{sys, Profiler};

use super::jvmti::{Callbacks, Environment, Event, Jvmti};
use super::memory_signal::{int, pointer};
use super::structures::Structures;
use super::{inherited, method_ids, stub_names, threads_signal, virtual_threads};

/// The field of `java.lang.Thread` in which the VM keeps its own structure of the thread; 0 while there is none.
static EETOP: AtomicUsize = AtomicUsize::new(0);

/// Where the kernel's id of a thread lies: from the VM's structure of the thread, and from what that points to.
#[derive(Clone, Copy, Debug)]
pub struct ThreadPlaces {
    os_thread: usize,
    thread_id: usize,
}

impl ThreadPlaces {
    /// Every HotSpot tells of these.
    pub fn of(structures: &Structures) -> Result<Self, String> {
        let os_thread =
            ["JavaThread", "Thread"].iter().find_map(|owner| structures.offset_if_known(owner, "_osthread"));
        Ok(Self {
            os_thread: os_thread.ok_or("it does not tell of Thread::_osthread")?,
            thread_id: structures
                .offset("OSThread", "_thread_id")
                .map_err(|what| format!("it does not tell of {what}"))?,
        })
    }
}

/// What the VM shall call; with classes where their methods need ids.
pub fn callbacks(with_classes: bool) -> Callbacks {
    let mut callbacks = Callbacks::none();
    callbacks.on_thread(Event::ThreadStart, on_start);
    callbacks.on_thread(Event::ThreadEnd, on_end);
    callbacks.on_thread(Event::VirtualThreadStart, inherited::on_virtual_start);
    callbacks.on_thread(Event::VirtualThreadEnd, virtual_threads::on_end);
    callbacks.on_code(stub_names::on_code);
    callbacks.on_end(on_vm_death);
    if with_classes {
        callbacks.on_class(Event::ClassLoad, method_ids::on_load);
        callbacks.on_class(Event::ClassPrepare, method_ids::on_prepare);
    }
    callbacks
}

/// Takes the events, then every thread that lives already.
///
/// # Safety
/// `env` is the calling thread's.
pub unsafe fn begin(jvmti: Jvmti, env: *mut JNIEnv, places: ThreadPlaces) -> Result<(), String> {
    // SAFETY: the caller's promise; the names end in NUL. Both calls leave an exception behind when they fail.
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
        // SAFETY: the caller's promise.
        unsafe { ((**env).v1_1.ExceptionClear)(env) };
        return Err("java.lang.Thread has no field `eetop`".to_owned());
    }
    EETOP.store(field as usize, Ordering::Release);
    jvmti.notify(Event::VmDeath, true)?;
    jvmti.notify(Event::DynamicCodeGenerated, true)?;
    jvmti.tell_again(Event::DynamicCodeGenerated)?;
    jvmti.notify(Event::ThreadEnd, true)?;
    jvmti.notify(Event::ThreadStart, true)?;
    // SAFETY: the caller's promise.
    unsafe {
        jvmti.each_thread(env, |thread| {
            let java_thread = java_thread(env, thread);
            let os_thread = java_thread.and_then(|it| pointer(it + places.os_thread));
            let thread_id = os_thread.and_then(|it| int(it + places.thread_id)).filter(|id| *id > 0);
            if let (Some(java_thread_address), Some(thread_id)) = (java_thread, thread_id) {
                threads_signal::enrol(thread_id as u32, java_thread_address);
                // One that ended meanwhile has told so before it was enrolled.
                if self::java_thread(env, thread).is_none() {
                    threads_signal::leave(thread_id as u32);
                }
            }
        })
    }
}

/// The VM's structure of a platform thread; `None` before it runs, after it ended, and for virtual threads.
///
/// # Safety
/// `env` is the calling thread's, `thread` a reference of it to a thread.
unsafe fn java_thread(env: *mut JNIEnv, thread: jobject) -> Option<usize> {
    let field = EETOP.load(Ordering::Acquire) as jfieldID;
    if field.is_null() || thread.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the field was found in the class of all threads.
    let address = unsafe { ((**env).v1_1.GetLongField)(env, thread, field) } as usize;
    (address != 0).then_some(address)
}

/// Each thread's first words.
unsafe extern "system" fn on_start(_: *mut Environment, env: *mut JNIEnv, thread: jobject) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the VM passes the new thread's environment and a reference to it.
        let java_thread = unsafe { java_thread(env, thread) };
        threads_signal::enrol(sys::thread_id(), java_thread.unwrap_or(0));
        if let Some(profiler) = Profiler::running() {
            profiler.register_current_thread();
        }
        // SAFETY: the same environment; a thread that tells of its start may run Java.
        unsafe { inherited::begin(env) };
    }));
}

/// Each thread's last words.
unsafe extern "system" fn on_end(_: *mut Environment, _: *mut JNIEnv, _: jobject) {
    let _ = catch_unwind(|| threads_signal::leave(sys::thread_id()));
}

/// The VM's last words; its threads run on for a moment.
unsafe extern "system" fn on_vm_death(_: *mut Environment, _: *mut JNIEnv) {
    super::vm_ends();
}

/// The scope words of the calling platform thread, where Java writes.
pub fn own_scope() -> Option<usize> {
    threads_signal::enrol(sys::thread_id(), 0).map(|row| row.scope.address())
}
