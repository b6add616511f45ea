//! The sleep of threads that have nothing to do until a thread of the host gets a context: a futex word, so that the thread that ends
//! the sleep takes no lock. Not here: when to sleep (the wall sampler, and the reader of suspended tasks of a binding).

use crate::atomics::{AtomicU32, Ordering};
use crate::futex;

/// The bits of the threads that sleep, or are about to.
static PARKED: AtomicU32 = AtomicU32::new(0);

/// A thread that may sleep; its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// The wall sampler.
    Sampler = 1,
    /// The reader of suspended tasks.
    Tasks = 2,
}

/// Sleeps until [`unpark`], for about `timeout_ns` at most, unless `has_work` after a concurrent call of it would be seen here.
pub fn park(sleeper: Sleeper, timeout_ns: Option<u64>, has_work: impl FnOnce() -> bool) {
    let bit = sleeper as u32;
    PARKED.fetch_or(bit, Ordering::SeqCst);
    if !has_work() {
        loop {
            let parked = PARKED.load(Ordering::SeqCst);
            if parked & bit == 0 || futex::wait(&PARKED, parked, timeout_ns) {
                break;
            }
        }
    }
    PARKED.fetch_and(!bit, Ordering::SeqCst);
}

/// Ends the sleep of all. A load of one word when nobody sleeps.
#[inline]
pub fn unpark() {
    if PARKED.load(Ordering::SeqCst) != 0 && PARKED.swap(0, Ordering::SeqCst) != 0 {
        futex::wake(&PARKED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parked_threads_sleep_until_they_are_unparked_and_not_at_all_with_work() {
        park(Sleeper::Sampler, None, || true);
        park(Sleeper::Tasks, Some(1_000_000), || false);
        let parked = [Sleeper::Sampler, Sleeper::Tasks].map(|it| std::thread::spawn(move || park(it, None, || false)));
        while PARKED.load(Ordering::SeqCst) != 3 {
            std::thread::yield_now();
        }
        unpark();
        for thread in parked {
            thread.join().unwrap();
        }
        assert_eq!(PARKED.load(Ordering::SeqCst), 0);
    }
}
