//! Names of the VM's stubs (array copies, call stubs), from the JVMTI event `DynamicCodeGenerated`. Not for signal
//! handlers.

use std::ffi::{c_char, c_void, CStr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::jint;
use spanprof_profiler::binding::ffi_guard;

use crate::runtime::jvmti::Environment;

/// Upper bound of stored stubs. A VM starts with a few hundred, and reports call stubs as it creates them.
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

/// `DynamicCodeGenerated`. If a range is reported twice, the later name replaces the earlier one.
///
/// # Safety
/// Called by the VM.
pub unsafe extern "system" fn on_code(_: *mut Environment, name: *const c_char, start: *const c_void, len: jint) {
    ffi_guard((), || {
        if name.is_null() || len <= 0 {
            return;
        }
        // SAFETY: the VM passes a NUL-terminated string that lives for this call.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let stub = Stub { start: start as usize, len: len as usize, name };
        let mut stubs = stubs();
        let reported_before =
            stubs.iter().position(|reported| reported.start == stub.start && reported.len == stub.len);
        match reported_before {
            Some(index) => stubs[index] = stub,
            None if stubs.len() < MAX_STUBS => stubs.push(stub),
            None => {}
        }
    });
}

/// The name of the shortest reported range that holds `pc`.
pub fn at(pc: usize) -> Option<String> {
    let stubs = stubs();
    let containing = stubs.iter().filter(|stub| pc.wrapping_sub(stub.start) < stub.len);
    containing.min_by_key(|stub| stub.len).map(|stub| stub.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_range_names_an_address() {
        let report = |name: &CStr, start: usize, len: jint| {
            // SAFETY: the arguments that the VM would pass.
            unsafe { on_code(std::ptr::null_mut(), name.as_ptr(), start as *const c_void, len) };
        };
        report(c"StubRoutines", 0x9000, 0x100);
        report(c"copy_of_bytes", 0x9040, 0x20);
        report(c"copy_of_words", 0x9040, 0x20);
        assert_eq!(at(0x9050).as_deref(), Some("copy_of_words"));
        assert_eq!(at(0x9010).as_deref(), Some("StubRoutines"));
        assert_eq!(at(0x9100), None);
    }
}
