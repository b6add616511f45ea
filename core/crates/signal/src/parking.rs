//! The sleep of a sampler that has nothing to do until a thread gets a context: a futex word, so that a thread of the host that ends
//! the sleep takes no lock. Not here: when to sleep (the wall sampler).

use crate::atomics::{AtomicU32, Ordering};
use crate::ring::futex;

/// 1 while the sampler sleeps, or is about to.
static PARKED: AtomicU32 = AtomicU32::new(0);

/// Sleeps until [`unpark`], unless `has_work` after a concurrent call of it would be seen here.
pub fn park(has_work: impl FnOnce() -> bool) {
    PARKED.store(1, Ordering::SeqCst);
    if !has_work() {
        while PARKED.load(Ordering::SeqCst) == 1 {
            futex::wait(&PARKED, 1, None);
        }
    }
    PARKED.store(0, Ordering::SeqCst);
}

/// Ends the sleep. A load of one word when nobody sleeps.
#[inline]
pub fn unpark() {
    if PARKED.load(Ordering::SeqCst) == 1 && PARKED.swap(0, Ordering::SeqCst) == 1 {
        futex::wake(&PARKED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_thread_sleeps_until_it_is_unparked_and_not_at_all_with_work() {
        park(|| true);
        let parked = std::thread::spawn(|| park(|| false));
        while PARKED.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        unpark();
        parked.join().unwrap();
        assert_eq!(PARKED.load(Ordering::SeqCst), 0);
    }
}
