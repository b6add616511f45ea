//! Names of the code that the VM makes for itself (copies of arrays, entries of calls), as it tells them. Normal threads only.

use std::ffi::{c_char, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::jint;

use super::jvmti::Environment;

/// A VM has a few hundred, and tells of call stubs as it makes them.
const MAX_STUBS: usize = 16_384;

struct Stub {
    start: usize,
    len: usize,
    name: String,
}

static STUBS: Mutex<Vec<Stub>> = Mutex::new(Vec::new());

fn stubs() -> MutexGuard<'static, Vec<Stub>> {
    STUBS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The VM tells of a piece of code; of what is told twice the shorter piece has the better name.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_code(_: *mut Environment, name: *const c_char, start: *const c_void, len: jint) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if name.is_null() || len <= 0 {
            return;
        }
        // SAFETY: the VM passes a text that ends in NUL and lives for this call.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let stub = Stub { start: start as usize, len: len as usize, name };
        let mut stubs = stubs();
        let told_before = stubs.iter().position(|known| known.start == stub.start && known.len == stub.len);
        match told_before {
            Some(index) => stubs[index] = stub,
            None if stubs.len() < MAX_STUBS => stubs.push(stub),
            None => {}
        }
    }));
}

/// The name of the shortest piece of code that holds `pc`.
pub fn at(pc: usize) -> Option<String> {
    let stubs = stubs();
    let holding = stubs.iter().filter(|stub| pc.wrapping_sub(stub.start) < stub.len);
    holding.min_by_key(|stub| stub.len).map(|stub| stub.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_piece_names_an_address() {
        let told = |name: &CStr, start: usize, len: jint| {
            // SAFETY: what the VM would pass.
            unsafe { on_code(std::ptr::null_mut(), name.as_ptr(), start as *const c_void, len) };
        };
        told(c"StubRoutines", 0x9000, 0x100);
        told(c"copy_of_bytes", 0x9040, 0x20);
        told(c"copy_of_words", 0x9040, 0x20);
        assert_eq!(at(0x9050).as_deref(), Some("copy_of_words"));
        assert_eq!(at(0x9010).as_deref(), Some("StubRoutines"));
        assert_eq!(at(0x9100), None);
    }
}
