//! Beginning a thread as the C library does it, which holds in a forked child too: the standard library notes its threads
//! under a lock (`thread_info` in its sys/pal/unix/stack_overflow), at their end and in a program written in Rust at their
//! beginning, and a thread of the parent may have held it at the fork. Not here: what our threads owe the host
//! (`own_thread`). Its only caller.

use super::name_current_thread;
use std::ffi::CStr;
use std::io::Error;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A thread that was begun here. Dropped, it goes on by itself.
#[derive(Debug)]
pub(crate) struct StartedThread(libc::pthread_t);

struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread of this name, of which the kernel keeps 15 bytes. A panic of `body` ends the thread and nothing else. A
/// stack that the C library finds too small has its usual size.
pub(crate) fn start_thread(
    name: &'static CStr,
    stack_bytes: usize,
    body: Box<dyn FnOnce() + Send>,
) -> Result<StartedThread, Error> {
    let start = Box::into_raw(Box::new(Start { name, body }));
    let mut outcome = libc::EINVAL;
    for stack_bytes in [Some(stack_bytes), None] {
        let mut thread = 0;
        // SAFETY: all-zero attributes are initialized before they are read; `start` was made above and belongs to the thread
        // from the moment it exists.
        outcome = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            if let Some(stack_bytes) = stack_bytes {
                libc::pthread_attr_setstacksize(&mut attributes, stack_bytes);
            }
            let outcome = libc::pthread_create(&mut thread, &attributes, begin, start.cast());
            libc::pthread_attr_destroy(&mut attributes);
            outcome
        };
        match outcome {
            0 => return Ok(StartedThread(thread)),
            // What the program's thread-local storage takes comes out of the stack.
            libc::EINVAL => continue,
            _ => break,
        }
    }
    // SAFETY: no thread exists that could own it.
    drop(unsafe { Box::from_raw(start) });
    Err(Error::from_raw_os_error(outcome))
}

extern "C" fn begin(start: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `start_thread` made it for this thread alone.
    let Start { name, body } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    name_current_thread(name);
    // What a panic carries may panic again when dropped.
    if let Err(carried) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(carried);
    }
    std::ptr::null_mut()
}

impl StartedThread {
    /// Waits until it has ended.
    pub fn join(self) {
        // SAFETY: a thread is joined once and was not detached, since this is its only handle and is not dropped.
        unsafe { libc::pthread_join(ManuallyDrop::new(self).0, std::ptr::null_mut()) };
    }
}

impl Drop for StartedThread {
    fn drop(&mut self) {
        // SAFETY: as above; it was not joined.
        unsafe { libc::pthread_detach(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{thread_id, thread_name};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_thread_has_its_name_and_has_ended_when_it_is_joined() {
        let (tell, told) = channel();
        let body = move || tell.send(thread_name(thread_id())).unwrap();
        start_thread(c"weaver", 256 * 1024, Box::new(body)).unwrap().join();
        assert_eq!(told.try_recv().unwrap().as_deref(), Some("weaver"));
        assert!(told.try_recv().is_err());
    }

    fn has_stack_for_signals() -> bool {
        // SAFETY: an all-zero stack is a valid value to be written over.
        unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut stack) == 0 && stack.ss_flags & libc::SS_DISABLE == 0
        }
    }

    #[test]
    fn the_standard_library_notes_its_own_threads_and_not_ours() {
        // It gives each that it notes a stack for signals; this test is a program written in Rust.
        assert!(std::thread::spawn(has_stack_for_signals).join().unwrap());
        let (tell, told) = channel();
        let body = move || tell.send(has_stack_for_signals()).unwrap();
        start_thread(c"unnoted", 256 * 1024, Box::new(body)).unwrap().join();
        assert_eq!(told.try_recv(), Ok(false));
    }

    #[test]
    fn a_thread_whose_handle_is_dropped_goes_on() {
        let (tell, told) = channel();
        let (ask, asked) = channel();
        drop(start_thread(c"alone", 256 * 1024, Box::new(move || tell.send(asked.recv()).unwrap())).unwrap());
        ask.send(7).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(Ok(7)));
    }

    #[test]
    fn a_panic_ends_the_thread_alone() {
        start_thread(c"panics", 256 * 1024, Box::new(|| std::panic::resume_unwind(Box::new(7)))).unwrap().join();
    }

    #[test]
    fn a_stack_that_is_too_small_has_the_usual_size() {
        let (tell, told) = channel();
        start_thread(c"small", 1, Box::new(move || tell.send([1u8; 100_000]).unwrap())).unwrap().join();
        assert_eq!(told.try_recv().unwrap().len(), 100_000);
    }
}
