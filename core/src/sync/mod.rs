//! Locks for Rust programs whose waits appear in the profiles `contentions` and `delay`: [`Mutex`], [`RwLock`] and [`Condvar`]
//! with the API of `std::sync`. A program replaces `use std::sync::Mutex` by `use spanprof::sync::Mutex`. Each type wraps
//! the type of the standard library and behaves the same: poisoning, fairness, errors.
//!
//! A lock that is free is acquired without reading a clock or a setting. A wait is measured while the profiler runs with `lock`
//! ([`LockGuard`] has the rules). `Condvar` waits for a notification: that is idle time, not contention. The time in which
//! it acquires its mutex again cannot be separated from that, and is not contention either.
//!
//! Not for use in a global allocator: a wait that is measured allocates memory.
//!
//! ```
//! use spanprof::sync::Mutex;
//!
//! static STOCK: Mutex<u32> = Mutex::new(7);
//!
//! *STOCK.lock().unwrap() -= 1;
//! assert_eq!(*STOCK.lock().unwrap(), 6);
//! ```

mod condvar;
mod guard;
mod mutex;
mod rw_lock;
mod wait;

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult};

pub use condvar::Condvar;
pub use guard::LockGuard;
pub use mutex::{Mutex, MutexGuard};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
