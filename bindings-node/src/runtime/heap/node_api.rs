//! Node-API of the calling thread's environment: handle scopes, texts, and objects for self-tests.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::runtime::v8::lookup;

/// Longest text, bytes.
const MAX_TEXT_BYTES: usize = 512;

thread_local! {
    /// The `napi_env` of this thread; 0 outside of an environment.
    static ENV: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread's environment begins; 0: it ends.
pub fn set_environment(env: usize) {
    ENV.set(env);
}

/// Whether the calling thread has an environment.
pub fn has_environment() -> bool {
    ENV.get() != 0
}

/// Functions that every Node.js exports.
struct NodeApi {
    open_scope: unsafe extern "C" fn(usize, *mut *mut c_void) -> c_int,
    close_scope: unsafe extern "C" fn(usize, *mut c_void) -> c_int,
    text: unsafe extern "C" fn(usize, usize, *mut c_char, usize, *mut usize) -> c_int,
    create_string: unsafe extern "C" fn(usize, *const c_char, usize, *mut usize) -> c_int,
    create_array_buffer: unsafe extern "C" fn(usize, usize, *mut *mut c_void, *mut usize) -> c_int,
}

fn node_api() -> Option<&'static NodeApi> {
    static FUNCTIONS: OnceLock<Option<NodeApi>> = OnceLock::new();
    FUNCTIONS
        .get_or_init(|| {
            Some(NodeApi {
                open_scope: lookup::function!(c"napi_open_handle_scope")?,
                close_scope: lookup::function!(c"napi_close_handle_scope")?,
                text: lookup::function!(c"napi_get_value_string_utf8")?,
                create_string: lookup::function!(c"napi_create_string_utf8")?,
                create_array_buffer: lookup::function!(c"napi_create_arraybuffer")?,
            })
        })
        .as_ref()
}

/// A handle scope of this thread's environment.
pub struct HandleScope(*mut c_void);

impl HandleScope {
    /// Runs `call` in a handle scope; `None` without an environment.
    pub fn with<T>(call: impl FnOnce() -> T) -> Option<T> {
        let (api, env) = (node_api()?, ENV.get());
        let mut scope = std::ptr::null_mut();
        // SAFETY: on the environment's thread, before it ends.
        if env == 0 || unsafe { (api.open_scope)(env, &mut scope) } != 0 {
            return None;
        }
        let _scope = Self(scope);
        Some(call())
    }
}

impl Drop for HandleScope {
    fn drop(&mut self) {
        if let Some(api) = node_api() {
            // SAFETY: on the environment's thread; the scope was opened last.
            unsafe { (api.close_scope)(ENV.get(), self.0) };
        }
    }
}

/// The text of a string handle; empty when it is no string.
pub fn text(handle: usize) -> String {
    let mut bytes = [0u8; MAX_TEXT_BYTES];
    let mut len = 0;
    let Some(api) = node_api().filter(|_| handle != 0) else { return String::new() };
    // SAFETY: on the environment's thread inside a handle scope; a v8::Local is a napi_value. At most `bytes.len()` are written.
    let status = unsafe { (api.text)(ENV.get(), handle, bytes.as_mut_ptr().cast(), bytes.len(), &mut len) };
    match status {
        0 => String::from_utf8_lossy(bytes.get(..len).unwrap_or(&[])).into_owned(),
        _ => String::new(),
    }
}

/// Allocates a string of V8's heap. In a handle scope.
pub fn create_string() {
    const TEXT: &[u8] = b"spanprof tests V8's heap profiler";
    if let Some(api) = node_api() {
        let mut created = 0;
        // SAFETY: on the environment's thread inside a handle scope.
        unsafe { (api.create_string)(ENV.get(), TEXT.as_ptr().cast(), TEXT.len(), &mut created) };
    }
}

/// Allocates an `ArrayBuffer`; false if Node-API refuses it now. In a handle scope.
pub fn create_array_buffer(bytes: usize) -> bool {
    let (mut data, mut created) = (std::ptr::null_mut(), 0);
    // SAFETY: on the environment's thread inside a handle scope.
    node_api().is_some_and(|api| unsafe { (api.create_array_buffer)(ENV.get(), bytes, &mut data, &mut created) } == 0)
}
