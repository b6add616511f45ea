//! JVMTI queries of classes and methods, for stacks from `AsyncGetCallTrace`, whose methods are known only by their ids.
//! Used by `method_ids`, and by the agent for system properties. Only for threads attached to the VM.

use std::ffi::{c_char, CStr};

use jni::sys::{jint, jobject, JNIEnv};

use super::{decode, ok, Environment, Jvmti};

/// Bit indexes in `jvmtiCapabilities`.
const CAN_GET_SOURCE_FILE_NAME: usize = 11;
const CAN_GET_LINE_NUMBERS: usize = 12;
/// Upper bound of methods per class and lines per method: the class file counts them in two bytes.
const MAX_ENTRIES: usize = 65_536;

/// `jvmtiLineNumberEntry`.
#[repr(C)]
struct LineNumberEntry {
    start_location: i64,
    line: jint,
}

// Types of JVMTI functions with output parameters: a list of `T`, a reference, or one to three C strings, of an object `O`.
type List<T> = unsafe extern "system" fn(*mut Environment, *mut jint, *mut *mut T) -> jint;
type ListOf<O, T> = unsafe extern "system" fn(*mut Environment, O, *mut jint, *mut *mut T) -> jint;
type ObjectOf<O> = unsafe extern "system" fn(*mut Environment, O, *mut jobject) -> jint;
type TextOf<O> = unsafe extern "system" fn(*mut Environment, O, *mut *mut c_char) -> jint;
type TextsOf<O> = unsafe extern "system" fn(*mut Environment, O, *mut *mut c_char, *mut *mut c_char) -> jint;
type NamesOf<O> =
    unsafe extern "system" fn(*mut Environment, O, *mut *mut c_char, *mut *mut c_char, *mut *mut c_char) -> jint;

impl Jvmti {
    /// Requests the capabilities for source files and lines; if the VM refuses, frames have neither.
    pub fn add_source_capabilities(self) {
        for capability in [CAN_GET_SOURCE_FILE_NAME, CAN_GET_LINE_NUMBERS] {
            let _ = self.add_capability(capability);
        }
    }

    /// Calls `visit` with each loaded class; the references are deleted afterwards.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment.
    pub unsafe fn each_loaded_class(self, env: *mut JNIEnv, mut visit: impl FnMut(jobject)) -> Result<(), String> {
        let (mut count, mut classes): (jint, *mut jobject) = (0, std::ptr::null_mut());
        // SAFETY: function 78 is GetLoadedClasses(env, jint*, jclass**).
        let call: List<jobject> = unsafe { std::mem::transmute(self.function(78)) };
        // SAFETY: writes a number and a pointer to locals.
        ok(unsafe { call(self.0, &mut count, &mut classes) })?;
        for index in 0..count.max(0) as usize {
            // SAFETY: the list has `count` local references.
            let class = unsafe { *classes.add(index) };
            visit(class);
            // SAFETY: a local reference of this thread, used no more.
            unsafe { ((**env).v1_1.DeleteLocalRef)(env, class) };
        }
        self.free(classes.cast());
        Ok(())
    }

    /// The ids of a class's methods, created by this call; empty for a class that is not prepared.
    ///
    /// # Safety
    /// `class` is a live reference of the calling thread.
    pub unsafe fn methods_of(self, class: jobject) -> Vec<usize> {
        let (mut count, mut methods): (jint, *mut usize) = (0, std::ptr::null_mut());
        // SAFETY: function 52 is GetClassMethods(env, jclass, jint*, jmethodID**).
        let call: ListOf<jobject, usize> = unsafe { std::mem::transmute(self.function(52)) };
        // SAFETY: guaranteed by the caller; writes a number and a pointer to locals.
        if ok(unsafe { call(self.0, class, &mut count, &mut methods) }).is_err() || methods.is_null() {
            return Vec::new();
        }
        // SAFETY: the list has `count` ids.
        let list = unsafe { std::slice::from_raw_parts(methods, (count.max(0) as usize).min(MAX_ENTRIES)) }.to_vec();
        self.free(methods.cast());
        list
    }

