//! Wall-clock sampling. A thread that waits in native code or in the VM has a frame anchor: the wall sampler's thread walks
//! it from there. A thread that runs Java code walks itself in a signal handler. A thread whose CPU clock has not advanced
//! since it was last seen idle keeps its stack. At the reduced wall rate, a waiting thread is walked instead of reading its
//! clock: the walk takes longer but needs no system call.
//!
//! # Self-walk exchange
//! There is one requester, the wall sampler. One tick sends a wall request to a thread; a later tick takes the response. In
//! between, the sampler waits once for all requests of the tick. A request stays pending until its response is complete. A
//! thread that waits for a CPU responds as soon as it is scheduled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spanprof::sys;
use spanprof_signal::exchange::{Round, WallRequest};
use spanprof_signal::{
    guarded, wall_request, Captured, Context, DropReason, HandlerContext, ProcessMemory, RawFrame, RawStack,
};

use super::layout::VmLayout;
use super::threads_signal::{self, ThreadRow};
use super::walk::walker_signal;
use super::{call_trace_signal, capture_signal, layout};

/// Upper bound of the CPU time from a response until the thread is back in its interrupted system call.
const RETURN_NS: u64 = 20_000;
/// Maximum number of idle threads with stored stacks.
const MAX_IDLE: usize = 2048;
/// Maximum number of pending requests: threads that run or wait for a CPU.
const MAX_REQUESTS: usize = 256;
/// Maximum number of frames of a self-walk.
const MAX_FRAMES: usize = 1024;

/// The response to a wall request.
struct JavaSelfWalk {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    truncated: bool,
    context: Context,
    /// The thread's CPU clock before and after the walk.
    clock_ns: [u64; 2],
    /// Whether the signal interrupted a system call.
    in_system_call: bool,
}

impl JavaSelfWalk {
    fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }
}

/// Allocated on demand and never freed: a signal carries the index.
static REQUESTS: [AtomicPtr<WallRequest<JavaSelfWalk>>; MAX_REQUESTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_REQUESTS];
static ROUND: Round = Round::new();
static REQUESTS_SENT: AtomicU64 = AtomicU64::new(0);
static RATE_IS_REDUCED: AtomicBool = AtomicBool::new(false);

fn request_at(index: usize) -> Option<&'static WallRequest<JavaSelfWalk>> {
    // SAFETY: only leaked boxes are ever stored there.
    REQUESTS.get(index).and_then(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() })
}

/// Number of wall requests since the process began.
pub fn requests_sent() -> u64 {
    REQUESTS_SENT.load(Ordering::Relaxed)
}

/// Installs the handler, once. False if another handler owns the signal.
pub fn install() -> bool {
    sys::may_use(sys::SystemCall::RtTgsigqueueinfo) && wall_request::install::<SelfWalkHandler>(super::FALLBACK_SIGNAL)
}

/// A wall sampler starts: discards the state of the previous one.
pub fn begin() {
    let mut sampler = sampler();
    sampler.idle.threads.clear();
    let thread_ids: Vec<u32> = sampler.pending.keys().copied().collect();
    thread_ids.into_iter().for_each(|thread_id| sampler.close(thread_id));
}

