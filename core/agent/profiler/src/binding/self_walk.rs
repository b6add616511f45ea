//! The wall sampler's side of self-walks, for runtimes whose threads walk themselves. One tick requests a walk
//! of each thread that runs, and then waits once for all of them. A thread that waits for a processor responds when it
//! runs; until then its request is pending, and a later tick takes the response. A thread that did not run since its
//! last stack keeps this stack and gets no request. Not here: the states of a request (`spanprof_signal::exchange`),
//! the signal and the handler (`spanprof_signal::self_walk`), the choice of threads (`profiler::wall`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spanprof_signal::exchange::{Requester, Round, WallRequest};
use spanprof_signal::self_walk::{self, SelfWalk, WalkSelfFn};
use spanprof_signal::{handler, signal_claim, Captured, Context, DropReason, RawFrame, RawStack};

/// Upper bound of the CPU time from a response until the thread is back in its interrupted system call: less than any
/// work of the program takes.
const RETURN_NS: u64 = 20_000;
/// Longest time from the question whether a signal ends a thread's wait to the signal. The question takes some microseconds. If the
/// sampler loses its processor meanwhile, the thread may begin such a wait.
const MAX_ANSWER_NS: u64 = 50_000;
/// Maximum number of threads whose last stacks are stored.
const MAX_STACKS: usize = 2048;
/// Maximum number of pending requests: threads that run or wait for a processor. Below [`self_walk::MAX_REQUESTS`], since a
/// canceled request cannot be reused while a handler writes its response.
const MAX_PENDING: usize = if cfg!(test) { 2 } else { self_walk::MAX_REQUESTS / 2 };

static REQUESTS_SENT: AtomicU64 = AtomicU64::new(0);

/// The thread that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkTarget {
    /// Kernel thread id.
    pub thread_id: u32,
    /// Distinguishes it from a later thread with the same id.
    pub identity: u64,
    /// The runtime's present count of events that invalidate raw frames; see [`WalkSelfFn`].
    pub epoch: u64,
}

/// A response, as [`SelfWalks::take_response`] passes it for review.
pub struct WalkResponse<'a> {
    pub walk: &'a SelfWalk,
    /// Number of responses of this thread that were discarded since its last sample.
    pub discarded: u32,
    /// Whether the thread has run since the last discarded response.
    pub has_run: bool,
}

/// The decision about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkReview {
    /// The walk is the thread's stack.
    Accept,
    /// The response is discarded, and the thread is requested again.
    Repeat,
    /// The sample is dropped.
    Drop(DropReason),
}

/// The requests to all threads, and the threads' last stacks. One wall sampler uses it at a time.
pub struct SelfWalks {
    tick: TickRound,
    /// By kernel thread id.
    pending: BTreeMap<u32, PendingWalkRequest>,
    free: Vec<PublishedRequest>,
    /// By kernel thread id.
    stacks: BTreeMap<u32, LastStack>,
    /// Sends the request with an index to a thread; `None` while no handler is installed.
    send_signal: Option<fn(u32, usize) -> bool>,
    /// Whether a signal ends the wait of a thread.
    ends_wait: fn(u32) -> bool,
}

/// The requests of one tick.
struct TickRound {
    round: &'static Round,
    /// Whether the round has begun, and no wait has ended it.
    is_open: bool,
}

/// A request that handlers find by its index. Never freed, since a signal carries the index.
struct PublishedRequest {
    requester: Requester<'static, SelfWalk>,
    index: usize,
}

/// A request without a response, or with one that was not taken yet.
struct PendingWalkRequest {
    request: PublishedRequest,
    identity: u64,
    discarded: u32,
    /// The thread's CPU clock at the end of the last discarded walk.
    discarded_ns: u64,
}

/// The last stack of a thread that waited.
pub struct LastStack {
    identity: u64,
    epoch: u64,
    /// The thread's CPU clock when the stack was last known to be current.
    cpu_ns: u64,
    /// CPU time that the thread may still use until it waits.
    slack_ns: u64,
    /// The frames, leaf first; never empty.
    pub frames: Vec<RawFrame>,
    /// Whether the depth limit cut the root side.
    pub is_truncated: bool,
    /// The thread's context.
    pub context: Context,
    /// A state of the thread that its runtime stores with the stack; `None` in a new one.
    pub state: Option<i32>,
}

/// Number of requests since the process began.
pub fn self_walks_requested() -> u64 {
    REQUESTS_SENT.load(Ordering::Relaxed)
}

impl SelfWalks {
    fn new() -> Self {
        Self {
            tick: TickRound { round: Box::leak(Box::new(Round::new())), is_open: false },
            pending: BTreeMap::new(),
            free: Vec::new(),
            stacks: BTreeMap::new(),
            send_signal: None,
            ends_wait: spanprof_os::signal_ends_wait,
        }
    }

