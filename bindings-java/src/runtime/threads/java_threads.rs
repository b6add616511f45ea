//! Objects of `java.lang.Thread`: the address of the JavaThread, the kernel's thread id, and the name. Not for signal handlers.
//!
//! # Names
//! The kernel keeps 15 bytes of a name, and no time of a change. While samples carry names, each thread reports its own one when it
//! starts, and `Thread.setNativeName`, which `Thread.setName` calls, is registered again as [`set_native_name`], which calls
//! the VM's function. It stays registered. A thread that renames another one calls it up to JDK 20 (`Thread.java`); later, the
//! kernel's name does not change either, and the sampled one remains.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::OnceLock;

use jni::sys::{jclass, jfieldID, jobject, jstring, JNIEnv};
use spanprof_aggregate::thread_names::set_thread_name;
use spanprof_profiler::binding::ffi_guard;

use crate::runtime::jvmti::{boot_class, this_vm, Jvmti};
use crate::runtime::threads::attached_thread;
use crate::runtime::vm::memory::{int, pointer};
use crate::runtime::vm::structs::{VmLibrary, VmStructs};

type SetNativeName = unsafe extern "system" fn(*mut JNIEnv, jobject, jstring);

/// Characters of a name that are read.
const MAX_NAME: usize = 512;

static FIELDS: OnceLock<ThreadFields> = OnceLock::new();
/// The VM's function of `Thread.setNativeName`; 0 before it is replaced.
static VM_FUNCTION: AtomicUsize = AtomicUsize::new(0);
static ARE_NAMES_REPORTED: AtomicBool = AtomicBool::new(false);

/// Fields of `java.lang.Thread`, and offsets to the kernel's thread id.
struct ThreadFields {
    /// The address of the JavaThread.
    eetop: jfieldID,
    name: jfieldID,
    offsets: OsThreadOffsets,
}

// SAFETY: field ids may be used from any thread.
unsafe impl Send for ThreadFields {}
// SAFETY: field ids may be used by several threads at once.
unsafe impl Sync for ThreadFields {}

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

/// Looks up the fields, once.
///
/// # Safety
/// `env` is the calling thread's JNI environment, without a pending exception.
pub unsafe fn find(env: *mut JNIEnv, offsets: OsThreadOffsets) -> Result<(), String> {
    // SAFETY: guaranteed by the caller; the names are NUL-terminated. A failed call leaves a pending exception, after which no
    // function but `ExceptionClear` and `DeleteLocalRef` is called.
    unsafe {
        let thread = ((**env).v1_1.FindClass)(env, c"java/lang/Thread".as_ptr());
        let field = |name: &std::ffi::CStr, signature: &std::ffi::CStr| {
            if thread.is_null() {
                std::ptr::null_mut()
            } else {
                ((**env).v1_1.GetFieldID)(env, thread, name.as_ptr(), signature.as_ptr())
            }
        };
        let eetop = field(c"eetop", c"J");
        let name = if eetop.is_null() { eetop } else { field(c"name", c"Ljava/lang/String;") };
        ((**env).v1_1.ExceptionClear)(env);
        ((**env).v1_1.DeleteLocalRef)(env, thread);
        if eetop.is_null() || name.is_null() {
            return Err("java.lang.Thread has no field `eetop` or no field `name`".to_owned());
        }
        FIELDS.get_or_init(|| ThreadFields { eetop, name, offsets });
    }
    Ok(())
}

/// Address of a platform thread's JavaThread; `None` before it runs, after it has ended, and for virtual threads.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `thread` a reference of it to a thread.
pub unsafe fn java_thread(env: *mut JNIEnv, thread: jobject) -> Option<usize> {
    let fields = FIELDS.get().filter(|_| !thread.is_null())?;
    // SAFETY: guaranteed by the caller; the field belongs to `java.lang.Thread`.
    let address = unsafe { ((**env).v1_1.GetLongField)(env, thread, fields.eetop) } as usize;
    (address != 0).then_some(address)
}

/// The JavaThread of a platform thread, and its kernel thread id.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `thread` a reference of it to a thread.
pub unsafe fn java_thread_and_id(env: *mut JNIEnv, thread: jobject) -> Option<(usize, u32)> {
    let OsThreadOffsets { os_thread, thread_id } = FIELDS.get()?.offsets;
    // SAFETY: guaranteed by the caller.
    let java_thread = unsafe { java_thread(env, thread) }?;
    let thread_id = int(pointer(java_thread + os_thread)? + thread_id).filter(|id| *id > 0)?;
    Some((java_thread, thread_id as u32))
}

