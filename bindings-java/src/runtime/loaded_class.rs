//! Whether the boot loader has loaded a class, without loading it: `JVM_FindLoadedClass` of the VM's library
//! (`hotspot/share/prims/jvm.cpp`, JDK 8 to 25), which is the native part of `ClassLoader.findLoadedClass`.

use jni::sys::{jclass, jobject, jstring, JNIEnv};

use super::vm::structs::VmLibrary;

type FindLoadedClass = unsafe extern "system" fn(*mut JNIEnv, jobject, jstring) -> jclass;

/// True also where the VM does not export the function.
///
/// # Safety
/// `env` is the environment of the calling thread, in a native method; `name` is a string.
pub unsafe fn is_loaded(env: *mut JNIEnv, name: jstring) -> bool {
    // SAFETY: the VM's function table lives as long as the VM.
    let address_in_vm = unsafe { (**env).v1_2.GetVersion } as usize;
    let Some(found) = VmLibrary::of(address_in_vm).and_then(|library| library.symbol("JVM_FindLoadedClass")) else {
        return true;
    };
    // SAFETY: the VM exports a function of this type under this name.
    let find: FindLoadedClass = unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's contract; null is the boot loader.
    unsafe { !find(env, std::ptr::null_mut(), name).is_null() }
}