    /// The self-walks of this process. A forked child has its own: a thread of the parent may have held the lock at the fork.
    pub fn of_process() -> MutexGuard<'static, Self> {
        static BY_GENERATION: [LazyLock<Mutex<SelfWalks>>; 16] =
            [const { LazyLock::new(|| Mutex::new(SelfWalks::new())) }; 16];
        let own = &BY_GENERATION[spanprof_signal::fork_generation() as usize % BY_GENERATION.len()];
        own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A wall sampler starts: discards the state of the previous one, and installs the handler if `may_signal`. Without
    /// it, or when another handler owns the signal, the result is false, and each request is `SignalBlocked`.
    pub fn begin(&mut self, may_signal: bool, walk: WalkSelfFn, fallback_signal: libc::c_int) -> bool {
        self.stacks.clear();
        self.close(|_| true);
        self_walk::set_walk(walk);
        let has_handler = may_signal
            && spanprof_os::may_use(spanprof_os::SystemCall::RtTgsigqueueinfo)
            && signal_claim::claim(fallback_signal).is_some();
        // Without our handler, the handler of the program would be called. The request stays pending, and is sent later.
        let send = |thread_id, index| {
            let signal = signal_claim::in_use();
            !handler::is_installed(signal) || self_walk::send(thread_id, index, signal)
        };
        self.send_signal = has_handler.then_some(send as fn(u32, usize) -> bool);
        has_handler
    }

    /// Waits up to `timeout` for the responses to all requests since the last call.
    pub fn wait(&mut self, timeout: Duration) {
        if std::mem::take(&mut self.tick.is_open) {
            let until_ns = spanprof_os::monotonic_ns() + timeout.as_nanos() as u64;
            self.tick.round.wait(|| until_ns.saturating_sub(spanprof_os::monotonic_ns()));
        }
    }

