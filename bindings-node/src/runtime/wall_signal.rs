//! Self-walks for the wall sampler: its thread sends a wall request by the clock signal, and the JavaScript thread walks its own
//! stack in the handler. A thread whose CPU clock has not advanced since its last walk still has the same stack and gets no
//! signal, so that an idle process stays idle. The CPU time of the handler's return is tolerated: a thread that was in a system
//! call, and has used less than `RETURN_NS` since, is still in that call.
//!
//! # The exchange
//! One tick sends a wall request to each thread, and then waits once for all of them. A request without a response by then stays
//! pending: a thread that waits for a processor responds as soon as it runs, and the next tick takes the walk. The protocol of a
//! request and of the wait is `spanprof_signal::exchange`. The last response of a thread stays in its request, and is the
//! thread's stack until its CPU clock advances.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use spanprof::sys;
use spanprof_signal::exchange::{Round, Stage, WallRequest};
use spanprof_signal::{guarded, wall_request, Captured, Context, DropReason, RawFrame, RawStack};

use super::js_thread_signal::{self, JsThread};
use super::ring_position_signal::RingPosition;
use super::turn_stacks_signal::{ObservedStack, TurnStacks, MAX_WAITING_STACKS};
use super::{capture_signal, context_signal, synthetic_frame};

/// CPU time of the return from the handler into the interrupted system call: less than any callback takes.
const RETURN_NS: u64 = 20_000;
/// Maximum number of requests before the sample is dropped because code moved after each walk.
const MAX_REQUESTS: u32 = 3;
/// Maximum number of frames per stack.
const MAX_FRAMES: usize = 512;

/// The requests of one tick.
static ROUND: Round = Round::new();
/// Whether `ROUND` has begun, and `wait_for_responses` has not ended it. Accessed by the requester only.
static HAS_OPEN_ROUND: AtomicBool = AtomicBool::new(false);

/// The last walk of a thread.
struct SelfWalk {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    truncated: bool,
    context: Context,
    /// Whether the thread was in a system call.
    in_system_call: bool,
    /// The thread's CPU clock at the end of the walk.
    ended_ns: u64,
    /// The thread's `address_epoch` during the walk: the frames are valid until it changes.
    address_epoch: u64,
}

