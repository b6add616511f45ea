//! Fallbacks of `instructions` for architectures other than x86-64: instructions are not decoded.

use super::frame_state::FrameState;
use crate::runtime::vm::memory::VmMemory;

pub fn prologue(_memory: impl VmMemory, _pc: usize) -> Option<FrameState> {
    None
}

pub fn epilogue(_memory: impl VmMemory, _pc: usize) -> Option<FrameState> {
    None
}

pub fn poll_stub_bytes(_memory: impl VmMemory, _begin: usize, _pc: usize) -> Option<usize> {
    None
}

pub fn intrinsic_return_offset(_memory: impl VmMemory, _pc: usize) -> Option<usize> {
    None
}

pub fn is_c2i_adapter(_memory: impl VmMemory, _pc: usize) -> bool {
    false
}

pub fn follows_call(_memory: impl VmMemory, _pc: usize) -> bool {
    true
}

pub fn is_to_interpreter_stub(_memory: impl VmMemory, _pc: usize) -> bool {
    false
}

pub fn releases_stack(_memory: impl VmMemory, _pc: usize) -> bool {
    false
}

pub fn stack_argument_bytes(_memory: impl VmMemory, _pc: usize) -> usize {
    0
}

pub fn pushed_argument_bytes(_memory: impl VmMemory, _pc: usize) -> usize {
    0
}
