//! One instance of this library per process. Each class loader with the package loads its own copy of the library file,
//! which the dynamic linker treats as a different library. The first copy publishes the addresses of its native methods in
//! a system property. Later copies register these addresses for their classes. A copy of another version is independent:
//! the core then lets only one of the two profile. Not for signal handlers.

use std::ffi::{c_void, CStr, CString};

use jni::sys::{jobject, jvalue, JNIEnv, JNINativeMethod, JNI_OK};

use super::vm::memory::word;

const PROPERTY: &CStr = c"io.spanprof.instance";
const CLASS: &CStr = c"io/spanprof/Native";

/// A native method of the package: its registration in a class, and its function.
pub struct NativeMethod {
    pub name: &'static CStr,
    pub signature: &'static CStr,
    pub function: usize,
}

/// A hash of the version and the native methods' signatures, then the addresses of the methods in order.
fn table_of(natives: &[NativeMethod]) -> Vec<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let texts = natives.iter().flat_map(|native| [native.name.to_bytes(), native.signature.to_bytes()]);
    for byte in texts.chain([env!("CARGO_PKG_VERSION").as_bytes()]).flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    std::iter::once(hash).chain(natives.iter().map(|native| native.function as u64)).collect()
}

/// The addresses of the instance that `published` describes; `None` if it belongs to another process or version.
fn addresses_of(published: &str, own: &[u64]) -> Option<Vec<usize>> {
    let (process, address) = published.split_once(' ')?;
    let address = usize::from_str_radix(address, 16).ok()?;
    if process.parse() != Ok(std::process::id()) || word(address)? as u64 != *own.first()? {
        return None;
    }
    (1..own.len()).map(|index| word(address + index * 8)).collect()
}

/// Registers the native methods of the process's first instance, which may be this one, for the package's class as seen by
/// the calling class loader.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
pub unsafe fn share(env: *mut JNIEnv, natives: &[NativeMethod]) {
    let own = table_of(natives);
    // SAFETY: guaranteed by the caller. The local frame deletes all references created here.
    unsafe {
        if ((**env).v1_2.PushLocalFrame)(env, 16) != JNI_OK {
            ((**env).v1_1.ExceptionClear)(env);
            return;
        }
        let first = first_instance(env, &own);
        if let Some(addresses) = first.and_then(|published| addresses_of(&published, &own)) {
            register(env, natives, &addresses);
        }
        ((**env).v1_1.ExceptionClear)(env);
        ((**env).v1_2.PopLocalFrame)(env, std::ptr::null_mut());
    }
}

/// The property of the first instance; `None` if that is this one.
///
/// # Safety
/// `env` is the calling thread's JNI environment, with a local frame.
unsafe fn first_instance(env: *mut JNIEnv, own: &[u64]) -> Option<String> {
    let leaked: &'static [u64] = Vec::leak(own.to_vec());
    let published = CString::new(format!("{} {:x}", std::process::id(), leaked.as_ptr() as usize)).ok()?;
    // SAFETY: guaranteed by the caller; names and signatures are those of the JDK and NUL-terminated. Failed calls leave a
    // pending exception, and no function is called while one is pending.
    unsafe {
        let system = non_null(((**env).v1_1.FindClass)(env, c"java/lang/System".as_ptr()))?;
        let get = non_null(((**env).v1_1.GetStaticMethodID)(
            env,
            system,
            c"getProperties".as_ptr(),
            c"()Ljava/util/Properties;".as_ptr(),
        ))?;
        let properties = ((**env).v1_1.CallStaticObjectMethodA)(env, system, get, std::ptr::null());
        let properties = checked_result(env, properties)?;
        let class = non_null(((**env).v1_1.FindClass)(env, c"java/util/Properties".as_ptr()))?;
        let pair = c"(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;";
        let put_if_absent = non_null(((**env).v1_1.GetMethodID)(env, class, c"putIfAbsent".as_ptr(), pair.as_ptr()))?;
        let put = non_null(((**env).v1_1.GetMethodID)(env, class, c"put".as_ptr(), pair.as_ptr()))?;
        let key = non_null(((**env).v1_1.NewStringUTF)(env, PROPERTY.as_ptr()))?;
        let value = non_null(((**env).v1_1.NewStringUTF)(env, published.as_ptr()))?;
        let entry = [jvalue { l: key }, jvalue { l: value }];
        let before = ((**env).v1_1.CallObjectMethodA)(env, properties, put_if_absent, entry.as_ptr());
        let first = checked_result(env, before).and_then(|before| text(env, before));
        if first.as_deref().and_then(|first| addresses_of(first, own)).is_some() {
            return first;
        }
        // Classes of other loaders will call into this copy, even after the loader of this copy is collected.
        spanprof_os::pin_library();
        if !before.is_null() {
            // The property was inherited from another process, or set by another version.
            let replaced = ((**env).v1_1.CallObjectMethodA)(env, properties, put, entry.as_ptr());
            checked_result(env, replaced);
        }
        None
    }
}

/// # Safety
/// `env` is the calling thread's JNI environment, `string` a reference of it to a string.
unsafe fn text(env: *mut JNIEnv, string: jobject) -> Option<String> {
    // SAFETY: guaranteed by the caller; the VM returns a NUL-terminated string, which is released.
    unsafe {
        let chars = ((**env).v1_1.GetStringUTFChars)(env, string, std::ptr::null_mut());
        if chars.is_null() {
            return None;
        }
        let owned = CStr::from_ptr(chars).to_string_lossy().into_owned();
        ((**env).v1_1.ReleaseStringUTFChars)(env, string, chars);
        Some(owned)
    }
}

/// # Safety
/// `env` is the calling thread's JNI environment; `addresses` are native methods of these names, in code that is never
/// unloaded.
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
    // SAFETY: guaranteed by the caller; the class is looked up with the caller's class loader.
    unsafe {
        let class = ((**env).v1_1.FindClass)(env, CLASS.as_ptr());
        if !class.is_null() {
            ((**env).v1_1.RegisterNatives)(env, class, methods.as_ptr(), methods.len() as i32);
        }
    }
}

/// The result of a Java method; `None` if it threw or returned null. `-Xcheck:jni` reports calls without this check.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
unsafe fn checked_result(env: *mut JNIEnv, result: jobject) -> Option<jobject> {
    // SAFETY: guaranteed by the caller.
    let has_thrown = unsafe { ((**env).v1_2.ExceptionCheck)(env) };
    non_null(result).filter(|_| !has_thrown)
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
    fn a_copy_uses_the_instance_of_its_own_process_and_version() {
        let (first, second) = (table_of(&natives([10, 20])), table_of(&natives([30, 40])));
        let published = |process: u32, table: &[u64]| format!("{process} {:x}", table.as_ptr() as usize);
        assert_eq!(addresses_of(&published(std::process::id(), &first), &second), Some(vec![10, 20]));
        assert_eq!(addresses_of(&published(std::process::id() + 1, &first), &second), None, "another process");
        let mut other = first.clone();
        other[0] += 1;
        assert_eq!(addresses_of(&published(std::process::id(), &other), &second), None, "another version");
        assert_eq!(addresses_of("", &second), None);
        assert_eq!(addresses_of(&format!("{} 8", std::process::id()), &second), None, "the address is not readable");
    }
}
