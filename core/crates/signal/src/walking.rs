//! Tells, in a word that outlives the process, that code of ours is walking memory: if the process dies meanwhile, its
//! next start can know. Where the word lies is the facade's choice; without one nothing is told. Safe in handlers.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Where walks are told from now on. Allocates nothing, takes no lock.
pub fn tell_in(word: Option<&'static AtomicU32>) {
    let word = word.map_or(core::ptr::null_mut(), |word| core::ptr::from_ref(word).cast_mut());
    WORD.store(word, Ordering::Release);
}

/// A walk under way, until it is dropped.
pub struct Walking(Option<&'static AtomicU32>);

impl Walking {
    /// A walk begins. What is begun in one word ends in the same.
    #[inline]
    pub fn begin() -> Self {
        // SAFETY: only references that live for ever are stored there.
        let word = unsafe { WORD.load(Ordering::Acquire).as_ref() };
        if let Some(word) = word {
            word.fetch_add(1, Ordering::Relaxed);
        }
        Self(word)
    }
}

impl Drop for Walking {
    #[inline]
    fn drop(&mut self) {
        if let Some(word) = self.0 {
            word.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_are_told_while_they_last_and_end_where_they_began() {
        static FIRST: AtomicU32 = AtomicU32::new(0);
        static SECOND: AtomicU32 = AtomicU32::new(0);
        drop(Walking::begin());
        tell_in(Some(&FIRST));
        let outer = Walking::begin();
        tell_in(Some(&SECOND));
        let inner = Walking::begin();
        assert_eq!((FIRST.load(Ordering::Relaxed), SECOND.load(Ordering::Relaxed)), (1, 1));
        drop((outer, inner));
        tell_in(None);
        assert_eq!((FIRST.load(Ordering::Relaxed), SECOND.load(Ordering::Relaxed)), (0, 0));
    }
}
