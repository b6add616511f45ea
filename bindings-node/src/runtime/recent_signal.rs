//! Stacks of a JavaScript thread since its event loop last came round, those that ran and those that waited: written by the
//! thread's own handlers, read and emptied on the same thread between its instructions. When there are more than fit, each has
//! the same chance to be among those kept.

use std::cell::UnsafeCell;
use std::sync::atomic::{compiler_fence, AtomicBool, Ordering};

use spanprof_signal::{Context, RawFrame};

use super::ring_position_signal::RingPosition;

/// Stacks kept of one turn of the loop that ran, and that waited.
pub const MAX_RAN: usize = 16;
pub const MAX_WAITED: usize = 4;
/// Frames kept of each, from the leaf.
const MAX_FRAMES: usize = 128;

/// A stack.
pub struct Ran {
    /// How often it was found.
    pub looks: u32,
    pub context: Context,
    /// Where samples stood by then: its addresses mean what they meant there.
    pub seen: RingPosition,
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
}

impl Ran {
    const NONE: Ran = Ran {
        looks: 0,
        context: Context::None,
        seen: RingPosition::NONE,
        frames: [RawFrame { code: 0, at: 0 }; MAX_FRAMES],
        len: 0,
    };

    pub fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }
}

struct Kept<const STACKS: usize> {
    seen: u64,
    random: u64,
    /// Place of the stack that was noted last, if it is kept.
    last: usize,
    stacks: [Ran; STACKS],
}

const NOWHERE: usize = usize::MAX;

/// See the head of the module.
pub struct Recent<const STACKS: usize> {
    kept: UnsafeCell<Kept<STACKS>>,
    /// Set while the thread reads: its handler leaves `kept` alone then.
    is_read: AtomicBool,
}

// SAFETY: `kept` is touched by one thread only, the one it belongs to; `is_read` keeps its handler out of its reading.
unsafe impl<const STACKS: usize> Sync for Recent<STACKS> {}

impl<const STACKS: usize> Recent<STACKS> {
    pub fn new() -> Self {
        let kept =
            Kept { seen: 0, random: 0x9e37_79b9_7f4a_7c15, last: NOWHERE, stacks: [const { Ran::NONE }; STACKS] };
        Self { kept: UnsafeCell::new(kept), is_read: AtomicBool::new(false) }
    }

    /// Notes a stack.
    ///
    /// # Safety
    /// In the handler of the thread it belongs to, which does not interrupt itself.
    pub unsafe fn note(&self, frames: &[RawFrame], context: Context, seen: RingPosition) {
        if self.is_read.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: nobody else is on this thread inside `kept`, see `is_read`.
        let kept = unsafe { &mut *self.kept.get() };
        kept.seen += 1;
        kept.random ^= kept.random << 13;
        kept.random ^= kept.random >> 7;
        kept.random ^= kept.random << 17;
        let place = match kept.seen as usize {
            seen if seen <= STACKS => seen - 1,
            _ => (kept.random % kept.seen) as usize,
        };
        kept.last = NOWHERE;
        let Some(ran) = kept.stacks.get_mut(place) else { return };
        kept.last = place;
        let len = frames.len().min(MAX_FRAMES);
        if let (Some(to), Some(from)) = (ran.frames.get_mut(..len), frames.get(..len)) {
            to.copy_from_slice(from);
        }
        (ran.looks, ran.len, ran.context, ran.seen) = (1, len, context, seen);
    }

    /// The stack noted last was found `looks` times more. None after `went_on`.
    ///
    /// # Safety
    /// As for `note`.
    pub unsafe fn found_again(&self, looks: u32) {
        if self.is_read.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: as in `note`.
        let kept = unsafe { &mut *self.kept.get() };
        if let Some(ran) = kept.stacks.get_mut(kept.last) {
            ran.looks = ran.looks.saturating_add(looks);
        }
    }

    /// The thread went on to something that is not kept.
    ///
    /// # Safety
    /// As for `note`.
    pub unsafe fn went_on(&self) {
        if !self.is_read.load(Ordering::Relaxed) {
            // SAFETY: as in `note`.
            unsafe { (*self.kept.get()).last = NOWHERE };
        }
    }

    /// Gives the stacks kept to `take`, and forgets them.
    ///
    /// # Safety
    /// On the thread it belongs to, not in its handler.
    pub unsafe fn take(&self, take: impl FnOnce(&[Ran])) {
        self.is_read.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the handler of this thread stays out while `is_read`, and no other thread comes here.
        let kept = unsafe { &mut *self.kept.get() };
        take(kept.stacks.get(..(kept.seen as usize).min(STACKS)).unwrap_or(&[]));
        (kept.seen, kept.last) = (0, NOWHERE);
        compiler_fence(Ordering::SeqCst);
        self.is_read.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &Recent<MAX_RAN>, code: u64) {
        // SAFETY: one thread, no handler.
        unsafe { recent.note(&[RawFrame { code, at: 0 }], Context::Id(code), RingPosition::NONE) };
    }

    fn taken(recent: &Recent<MAX_RAN>) -> Vec<u64> {
        let mut codes = Vec::new();
        // SAFETY: as above.
        unsafe { recent.take(|stacks| codes.extend(stacks.iter().map(|ran| ran.frames()[0].code))) };
        codes
    }

    #[test]
    fn stacks_are_given_once() {
        let recent = Recent::new();
        (1..4).for_each(|code| note(&recent, code));
        assert_eq!(taken(&recent), [1, 2, 3]);
        assert!(taken(&recent).is_empty());
    }

    #[test]
    fn a_stack_counts_how_often_it_was_found_until_the_thread_goes_on() {
        let recent = Recent::new();
        // SAFETY: one thread, no handler.
        let again = |looks| unsafe { recent.found_again(looks) };
        again(7);
        note(&recent, 1);
        again(3);
        note(&recent, 2);
        // SAFETY: as above.
        unsafe { recent.went_on() };
        again(5);
        let mut looks = Vec::new();
        // SAFETY: as above.
        unsafe { recent.take(|stacks| looks.extend(stacks.iter().map(|ran| ran.looks))) };
        assert_eq!(looks, [4, 1]);
        again(9);
        assert!(taken(&recent).is_empty());
    }

    #[test]
    fn of_many_stacks_early_and_late_ones_are_kept() {
        let recent = Recent::new();
        let mut late = 0;
        for _ in 0..100 {
            (0..160).for_each(|code| note(&recent, code));
            let kept = taken(&recent);
            assert_eq!(kept.len(), MAX_RAN);
            late += kept.iter().filter(|code| **code >= 80).count();
        }
        // Half of 1,600, give or take eight standard errors.
        assert!((640..=960).contains(&late), "{late}");
    }
}
