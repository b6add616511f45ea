//! The word of a JavaScript thread in which JavaScript itself keeps the context of its samples, as an array of one
//! number: writing it costs no call. Not here: who writes it and when (`lib/hooks.js`).

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use napi::bindgen_prelude::{FromNapiValue, Unknown};
use napi::{sys, Env};

/// `word` as a `Float64Array`; `None` where memory that is not V8's own cannot be shown to JavaScript.
pub fn shown(env: &Env, word: &'static AtomicU64) -> Option<Unknown<'static>> {
    let env = env.raw();
    let (mut buffer, mut array): (sys::napi_value, sys::napi_value) = (std::ptr::null_mut(), std::ptr::null_mut());
    let address = word.as_ptr().cast::<c_void>();
    // SAFETY: on the environment's thread; the word is static, so that nothing is to be done when the buffer dies. What
    // JavaScript writes is eight aligned bytes at once, and any eight bytes are a number.
    unsafe {
        let nobody = std::ptr::null_mut();
        let made = sys::napi_create_external_arraybuffer(env, address, size_of::<u64>(), None, nobody, &mut buffer);
        if made != sys::Status::napi_ok {
            return None;
        }
        let kind = sys::TypedarrayType::float64_array;
        if sys::napi_create_typedarray(env, kind, 1, buffer, 0, &mut array) != sys::Status::napi_ok {
            return None;
        }
        Unknown::from_napi_value(env, array).ok()
    }
}
