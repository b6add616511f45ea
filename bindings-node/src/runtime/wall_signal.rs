//! Self-walks for the wall sampler: its thread sends a wall request by the clock signal, and the JavaScript thread walks its own
//! stack in the handler. A thread whose CPU clock has not advanced since its last walk still has the same stack and gets no
//! signal, so that an idle process stays idle. The CPU time of the handler's return is tolerated: a thread that was in a system
//! call, and has used less than `RETURN_NS` since, is still in that call.
//!
//! # The exchange
//! One requester and one responder per thread. The requester writes REQUESTED, sends the signal, and waits on the state. A
//! handler that changes REQUESTED to WALKING writes the walk, which is read only when COMPLETE. A request without a response at
//! its deadline stays pending: a thread that waits for a processor responds as soon as it runs, and the next tick takes the
//! walk.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use spanprof::sys;
use spanprof_signal::{futex, guarded, wall_request, Captured, Context, DropReason, RawFrame, RawStack};

use super::js_thread_signal::{self, JsThread};
use super::ring_position_signal::RingPosition;
use super::turn_stacks_signal::{ObservedStack, TurnStacks, MAX_WAITING_STACKS};
use super::{capture_signal, context_signal, synthetic_frame};

const FREE: u32 = 0;
const REQUESTED: u32 = 1;
const WALKING: u32 = 2;
const COMPLETE: u32 = 3;
/// Timeout of a new request, and the shorter one of a request that was pending already.
const WALK_TIMEOUT_NS: u64 = 20_000_000;
const PENDING_TIMEOUT_NS: u64 = 2_000_000;
/// CPU time of the return from the handler into the interrupted system call: less than any callback takes.
const RETURN_NS: u64 = 20_000;
/// Maximum number of requests before the sample is dropped because code moved after each walk.
const MAX_REQUESTS: usize = 3;
/// Maximum number of frames per stack.
const MAX_FRAMES: usize = 512;

/// The last walk of a thread.
struct SelfWalk {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    truncated: bool,
    context: Context,
    /// Whether the thread was in a system call.
    in_system_call: bool,
    /// The thread's `address_epoch` during the walk: the frames are valid until it changes.
    address_epoch: u64,
}

/// The exchange with one thread; see the module documentation.
pub struct Exchange {
    state: AtomicU32,
    /// Id of the thread with a pending request, 0 without one. Accessed by the requester only.
    requested_thread: AtomicU32,
    walk: UnsafeCell<SelfWalk>,
    /// Whether the event loop was waiting for events during the last walk.
    is_idle: AtomicBool,
    /// Monotonic time of the last walk during such a wait, until `take_idle_until`; 0 without one.
    idle_until_ns: AtomicU64,
    /// The thread's CPU clock when the walk was last known to be current; 0 without a walk.
    cpu_ns: AtomicU64,
    /// Whether `cpu_ns` was read after the return into the system call.
    is_settled: AtomicBool,
    /// Observations since the last walk that found it current. Incremented by the requester, taken by the thread.
    repeats: AtomicU32,
    /// Stacks in which the thread waited in this turn of its event loop.
    waited: TurnStacks<MAX_WAITING_STACKS>,
}

// SAFETY: `walk` is accessed by the handler between WALKING and COMPLETE, and otherwise by the only requester.
unsafe impl Sync for Exchange {}

impl Exchange {
    pub fn new() -> Self {
        let none = RawFrame { code: 0, at: 0 };
        let walk = SelfWalk {
            frames: [none; MAX_FRAMES],
            len: 0,
            truncated: false,
            context: Context::None,
            in_system_call: false,
            address_epoch: 0,
        };
        Self {
            state: AtomicU32::new(FREE),
            requested_thread: AtomicU32::new(0),
            walk: UnsafeCell::new(walk),
            cpu_ns: AtomicU64::new(0),
            is_idle: AtomicBool::new(true),
            idle_until_ns: AtomicU64::new(0),
            is_settled: AtomicBool::new(false),
            repeats: AtomicU32::new(0),
            waited: TurnStacks::new(),
        }
    }

