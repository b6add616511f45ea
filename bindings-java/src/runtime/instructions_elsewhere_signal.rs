//! On other machines than x86-64 no instructions are read: what is asked of them (`instructions_signal`) is not known.

use super::instructions_signal::{Built, Detour};

pub fn prologue(_pc: usize) -> Option<Built> {
    None
}

pub fn epilogue(_pc: usize) -> Option<Built> {
    None
}

pub fn enters_interpreter(_pc: usize) -> bool {
    false
}

pub fn native_edge(_pc: usize) -> Option<Built> {
    None
}

pub fn follows_call(_pc: usize) -> bool {
    true
}

pub fn relays(_pc: usize) -> bool {
    false
}

pub fn releases(_pc: usize) -> bool {
    false
}

pub fn passed_bytes(_pc: usize) -> usize {
    0
}

pub fn pushed_bytes(_pc: usize) -> usize {
    0
}

pub fn way_out(_pc: usize) -> Option<Option<usize>> {
    None
}

pub fn detour(_pc: usize, _begin: usize) -> Option<Detour> {
    None
}
