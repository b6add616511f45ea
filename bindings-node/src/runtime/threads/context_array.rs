//! The context id of a thread as an array that JavaScript writes without a call into the addon. Not here: the writes
//! (`lib/hooks.js`).

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use napi::bindgen_prelude::{FromNapiValue, Unknown};
use napi::{sys, Env};

/// `word` as a `Float64Array`; `None` where V8 forbids external buffers.
pub fn create(env: &Env, word: &'static AtomicU64) -> Option<Unknown<'static>> {
    let env = env.raw();
    let (mut buffer, mut array): (sys::napi_value, sys::napi_value) = (std::ptr::null_mut(), std::ptr::null_mut());
    let address = word.as_ptr().cast::<c_void>();
    // SAFETY: on the environment's thread; the word is static, so that the buffer needs no finalizer. JavaScript writes eight
    // aligned bytes at once, and any eight bytes are a number.
    unsafe {
        let no_hint = std::ptr::null_mut();
        let status = sys::napi_create_external_arraybuffer(env, address, size_of::<u64>(), None, no_hint, &mut buffer);
        if status != sys::Status::napi_ok {
            return None;
        }
        let kind = sys::TypedarrayType::float64_array;
        if sys::napi_create_typedarray(env, kind, 1, buffer, 0, &mut array) != sys::Status::napi_ok {
            return None;
        }
        Unknown::from_napi_value(env, array).ok()
    }
}
