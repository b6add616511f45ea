//! A value that a forked child has anew. At the fork a thread of the parent may have held a lock inside the parent's value,
//! and that thread does not exist in the child.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use spanprof_signal::fork_generation;

/// A value of this process, created at its first use. Forks are detected from the first start of the profiler on.
pub struct PerProcess<T>(ArcSwapOption<ValueOfProcess<T>>);

struct ValueOfProcess<T> {
    fork_generation: u32,
    value: T,
}

impl<T: Default> PerProcess<T> {
    /// Without a value yet.
    pub const fn empty() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// Runs `body` with the value of this process. Lock-free.
    pub fn with<R>(&self, body: impl FnOnce(&T) -> R) -> R {
        let fork_generation = fork_generation();
        loop {
            // The reference keeps the value alive for a lock that `body` takes. In a child, it leaks the parent's value
            // that a thread of the parent used at the fork.
            let current = self.0.load_full();
            if let Some(own) = current.as_ref().filter(|current| current.fork_generation == fork_generation) {
                return body(&own.value);
            }
            let new = Arc::new(ValueOfProcess { fork_generation, value: T::default() });
            // Of two concurrent threads one wins.
            self.0.compare_and_swap(&current, Some(new));
        }
    }

    /// Discards the value: after a fork that this process could not detect.
    pub fn reset(&self) {
        self.0.store(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_child;
    use std::sync::Mutex;

    #[test]
    fn a_child_has_its_own_value_while_the_parent_holds_the_lock_of_its_value() {
        spanprof_signal::count_forks();
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::empty();
        COUNT.with(|count| {
            let mut held = count.lock().unwrap();
            *held = 7;
            in_child(|| {
                assert_eq!(COUNT.with(|count| *count.lock().unwrap()), 0);
                COUNT.with(|count| *count.lock().unwrap() = 1);
                in_child(|| assert_eq!(COUNT.with(|count| *count.lock().unwrap()), 0));
                assert_eq!(COUNT.with(|count| *count.lock().unwrap()), 1);
            });
            assert_eq!(*held, 7);
        });
        assert_eq!(COUNT.with(|count| *count.lock().unwrap()), 7);
    }
}
