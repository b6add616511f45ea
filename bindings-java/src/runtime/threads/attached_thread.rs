//! Attaches threads of the profiler to the VM, so that they can call JNI and JVMTI. A thread detaches itself when it ends.
//! Not for signal handlers.

use std::cell::Cell;
use std::ffi::c_void;

use jni::sys::{JNIEnv, JavaVMAttachArgs, JNI_OK, JNI_VERSION_1_8};

use super::registry;
use crate::runtime::jvmti::this_vm;

struct Attachment(Cell<bool>);

impl Drop for Attachment {
    fn drop(&mut self) {
        let vm = this_vm::pointer();
        if self.0.get() && !vm.is_null() && !this_vm::has_ended() {
            // SAFETY: this thread attached itself, and no Java frame is on its stack.
            let _ = unsafe { ((**vm).v1_1.DetachCurrentThread)(vm) };
        }
    }
}

thread_local! {
    static ATTACHMENT: Attachment = const { Attachment(Cell::new(false)) };
}

/// The calling thread's JNI environment; `None` after `VMDeath`. An unknown thread is attached as a daemon, which the VM's
/// end does not wait for.
pub fn environment() -> Option<*mut JNIEnv> {
    let vm = this_vm::pointer();
    if vm.is_null() || this_vm::has_ended() {
        return None;
    }
    let mut env: *mut c_void = std::ptr::null_mut();
    // SAFETY: the VM's function table lives as long as the VM; the call writes one pointer to a local.
    if unsafe { ((**vm).v1_2.GetEnv)(vm, &mut env, JNI_VERSION_1_8) } == JNI_OK {
        return Some(env.cast());
    }
    let mut arguments = JavaVMAttachArgs {
        version: JNI_VERSION_1_8,
        name: c"spanprof-names".as_ptr().cast_mut(),
        group: std::ptr::null_mut(),
    };
    let passed = std::ptr::from_mut(&mut arguments).cast();
    // SAFETY: the VM's function table lives as long as the VM; the VM only reads the arguments, whose name is NUL-terminated.
    if unsafe { ((**vm).v1_4.AttachCurrentThreadAsDaemon)(vm, &mut env, passed) } != JNI_OK {
        return None;
    }
    ATTACHMENT.with(|attachment| attachment.0.set(true));
    registry::exclude(spanprof_os::thread_id());
    Some(env.cast())
}
