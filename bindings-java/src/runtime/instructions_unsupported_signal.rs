//! Fallbacks of `instructions_signal` for architectures other than x86-64: instructions are not decoded.

use super::instructions_signal::{FrameState, SlowPath};

pub fn prologue(_pc: usize) -> Option<FrameState> {
    None
}

pub fn epilogue(_pc: usize) -> Option<FrameState> {
    None
}

pub fn is_c2i_adapter(_pc: usize) -> bool {
    false
}

pub fn native_frame_state(_pc: usize) -> Option<FrameState> {
    None
}

pub fn follows_call(_pc: usize) -> bool {
    true
}

pub fn is_to_interpreter_stub(_pc: usize) -> bool {
    false
}

pub fn releases_stack(_pc: usize) -> bool {
    false
}

pub fn stack_argument_bytes(_pc: usize) -> usize {
    0
}

pub fn pushed_argument_bytes(_pc: usize) -> usize {
    0
}

pub fn return_address_offset(_pc: usize) -> Option<Option<usize>> {
    None
}

pub fn slow_path(_pc: usize, _begin: usize) -> Option<SlowPath> {
    None
}
