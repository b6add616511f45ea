//! Writes static final fields, which reflection does not, with JNI. Only fields that the program has just created may be
//! written: compiled code can contain the value of such a field.

use jni::sys::{jclass, jobject, JNIEnv};

/// Sets a static field of object type.
///
/// # Safety
/// `env` is the environment of the calling thread, in a native method; `field` is a `java.lang.reflect.Field` of `holder`, static and
/// of the type of `value`.
pub unsafe fn set(env: *mut JNIEnv, holder: jclass, field: jobject, value: jobject) {
    // SAFETY: the caller's contract.
    unsafe {
        let id = ((**env).v1_2.FromReflectedField)(env, field);
        if !id.is_null() {
            ((**env).v1_2.SetStaticObjectField)(env, holder, id, value);
        }
    }
}
