//! Runs the heap profile's work on JavaScript threads when another thread requires it: by an event of libuv where the thread
//! waits, and by an interrupt of V8 where it runs JavaScript. Whichever comes first does the work.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::session;
use crate::runtime::v8::lookup;
use crate::runtime::walk::js_thread::{self, JsThread};

/// Upper bound of `uv_async_t` in words: larger than in any libuv so far.
const HANDLE_WORDS: usize = 64;
/// `UV_ASYNC`.
const ASYNC: c_int = 1;
const POLL: Duration = Duration::from_micros(300);

#[repr(C)]
struct AsyncHandle([usize; HANDLE_WORDS]);

type AsyncCallback = extern "C" fn(*mut AsyncHandle);
type InterruptCallback = extern "C" fn(usize, *mut c_void);

struct RequestFunctions {
    async_init: unsafe extern "C" fn(*mut c_void, *mut AsyncHandle, AsyncCallback) -> c_int,
    async_send: unsafe extern "C" fn(*mut AsyncHandle) -> c_int,
    unref: unsafe extern "C" fn(*mut AsyncHandle),
    close: unsafe extern "C" fn(*mut AsyncHandle, Option<AsyncCallback>),
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    interrupt: unsafe extern "C" fn(usize, InterruptCallback, *mut c_void),
}

fn functions() -> Option<&'static RequestFunctions> {
    static FUNCTIONS: OnceLock<Option<RequestFunctions>> = OnceLock::new();
    FUNCTIONS
        .get_or_init(|| {
            Some(RequestFunctions {
                async_init: lookup::function!(c"uv_async_init")?,
                async_send: lookup::function!(c"uv_async_send")?,
                unref: lookup::function!(c"uv_unref")?,
                close: lookup::function!(c"uv_close")?,
                handle_size: lookup::function!(c"uv_handle_size")?,
                interrupt: lookup::function!(c"_ZN2v87Isolate16RequestInterruptEPFvPS0_PvES2_")?,
            })
        })
        .as_ref()
}

/// A JavaScript thread that accepts requests.
struct Recipient {
    thread: &'static JsThread,
    isolate: usize,
    /// The open `AsyncHandle`.
    handle: usize,
}

/// A thread leaves the list before its isolate and its loop end. A request is sent under the lock.
static RECIPIENTS: Mutex<Vec<Recipient>> = Mutex::new(Vec::new());
/// Number of the last request.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// The calling thread accepts requests from here on. `event_loop`: its `uv_loop_t`.
pub fn accept(thread: &'static JsThread, event_loop: usize) {
    let (Some(functions), false) = (functions(), event_loop == 0) else { return };
    // SAFETY: on the loop's thread, while it lives. The handle is larger than `uv_handle_size` and lives until it is closed.
    let handle = unsafe {
        if (functions.handle_size)(ASYNC) > size_of::<AsyncHandle>() {
            return;
        }
        let handle = Box::into_raw(Box::new(AsyncHandle([0; HANDLE_WORDS])));
        if (functions.async_init)(event_loop as *mut c_void, handle, on_async) != 0 {
            return drop(Box::from_raw(handle));
        }
        // The handle does not keep the loop alive.
        (functions.unref)(handle);
        handle as usize
    };
    let isolate = thread.isolate.load(Ordering::Relaxed);
    RECIPIENTS.lock().unwrap_or_else(PoisonError::into_inner).push(Recipient { thread, isolate, handle });
}

/// The calling thread's environment ends.
pub fn refuse(thread: &JsThread) {
    let mut recipients = RECIPIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let index = recipients.iter().position(|recipient| std::ptr::eq(recipient.thread, thread));
    let Some(recipient) = index.map(|index| recipients.swap_remove(index)) else { return };
    drop(recipients);
    if let Some(functions) = functions() {
        // SAFETY: on the loop's thread, which Node.js still runs before it closes the loop; the handle was opened above.
        unsafe { (functions.close)(recipient.handle as *mut AsyncHandle, Some(closed)) };
    }
}

extern "C" fn closed(handle: *mut AsyncHandle) {
    // SAFETY: libuv's close callback of a handle that `accept` boxed; libuv does not use it again.
    drop(unsafe { Box::from_raw(handle) });
}

extern "C" fn on_async(_handle: *mut AsyncHandle) {
    serve();
}

extern "C" fn on_interrupt(_isolate: usize, _data: *mut c_void) {
    serve();
}

/// Does the work of the requests so far, on the calling JavaScript thread.
fn serve() {
    // A panic must not unwind through V8 or libuv.
    spanprof_profiler::binding::ffi_guard((), || {
        let Some(thread) = js_thread::current() else { return };
        let request = REQUESTS.load(Ordering::Acquire);
        if thread.heap_request_served.load(Ordering::Relaxed) < request {
            session::follow_core();
            thread.heap_request_served.store(request, Ordering::Release);
        }
    });
}

/// Requests that all JavaScript threads but the calling one follow the core's heap profile and submit their samples. Waits at
/// most for `timeout`; returns the number of threads that did not finish.
pub fn send(timeout: Duration) -> usize {
    let Some(functions) = functions() else { return 0 };
    let own = spanprof_os::thread_id();
    let (request, mut pending) = {
        let recipients = RECIPIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let request = REQUESTS.fetch_add(1, Ordering::AcqRel) + 1;
        let others = recipients.iter().filter(|recipient| recipient.thread.thread_id.load(Ordering::Relaxed) != own);
        for Recipient { isolate, handle, .. } in others.clone() {
            // SAFETY: the thread is in the list, so neither its isolate nor its loop has ended; both calls are safe on any thread.
            unsafe {
                (functions.interrupt)(*isolate, on_interrupt, std::ptr::null_mut());
                (functions.async_send)(*handle as *mut AsyncHandle);
            }
        }
        let waiting = others.filter(|recipient| !recipient.thread.is_in_profiler.load(Ordering::Acquire));
        (request, waiting.map(|recipient| recipient.thread).collect::<Vec<_>>())
    };
    let deadline = Instant::now() + timeout;
    loop {
        pending.retain(|thread| {
            let has_ended = thread.thread_id.load(Ordering::Relaxed) == 0;
            !has_ended && thread.heap_request_served.load(Ordering::Acquire) < request
        });
        if pending.is_empty() || Instant::now() >= deadline {
            return pending.len();
        }
        std::thread::sleep(POLL);
    }
}
