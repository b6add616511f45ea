//! The activations of the interpreter loop that a walk met: where each has a record on the C stack, and how many frames belong to it. Runs in
//! handlers.
//!
//! # Changes in CPython
//! | version | record on the C stack | one activation is |
//! |---|---|---|
//! | 3.9 | none: the frames of `_PyEval_EvalFrameDefault` are counted from the root (`capture::native`) | one frame |
//! | 3.10 | `CFrame`, a local of `_PyEval_EvalFrameDefault` (`Python/ceval.c`), removed before its frame | one frame, see `return_records` |
//! | 3.11 | `_PyCFrame` | the frames down to one with `is_entry` |
//! | from 3.12 | the entry frame, a local of the loop (`owner` of a C stack or the interpreter) | the frames down to it |

/// Activations that a walk keeps; deeper ones are shown without native frames. Each takes 16 bytes of the handler's stack.
const MAX_ACTIVATIONS: usize = 48;

/// One activation of the interpreter loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// Address of its record; 0 for one that the interrupted function has removed.
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

    /// Gives each frame of Python 3.10 its own record where the leaf's function is left: its record was removed before its frame, so that
    /// each frame has the record of its caller. The leaf gets record 0.
    pub fn return_records(&mut self) {
        let list = self.activations.get_mut(..self.len).unwrap_or(&mut []);
        list.iter_mut().fold(0, |own, activation| std::mem::replace(&mut activation.record, own));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_its_own_record_while_the_function_of_the_leaf_is_left() {
        let root = 0x9000;
        let mut list = ActivationList::empty();
        [0x20, 0x30, root].into_iter().zip(1..).for_each(|(record, frames)| list.push(record, frames));
        list.return_records();
        let own = [(0, 1), (0x20, 2), (0x30, 3)].map(|(record, frames)| Activation { record, frames });
        assert_eq!(list.as_slice(), own);
    }
}
