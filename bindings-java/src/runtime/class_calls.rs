//! What the tool interface tells of classes and methods: for stacks that the VM walks, whose methods are known by the
//! VM's own ids alone. Called by `method_ids`, and for properties by the agent. Normal threads that the VM knows only.

use std::ffi::{c_char, CStr};

use jni::sys::{jint, jobject, JNIEnv};

use super::jvmti::{ok, Environment, Jvmti};

/// By their places in the structure of capabilities.
const CAN_GET_SOURCE_FILE_NAME: usize = 11;
const CAN_GET_LINE_NUMBERS: usize = 12;
/// Methods of a class, lines of a method: the class file has two bytes for their number.
const MAX_ENTRIES: usize = 65_536;

/// The VM's row of a table of lines.
#[repr(C)]
struct Line {
    start: i64,
    line: jint,
}

type List<T> = unsafe extern "system" fn(*mut Environment, *mut jint, *mut *mut T) -> jint;
type ListOf<O, T> = unsafe extern "system" fn(*mut Environment, O, *mut jint, *mut *mut T) -> jint;
type TextOf<O> = unsafe extern "system" fn(*mut Environment, O, *mut *mut c_char) -> jint;
type TextsOf<O> = unsafe extern "system" fn(*mut Environment, O, *mut *mut c_char, *mut *mut c_char) -> jint;
type NamesOf<O> =
    unsafe extern "system" fn(*mut Environment, O, *mut *mut c_char, *mut *mut c_char, *mut *mut c_char) -> jint;

impl Jvmti {
    /// Lets source files and lines be asked for; where the VM refuses, frames have neither.
    pub fn ask_for_sources(self) {
        for capability in [CAN_GET_SOURCE_FILE_NAME, CAN_GET_LINE_NUMBERS] {
            let _ = self.add_capability(capability);
        }
    }

    /// Calls `visit` with each loaded class; the references end with this call.
    ///
    /// # Safety
    /// `env` is the calling thread's.
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

    /// The VM's ids of a class's methods, made by this call; empty for a class that is not prepared.
    ///
    /// # Safety
    /// `class` is a live reference of the calling thread's to a class.
    pub unsafe fn methods_of(self, class: jobject) -> Vec<usize> {
        let (mut count, mut methods): (jint, *mut usize) = (0, std::ptr::null_mut());
        // SAFETY: function 52 is GetClassMethods(env, jclass, jint*, jmethodID**).
        let call: ListOf<jobject, usize> = unsafe { std::mem::transmute(self.function(52)) };
        // SAFETY: the caller's promise; writes a number and a pointer to locals.
        if ok(unsafe { call(self.0, class, &mut count, &mut methods) }).is_err() || methods.is_null() {
            return Vec::new();
        }
        // SAFETY: the list has `count` ids.
        let list = unsafe { std::slice::from_raw_parts(methods, (count.max(0) as usize).min(MAX_ENTRIES)) }.to_vec();
        self.free(methods.cast());
        list
    }

    /// A class as `Lcom/shop/Cart;`.
    ///
    /// # Safety
    /// As for `methods_of`.
    pub unsafe fn signature_of(self, class: jobject) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 48 is GetClassSignature(env, jclass, char**, char**).
        let call: TextsOf<jobject> = unsafe { std::mem::transmute(self.function(48)) };
        // SAFETY: the caller's promise; a text that is not wanted may be null.
        ok(unsafe { call(self.0, class, &mut text, std::ptr::null_mut()) }).ok()?;
        self.taken(text)
    }

    /// The name of the file that a class was written in.
    ///
    /// # Safety
    /// As for `methods_of`.
    pub unsafe fn file_of(self, class: jobject) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 50 is GetSourceFileName(env, jclass, char**).
        let call: TextOf<jobject> = unsafe { std::mem::transmute(self.function(50)) };
        // SAFETY: the caller's promise; writes one pointer to a local.
        ok(unsafe { call(self.0, class, &mut text) }).ok()?;
        self.taken(text)
    }

    /// The name of a method.
    ///
    /// # Safety
    /// `method` is an id of a class that a reference keeps alive.
    pub unsafe fn name_of(self, method: usize) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 64 is GetMethodName(env, jmethodID, char**, char**, char**).
        let call: NamesOf<usize> = unsafe { std::mem::transmute(self.function(64)) };
        // SAFETY: the caller's promise; texts that are not wanted may be null.
        ok(unsafe { call(self.0, method, &mut text, std::ptr::null_mut(), std::ptr::null_mut()) }).ok()?;
        self.taken(text)
    }

    /// First byte code and line of each piece of a method; empty when nothing is known.
    ///
    /// # Safety
    /// As for `name_of`.
    pub unsafe fn lines_of(self, method: usize) -> Vec<(u16, u32)> {
        let (mut count, mut rows): (jint, *mut Line) = (0, std::ptr::null_mut());
        // SAFETY: function 70 is GetLineNumberTable(env, jmethodID, jint*, jvmtiLineNumberEntry**).
        let call: ListOf<usize, Line> = unsafe { std::mem::transmute(self.function(70)) };
        // SAFETY: the caller's promise; writes a number and a pointer to locals.
        if ok(unsafe { call(self.0, method, &mut count, &mut rows) }).is_err() || rows.is_null() {
            return Vec::new();
        }
        // SAFETY: the list has `count` rows.
        let list = unsafe { std::slice::from_raw_parts(rows, (count.max(0) as usize).min(MAX_ENTRIES)) };
        let lines = list
            .iter()
            .filter_map(|row| Some((u16::try_from(row.start).ok()?, u32::try_from(row.line).ok()?)))
            .collect();
        self.free(rows.cast());
        lines
    }

    /// A property that the VM was started with, or made itself.
    pub fn property(self, name: &CStr) -> Option<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: function 131 is GetSystemProperty(env, const char*, char**).
        let call: TextOf<*const c_char> = unsafe { std::mem::transmute(self.function(131)) };
        // SAFETY: the name ends in NUL; writes one pointer to a local.
        ok(unsafe { call(self.0, name.as_ptr(), &mut text) }).ok()?;
        self.taken(text)
    }

    /// A text that the VM gave, and its memory back to the VM.
    fn taken(self, text: *mut c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: the VM gives texts that end in NUL.
        let owned = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        self.free(text);
        Some(owned)
    }
}
