//! The VM flag that makes compilers record debug info for every instruction. Not for signal handlers.

use super::memory::{byte, word};
use super::structs::VmStructs;

/// Upper bound of the number of flags.
const MAX_FLAGS: usize = 10_000;

/// Sets `DebugNonSafepoints`, as the VM itself does for JVMTI agents that receive compiled-method events. Without it,
/// samples in inlined methods are attributed to their callers. Affects code compiled from now on. A value set by the user
/// stays.
pub fn enable_debug_non_safepoints(structures: &VmStructs) {
    if let Some((value, 0)) = flag(structures, b"DebugNonSafepoints\0") {
        // SAFETY: VMStructs give the address of a one-byte variable that lives as long as the VM; compilers only read it.
        unsafe { std::ptr::write_volatile(value as *mut u8, 1) };
    }
}

/// The address and value of a one-byte flag.
fn flag(structures: &VmStructs, name: &[u8]) -> Option<(usize, u8)> {
    // `Flag` in Java 8 (`hotspot/src/share/vm/runtime/globals.hpp`), `JVMFlag` from 11 on (`runtime/flags/jvmFlag.hpp`).
    let class = ["JVMFlag", "Flag"].into_iter().find(|class| structures.size(class).is_ok())?;
    let first = word(structures.address(class, "flags").ok()?)?;
    let count = word(structures.address(class, "numFlags").ok()?)?;
    let stride = structures.size(class).ok()?;
    let name_at = structures.offset(class, "_name").ok()?;
    let value_at = structures.offset(class, "_addr").ok()?;
    let entry = (0..count.min(MAX_FLAGS)).map(|index| first + index * stride).find(|entry| {
        let text = word(entry + name_at);
        text.is_some_and(|text| name.iter().enumerate().all(|(at, letter)| byte(text + at) == Some(*letter)))
    })?;
    let value = word(entry + value_at)?;
    Some((value, byte(value)?))
}