    /// Takes the response of a thread, if `review` accepts it. `None` if no request is pending; `SignalBlocked` until the
    /// thread responds; another reason if its request is canceled. `identity`: the identity of the thread with this
    /// id now, or `None` if it has ended.
    pub fn take_response(
        &mut self,
        thread_id: u32,
        identity: Option<u64>,
        stack: &mut RawStack<'_>,
        review: impl FnOnce(&WalkResponse<'_>) -> WalkReview,
    ) -> Option<Captured> {
        let pending = self.pending.get_mut(&thread_id)?;
        let is_same = identity.is_none_or(|identity| identity == pending.identity);
        let Some(walk) = pending.request.requester.response().filter(|_| is_same) else {
            if !is_same || identity.is_none() {
                // The thread ended without a response; a later thread may have its id.
                self.close(|id| id == thread_id);
                return None;
            }
            // A pending clock signal may have absorbed the request's signal.
            return Some(Captured::Dropped(self.send(thread_id)));
        };
        let [begun_ns, ended_ns] = walk.cpu_ns;
        let has_run = pending.discarded > 0 && begun_ns.wrapping_sub(pending.discarded_ns) > RETURN_NS;
        let response = WalkResponse { walk, discarded: pending.discarded, has_run };
        let captured = match walk.refusal().map_or_else(|| review(&response), WalkReview::Drop) {
            WalkReview::Repeat => {
                (pending.discarded, pending.discarded_ns) = (pending.discarded + 1, ended_ns);
                self.tick.join();
                pending.request.requester.issue(thread_id);
                return Some(Captured::Dropped(self.send(thread_id)));
            }
            WalkReview::Drop(reason) => Captured::Dropped(reason),
            WalkReview::Accept => {
                let is_written = walk.frames().iter().all(|frame| stack.push(*frame));
                if is_written && walk.is_truncated {
                    stack.push(RawFrame::reason(DropReason::InvalidFrame));
                }
                Captured::Walked
            }
        };
        stack.context = walk.context;
        let (in_system_call, epoch) = (walk.in_system_call, walk.epoch);
        let PendingWalkRequest { request, identity, .. } = self.pending.remove(&thread_id)?;
        self.free.push(request);
        let is_complete = stack.frames().last().is_some_and(|root| root.as_reason().is_none());
        if in_system_call && is_complete {
            self.insert(WalkTarget { thread_id, identity, epoch }, ended_ns, RETURN_NS, stack);
        }
        Some(captured)
    }

    /// Writes the last stack of a thread and returns it, if the thread has not run since. `cpu_ns`: its CPU clock now.
    pub fn repeat(&mut self, target: WalkTarget, cpu_ns: u64, stack: &mut RawStack<'_>) -> Option<&mut LastStack> {
        let last = self.stacks.get_mut(&target.thread_id).filter(|last| last.is_of(target))?;
        if cpu_ns.wrapping_sub(last.cpu_ns) > last.slack_ns {
            return None;
        }
        // The thread waits from here on.
        (last.cpu_ns, last.slack_ns) = (cpu_ns, 0);
        stack.context = last.context;
        if last.frames.iter().all(|frame| stack.push(*frame)) && last.is_truncated {
            stack.push(RawFrame::reason(DropReason::InvalidFrame));
        }
        Some(last)
    }

    /// The last stack of a thread, which may have run since.
    pub fn last_stack(&self, target: WalkTarget) -> Option<&LastStack> {
        self.stacks.get(&target.thread_id).filter(|last| last.is_of(target))
    }

    /// Stores the stack of a thread that waits, walked from outside when its CPU clock was `cpu_ns`.
    pub fn store(&mut self, target: WalkTarget, cpu_ns: u64, stack: &RawStack<'_>) {
        self.insert(target, cpu_ns, 0, stack);
    }

    /// Sends a request to a thread without a pending one; returns the drop reason that applies until the response.
    pub fn request(&mut self, target: WalkTarget) -> DropReason {
        let WalkTarget { thread_id, identity, .. } = target;
        self.stacks.remove(&thread_id);
        if self.send_signal.is_none() {
            return DropReason::SignalBlocked;
        }
        if self.pending.len() >= MAX_PENDING {
            self.close(|thread_id| spanprof_os::thread_cpu_ns(thread_id).is_none());
        }
        self.tick.join();
        let has_room = self.pending.len() < MAX_PENDING;
        let Some(request) = has_room.then(|| self.issue(thread_id)).flatten() else {
            return DropReason::TooManyThreads;
        };
        self.pending.insert(thread_id, PendingWalkRequest { request, identity, discarded: 0, discarded_ns: 0 });
        let reason = self.send(thread_id);
        REQUESTS_SENT.fetch_add(u64::from(reason == DropReason::SignalBlocked), Ordering::Relaxed);
        reason
    }

    /// Issues a free request, or a new one.
    fn issue(&mut self, thread_id: u32) -> Option<PublishedRequest> {
        if let Some(index) = self.free.iter_mut().position(|request| request.requester.issue(thread_id)) {
            return Some(self.free.swap_remove(index));
        }
        let request = Box::leak(Box::new(WallRequest::new(self.tick.round, SelfWalk::new())));
        let (mut requester, request) = request.split();
        requester.issue(thread_id);
        Some(PublishedRequest { requester, index: self_walk::publish(request)? })
    }

    /// Sends the signal of a pending request, or cancels the request where the signal would end a wait of the program; returns the
    /// drop reason that applies until the response. An answer that is too old leaves the request pending without a signal.
    fn send(&mut self, thread_id: u32) -> DropReason {
        let index = self.pending.get(&thread_id).map(|pending| pending.request.index);
        let asked_ns = spanprof_os::monotonic_ns();
        if (self.ends_wait)(thread_id) {
            self.close(|id| id == thread_id);
            return DropReason::WaitNotInterrupted;
        }
        if spanprof_os::monotonic_ns().saturating_sub(asked_ns) > MAX_ANSWER_NS {
            return DropReason::SignalBlocked;
        }
        if self.send_signal.zip(index).is_some_and(|(send, index)| send(thread_id, index)) {
            return DropReason::SignalBlocked;
        }
        self.close(|id| id == thread_id);
        DropReason::NoThreadState
    }

    /// Cancels pending requests, or discards their responses.
    fn close(&mut self, is_closed: impl Fn(u32) -> bool) {
        let (closed, kept) = std::mem::take(&mut self.pending).into_iter().partition(|(id, _)| is_closed(*id));
        self.pending = kept;
        let closed: BTreeMap<u32, PendingWalkRequest> = closed;
        self.free.extend(closed.into_values().map(|PendingWalkRequest { mut request, .. }| {
            request.requester.cancel();
            request
        }));
    }

    fn insert(&mut self, target: WalkTarget, cpu_ns: u64, slack_ns: u64, stack: &RawStack<'_>) {
        let WalkTarget { thread_id, identity, epoch } = target;
        if self.stacks.len() >= MAX_STACKS && !self.stacks.contains_key(&thread_id) {
            self.stacks.clear();
        }
        if stack.is_empty() {
            self.stacks.remove(&thread_id);
            return;
        }
        let last = LastStack {
            identity,
            epoch,
            cpu_ns,
            slack_ns,
            frames: stack.frames().to_vec(),
            is_truncated: stack.is_truncated(),
            context: stack.context,
            state: None,
        };
        self.stacks.insert(thread_id, last);
    }
}

impl TickRound {
    fn join(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.round.begin();
        }
    }
}

impl LastStack {
    fn is_of(&self, target: WalkTarget) -> bool {
        (self.identity, self.epoch) == (target.identity, target.epoch)
    }
}

#[cfg(test)]
#[path = "self_walk_tests.rs"]
mod tests;