/// See [`spanprof::runtime::Runtime::set_idle`].
pub fn set_idle(is_idle: bool) {
    RATE_IS_REDUCED.store(is_idle, Ordering::Relaxed);
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`].
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(_handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    sampler().sample(thread_id, stack)
}

/// Waits up to `timeout` for the responses to all requests since the last call.
pub fn wait_for_responses(timeout: Duration) -> bool {
    let mut sampler = sampler();
    if std::mem::take(&mut sampler.has_open_round) {
        let until_ns = sys::monotonic_ns() + timeout.as_nanos() as u64;
        ROUND.wait(|| until_ns.saturating_sub(sys::monotonic_ns()));
    }
    true
}

/// The wall sampler's state: pending requests and idle threads.
struct SamplerState {
    /// By kernel thread id.
    pending: BTreeMap<u32, PendingRequest>,
    idle: IdleThreads,
    /// Whether a round has begun that `wait_for_responses` has not ended.
    has_open_round: bool,
}

/// A request without a response, or with one that was not taken yet.
struct PendingRequest {
    index: usize,
    java_thread: usize,
    /// The thread's CPU clock when `AsyncGetCallTrace` failed while the thread waited (a GC was running); the request is
    /// repeated.
    refused_ns: Option<u64>,
}

fn sampler() -> MutexGuard<'static, SamplerState> {
    static SAMPLER: Mutex<SamplerState> = Mutex::new(SamplerState {
        pending: BTreeMap::new(),
        idle: IdleThreads { threads: BTreeMap::new() },
        has_open_round: false,
    });
    SAMPLER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SamplerState {
    fn sample(&mut self, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
        let thread = threads_signal::of(thread_id).map(|row| (row, row.java_thread()));
        let thread = thread.filter(|(_, java_thread)| *java_thread != 0);
        if let Some(pending) = self.pending.get(&thread_id) {
            let index = pending.index;
            let is_same_thread = thread.is_none_or(|(_, java_thread)| java_thread == pending.java_thread);
            if is_same_thread && self.take_response(thread_id, stack) {
                return Captured::Walked;
            }
            if is_same_thread && thread.is_some() {
                // A pending clock signal may have absorbed the request's signal.
                wall_request::send(thread_id, index);
                return Captured::Dropped(DropReason::SignalBlocked);
            }
            // The thread ended without a response; a later thread may have its id.
            self.close(thread_id);
        }
        let Some((row, java_thread)) = thread else { return Captured::Dropped(DropReason::NoThreadState) };
        let layout = layout::published();
        let reduced_rate_layout = layout.filter(|_| RATE_IS_REDUCED.load(Ordering::Relaxed));
        let state = reduced_rate_layout
            .and_then(|layout| walker_signal::state_without_java(ProcessMemory, layout, java_thread));
        if reduced_rate_layout.is_some_and(|layout| self.idle.still_waits(layout, thread_id, row, state, stack)) {
            return Captured::Walked;
        }
        let Some(clock_ns) = sys::thread_cpu_ns(thread_id) else {
            return Captured::Dropped(DropReason::NoThreadState);
        };
        if self.idle.repeat(thread_id, java_thread, clock_ns, state, stack) {
            return Captured::Walked;
        }
        if layout.is_some_and(|layout| walker_signal::walk_waiting(ProcessMemory, layout, java_thread, stack)) {
            stack.context = row.scope.context();
            if sys::thread_cpu_ns(thread_id) == Some(clock_ns) {
                walker_signal::accept_waiting_walk(stack);
                self.idle.insert(thread_id, IdleStack::of(java_thread, clock_ns, 0, stack));
                return Captured::Walked;
            }
        }
        // The thread runs, or ran during the walk: the stack may be torn.
        stack.clear();
        stack.context = Context::None;
        self.idle.threads.remove(&thread_id);
        Captured::Dropped(self.request(thread_id, java_thread))
    }

    /// Sends a wall request; returns the drop reason that applies until the response.
    fn request(&mut self, thread_id: u32, java_thread: usize) -> DropReason {
        if !super::may_signal() {
            return DropReason::SignalBlocked;
        }
        self.join_round();
        let Some(index) = self.prepare(thread_id) else { return DropReason::TooManyThreads };
        self.pending.insert(thread_id, PendingRequest { index, java_thread, refused_ns: None });
        REQUESTS_SENT.fetch_add(1, Ordering::Relaxed);
        if wall_request::send(thread_id, index) {
            return DropReason::SignalBlocked;
        }
        self.close(thread_id);
        DropReason::NoThreadState
    }

    fn join_round(&mut self) {
        if !std::mem::replace(&mut self.has_open_round, true) {
            ROUND.begin();
        }
    }

    /// Prepares a free request, or a new one; returns its index.
    fn prepare(&mut self, thread_id: u32) -> Option<usize> {
        if self.pending.len() >= MAX_REQUESTS {
            // Frees the requests of threads that have ended.
            let has_ended = |(id, pending): (&u32, &PendingRequest)| {
                let lives = threads_signal::of(*id).is_some_and(|row| row.java_thread() == pending.java_thread);
                (!lives).then_some(*id)
            };
            let ended: Vec<u32> = self.pending.iter().filter_map(has_ended).collect();
            ended.into_iter().for_each(|thread_id| self.close(thread_id));
        }
        let is_free = |index: &usize| self.pending.values().all(|pending| pending.index != *index);
        // A canceled request cannot be reused while a handler writes its response.
        (0..MAX_REQUESTS).filter(is_free).find(|index| {
            let request = request_at(*index).unwrap_or_else(|| allocate(*index));
            // SAFETY: under the lock of the only requester; no response is borrowed.
            unsafe { request.issue(thread_id, &ROUND) }
        })
    }

    /// Writes the stack of a response; false if there is none.
    fn take_response(&mut self, thread_id: u32, stack: &mut RawStack<'_>) -> bool {
        let Some(pending) = self.pending.get_mut(&thread_id) else { return false };
        let Some(request) = request_at(pending.index) else { return false };
        let Some(response) = request.response() else { return false };
        let [begun_ns, ended_ns] = response.clock_ns;
        let has_run = pending.refused_ns.is_some_and(|refused_ns| begun_ns.wrapping_sub(refused_ns) > RETURN_NS);
        let is_refused = layout::published().is_none() && call_trace_signal::is_refusal(response.frames());
        if is_refused && response.in_system_call && !has_run {
            // The thread waits. `AsyncGetCallTrace` succeeds once the GC has ended.
            pending.refused_ns = Some(ended_ns);
            let index = pending.index;
            self.join_round();
            // SAFETY: under the lock of the only requester; the response is no longer borrowed.
            unsafe { request.issue(thread_id, &ROUND) };
            wall_request::send(thread_id, index);
            return false;
        }
        stack.context = response.context;
        if has_run {
            stack.push(RawFrame::reason(DropReason::InvalidFrame));
        } else {
            let pushed = response.frames().iter().all(|frame| stack.push(*frame));
            if pushed && response.truncated {
                stack.push(RawFrame::reason(DropReason::InvalidFrame));
            }
        }
        // The thread returns to its system call. It gets no new request until its clock has advanced by more than `RETURN_NS`.
        let is_complete = stack.frames().last().is_some_and(|root| root.as_reason().is_none());
        if response.in_system_call && is_complete {
            self.idle.insert(thread_id, IdleStack::of(pending.java_thread, ended_ns, RETURN_NS, stack));
        }
        self.pending.remove(&thread_id);
        true
    }

    /// Cancels a request, or discards its response.
    fn close(&mut self, thread_id: u32) {
        let pending = self.pending.remove(&thread_id);
        if let Some(request) = pending.and_then(|pending| request_at(pending.index)) {
            // SAFETY: under the lock of the only requester.
            unsafe { request.cancel(&ROUND) };
        }
    }
}

fn allocate(index: usize) -> &'static WallRequest<JavaSelfWalk> {
    let response = JavaSelfWalk {
        frames: [RawFrame { code: 0, at: 0 }; MAX_FRAMES],
        len: 0,
        truncated: false,
        context: Context::None,
        clock_ns: [0; 2],
        in_system_call: false,
    };
    let request: &'static WallRequest<JavaSelfWalk> = Box::leak(Box::new(WallRequest::new(response)));
    if let Some(slot) = REQUESTS.get(index) {
        slot.store(std::ptr::from_ref(request).cast_mut(), Ordering::Release);
    }
    request
}

/// The stack of an idle thread, valid while its CPU clock does not advance.
struct IdleStack {
    java_thread: usize,
    clock_ns: u64,
    /// CPU time that the thread may still use before it is idle.
    slack_ns: u64,
    /// The thread's state in the VM, if it has no Java frames.
    state: Option<i32>,
    frames: Vec<RawFrame>,
    context: Context,
}

impl IdleStack {
    fn of(java_thread: usize, clock_ns: u64, slack_ns: u64, stack: &RawStack<'_>) -> Self {
        let frames = if stack.is_truncated() { Vec::new() } else { stack.frames().to_vec() };
        Self { java_thread, clock_ns, slack_ns, state: None, frames, context: stack.context }
    }
}

/// The threads that were last seen idle.
struct IdleThreads {
    threads: BTreeMap<u32, IdleStack>,
}

impl IdleThreads {
    /// Writes a thread's stored stack if it is still valid.
    fn repeat(
        &mut self,
        thread_id: u32,
        java_thread: usize,
        clock_ns: u64,
        state: Option<i32>,
        stack: &mut RawStack<'_>,
    ) -> bool {
        let Some(idle) = self.threads.get_mut(&thread_id) else { return false };
        let is_idle = idle.java_thread == java_thread && clock_ns.wrapping_sub(idle.clock_ns) <= idle.slack_ns;
        if !is_idle || idle.frames.is_empty() {
            return false;
        }
        // The thread is idle from here on.
        (idle.clock_ns, idle.slack_ns, idle.state) = (clock_ns, 0, state);
        stack.context = idle.context;
        idle.frames.iter().all(|frame| stack.push(*frame));
        true
    }

    /// Writes a thread's stored stack if the thread still waits there, without a system call. Either a walk finds the same
    /// Java frames, which a torn walk would not; or the thread has no Java frames and its state in the VM is unchanged.
    fn still_waits(
        &self,
        layout: &VmLayout,
        thread_id: u32,
        row: &ThreadRow,
        state: Option<i32>,
        stack: &mut RawStack<'_>,
    ) -> bool {
        let java_thread = row.java_thread();
        let idle = self.threads.get(&thread_id).filter(|idle| idle.java_thread == java_thread);
        let Some(idle) = idle.filter(|idle| !idle.frames.is_empty()) else { return false };
        let is_same = match state {
            Some(_) => state == idle.state && idle.frames.iter().all(|frame| stack.push(*frame)),
            None => {
                walker_signal::walk_waiting(ProcessMemory, layout, java_thread, stack) && stack.frames() == idle.frames
            }
        };
        stack.context = row.scope.context();
        let is_same = is_same && !stack.is_truncated() && stack.context == idle.context;
        if !is_same {
            stack.clear();
            stack.context = Context::None;
        }
        is_same
    }

    fn insert(&mut self, thread_id: u32, idle: IdleStack) {
        if self.threads.len() >= MAX_IDLE && !self.threads.contains_key(&thread_id) {
            self.threads.clear();
        }
        self.threads.insert(thread_id, idle);
    }
}

struct SelfWalkHandler;

impl wall_request::WallResponder for SelfWalkHandler {
    unsafe fn respond(value: usize, ucontext: *mut libc::c_void) {
        let Some(request) = request_at(value) else { return };
        // SAFETY: gettid has no arguments and no effects.
        let thread_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        request.respond(thread_id, &ROUND, |response| {
            let begun_ns = sys::current_thread_cpu_ns();
            let mut stack = RawStack::new(&mut response.frames);
            // SAFETY: the kernel's context of this signal, on the thread it interrupted.
            unsafe { capture_signal::capture(&HandlerContext { ucontext, thread_id }, &mut stack) };
            let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
            (response.len, response.truncated, response.context) = (len, truncated, context);
            // SAFETY: the kernel's context of this signal, in its handler.
            response.in_system_call = unsafe { guarded::is_in_system_call(ucontext) };
            response.clock_ns = [begun_ns, sys::current_thread_cpu_ns()];
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::raw_frame;

    #[test]
    fn a_stack_is_repeated_until_its_threads_clock_advances_or_its_id_is_reused() {
        let mut frames = [RawFrame::default(); 4];
        let mut stack = RawStack::new(&mut frames);
        stack.push(raw_frame::thread(7));
        let mut idle = IdleThreads { threads: BTreeMap::new() };
        idle.insert(7, IdleStack::of(4096, 1_000, 0, &stack));
        idle.insert(8, IdleStack::of(8192, 1_000, RETURN_NS, &stack));
        idle.insert(9, IdleStack::of(8192, 1_000, RETURN_NS, &stack));
        let mut repeats = |thread_id, java_thread, clock_ns| {
            stack.clear();
            idle.repeat(thread_id, java_thread, clock_ns, None, &mut stack) && stack.frames() == [raw_frame::thread(7)]
        };
        assert!(repeats(7, 4096, 1_000));
        assert!(!repeats(7, 4096, 1_001), "it ran");
        assert!(!repeats(7, 8192, 1_000), "another thread");
        assert!(!repeats(8, 8192, 1_001 + RETURN_NS), "more than the return to its system call takes");
        assert!(repeats(9, 8192, 1_000 + RETURN_NS), "the return to its system call");
        assert!(!repeats(9, 8192, 1_001 + RETURN_NS), "it had returned and ran again");
        assert!(!repeats(10, 4096, 1_000));
    }
}
