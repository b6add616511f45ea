//! What a future awaits. No stack has a future that waits: it has unwound. But the future at the end of the chain, of a timer, a socket or
//! a lock, clones the waker with which it is polled (`core::task::Waker`, Rust 1.88 to 1.95), and at that time the chain is on the stack.
//! Of several clones in a poll, the first one counts: `timeout` and `select!` poll the work before their timer.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use spanprof_profiler::binding::{awaits_are_reported, count_unrecorded_await, LockWait, WaitStart};
use spanprof_signal::SampleFlags;

use super::walk::walk_calling_thread;
use spanprof_unwind::Registers;

/// Walks in 1.07 s, about 1 % of a processor at 1.8 µs each. Further waits of that time are counted only.
const MAX_WALKS: u64 = 5_000;
/// The time in units of 1.07 s, and the walks in it. Threads that race at its end may make a few more.
static WALKS: AtomicU64 = AtomicU64::new(0);

fn may_walk() -> bool {
    let period = (spanprof_os::monotonic_ns() >> 30) << 32;
    if WALKS.load(Ordering::Relaxed) < period {
        WALKS.store(period, Ordering::Relaxed);
    }
    WALKS.fetch_add(1, Ordering::Relaxed).wrapping_sub(period) < MAX_WALKS
}

thread_local! {
    /// The waker of the poll that this thread is in.
    static POLLED: Cell<*const AwaitWaker> = const { Cell::new(ptr::null()) };
}

/// In the place of a waker that was cloned in this poll.
const KEPT: *const AwaitWaker = ptr::dangling();

/// The waits of one future: each is submitted when it ends, and the last one when the future is dropped.
#[derive(Debug, Default)]
pub(crate) struct Awaits(Option<Arc<AwaitWaker>>);

/// Wakes the task, and has the stack of the code that waits.
struct AwaitWaker {
    task: Waker,
    wait: Mutex<Option<Box<LockWait>>>,
}

impl std::fmt::Debug for AwaitWaker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.task.fmt(formatter)
    }
}

impl Awaits {
    /// Polls the future, with the task's waker where waits are not reported, or are those of a future around it.
    pub fn poll<T>(&mut self, task: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let last = self.end();
        if !awaits_are_reported() || !POLLED.get().is_null() {
            self.0 = None;
            return poll(task);
        }
        // The same waker at each poll: timers and sockets keep a waker that wakes the same task.
        let known = self.0.take().filter(|known| known.task.will_wake(task.waker()));
        let own = known.unwrap_or_else(|| Arc::new(AwaitWaker { task: task.waker().clone(), wait: Mutex::default() }));
        let waker = own.waker();
        let (polled, is_kept) = {
            let _reset = Polled(POLLED.replace(Arc::as_ptr(&own)));
            (poll(&mut Context::from_waker(&waker)), POLLED.get() == KEPT)
        };
        if polled.is_pending() {
            if !is_kept {
                own.wait_again(last);
            }
            self.0 = Some(own);
        }
        polled
    }

    fn end(&self) -> Option<Box<LockWait>> {
        let wait = self.0.as_ref()?.wait().take()?;
        wait.submit_await();
        Some(wait)
    }
}

impl Drop for Awaits {
    fn drop(&mut self) {
        self.end();
    }
}

/// Restores the waker of the poll around this one.
struct Polled(*const AwaitWaker);

impl Drop for Polled {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

impl AwaitWaker {
    fn wait(&self) -> std::sync::MutexGuard<'_, Option<Box<LockWait>>> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where nothing cloned the waker, the code of the last wait has kept it.
    fn wait_again(&self, last: Option<Box<LockWait>>) {
        let mut wait = self.wait();
        if let (None, Some(mut last), Some(start)) = (&*wait, last, WaitStart::of_await()) {
            last.restart(start);
            *wait = Some(last);
        }
    }

    fn keep_stack(&self, from: &Registers) {
        let mut wait = self.wait();
        if let (None, Some(start)) = (&*wait, WaitStart::of_await()) {
            *wait = LockWait::begin_at(start, 0, |stack| {
                walk_calling_thread(from, stack);
                SampleFlags(0)
            });
        }
    }

    fn waker(self: &Arc<Self>) -> Waker {
        let data = Arc::into_raw(Arc::clone(self)).cast();
        // SAFETY: the functions of the table treat `data` as the counted reference that it is; `AwaitWaker` is `Send` and `Sync`.
        unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) }
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

#[inline(never)]
unsafe fn clone(data: *const ()) -> RawWaker {
    let data: *const AwaitWaker = data.cast();
    if POLLED.get() == data {
        POLLED.set(KEPT);
        if may_walk() {
            // SAFETY: the waker that is cloned has a reference.
            unsafe { &*data }.keep_stack(&Registers::here());
        } else {
            count_unrecorded_await();
        }
    }
    // SAFETY: as above; it becomes that of the new waker.
    unsafe { Arc::increment_strong_count(data) };
    RawWaker::new(data.cast(), &TABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the reference of the waker, which ends here.
    unsafe { Arc::from_raw(data.cast::<AwaitWaker>()) }.task.wake_by_ref();
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker has a reference.
    unsafe { &*data.cast::<AwaitWaker>() }.task.wake_by_ref();
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the reference of the waker, which ends here.
    drop(unsafe { Arc::from_raw(data.cast::<AwaitWaker>()) });
}
