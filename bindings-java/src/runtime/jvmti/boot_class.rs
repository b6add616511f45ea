//! Replaces native methods of the JDK, from a method of the boot class loader: the VM prints a warning if the caller of
//! `RegisterNatives` and the class with the native method have different class loaders (`jni_RegisterNatives`,
//! `hotspot/share/prims/jni.cpp`, JDK 17 to 25). Not for signal handlers.

use std::ffi::{c_void, CStr};
use std::sync::{Mutex, PoisonError};

use jni::sys::{jclass, JNIEnv, JNINativeMethod, JNI_OK};

/// A class with the native method `register`, and the method `call`, which calls it.
const CLASS: &CStr = c"io/spanprof/vm/NativeRegistration";
const REGISTER: &CStr = c"register";
const CALL: &CStr = c"call";

/// Calls `register(env, class)` from a method of the boot class loader. One call at a time.
///
/// # Safety
/// `env` is the calling thread's JNI environment, without a pending exception; `register` is a native method without arguments.
pub unsafe fn call(env: *mut JNIEnv, register: *mut c_void) -> Result<(), String> {
    static LOCK: Mutex<()> = Mutex::new(());
    let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: guaranteed by the caller. The local frame deletes all references created here.
    unsafe {
        if ((**env).v1_2.PushLocalFrame)(env, 16) != JNI_OK {
            ((**env).v1_1.ExceptionClear)(env);
            return Err("the VM has no memory".to_owned());
        }
        let outcome = call_in_frame(env, register);
        ((**env).v1_1.ExceptionClear)(env);
        ((**env).v1_2.PopLocalFrame)(env, std::ptr::null_mut());
        outcome
    }
}

/// # Safety
/// The contract of [`call`], with a local frame.
unsafe fn call_in_frame(env: *mut JNIEnv, register: *mut c_void) -> Result<(), String> {
    let bytes = class_file();
    // SAFETY: guaranteed by the caller; names and signatures are NUL-terminated. Failed calls leave a pending exception, and
    // no function is called while one is pending.
    unsafe {
        let mut class = ((**env).v1_1.FindClass)(env, CLASS.as_ptr());
        if class.is_null() {
            ((**env).v1_1.ExceptionClear)(env);
            let (data, length) = (bytes.as_ptr().cast(), bytes.len() as i32);
            class = ((**env).v1_1.DefineClass)(env, CLASS.as_ptr(), std::ptr::null_mut(), data, length);
        }
        if class.is_null() || !register_native(env, class, REGISTER, c"()V", register) {
            return Err("a class of the boot class loader could not be defined".to_owned());
        }
        let call = ((**env).v1_1.GetStaticMethodID)(env, class, CALL.as_ptr(), c"()V".as_ptr());
        if call.is_null() {
            return Err("the class that registers native methods is another one".to_owned());
        }
        ((**env).v1_1.CallStaticVoidMethodA)(env, class, call, std::ptr::null());
    }
    Ok(())
}

/// The class in the format of JVMS 4, version 52.
fn class_file() -> Vec<u8> {
    let mut bytes = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 52, 0, 11];
    let text = |bytes: &mut Vec<u8>, text: &CStr| {
        let text = text.to_bytes();
        bytes.extend([1, 0, text.len() as u8]);
        bytes.extend_from_slice(text);
    };
    text(&mut bytes, CLASS); // 1
    bytes.extend([7, 0, 1]); // 2: class
    text(&mut bytes, c"java/lang/Object"); // 3
    bytes.extend([7, 0, 3]); // 4: class
    text(&mut bytes, REGISTER); // 5
    text(&mut bytes, c"()V"); // 6
    bytes.extend([12, 0, 5, 0, 6]); // 7: name and type
    bytes.extend([10, 0, 2, 0, 7]); // 8: method
    text(&mut bytes, CALL); // 9
    text(&mut bytes, c"Code"); // 10
                               // final; class 2, superclass 4; no interfaces, no fields; two methods.
    bytes.extend([0, 0x30, 0, 2, 0, 4, 0, 0, 0, 0, 0, 2]);
    // static native void register()
    bytes.extend([0x01, 0x08, 0, 5, 0, 6, 0, 0]);
    // static void call(), whose code has no stack and no locals: invokestatic 8; return.
    bytes.extend([0, 0x08, 0, 9, 0, 6, 0, 1, 0, 10, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0xb8, 0, 8, 0xb1, 0, 0, 0, 0]);
    // No attributes of the class.
    bytes.extend([0, 0]);
    bytes
}

/// Registers one native method.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `class` a live reference, `function` has this signature.
pub unsafe fn register_native(
    env: *mut JNIEnv,
    class: jclass,
    name: &CStr,
    signature: &CStr,
    function: *mut c_void,
) -> bool {
    let (name, signature) = (name.as_ptr().cast_mut(), signature.as_ptr().cast_mut());
    let method = JNINativeMethod { name, signature, fnPtr: function };
    // SAFETY: guaranteed by the caller.
    unsafe { ((**env).v1_1.RegisterNatives)(env, class, &method, 1) == JNI_OK }
}
