//! Reads of the dynamic linker's list of objects, which exclude forks: glibc does not reset the lock of `dl_iterate_phdr`
//! (`dl_load_write_lock`) in a forked child (`posix/fork.c`, `sysdeps/nptl/_Fork.c`, 2.17–2.43). Neither waits for ever: their threads
//! may need a lock of each other.

use std::ffi::{c_int, c_void};
use std::ptr::from_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::time::monotonic_ns;

/// Reads and forks in progress.
static READS: AtomicU32 = AtomicU32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The monotonic time at which the last fork began.
static LAST_FORK_NS: AtomicU64 = AtomicU64::new(0);

const MAX_WAIT_OF_FORK_NS: u64 = 20_000_000;
/// Forks of large processes take 100 ms.
const MAX_WAIT_OF_READ_NS: u64 = 1_000_000_000;

/// Calls `dl_iterate_phdr` while no thread forks. Not for handlers.
///
/// # Safety
/// `visit` uses its last argument as a `T`, during this call only.
pub unsafe fn iterate_loaded_objects<T>(
    visit: unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int,
    argument: &mut T,
) {
    let is_forking = || {
        FORKS.load(Ordering::SeqCst) != 0
            && monotonic_ns().saturating_sub(LAST_FORK_NS.load(Ordering::SeqCst)) < MAX_WAIT_OF_READ_NS
    };
    READS.fetch_add(1, Ordering::SeqCst);
    while is_forking() {
        // The fork waits for reads.
        READS.fetch_sub(1, Ordering::SeqCst);
        std::thread::yield_now();
        READS.fetch_add(1, Ordering::SeqCst);
    }
    #[allow(clippy::disallowed_methods, reason = "the only call")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        libc::dl_iterate_phdr(Some(visit), from_mut(argument).cast())
    };
    READS.fetch_sub(1, Ordering::SeqCst);
}

pub(crate) extern "C" fn before_fork() {
    let begin = monotonic_ns();
    LAST_FORK_NS.store(begin, Ordering::SeqCst);
    FORKS.fetch_add(1, Ordering::SeqCst);
    while READS.load(Ordering::SeqCst) != 0 && monotonic_ns().saturating_sub(begin) < MAX_WAIT_OF_FORK_NS {
        std::thread::yield_now();
    }
}

pub(crate) extern "C" fn after_fork_in_parent() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

pub(crate) fn reset_in_child() {
    READS.store(0, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install_fork_hook;
    use crate::testing::in_child;
    use std::sync::atomic::AtomicBool;
    use std::thread::{sleep, spawn, yield_now};
    use std::time::Duration;

    unsafe extern "C" fn call(_: *mut libc::dl_phdr_info, _: usize, body: *mut c_void) -> c_int {
        // SAFETY: the tests pass such a reference.
        unsafe { (*body.cast::<&mut dyn FnMut()>())() };
        1
    }

    fn read(body: &mut dyn FnMut()) {
        let mut body = body;
        // SAFETY: `call` uses its argument as what it is.
        unsafe { iterate_loaded_objects(call, &mut body) };
    }

    #[test]
    fn a_fork_waits_for_a_read_of_the_linkers_list() {
        static IS_READING: AtomicBool = AtomicBool::new(false);
        static IS_READ: AtomicBool = AtomicBool::new(false);
        install_fork_hook();
        let reader = spawn(|| {
            read(&mut || {
                IS_READING.store(true, Ordering::SeqCst);
                sleep(Duration::from_millis(2));
                IS_READ.store(true, Ordering::SeqCst);
            });
        });
        while !IS_READING.load(Ordering::SeqCst) {
            yield_now();
        }
        let begin = monotonic_ns();
        in_child(|| {
            assert!(IS_READ.load(Ordering::SeqCst) || monotonic_ns() - begin >= MAX_WAIT_OF_FORK_NS);
            // A fork whose end is not seen does not block reads.
            FORKS.store(1, Ordering::SeqCst);
            LAST_FORK_NS.store(begin - MAX_WAIT_OF_READ_NS, Ordering::SeqCst);
            read(&mut || ());
        });
        reader.join().unwrap();
    }

    #[test]
    fn a_program_can_fork_while_it_reads_the_list_itself() {
        install_fork_hook();
        let mut reader = None;
        let mut body: &mut dyn FnMut() = &mut || {
            reader = Some(spawn(|| read(&mut || ())));
            while READS.load(Ordering::SeqCst) == 0 {
                yield_now();
            }
            in_child(|| assert_eq!(READS.load(Ordering::SeqCst), 0));
        };
        #[allow(clippy::disallowed_methods, reason = "a call of the program")]
        // SAFETY: `call` uses its argument as what it is.
        unsafe {
            libc::dl_iterate_phdr(Some(call), from_mut(&mut body).cast())
        };
        reader.unwrap().join().unwrap();
    }
}
