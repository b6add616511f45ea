//! One instance of this library per process. Each class loader that has the package brings a copy of the library's file,
//! which the linker takes for another library; the first of them tells where its native methods are, in a property of the
//! VM, and the classes of the later ones are given those. A copy of another version stays by itself: the core then lets
//! one of the two profile. Normal threads only.

use std::ffi::{c_void, CStr, CString};

use jni::sys::{jobject, jvalue, JNIEnv, JNINativeMethod, JNI_OK};
use spanprof::sys;

use super::memory_signal::word;
use crate::natives::NativeMethod;

const PROPERTY: &CStr = c"io.spanprof.instance";
const CLASS: &CStr = c"io/spanprof/Native";

/// Where a copy's native methods are: a number that stands for the list, then their addresses in its order.
fn table_of(natives: &[NativeMethod]) -> Vec<u64> {
    let mut number = 0xcbf2_9ce4_8422_2325u64;
    let texts = natives.iter().flat_map(|native| [native.name.to_bytes(), native.signature.to_bytes()]);
    for byte in texts.chain([env!("CARGO_PKG_VERSION").as_bytes()]).flatten() {
        number = (number ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    std::iter::once(number).chain(natives.iter().map(|native| native.function as u64)).collect()
}

/// The addresses of the instance that `told` tells of; `None` when it is of another process or another version.
fn joined(told: &str, own: &[u64]) -> Option<Vec<usize>> {
    let (process, address) = told.split_once(' ')?;
    let address = usize::from_str_radix(address, 16).ok()?;
    if process.parse() != Ok(std::process::id()) || word(address)? as u64 != *own.first()? {
        return None;
    }
    (1..own.len()).map(|index| word(address + index * 8)).collect()
}

/// Gives the package's class, as the calling class loader sees it, the native methods of the process's first instance, which
/// may be this one.
///
/// # Safety
/// `env` is the calling thread's.
pub unsafe fn share(env: *mut JNIEnv, natives: &[NativeMethod]) {
    let own = table_of(natives);
    // SAFETY: the caller's promise. The frame takes every reference made in here away again.
    unsafe {
        if ((**env).v1_2.PushLocalFrame)(env, 16) != JNI_OK {
            ((**env).v1_1.ExceptionClear)(env);
            return;
        }
        let there = first_instance(env, &own);
        if let Some(addresses) = there.and_then(|told| joined(&told, &own)) {
            register(env, natives, &addresses);
        }
        ((**env).v1_1.ExceptionClear)(env);
        ((**env).v1_2.PopLocalFrame)(env, std::ptr::null_mut());
    }
}

/// What the first instance told; `None` when that is this one, now or before.
///
/// # Safety
/// `env` is the calling thread's, with room for some references.
unsafe fn first_instance(env: *mut JNIEnv, own: &[u64]) -> Option<String> {
    let leaked: &'static [u64] = Vec::leak(own.to_vec());
    let told = CString::new(format!("{} {:x}", std::process::id(), leaked.as_ptr() as usize)).ok()?;
    // SAFETY: the caller's promise; names and signatures are those of the JDK and end in NUL. What fails leaves an exception
    // behind, and nothing is called while there is one.
    unsafe {
        let system = non_null(((**env).v1_1.FindClass)(env, c"java/lang/System".as_ptr()))?;
        let get = non_null(((**env).v1_1.GetStaticMethodID)(
            env,
            system,
            c"getProperties".as_ptr(),
            c"()Ljava/util/Properties;".as_ptr(),
        ))?;
        let properties = ((**env).v1_1.CallStaticObjectMethodA)(env, system, get, std::ptr::null());
        let properties = unless_thrown(env, properties)?;
        let class = non_null(((**env).v1_1.FindClass)(env, c"java/util/Properties".as_ptr()))?;
        let pair = c"(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;";
        let keep = non_null(((**env).v1_1.GetMethodID)(env, class, c"putIfAbsent".as_ptr(), pair.as_ptr()))?;
        let put = non_null(((**env).v1_1.GetMethodID)(env, class, c"put".as_ptr(), pair.as_ptr()))?;
        let key = non_null(((**env).v1_1.NewStringUTF)(env, PROPERTY.as_ptr()))?;
        let value = non_null(((**env).v1_1.NewStringUTF)(env, told.as_ptr()))?;
        let entry = [jvalue { l: key }, jvalue { l: value }];
        let before = ((**env).v1_1.CallObjectMethodA)(env, properties, keep, entry.as_ptr());
        let first = unless_thrown(env, before).and_then(|before| text(env, before));
        if first.as_deref().and_then(|first| joined(first, own)).is_some() {
            return first;
        }
        // Classes of other loaders will call into this copy, whatever becomes of the loader that brought it.
        sys::pin_library();
        if !before.is_null() {
            // Left over from another process, whose properties this one was started with; or of another version.
            let replaced = ((**env).v1_1.CallObjectMethodA)(env, properties, put, entry.as_ptr());
            unless_thrown(env, replaced);
        }
        None
    }
}

/// # Safety
/// `env` is the calling thread's, `string` a reference of it to a string.
unsafe fn text(env: *mut JNIEnv, string: jobject) -> Option<String> {
    // SAFETY: the caller's promise; the VM gives a text that ends in NUL, and takes it back.
    unsafe {
        let letters = ((**env).v1_1.GetStringUTFChars)(env, string, std::ptr::null_mut());
        if letters.is_null() {
            return None;
        }
        let owned = CStr::from_ptr(letters).to_string_lossy().into_owned();
        ((**env).v1_1.ReleaseStringUTFChars)(env, string, letters);
        Some(owned)
    }
}

/// # Safety
/// `env` is the calling thread's; `addresses` are native methods of these names, of code that stays.
unsafe fn register(env: *mut JNIEnv, natives: &[NativeMethod], addresses: &[usize]) {
    let methods: Vec<JNINativeMethod> = natives
        .iter()
        .zip(addresses)
        .map(|(native, address)| JNINativeMethod {
            name: native.name.as_ptr().cast_mut(),
            signature: native.signature.as_ptr().cast_mut(),
            fnPtr: *address as *mut c_void,
        })
        .collect();
    // SAFETY: the caller's promise; the class is looked up as the caller's class loader sees it.
    unsafe {
        let class = ((**env).v1_1.FindClass)(env, CLASS.as_ptr());
        if !class.is_null() {
            ((**env).v1_1.RegisterNatives)(env, class, methods.as_ptr(), methods.len() as i32);
        }
    }
}

/// What a method of Java returned; `None` when it threw, or returned null. `-Xcheck:jni` reports calls without this check.
///
/// # Safety
/// `env` is the calling thread's.
unsafe fn unless_thrown(env: *mut JNIEnv, returned: jobject) -> Option<jobject> {
    // SAFETY: the caller's promise.
    let has_thrown = unsafe { ((**env).v1_2.ExceptionCheck)(env) };
    non_null(returned).filter(|_| !has_thrown)
}

fn non_null<T>(pointer: *mut T) -> Option<*mut T> {
    (!pointer.is_null()).then_some(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn natives(functions: [usize; 2]) -> Vec<NativeMethod> {
        [c"a", c"b"]
            .into_iter()
            .zip(functions)
            .map(|(name, function)| NativeMethod { name, signature: c"()V", function })
            .collect()
    }

    #[test]
    fn a_copy_joins_the_instance_of_its_own_process_and_version() {
        let (first, second) = (table_of(&natives([10, 20])), table_of(&natives([30, 40])));
        let told = |process: u32, table: &[u64]| format!("{process} {:x}", table.as_ptr() as usize);
        assert_eq!(joined(&told(std::process::id(), &first), &second), Some(vec![10, 20]));
        assert_eq!(joined(&told(std::process::id() + 1, &first), &second), None, "another process");
        let mut other = first.clone();
        other[0] += 1;
        assert_eq!(joined(&told(std::process::id(), &other), &second), None, "another version");
        assert_eq!(joined("", &second), None);
        assert_eq!(joined(&format!("{} 8", std::process::id()), &second), None, "nothing lies there");
    }
}
