//! The activations of the interpreter loop that a walk met: where each has a record on the C stack, and how many frames belong to it. Runs in
//! handlers.
//!
//! # Changes in CPython
//! | version | record on the C stack | one activation is |
//! |---|---|---|
//! | 3.9 | none: the frames of `_PyEval_EvalFrameDefault` are counted from the root (`capture::native`) | one frame |
//! | 3.10 | `CFrame`, a local of `_PyEval_EvalFrameDefault` (`Python/ceval.c`) | one frame |
//! | 3.11 | `_PyCFrame` | the frames down to one with `is_entry` |
//! | from 3.12 | the entry frame, a local of the loop (`owner` of a C stack or the interpreter) | the frames down to it |

/// Activations that a walk keeps; deeper ones are shown without native frames. Each takes 16 bytes of the handler's stack.
const MAX_ACTIVATIONS: usize = 48;

/// One activation of the interpreter loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// Address of its record.
    pub record: u64,
    /// Frames on the stack when it ended: its own, and those of the activations that it called.
    pub frames: usize,
}

/// Activations, leaf first.
#[derive(Debug)]
pub struct ActivationList {
    activations: [Activation; MAX_ACTIVATIONS],
    len: usize,
}

impl ActivationList {
    /// Without activations.
    pub const fn empty() -> Self {
        Self { activations: [Activation { record: 0, frames: 0 }; MAX_ACTIVATIONS], len: 0 }
    }

    /// Adds the caller of those before.
    pub fn push(&mut self, record: usize, frames: usize) {
        if let Some(activation) = self.activations.get_mut(self.len).filter(|_| record != 0) {
            *activation = Activation { record: record as u64, frames };
            self.len += 1;
        }
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Leaf first.
    pub fn as_slice(&self) -> &[Activation] {
        self.activations.get(..self.len).unwrap_or(&[])
    }
}
