//! Waits in `LockSupport.park` for contended locks. JVMTI has no event for them. Not for signal handlers. Not here: which
//! waits are for locks (`java_locks`).
//!
//! - **Thread on its carrier, or platform thread:** the JDK's native method `Unsafe.park` is registered again, as [`park`],
//!   which calls the VM's function. It stays registered: while waits are not reported, it only calls on. Each
//!   registration leaks the compiled stub of the former one (JDK-8369219).
//! - **Virtual thread that leaves its carrier:** the wait is the time between its unmount and its mount.
//!
//! The VM's function is the word after the `Method` (`Method::native_function_addr`, `hotspot/share/oops/method.hpp`, JDK 8
//! to 25), and a method id is the address of a `Method*` (JDK 8 to 25). The word is used only if it lies in a loaded library.
//!
//! Stack, class and context are captured before the wait: afterwards the walk would add to the waits of all others. A stored wait
//! belongs to `Thread.tid`, since the events of a virtual thread come on different carriers. Not the flight recorder (no
//! contention filter, no labels, starts in 400 to 1,100 ms), and no changed bytecode of `LockSupport` (discards compiled code of
//! every lock). Registered by a class of the boot class loader, else JDK 17 and 21 print a warning. The total delay is 1.0014
//! times the program's own measurement.

use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};

use jni::sys::{jboolean, jclass, jlong, jobject, JNIEnv};
use spanprof_profiler::binding::{ffi_guard, WaitStart};

use super::java_locks::JavaLocks;
use super::lock_waits::{self, PendingLockWait, WaitKind};
use crate::runtime::jvmti::{boot_class, this_vm};
use crate::runtime::threads::attached_thread;
use crate::runtime::vm::memory::{pointer, word};
use crate::runtime::vm::structs::{VmLibrary, VmStructs};

type Park = unsafe extern "system" fn(*mut JNIEnv, jobject, jboolean, jlong);

/// The class with the native method `park`: of Java 9 and later, of Java 8.
const UNSAFE: [&CStr; 2] = [c"jdk/internal/misc/Unsafe", c"sun/misc/Unsafe"];

static METHOD_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The VM's function; 0 before it is known.
static VM_FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Reads the size of a `Method`, behind which its native function is.
pub fn find_method_size(structures: &VmStructs) {
    METHOD_BYTES.store(structures.size("Method").unwrap_or(0), Ordering::Relaxed);
}

/// Looks up the classes of locks and registers [`park`], once.
pub fn install() -> Result<(), String> {
    if VM_FUNCTION.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    let env = attached_thread::environment().ok_or("the VM has ended")?;
    // SAFETY: the environment of this thread; `register` is a native method without arguments.
    unsafe {
        JavaLocks::find(env)?;
        boot_class::call(env, register as *mut c_void)?;
    }
    match VM_FUNCTION.load(Ordering::Acquire) {
        0 => Err("the VM's function of Unsafe.park was not found".to_owned()),
        _ => Ok(()),
    }
}

/// Registers [`park`]; without effect if the VM's function is not found.
unsafe extern "system" fn register(env: *mut JNIEnv, _: jclass) {
    ffi_guard(None, || {
        // Another thread was first.
        if VM_FUNCTION.load(Ordering::Acquire) != 0 {
            return None;
        }
        // SAFETY: the VM passes this thread's environment; names are NUL-terminated. Failed calls leave a pending exception,
        // which is cleared.
        unsafe {
            let mut class: jclass = std::ptr::null_mut();
            for name in UNSAFE {
                if class.is_null() {
                    class = ((**env).v1_1.FindClass)(env, name.as_ptr());
                    ((**env).v1_1.ExceptionClear)(env);
                }
            }
            if class.is_null() {
                return None;
            }
            let id = ((**env).v1_1.GetMethodID)(env, class, c"park".as_ptr(), c"(ZJ)V".as_ptr());
            ((**env).v1_1.ExceptionClear)(env);
            VM_FUNCTION.store(native_function(id as usize)?, Ordering::Release);
            if !boot_class::register_native(env, class, c"park", c"(ZJ)V", park as *mut c_void) {
                ((**env).v1_1.ExceptionClear)(env);
                VM_FUNCTION.store(0, Ordering::Release);
            }
        }
        Some(())
    });
}

/// The native function of the method with this id.
fn native_function(id: usize) -> Option<usize> {
    let method_bytes = METHOD_BYTES.load(Ordering::Relaxed);
    let function = word(pointer(id).filter(|_| method_bytes != 0)?.checked_add(method_bytes)?)?;
    VmLibrary::of(function).map(|_| function)
}

/// The JDK's `Unsafe.park`.
unsafe extern "system" fn park(env: *mut JNIEnv, receiver: jobject, is_absolute: jboolean, time: jlong) {
    // SAFETY: the VM passes this thread's environment.
    let wait = WaitStart::now().and_then(|start| ffi_guard(None, || unsafe { begin(env, start) }));
    // SAFETY: the VM's function of this native method, read before this one was registered.
    let in_vm: Park = unsafe { std::mem::transmute(VM_FUNCTION.load(Ordering::Acquire)) };
    // SAFETY: the arguments are those of the VM.
    unsafe { in_vm(env, receiver, is_absolute, time) };
    if let Some(wait) = wait {
        ffi_guard((), || wait.end());
    }
}

/// # Safety
/// `env` is the calling thread's JNI environment.
unsafe fn begin(env: *mut JNIEnv, start: WaitStart) -> Option<PendingLockWait> {
    let locks = JavaLocks::found()?;
    let row = lock_waits::waiting_row().filter(|_| !this_vm::has_ended())?;
    let jvmti = this_vm::jvmti()?;
    // SAFETY: guaranteed by the caller; the reference is deleted after its last use.
    unsafe {
        let thread = jvmti.current_thread()?;
        let class = locks.parked_for(jvmti, env, thread);
        ((**env).v1_1.DeleteLocalRef)(env, thread);
        Some(PendingLockWait::begin(jvmti, row, class?, start))
    }
}

/// A virtual thread is about to leave its carrier, or tries to.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `thread` a live reference to the virtual thread.
pub unsafe fn unmounts(env: *mut JNIEnv, thread: jobject) -> Option<()> {
    let (start, locks, jvmti) = (WaitStart::now()?, JavaLocks::found()?, this_vm::jvmti()?);
    let row = lock_waits::waiting_row()?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let class = locks.parked_for(jvmti, env, thread)?;
        let state = locks.virtual_state(env, thread);
        let wait = PendingLockWait::begin(jvmti, row, class, start).of_virtual_thread(state);
        wait.store(locks.thread_number(env, thread), WaitKind::Unmounted);
    }
    Some(())
}

/// A virtual thread continues. If its state has not changed, it did not leave its carrier and parks there instead.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `thread` a live reference to the virtual thread.
pub unsafe fn mounts(env: *mut JNIEnv, thread: jobject) -> Option<()> {
    if !lock_waits::any_is_stored() {
        return None;
    }
    let locks = JavaLocks::found()?;
    // SAFETY: guaranteed by the caller.
    let (number, state) = unsafe { (locks.thread_number(env, thread), locks.virtual_state(env, thread)) };
    let wait = PendingLockWait::take(number, WaitKind::Unmounted)?;
    if !wait.has_state(state) {
        wait.end();
    }
    Some(())
}