    /// The signature of a class, such as `Lcom/shop/Cart;`.
    ///
    /// # Safety
    /// `class` is a live reference of the calling thread.
    pub unsafe fn signature_of(self, class: jobject) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 48 is GetClassSignature(env, jclass, char**, char**).
        let call: TextsOf<jobject> = unsafe { std::mem::transmute(self.function(48)) };
        // SAFETY: guaranteed by the caller; an unused output may be null.
        ok(unsafe { call(self.0, class, &mut text, std::ptr::null_mut()) }).ok()?;
        self.into_string(text)
    }

    /// A local reference to the class of a method.
    ///
    /// # Safety
    /// `method` is an id of a class that is kept alive, such as by a frame of the calling thread.
    pub unsafe fn class_of(self, method: usize) -> Option<jobject> {
        // SAFETY: function 65 is GetMethodDeclaringClass(env, jmethodID, jclass*).
        let call: ObjectOf<usize> = unsafe { std::mem::transmute(self.function(65)) };
        let mut class = std::ptr::null_mut();
        // SAFETY: guaranteed by the caller; writes one reference to a local.
        ok(unsafe { call(self.0, method, &mut class) }).ok().map(|()| class)
    }

    /// A local reference to the class loader of a class; null for the boot loader.
    ///
    /// # Safety
    /// `class` is a live reference of the calling thread.
    pub unsafe fn loader_of(self, class: jobject) -> Option<jobject> {
        // SAFETY: function 57 is GetClassLoader(env, jclass, jobject*).
        let call: ObjectOf<jobject> = unsafe { std::mem::transmute(self.function(57)) };
        let mut loader = std::ptr::null_mut();
        // SAFETY: guaranteed by the caller; writes one reference to a local.
        ok(unsafe { call(self.0, class, &mut loader) }).ok().map(|()| loader)
    }

    /// The source file name of a class.
    ///
    /// # Safety
    /// `class` is a live reference of the calling thread.
    pub unsafe fn file_of(self, class: jobject) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 50 is GetSourceFileName(env, jclass, char**).
        let call: TextOf<jobject> = unsafe { std::mem::transmute(self.function(50)) };
        // SAFETY: guaranteed by the caller; writes one pointer to a local.
        ok(unsafe { call(self.0, class, &mut text) }).ok()?;
        self.into_string(text)
    }

    /// The name of a method.
    ///
    /// # Safety
    /// `method` is an id of a class that is kept alive by a reference.
    pub unsafe fn name_of(self, method: usize) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 64 is GetMethodName(env, jmethodID, char**, char**, char**).
        let call: NamesOf<usize> = unsafe { std::mem::transmute(self.function(64)) };
        // SAFETY: guaranteed by the caller; unused outputs may be null.
        ok(unsafe { call(self.0, method, &mut text, std::ptr::null_mut(), std::ptr::null_mut()) }).ok()?;
        self.into_string(text)
    }

    /// First bytecode index and line of each range of a method; empty if unknown.
    ///
    /// # Safety
    /// `method` is an id of a class that is kept alive by a reference.
    pub unsafe fn line_numbers_of(self, method: usize) -> Vec<(u16, u32)> {
        let (mut count, mut rows): (jint, *mut LineNumberEntry) = (0, std::ptr::null_mut());
        // SAFETY: function 70 is GetLineNumberTable(env, jmethodID, jint*, jvmtiLineNumberEntry**).
        let call: ListOf<usize, LineNumberEntry> = unsafe { std::mem::transmute(self.function(70)) };
        // SAFETY: guaranteed by the caller; writes a number and a pointer to locals.
        if ok(unsafe { call(self.0, method, &mut count, &mut rows) }).is_err() || rows.is_null() {
            return Vec::new();
        }
        // SAFETY: the list has `count` rows.
        let list = unsafe { std::slice::from_raw_parts(rows, (count.max(0) as usize).min(MAX_ENTRIES)) };
        let lines = list
            .iter()
            .filter_map(|row| Some((u16::try_from(row.start_location).ok()?, u32::try_from(row.line).ok()?)))
            .collect();
        self.free(rows.cast());
        lines
    }

    /// A system property, given on the command line or set by the VM.
    pub fn property(self, name: &CStr) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 131 is GetSystemProperty(env, const char*, char**).
        let call: TextOf<*const c_char> = unsafe { std::mem::transmute(self.function(131)) };
        // SAFETY: the name ends in NUL; writes one pointer to a local.
        ok(unsafe { call(self.0, name.as_ptr(), &mut text) }).ok()?;
        self.into_string(text)
    }

    /// Converts a string that the VM allocated, and frees it.
    fn into_string(self, text: *mut c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: JVMTI strings are NUL-terminated.
        let owned = unsafe { decode(CStr::from_ptr(text).to_bytes()) };
        self.free(text);
        Some(owned)
    }
}
