//! Facts about a frame that the instructions around the program counter give (`instructions`).

/// The part of a method's frame that exists in its prologue or epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "other architectures keep the return address in a register")
)]
pub enum FrameState {
    /// No frame: the return address is on top of the stack.
    NotBuilt,
    /// The caller's frame pointer is on top of the stack, above it the return address.
    FpPushed,
    /// The frame is allocated; the caller's frame pointer is still in its register.
    FpNotSaved,
    Complete,
}