/// Reports the names of all threads, and from here on those of new and renamed ones; or no longer.
pub fn set_names_reported(jvmti: Jvmti, are_reported: bool) -> Result<(), String> {
    if !are_reported || ARE_NAMES_REPORTED.load(Ordering::Acquire) {
        ARE_NAMES_REPORTED.store(are_reported, Ordering::Release);
        return Ok(());
    }
    let env = attached_thread::environment().ok_or("the VM has ended")?;
    let outcome = match VM_FUNCTION.load(Ordering::Acquire) {
        // SAFETY: the environment of this thread; `register` is a native method without arguments.
        0 => unsafe { boot_class::call(env, register as *mut c_void) },
        _ => Ok(()),
    };
    ARE_NAMES_REPORTED.store(true, Ordering::Release);
    // SAFETY: the environment of this thread; the references live while they are visited.
    unsafe { jvmti.each_thread(env, |thread| report_name(env, thread)) }?;
    outcome
}

/// Reports the name of a platform thread, if names are reported.
///
/// # Safety
/// `env` is the calling thread's JNI environment, without a pending exception, `thread` a reference of it to a thread.
pub unsafe fn report_name(env: *mut JNIEnv, thread: jobject) {
    let Some(fields) = FIELDS.get().filter(|_| ARE_NAMES_REPORTED.load(Ordering::Acquire)) else { return };
    // SAFETY: guaranteed by the caller; the field belongs to `java.lang.Thread`. The region is within the string, and the
    // reference is deleted after its last use.
    unsafe {
        let Some((_, thread_id)) = java_thread_and_id(env, thread) else { return };
        let name = ((**env).v1_1.GetObjectField)(env, thread, fields.name);
        if name.is_null() {
            return;
        }
        let mut characters = [0u16; MAX_NAME];
        let length = ((**env).v1_1.GetStringLength)(env, name).clamp(0, MAX_NAME as i32);
        ((**env).v1_2.GetStringRegion)(env, name, 0, length, characters.as_mut_ptr());
        ((**env).v1_1.DeleteLocalRef)(env, name);
        let name = String::from_utf16_lossy(characters.get(..length as usize).unwrap_or(&[]));
        set_thread_name(thread_id, spanprof_os::monotonic_ns(), &name);
    }
}

/// Registers [`set_native_name`]; without effect if the VM's function is not found.
unsafe extern "system" fn register(env: *mut JNIEnv, _: jclass) {
    ffi_guard(None, || {
        // SAFETY: the VM passes this thread's environment; its function table lives as long as the VM.
        let library = VmLibrary::of(unsafe { (**env).v1_1.GetVersion } as usize)?;
        VM_FUNCTION.store(library.symbol("JVM_SetNativeThreadName")?, Ordering::Release);
        // SAFETY: the VM passes this thread's environment; names are NUL-terminated. Failed calls leave a pending exception,
        // which is cleared.
        unsafe {
            let class = ((**env).v1_1.FindClass)(env, c"java/lang/Thread".as_ptr());
            let (name, signature) = (c"setNativeName", c"(Ljava/lang/String;)V");
            if class.is_null()
                || !boot_class::register_native(env, class, name, signature, set_native_name as *mut c_void)
            {
                ((**env).v1_1.ExceptionClear)(env);
            }
        }
        Some(())
    });
}

/// The JDK's `Thread.setNativeName`.
unsafe extern "system" fn set_native_name(env: *mut JNIEnv, thread: jobject, name: jstring) {
    // SAFETY: the VM exports a function of this type under this name; it was found before this one was registered.
    let in_vm: SetNativeName = unsafe { std::mem::transmute(VM_FUNCTION.load(Ordering::Acquire)) };
    // SAFETY: the arguments are those of the VM.
    unsafe { in_vm(env, thread, name) };
    if ARE_NAMES_REPORTED.load(Ordering::Acquire) && !this_vm::has_ended() {
        // SAFETY: the VM passes this thread's environment and a reference to the thread.
        ffi_guard((), || unsafe { report_name(env, thread) });
    }
}
