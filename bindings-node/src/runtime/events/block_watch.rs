//! Finds the stacks in which an event loop is blocked off the CPU, without the wall sampler. `event_loop` attributes the block to
//! them. Blocks on the CPU have the stacks of the CPU clock.
//!
//! libuv calls nothing when a loop stops waiting, so V8 calls `javascript_begins` before a turn enters JavaScript. The first such
//! call of a turn stores its time, and wakes the watcher thread if that sleeps. The watcher inspects each loop when its turn would
//! reach the threshold, and requests a self-walk (`threads::self_walks`) if it does. As long as the block lasts, the thread gets a further
//! request only after it ran and then waited again. The watcher sleeps when it finds all loops waiting for events: an idle loop
//! causes no wakeup and no request.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use spanprof_profiler::binding::{ffi_guard, SelfWalks};
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{futex, Captured, DropReason, RawFrame, RawStack};

use super::event_loop;
use crate::runtime::threads::{self_walks, signals};
use crate::runtime::v8;
use crate::runtime::walk::js_thread::{self, JsThread};
use crate::runtime::walk::turn_stacks::ObservedWaits;

thread_local! {
    static THREAD: Cell<Option<&'static JsThread>> = const { Cell::new(None) };
}

/// No watcher was started.
const ABSENT: u32 = 0;
/// The watcher sleeps until a turn begins.
const ASLEEP: u32 = 1;
/// The watcher inspects the loops at intervals.
const AWAKE: u32 = 2;
/// The state of the watcher, on which it sleeps.
static STATE: AtomicU32 = AtomicU32::new(ABSENT);

/// Shortest time between two inspections.
const MIN_INTERVAL_NS: u64 = 10_000_000;
/// Time for which an inspection waits for the self-walks.
const WALK_TIMEOUT: Duration = Duration::from_millis(5);
/// More than the walk of a loop has.
const MAX_FRAMES: usize = 1024;

/// The event loop of the calling thread is measured from here on.
pub fn begin(thread: &'static JsThread) {
    THREAD.set(Some(thread));
    if let Some((v8, add)) = v8::published().and_then(|v8| Some((v8, v8.add_before_call?))) {
        let isolate = thread.isolate.load(Ordering::Relaxed);
        if v8.remove_before_call.is_some() {
            // SAFETY: on the isolate's thread; the callback has static lifetime.
            unsafe { add(isolate, javascript_begins) };
        }
    }
    watch_current_turn();
}

/// The event loop of the calling thread ends.
pub fn end(thread: &JsThread) {
    THREAD.set(None);
    thread.turn_began_ns.store(0, Ordering::Relaxed);
    if let Some(remove) = v8::published().and_then(|v8| v8.remove_before_call) {
        // SAFETY: on the isolate's thread.
        unsafe { remove(thread.isolate.load(Ordering::Relaxed), javascript_begins) };
    }
}

/// Watches the turn that the calling thread is in.
pub fn watch_current_turn() {
    if let Some(thread) = THREAD.get().filter(|_| event_loop::threshold_ns() != 0) {
        turn_begins(thread);
    }
}

extern "C" fn javascript_begins(_isolate: usize) {
    let Some(thread) = THREAD.get() else { return };
    if thread.turn_began_ns.load(Ordering::Relaxed) == 0 && event_loop::threshold_ns() != 0 {
        // A panic must not unwind through V8.
        ffi_guard((), || turn_begins(thread));
    }
}

