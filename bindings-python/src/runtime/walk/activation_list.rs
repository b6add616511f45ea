//! The activations of the interpreter loop that a walk met: where each has a record on the C stack, and how many frames belong to it. Runs in
//! handlers.
//!
//! # Changes in CPython
//! | version | record on the C stack | one activation is |
//! |---|---|---|
//! | 3.9 | none: the frames of `_PyEval_EvalFrameDefault` are counted from the root (`capture::native`) | one frame |
//! | 3.10 | `CFrame`, a local of `_PyEval_EvalFrameDefault` (`Python/ceval.c`), which the thread state refers to before its frame and no longer than that | one frame, see `align` |
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

/// Which record is the last one of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootRecord {
    /// That of the last frame: the leaf's record was removed already.
    OfLastFrame,
    /// The next one, as it should be.
    Next,
    /// The one behind it: the leaf's frame is not there yet.
    BehindNext,
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

    /// Gives each frame of Python 3.10 its own record again where the leaf's function is entered or left, and the thread state has one
    /// record more or less than frames. `root`: which of these is the last record, that of no frame: the record of the last frame, the next
    /// one, or that behind it. `next`: the next one. A frame whose record was removed has record 0: its function is being left.
    pub fn align(&mut self, root: RootRecord, next: usize) {
        let is_whole = self.len < MAX_ACTIVATIONS;
        let list = self.activations.get_mut(..self.len).unwrap_or(&mut []);
        let exchange = |other: &mut u64, activation: &mut Activation| std::mem::swap(other, &mut activation.record);
        match root {
            RootRecord::Next => {}
            RootRecord::BehindNext => {
                let mut later = next as u64;
                list.iter_mut().rev().for_each(|activation| exchange(&mut later, activation));
                self.len -= usize::from(!is_whole);
            }
            RootRecord::OfLastFrame => {
                let mut earlier = 0;
                list.iter_mut().for_each(|activation| exchange(&mut earlier, activation));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_its_own_record_while_a_function_is_entered_or_left() {
        let aligned = |root, records: &[usize], next| {
            let mut list = ActivationList::empty();
            records.iter().enumerate().for_each(|(index, record)| list.push(*record, index + 1));
            list.align(root, next);
            list.as_slice().iter().map(|activation| (activation.record, activation.frames)).collect::<Vec<_>>()
        };
        let (own, root) = ([(0x10, 1), (0x20, 2), (0x30, 3)], 0x9000);
        assert_eq!(aligned(RootRecord::Next, &[0x10, 0x20, 0x30], root), own);
        assert_eq!(aligned(RootRecord::BehindNext, &[0x08, 0x10, 0x20], 0x30), own);
        assert_eq!(aligned(RootRecord::OfLastFrame, &[0x20, 0x30, root], 0), [(0, 1), (0x20, 2), (0x30, 3)]);
        // Of more than fit, the last one is left out.
        let many: Vec<usize> = (1..=MAX_ACTIVATIONS).collect();
        let list = aligned(RootRecord::BehindNext, &many, 77);
        assert_eq!((list.len(), list[0], list[46]), (MAX_ACTIVATIONS - 1, (2, 1), (48, 47)));
    }
}
