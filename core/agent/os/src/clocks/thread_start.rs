//! Starts threads through the C library, which is safe in a forked child. The standard library registers its threads
//! under a lock (`thread_info` in its sys/pal/unix/stack_overflow): at their end, and in Rust programs at their
//! start. A parent's thread may hold that lock at the fork.

use crate::clocks::thread_clocks::Clocks;
use crate::memory::mapping::ReservedAddresses;
use crate::threads::listing::name_current_thread;
use std::ffi::CStr;
use std::io::Error;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Least address space for a start: a stack, and the first allocations of the thread. The C library ends a process that has no
/// memory for the storage of a thread that runs (see [`ReservedAddresses`]).
const LEAST_BYTES: usize = 8 << 20;

const _: () = assert!(size_of::<libc::pthread_t>() == size_of::<usize>());

/// A started thread, by its `pthread_t`: a number in glibc, a pointer in musl. Detached when dropped.
#[derive(Debug)]
pub struct StartedThread(usize);

struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
    /// Held until the thread runs: a program that allocates meanwhile does not take the memory of its storage.
    reserved: ReservedAddresses,
}

/// Starts a thread of the profiler: exempt from sampling, and its CPU time is the profiler's. `body` catches its own
/// panics where they need handling.
///
/// # Errors
/// The error of `pthread_create`, also when too little address space is left.
pub fn start_own_thread(
    name: &'static CStr,
    stack_bytes: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<StartedThread, Error> {
    let exempt_body = move || {
        let _exempt = Clocks::exempt_current_thread();
        body();
    };
    start_thread(name, stack_bytes, Box::new(exempt_body))
}

/// Starts a thread with this name, of which the kernel keeps 15 bytes. A panic of `body` ends only the thread. A
/// stack size below the C library's minimum becomes the default size.
fn start_thread(
    name: &'static CStr,
    stack_bytes: usize,
    body: Box<dyn FnOnce() + Send>,
) -> Result<StartedThread, Error> {
    let Some(reserved) = ReservedAddresses::new(LEAST_BYTES) else {
        return Err(Error::from_raw_os_error(libc::ENOMEM));
    };
    let start = Box::into_raw(Box::new(Start { name, body, reserved }));
    let mut outcome = libc::EINVAL;
    for stack_bytes in [Some(stack_bytes), None] {
        let mut thread = 0usize;
        // SAFETY: the all-zero attributes are initialized before use; `thread` has the size of a `pthread_t`; `start` was created above
        // and belongs to the thread once that exists.
        outcome = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            if let Some(stack_bytes) = stack_bytes {
                libc::pthread_attr_setstacksize(&mut attributes, stack_bytes);
            }
            let outcome = libc::pthread_create((&raw mut thread).cast(), &attributes, run_thread, start.cast());
            libc::pthread_attr_destroy(&mut attributes);
            outcome
        };
        match outcome {
            0 => return Ok(StartedThread(thread)),
            // The program's thread-local storage is part of the stack size.
            libc::EINVAL => continue,
            _ => break,
        }
    }
    // SAFETY: no thread was created that could own it.
    drop(unsafe { Box::from_raw(start) });
    Err(Error::from_raw_os_error(outcome))
}

thread_local!(static STORAGE: u8 = const { 0 });

extern "C" fn run_thread(start: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `start_thread` created it for this thread alone.
    let Start { name, body, reserved } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    drop(reserved);
    // The first access allocates this library's part of the thread's storage, before the program can take the memory.
    STORAGE.with(|storage| std::hint::black_box(std::ptr::from_ref(storage)));
    name_current_thread(name);
    // The payload of a panic may panic again when dropped.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(payload);
    }
    std::ptr::null_mut()
}

impl StartedThread {
    /// Waits for the thread's end.
    pub fn join(self) {
        // SAFETY: joined once and not detached, since this is the only handle and it is not dropped.
        unsafe { libc::pthread_join(ManuallyDrop::new(self).0 as libc::pthread_t, std::ptr::null_mut()) };
    }
}

impl Drop for StartedThread {
    fn drop(&mut self) {
        // SAFETY: not joined, since `join` consumes the handle without dropping it.
        unsafe { libc::pthread_detach(self.0 as libc::pthread_t) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::listing::{thread_id, thread_name};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_thread_has_its_name_and_has_ended_when_it_is_joined() {
        let (sender, receiver) = channel();
        let body = move || sender.send(thread_name(thread_id())).unwrap();
        start_thread(c"weaver", 256 * 1024, Box::new(body)).unwrap().join();
        assert_eq!(receiver.try_recv().unwrap().as_deref(), Some("weaver"));
        assert!(receiver.try_recv().is_err());
    }

    fn has_signal_stack() -> bool {
        // SAFETY: an all-zero stack is a valid value to be written over.
        unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut stack) == 0 && stack.ss_flags & libc::SS_DISABLE == 0
        }
    }

    #[test]
    fn the_standard_library_registers_its_own_threads_and_not_ours() {
        // It allocates a signal stack for each thread that it registers; this test is a Rust program.
        assert!(std::thread::spawn(has_signal_stack).join().unwrap());
        let (sender, receiver) = channel();
        let body = move || sender.send(has_signal_stack()).unwrap();
        start_thread(c"unregistered", 256 * 1024, Box::new(body)).unwrap().join();
        assert_eq!(receiver.try_recv(), Ok(false));
    }

    #[test]
    fn a_thread_with_a_dropped_handle_continues() {
        let (sender, receiver) = channel();
        let (start, started) = channel();
        drop(start_thread(c"alone", 256 * 1024, Box::new(move || sender.send(started.recv()).unwrap())).unwrap());
        start.send(7).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(Ok(7)));
    }

    #[test]
    fn a_panic_ends_the_thread_alone() {
        start_thread(c"panics", 256 * 1024, Box::new(|| std::panic::resume_unwind(Box::new(7)))).unwrap().join();
    }

    #[test]
    fn a_stack_size_below_the_minimum_becomes_the_default() {
        let (sender, receiver) = channel();
        start_thread(c"small", 1, Box::new(move || sender.send([1u8; 100_000]).unwrap())).unwrap().join();
        assert_eq!(receiver.try_recv().unwrap().len(), 100_000);
    }
}