fn turn_begins(thread: &JsThread) {
    // Before the state is read, and the watcher writes the state before it reads this: one of both sees the other.
    thread.turn_began_ns.store(spanprof_os::monotonic_ns(), Ordering::SeqCst);
    let state = STATE.load(Ordering::SeqCst);
    let is_ready = state == ASLEEP || state == ABSENT && signals::may_signal();
    if !is_ready || ProfilerHandle::running().is_none() {
        return;
    }
    if STATE.compare_exchange(state, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_err() {
        // Another thread was first.
    } else if state == ASLEEP {
        futex::wake(&STATE);
    } else {
        // Without the thread, blocks have the frame `(not on the CPU)`.
        let _ = spanprof_os::start_own_thread(c"spanprof-loops", 128 * 1024, || ffi_guard((), watch));
    }
}

/// The thread of the watcher.
fn watch() {
    if !self_walks::begin(true) {
        return;
    }
    let mut watcher = Watcher { loops: Vec::new(), frames: vec![RawFrame::default(); MAX_FRAMES] };
    loop {
        if let Some(sleep_ns) = watcher.inspect() {
            std::thread::sleep(Duration::from_nanos(sleep_ns));
            continue;
        }
        STATE.store(ASLEEP, Ordering::SeqCst);
        if watcher.inspect().is_some() {
            // A turn began before the state was stored.
            STATE.store(AWAKE, Ordering::SeqCst);
        }
        while STATE.load(Ordering::SeqCst) == ASLEEP {
            futex::wait(&STATE, ASLEEP, None);
        }
    }
}

struct Watcher {
    /// By the index of the thread.
    loops: Vec<WatchedLoop>,
    frames: Vec<RawFrame>,
}

/// The state of a loop at the last inspection that found it blocked.
#[derive(Clone, Copy, Default)]
struct WatchedLoop {
    /// Identifies the turn.
    turn_began_ns: u64,
    inspected_ns: u64,
    cpu_ns: u64,
    /// Whether a self-walk is requested and not complete.
    is_pending: bool,
}

impl Watcher {
    /// Requests walks of the loops that are blocked. Returns the time until the next inspection; `None` while all wait for events, or
    /// are not profiled. Pending walks are completed first: a later user of `SelfWalks` must not find their responses.
    fn inspect(&mut self) -> Option<u64> {
        let interval_ns = event_loop::threshold_ns().max(MIN_INTERVAL_NS);
        if event_loop::threshold_ns() == 0 || ProfilerHandle::running().is_none() {
            return None;
        }
        let (threads, now_ns) = (js_thread::all(), spanprof_os::monotonic_ns());
        self.loops.resize(threads.len(), WatchedLoop::default());
        let mut due_ns: Option<u64> = None;
        for (index, thread) in threads.iter().enumerate() {
            let began_ns = thread.turn_began_ns.load(Ordering::SeqCst);
            let busy_ns = now_ns.saturating_sub(began_ns);
            if began_ns != 0 {
                let left_ns = interval_ns.saturating_sub(busy_ns);
                due_ns = due_ns.into_iter().chain([if left_ns == 0 { interval_ns } else { left_ns }]).min();
            }
            if began_ns != 0 && busy_ns >= interval_ns {
                self.inspect_block(index, thread, began_ns, now_ns);
            } else if self.loops[index].is_pending {
                self.loops[index].is_pending = self.walk(index, thread);
            }
        }
        if self.loops.iter().any(|watched| watched.is_pending) {
            SelfWalks::of_process().wait(WALK_TIMEOUT);
            for (index, thread) in threads.iter().enumerate() {
                if self.loops[index].is_pending {
                    self.complete(index, thread);
                }
            }
        }
        due_ns.or(self.loops.iter().any(|watched| watched.is_pending).then_some(interval_ns))
    }

    /// Takes the response of a pending walk, if there is one.
    fn complete(&mut self, index: usize, thread: &JsThread) {
        self.loops[index].is_pending = self.walk(index, thread);
        if !self.loops[index].is_pending && thread.waits().is_some_and(ObservedWaits::is_idle) {
            // JavaScript ran after the turn had ended, and the loop waits for events.
            let began_ns = self.loops[index].turn_began_ns;
            let _ = thread.turn_began_ns.compare_exchange(began_ns, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Walks a blocked thread, unless it used the CPU for most of the time since the last inspection.
    fn inspect_block(&mut self, index: usize, thread: &JsThread, turn_began_ns: u64, now_ns: u64) {
        let thread_id = thread.thread_id.load(Ordering::Acquire);
        let Some(cpu_ns) = spanprof_os::thread_cpu_ns(thread_id) else { return };
        let previous = self.loops[index];
        let is_first = previous.turn_began_ns != turn_began_ns;
        let elapsed_ns = now_ns.saturating_sub(previous.inspected_ns);
        let is_off_cpu = is_first || cpu_ns.saturating_sub(previous.cpu_ns) < elapsed_ns / 2;
        // A thread without a processor gets no signal, nor does one whose wait the kernel does not show.
        let is_waiting = is_off_cpu && spanprof_os::system_call_wait(thread_id).is_some();
        let is_pending = (is_waiting || previous.is_pending) && self.walk(index, thread);
        self.loops[index] = WatchedLoop { turn_began_ns, inspected_ns: now_ns, cpu_ns, is_pending };
    }

    /// Requests a self-walk, takes the response, or counts the last walk again if the thread did not run since. The handler
    /// records the stack in `ObservedWaits`. True while the walk is pending.
    fn walk(&mut self, index: usize, thread: &JsThread) -> bool {
        let mut stack = RawStack::new(&mut self.frames);
        // SAFETY: outside handlers.
        let captured =
            unsafe { self_walks::capture_other(index as u64, thread.thread_id.load(Ordering::Acquire), &mut stack) };
        captured == Captured::Dropped(DropReason::SignalBlocked)
    }
}
