//! The VM that loaded the library, and the profiler's JVMTI environment in it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::OnceLock;

use jni::sys::JavaVM;

use super::{Callbacks, Jvmti};

static VM: AtomicPtr<JavaVM> = AtomicPtr::new(std::ptr::null_mut());
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// The callbacks of the environment when it is created.
static CALLBACKS: OnceLock<fn() -> Callbacks> = OnceLock::new();

/// Stores the VM that loaded the library, and the callbacks of the JVMTI environment that [`jvmti`] creates.
pub fn set(vm: *mut JavaVM, callbacks: fn() -> Callbacks) {
    CALLBACKS.get_or_init(|| callbacks);
    VM.store(vm, Ordering::Release);
}

/// The VM; null before the library is loaded by one.
pub fn pointer() -> *mut JavaVM {
    VM.load(Ordering::Acquire)
}

/// `VMDeath`: no function of the VM is called after this.
pub fn end() {
    HAS_ENDED.store(true, Ordering::Release);
}

pub fn has_ended() -> bool {
    HAS_ENDED.load(Ordering::Acquire)
}

/// The profiler's JVMTI environment: one per process; `None` if the VM has no JVMTI.
pub fn jvmti() -> Option<Jvmti> {
    static JVMTI: OnceLock<Jvmti> = OnceLock::new();
    if let Some(jvmti) = JVMTI.get() {
        return Some(*jvmti);
    }
    let vm = pointer();
    if vm.is_null() {
        return None;
    }
    // SAFETY: the VM that loaded the library runs. If two threads race, one environment stays unused.
    let created = unsafe { Jvmti::of(vm) }.ok()?;
    created.set_callbacks(&CALLBACKS.get()?()).ok()?;
    Some(*JVMTI.get_or_init(|| created))
}

/// A system property of the VM.
pub fn property(name: &CStr) -> Option<String> {
    jvmti()?.property(name)
}