    /// Passes the stacks in which the thread has waited since the last call to `take`, with their numbers of observations.
    ///
    /// # Safety
    /// On the thread itself, not in its handler.
    pub unsafe fn take_waited(&self, take: impl FnOnce(&[ObservedStack])) {
        if self.repeats.load(Ordering::Relaxed) != 0 {
            // SAFETY: on the thread itself; its handler runs before or after this.
            unsafe { self.waited.repeat_last(self.repeats.swap(0, Ordering::Relaxed)) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.waited.take(take) };
    }

    /// Monotonic time of the last request during a wait for events, since the last call; 0 without one.
    pub fn take_idle_until(&self) -> u64 {
        self.idle_until_ns.swap(0, Ordering::Relaxed)
    }

    /// Whether a new walk would have the same result as the last one. Called by the requester only.
    fn is_current(&self, cpu_ns: u64) -> bool {
        let seen_ns = self.cpu_ns.load(Ordering::Relaxed);
        if seen_ns == 0 || cpu_ns == 0 || self.is_settled.load(Ordering::Relaxed) {
            return seen_ns == cpu_ns && cpu_ns != 0;
        }
        // SAFETY: no request is pending, so that no handler writes.
        let current = unsafe { (*self.walk.get()).in_system_call } && cpu_ns.saturating_sub(seen_ns) < RETURN_NS;
        if current {
            self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
            self.is_settled.store(true, Ordering::Relaxed);
        }
        current
    }

    /// Another thread takes over the entry.
    pub fn reset(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        self.cpu_ns.store(0, Ordering::Relaxed);
        self.requested_thread.store(0, Ordering::Relaxed);
    }
}

/// Whether every thread was waiting for events during its last walk. Otherwise only further ticks find waits inside a turn of
/// an event loop.
pub fn all_are_idle() -> bool {
    let mut threads = js_thread_signal::all().iter().filter(|thread| thread.thread_id.load(Ordering::Acquire) != 0);
    threads.all(|thread| thread.exchange().is_none_or(|exchange| exchange.is_idle.load(Ordering::Relaxed)))
}

/// Installs the handler, once. False when the signal is in use.
pub fn install() -> bool {
    sys::may_use(sys::SystemCall::RtTgsigqueueinfo)
        && wall_request::install::<SelfWalkResponder>(super::FALLBACK_SIGNAL)
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`].
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let thread = usize::try_from(handle).ok().and_then(|index| js_thread_signal::all().get(index));
    let entry = thread.filter(|thread| thread.thread_id.load(Ordering::Acquire) == thread_id);
    let Some((thread, exchange)) = entry.and_then(|thread| thread.exchange().map(|exchange| (thread, exchange))) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    for _ in 0..MAX_REQUESTS {
        if !exchange.is_current(sys::thread_cpu_ns(thread_id).unwrap_or(0)) {
            exchange.is_settled.store(false, Ordering::Relaxed);
            exchange.cpu_ns.store(0, Ordering::Relaxed);
            if !request_walk(thread, exchange, thread_id) {
                return Captured::Dropped(DropReason::SignalBlocked);
            }
            exchange.cpu_ns.store(sys::thread_cpu_ns(thread_id).unwrap_or(0), Ordering::Relaxed);
        } else {
            exchange.repeats.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: no request is pending, so that no handler writes.
        let walk = unsafe { &*exchange.walk.get() };
        if walk.address_epoch == thread.address_epoch.load(Ordering::Relaxed) {
            walk.copy_to(stack);
            return Captured::Walked;
        }
        // The walk is old: its thread has waited for a processor, and code may have moved since.
        exchange.cpu_ns.store(0, Ordering::Relaxed);
    }
    Captured::Dropped(DropReason::MovedDuringWalk)
}

impl SelfWalk {
    fn copy_to(&self, stack: &mut RawStack<'_>) {
        stack.context = self.context;
        for frame in self.frames.get(..self.len).unwrap_or(&[]) {
            stack.push(*frame);
        }
        if self.truncated {
            stack.push(RawFrame::default());
        }
    }
}

/// Requests a walk; true when it is complete.
fn request_walk(thread: &JsThread, exchange: &Exchange, thread_id: u32) -> bool {
    // A pending request of the entry's previous thread gets no response.
    let was_pending = exchange.requested_thread.swap(thread_id, Ordering::Relaxed) == thread_id;
    if !was_pending {
        exchange.state.store(REQUESTED, Ordering::Release);
    }
    // A pending request is sent again: a pending clock signal may have absorbed its signal.
    let is_complete = exchange.state.load(Ordering::Acquire) == COMPLETE;
    let is_sent = is_complete || wall_request::send(thread_id, std::ptr::from_ref(thread) as usize);
    if !is_sent && !was_pending {
        exchange.requested_thread.store(0, Ordering::Relaxed);
        return false;
    }
    let timeout_ns = if was_pending { PENDING_TIMEOUT_NS } else { WALK_TIMEOUT_NS };
    let deadline_ns = sys::monotonic_ns() + timeout_ns;
    loop {
        match exchange.state.load(Ordering::Acquire) {
            COMPLETE => break,
            _ if sys::monotonic_ns() >= deadline_ns => return false,
            state => futex::wait(&exchange.state, state, Some(timeout_ns)),
        };
    }
    exchange.requested_thread.store(0, Ordering::Relaxed);
    true
}

struct SelfWalkResponder;

impl wall_request::WallResponder for SelfWalkResponder {
    unsafe fn respond(value: usize, ucontext: *mut libc::c_void) {
        if let Some(thread) = js_thread_signal::by_address(value) {
            walk_self(thread, ucontext);
        }
    }
}

fn walk_self(thread: &JsThread, ucontext: *mut libc::c_void) {
    // SAFETY: gettid has no arguments and no effects.
    let own_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let Some(exchange) = thread.exchange() else { return };
    let is_requested =
        || exchange.state.compare_exchange(REQUESTED, WALKING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if thread.thread_id.load(Ordering::Relaxed) != own_id || !is_requested() {
        return;
    }
    // SAFETY: in state WALKING the walk belongs to this handler, until it is COMPLETE.
    let walk = unsafe { &mut *exchange.walk.get() };
    walk.address_epoch = thread.address_epoch.load(Ordering::Relaxed);
    let mut stack = RawStack::new(&mut walk.frames);
    stack.context = context_signal::read(thread);
    // SAFETY: the kernel's context of this signal, in the handler of the thread itself.
    unsafe { capture_signal::walk_interrupted(thread, ucontext, &mut stack) };
    let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
    (walk.len, walk.truncated, walk.context) = (len, truncated, context);
    // SAFETY: the kernel's context of this signal, in its handler.
    walk.in_system_call = unsafe { guarded::is_in_system_call(ucontext) };
    let frames = walk.frames.get(..len).unwrap_or(&[]);
    let is_idle = is_waiting_for_events(frames);
    exchange.is_idle.store(is_idle, Ordering::Relaxed);
    if is_idle {
        exchange.idle_until_ns.store(sys::monotonic_ns(), Ordering::Relaxed);
    }
    let repeats = exchange.repeats.swap(0, Ordering::Relaxed);
    // SAFETY: in a handler of the thread; the clocks' handler and this one exclude each other.
    unsafe {
        exchange.waited.repeat_last(repeats);
        match walk.in_system_call && !is_idle {
            true => exchange.waited.record(frames, context, RingPosition::now()),
            false => exchange.waited.end_last(),
        }
    }
    if is_idle {
        // The frames below are Node's own, and always the same.
        if let Some(caller) = walk.frames.get_mut(1) {
            *caller = synthetic_frame::IDLE;
            (walk.len, walk.truncated) = (2, false);
        }
    }
    exchange.state.store(COMPLETE, Ordering::Release);
    futex::wake(&exchange.state);
}

/// Upper bound of the size of libc's wait functions.
const WAIT_BYTES: usize = 192;

/// Addresses of libc's wait functions, looked up outside handlers.
static WAITS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Looks up the addresses for `is_waiting_for_events`. Outside handlers.
pub fn look_up_waits() {
    let waits: [*const (); 2] = [libc::epoll_wait as *const (), libc::epoll_pwait as *const ()];
    for (slot, wait) in WAITS.iter().zip(waits) {
        slot.store(wait as u64, Ordering::Relaxed);
    }
}

/// Whether the outermost event loop waits; `spawnSync` runs one of its own below JavaScript frames.
fn is_waiting_for_events(frames: &[RawFrame]) -> bool {
    let pc = frames.first().copied().and_then(RawFrame::native_pc).unwrap_or(0);
    let is_wait = WAITS.iter().any(|wait| {
        let start = wait.load(Ordering::Relaxed);
        start != 0 && pc.wrapping_sub(start) < WAIT_BYTES as u64
    });
    is_wait && !frames.iter().any(|frame| synthetic_frame::is_code(*frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(in_system_call: bool, cpu_ns: u64) -> Exchange {
        let mut exchange = Exchange::new();
        exchange.walk.get_mut().in_system_call = in_system_call;
        exchange.cpu_ns.store(cpu_ns, Ordering::Relaxed);
        exchange
    }

    #[test]
    fn a_thread_back_in_its_system_call_keeps_its_walk_until_its_clock_advances() {
        let exchange = walked(true, 1_000_000);
        assert!(exchange.is_current(1_004_000), "the return");
        assert!(exchange.is_current(1_004_000));
        assert!(!exchange.is_current(1_004_001), "it ran again");
    }

    #[test]
    fn a_loop_run_by_javascript_is_not_idle() {
        look_up_waits();
        let wait = RawFrame::native(libc::epoll_wait as *const () as u64 + 20);
        let (native, code) = (RawFrame::native(0x5000), RawFrame { code: 0x7000, at: 4 });
        assert!(is_waiting_for_events(&[wait, native]));
        for other in [&[wait, native, code][..], &[native, wait], &[]] {
            assert!(!is_waiting_for_events(other));
        }
    }

    #[test]
    fn a_pending_request_is_not_replaced_and_its_late_walk_is_taken_once() {
        let thread = js_thread_signal::claim().unwrap();
        let exchange = Exchange::new();
        exchange.requested_thread.store(u32::MAX, Ordering::Relaxed);
        exchange.state.store(REQUESTED, Ordering::Relaxed);
        // No thread has this id: a signal to it would fail, and close the request.
        assert!(!request_walk(thread, &exchange, u32::MAX));
        assert_eq!(exchange.requested_thread.load(Ordering::Relaxed), u32::MAX, "still pending");
        exchange.state.store(COMPLETE, Ordering::Relaxed);
        assert!(request_walk(thread, &exchange, u32::MAX));
        assert!(!request_walk(thread, &exchange, u32::MAX), "a new request, which no thread receives");
        thread.thread_id.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_walk_from_before_code_moved_is_discarded() {
        let thread = js_thread_signal::claim().unwrap();
        // No thread has this id: a new request fails at once.
        let id = u32::MAX - 1;
        thread.thread_id.store(id, Ordering::Release);
        let handle = js_thread_signal::all().iter().position(|other| std::ptr::eq(other, thread)).unwrap() as u64;
        let exchange = thread.exchange().unwrap();
        let captured_in = |epoch| {
            thread.address_epoch.store(epoch, Ordering::Relaxed);
            exchange.requested_thread.store(id, Ordering::Relaxed);
            exchange.state.store(COMPLETE, Ordering::Relaxed);
            let mut frames = [RawFrame::default(); 4];
            // SAFETY: no other thread uses this entry.
            unsafe { capture_other(handle, id, &mut RawStack::new(&mut frames)) }
        };
        assert_eq!(captured_in(0), Captured::Walked);
        assert_eq!(captured_in(1), Captured::Dropped(DropReason::SignalBlocked));
        thread.release();
    }

    #[test]
    fn a_request_left_pending_by_the_entrys_previous_thread_is_sent_to_the_next() {
        let thread = js_thread_signal::claim().unwrap();
        let exchange = Exchange::new();
        exchange.requested_thread.store(1 << 30, Ordering::Relaxed);
        exchange.state.store(REQUESTED, Ordering::Relaxed);
        // The new signal fails, which closes the request. A request that counted as pending would have stayed pending.
        assert!(!request_walk(thread, &exchange, u32::MAX));
        assert_eq!(exchange.requested_thread.load(Ordering::Relaxed), 0);
        thread.thread_id.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_thread_that_ran_is_walked_again() {
        assert!(!walked(true, 1_000_000).is_current(1_030_000));
        assert!(!walked(false, 1_000_000).is_current(1_001_000), "it was not waiting");
        assert!(!walked(true, 0).is_current(0), "it was never walked");
    }
}
