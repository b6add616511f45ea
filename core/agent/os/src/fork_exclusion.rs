//! Lets no fork happen during calls whose locks a child would inherit, held for ever. glibc resets those of its allocator, stdio,
//! threads, `dlsym` and `dladdr` (`posix/fork.c`, `sysdeps/nptl/_Fork.c`, 2.17–2.43), but not those of:
//! - `dl_iterate_phdr`: `dl_load_write_lock`;
//! - `getaddrinfo`: of its configuration, modules and list of interfaces (`resolv/resolv_conf.c`, `nss/nss_module.c`, `check_pf.c`).
//!
//! musl resets all of its own. Call and fork wait for each other, but not for ever: their threads may need a lock of each other.

use std::ffi::{c_int, c_void};
use std::ptr::from_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::time::monotonic_ns;

/// Calls and forks in progress.
static CALLS: AtomicU32 = AtomicU32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The monotonic time at which the last fork began.
static LAST_FORK_NS: AtomicU64 = AtomicU64::new(0);

const MAX_WAIT_OF_FORK_NS: u64 = 20_000_000;
/// Forks of large processes take 100 ms.
const MAX_WAIT_OF_CALL_NS: u64 = 1_000_000_000;
const PAUSE: Duration = Duration::from_micros(50);

/// Runs `call` while no thread forks. Not for handlers.
pub fn exclude_forks<R>(call: impl FnOnce() -> R) -> R {
    let is_forking = || {
        FORKS.load(Ordering::SeqCst) != 0
            && monotonic_ns().saturating_sub(LAST_FORK_NS.load(Ordering::SeqCst)) < MAX_WAIT_OF_CALL_NS
    };
    CALLS.fetch_add(1, Ordering::SeqCst);
    while is_forking() {
        // The fork waits for calls.
        CALLS.fetch_sub(1, Ordering::SeqCst);
        sleep(PAUSE);
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    let result = call();
    CALLS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Calls `dl_iterate_phdr` while no thread forks. Not for handlers.
///
/// # Safety
/// `visit` uses its last argument as a `T`, during this call only.
pub unsafe fn iterate_loaded_objects<T>(
    visit: unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int,
    argument: &mut T,
) {
    #[allow(clippy::disallowed_methods, reason = "the only call")]
    // SAFETY: guaranteed by the caller.
    exclude_forks(|| unsafe { libc::dl_iterate_phdr(Some(visit), from_mut(argument).cast()) });
}

pub(crate) extern "C" fn before_fork() {
    let begin = monotonic_ns();
    LAST_FORK_NS.store(begin, Ordering::SeqCst);
    FORKS.fetch_add(1, Ordering::SeqCst);
    while CALLS.load(Ordering::SeqCst) != 0 && monotonic_ns().saturating_sub(begin) < MAX_WAIT_OF_FORK_NS {
        sleep(PAUSE);
    }
}

pub(crate) extern "C" fn after_fork_in_parent() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

pub(crate) fn reset_in_child() {
    CALLS.store(0, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::install_fork_hook;
    use crate::symbols::object_history::loader_counts;
    use crate::testing::in_child;
    use std::sync::atomic::AtomicBool;
    use std::thread::{spawn, yield_now};

    unsafe extern "C" fn call(_: *mut libc::dl_phdr_info, _: usize, body: *mut c_void) -> c_int {
        // SAFETY: the tests pass such a reference.
        unsafe { (*body.cast::<&mut dyn FnMut()>())() };
        1
    }

    #[test]
    fn a_fork_waits_for_a_call_that_excludes_it() {
        static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
        static HAS_ENDED: AtomicBool = AtomicBool::new(false);
        install_fork_hook();
        let caller = spawn(|| {
            exclude_forks(|| {
                HAS_BEGUN.store(true, Ordering::SeqCst);
                sleep(Duration::from_millis(2));
                HAS_ENDED.store(true, Ordering::SeqCst);
            });
        });
        while !HAS_BEGUN.load(Ordering::SeqCst) {
            yield_now();
        }
        let begin = monotonic_ns();
        in_child(|| {
            assert!(HAS_ENDED.load(Ordering::SeqCst) || monotonic_ns() - begin >= MAX_WAIT_OF_FORK_NS);
            // A fork whose end is not seen does not block calls.
            FORKS.store(1, Ordering::SeqCst);
            LAST_FORK_NS.store(begin - MAX_WAIT_OF_CALL_NS, Ordering::SeqCst);
            exclude_forks(|| ());
        });
        caller.join().unwrap();
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn a_program_can_fork_while_it_reads_the_list_itself() {
        install_fork_hook();
        let mut reader = None;
        let mut body: &mut dyn FnMut() = &mut || {
            reader = Some(spawn(loader_counts));
            while CALLS.load(Ordering::SeqCst) == 0 {
                yield_now();
            }
            in_child(|| assert_eq!(CALLS.load(Ordering::SeqCst), 0));
        };
        #[allow(clippy::disallowed_methods, reason = "a call of the program")]
        // SAFETY: `call` uses its argument as what it is.
        unsafe {
            libc::dl_iterate_phdr(Some(call), from_mut(&mut body).cast())
        };
        reader.unwrap().join().unwrap();
    }
}
