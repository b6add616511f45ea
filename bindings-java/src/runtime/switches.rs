//! The VM's own switches, as far as we touch them: whether its compilers write down the method of every machine
//! instruction. Normal threads only.

use super::memory_signal::{byte, word};
use super::structures::Structures;

/// Most switches a VM has.
const MAX_SWITCHES: usize = 10_000;

/// Lets compilers write down places between safepoints too, as the VM does itself for tools that follow compiled code:
/// without them inlined methods are charged to their callers. Code compiled from now on has them. Changes nothing when the
/// user has set the switch.
pub fn record_every_place(structures: &Structures) {
    if let Some((value, 0)) = switch(structures, b"DebugNonSafepoints\0") {
        // SAFETY: the VM says that its one-byte variable lies there; it lives as long as the VM, and compilers only read it.
        unsafe { std::ptr::write_volatile(value as *mut u8, 1) };
    }
}

/// Where a switch of one byte lies, and its value.
fn switch(structures: &Structures, name: &[u8]) -> Option<(usize, u8)> {
    let first = word(structures.address("JVMFlag", "flags").ok()?)?;
    let count = word(structures.address("JVMFlag", "numFlags").ok()?)?;
    let stride = structures.size("JVMFlag").ok()?;
    let name_at = structures.offset("JVMFlag", "_name").ok()?;
    let value_at = structures.offset("JVMFlag", "_addr").ok()?;
    let entry = (0..count.min(MAX_SWITCHES)).map(|index| first + index * stride).find(|entry| {
        let text = word(entry + name_at);
        text.is_some_and(|text| name.iter().enumerate().all(|(at, letter)| byte(text + at) == Some(*letter)))
    })?;
    let value = word(entry + value_at)?;
    Some((value, byte(value)?))
}