/// The exchange with one thread; see the module documentation.
pub struct Exchange {
    request: WallRequest<SelfWalk>,
    /// Id of the thread whose response was not taken yet, 0 without one. Written by the requester, except in `reset`.
    requested_thread: AtomicU32,
    /// Number of consecutive responses that were discarded because code moved after the walk. Accessed by the requester only.
    discarded: AtomicU32,
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

impl Exchange {
    pub fn new() -> Self {
        let none = RawFrame { code: 0, at: 0 };
        let walk = SelfWalk {
            frames: [none; MAX_FRAMES],
            len: 0,
            truncated: false,
            context: Context::None,
            in_system_call: false,
            ended_ns: 0,
            address_epoch: 0,
        };
        Self {
            request: WallRequest::new(walk),
            requested_thread: AtomicU32::new(0),
            discarded: AtomicU32::new(0),
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
        let is_waiting = self.request.response().is_some_and(|walk| walk.in_system_call);
        let current = is_waiting && cpu_ns.saturating_sub(seen_ns) < RETURN_NS;
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
        self.discarded.store(0, Ordering::Relaxed);
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

/// A wall sampler starts: discards the responses that the previous one did not take.
pub fn begin() {
    for exchange in js_thread_signal::all().iter().filter_map(JsThread::exchange) {
        if exchange.requested_thread.swap(0, Ordering::Relaxed) != 0 {
            exchange.cpu_ns.store(0, Ordering::Relaxed);
        }
    }
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`]. `SignalBlocked` until the thread has responded.
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let thread = usize::try_from(handle).ok().and_then(|index| js_thread_signal::all().get(index));
    let entry = thread.filter(|thread| thread.thread_id.load(Ordering::Acquire) == thread_id);
    let Some((thread, exchange)) = entry.and_then(|thread| thread.exchange().map(|exchange| (thread, exchange))) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let is_requested = exchange.requested_thread.load(Ordering::Relaxed) == thread_id;
    if is_requested {
        let Some(walk) = exchange.request.response() else {
            // A pending clock signal may have absorbed the request's signal.
            wall_request::send(thread_id, std::ptr::from_ref(thread) as usize);
            return Captured::Dropped(DropReason::SignalBlocked);
        };
        exchange.requested_thread.store(0, Ordering::Relaxed);
        exchange.is_settled.store(false, Ordering::Relaxed);
        exchange.cpu_ns.store(walk.ended_ns, Ordering::Relaxed);
    } else if exchange.is_current(sys::thread_cpu_ns(thread_id).unwrap_or(0)) {
        exchange.repeats.fetch_add(1, Ordering::Relaxed);
    } else {
        return Captured::Dropped(request_walk(thread, exchange, thread_id));
    }
    let address_epoch = thread.address_epoch.load(Ordering::Relaxed);
    if let Some(walk) = exchange.request.response().filter(|walk| walk.address_epoch == address_epoch) {
        exchange.discarded.store(0, Ordering::Relaxed);
        walk.copy_to(stack);
        return Captured::Walked;
    }
    // Code may have moved since the walk, so the thread is walked again.
    if is_requested && exchange.discarded.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_REQUESTS {
        exchange.discarded.store(0, Ordering::Relaxed);
        exchange.cpu_ns.store(0, Ordering::Relaxed);
        return Captured::Dropped(DropReason::MovedDuringWalk);
    }
    Captured::Dropped(request_walk(thread, exchange, thread_id))
}

/// Waits up to `timeout` for the responses to all requests since the last call.
pub fn wait_for_responses(timeout: Duration) {
    if HAS_OPEN_ROUND.swap(false, Ordering::Relaxed) {
        let until_ns = sys::monotonic_ns() + timeout.as_nanos() as u64;
        ROUND.wait(|| until_ns.saturating_sub(sys::monotonic_ns()));
    }
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

/// Sends a request; returns the drop reason that applies until the response.
fn request_walk(thread: &JsThread, exchange: &Exchange, thread_id: u32) -> DropReason {
    exchange.cpu_ns.store(0, Ordering::Relaxed);
    if !HAS_OPEN_ROUND.swap(true, Ordering::Relaxed) {
        ROUND.begin();
    }
    if exchange.request.stage() == Stage::Pending {
        // The entry's previous thread ended without a response.
        // SAFETY: on the thread of the only requester.
        unsafe { exchange.request.cancel(&ROUND) };
    }
    // SAFETY: on the thread of the only requester, which borrows no response here.
    if !unsafe { exchange.request.issue(thread_id, &ROUND) } {
        return DropReason::SignalBlocked;
    }
    if wall_request::send(thread_id, std::ptr::from_ref(thread) as usize) {
        exchange.requested_thread.store(thread_id, Ordering::Relaxed);
        return DropReason::SignalBlocked;
    }
    // SAFETY: as above.
    unsafe { exchange.request.cancel(&ROUND) };
    DropReason::NoThreadState
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
    if thread.thread_id.load(Ordering::Relaxed) != own_id {
        return;
    }
    exchange.request.respond(own_id, &ROUND, |walk| {
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
        walk.ended_ns = sys::current_thread_cpu_ns();
    });
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

    /// Completes the request of `thread_id`, as its handler does.
    fn respond(exchange: &Exchange, thread_id: u32, in_system_call: bool, address_epoch: u64) {
        assert!(exchange.request.respond(thread_id, &ROUND, |walk| {
            (walk.in_system_call, walk.address_epoch, walk.ended_ns) = (in_system_call, address_epoch, 1_000_000);
        }));
    }

    /// A request that `thread_id` has received and not answered.
    fn issue(exchange: &Exchange, thread_id: u32) {
        // SAFETY: the exchange is that of one test, which borrows no response.
        assert!(unsafe { exchange.request.issue(thread_id, &ROUND) });
        exchange.requested_thread.store(thread_id, Ordering::Relaxed);
    }

    fn walked(in_system_call: bool, cpu_ns: u64) -> Exchange {
        let exchange = Exchange::new();
        issue(&exchange, 7);
        respond(&exchange, 7, in_system_call, 0);
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

    /// A table entry of a thread that does not exist, so that every signal to it fails.
    fn entry(thread_id: u32) -> (&'static JsThread, &'static Exchange, impl Fn() -> Captured) {
        let thread = js_thread_signal::claim().unwrap();
        thread.thread_id.store(thread_id, Ordering::Release);
        let handle = js_thread_signal::all().iter().position(|other| std::ptr::eq(other, thread)).unwrap() as u64;
        let capture = move || {
            let mut frames = [RawFrame::default(); 4];
            // SAFETY: no other thread uses this entry.
            unsafe { capture_other(handle, thread_id, &mut RawStack::new(&mut frames)) }
        };
        (thread, thread.exchange().unwrap(), capture)
    }

    const PENDING: Captured = Captured::Dropped(DropReason::SignalBlocked);
    const GONE: Captured = Captured::Dropped(DropReason::NoThreadState);

    #[test]
    fn a_pending_request_is_not_replaced_and_its_late_walk_is_taken_once() {
        let (thread, exchange, capture) = entry(u32::MAX - 2);
        issue(exchange, u32::MAX - 2);
        assert_eq!(capture(), PENDING);
        respond(exchange, u32::MAX - 2, false, thread.address_epoch.load(Ordering::Relaxed));
        assert_eq!(capture(), Captured::Walked);
        assert_eq!(capture(), GONE, "a new request, which no thread receives");
        thread.release();
    }

    #[test]
    fn a_walk_from_before_code_moved_is_discarded_and_the_third_one_drops_the_sample() {
        let (thread, exchange, capture) = entry(u32::MAX - 1);
        let captured_in = |epoch| {
            issue(exchange, u32::MAX - 1);
            respond(exchange, u32::MAX - 1, true, 0);
            thread.address_epoch.store(epoch, Ordering::Relaxed);
            capture()
        };
        assert_eq!(captured_in(0), Captured::Walked);
        // A new request fails at once.
        let moved = [1, 1, 1].map(captured_in);
        assert_eq!(moved, [GONE, GONE, Captured::Dropped(DropReason::MovedDuringWalk)]);
        assert_eq!(captured_in(0), Captured::Walked);
        thread.release();
    }

    #[test]
    fn discarded_walks_of_the_entrys_previous_thread_do_not_count_for_the_next() {
        let (thread, exchange, capture) = entry(u32::MAX - 4);
        let moved = || {
            issue(exchange, u32::MAX - 4);
            respond(exchange, u32::MAX - 4, true, thread.address_epoch.load(Ordering::Relaxed) + 1);
            capture()
        };
        assert_eq!([moved(), moved()], [GONE, GONE]);
        exchange.reset();
        assert_eq!([moved(), moved()], [GONE, GONE]);
        thread.release();
    }

    #[test]
    fn a_request_left_pending_by_the_entrys_previous_thread_is_sent_to_the_next() {
        let (thread, exchange, capture) = entry(u32::MAX - 3);
        issue(exchange, 1 << 30);
        // The new signal fails, which cancels the request. A request that counted as pending would have stayed pending.
        assert_eq!(capture(), GONE);
        assert_eq!(exchange.request.stage(), Stage::Free);
        thread.release();
    }

    #[test]
    fn a_thread_that_ran_is_walked_again() {
        assert!(!walked(true, 1_000_000).is_current(1_030_000));
        assert!(!walked(false, 1_000_000).is_current(1_001_000), "it was not waiting");
        assert!(!walked(true, 0).is_current(0), "it was never walked");
    }
}
