//! Code without a frame of its own: any code at its first instructions and at its return, and builtins, most of which set up a
//! frame on their slow paths only. On x86-64 their return address is at the stack pointer, or a few pushed words above it; on arm64
//! it is in the link register until they call other code, before which they push it. Also the C functions that V8's code calls
//! without an exit frame: V8 stores their caller in the isolate.
//!
//! Whether a builtin has its frame at an instruction is not recorded anywhere. It follows from calls: the word is the return
//! address of a call of this builtin, and the frame pointer's is not.
//!
//! Upstream, the same from V8 10.2 (Node.js 18) to 14.6 (26): `src/compiler/frame-elider.cc`, `src/execution/isolate-data.h`
//! (`fast_c_call_caller_pc`, `fast_c_call_caller_fp`, whose offsets differ), `src/common/globals.h` (`kRootRegisterBias`).

#[cfg(any(test, target_arch = "aarch64"))]
mod arm64;
#[cfg(target_arch = "x86_64")]
mod x64;

#[cfg(target_arch = "aarch64")]
pub use arm64::*;
#[cfg(target_arch = "x86_64")]
pub use x64::*;

/// From an isolate to the value of V8's root register, from which V8's code addresses the isolate (`kRootRegisterBias`).
pub const ROOT_BIAS: usize = 128;

/// The call instruction before a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTarget {
    Address(usize),
    /// In a register or an object.
    Unknown,
}
