//! The protocol by which the wall sampler requests stacks from threads that walk themselves. It defines which handler
//! may respond to a request, when the response may be read, and when a round is complete. The sampler thread has a
//! request's [`Requester`], handlers have a shared reference to it. Not here: the signal that delivers a request and the
//! contents of a response (`self_walk`).
//!
//! # Rules
//! 1. The requester moves `FREE → PENDING`, `READY → PENDING` and `PENDING → FREE`. The handler, on the requested
//!    thread, moves `PENDING → WRITING → READY`. The response is written in `WRITING` only and read in `READY` only.
//! 2. Each request has a sequence number beside its state. A late signal cannot respond to the next request, unless
//!    that request is for the same thread. Then the response is the thread's stack at this later time.
//! 3. A round counts its pending requests, plus one while the sampler still issues requests. The decrement to zero wakes the
//!    sampler. A response to a request of an earlier round changes no count.

use crate::atomics::{AtomicU32, Ordering};
use crate::futex;
use core::cell::UnsafeCell;

const FREE: u32 = 0;
const PENDING: u32 = 1;
const WRITING: u32 = 2;
const READY: u32 = 3;
const STATE_BITS: u32 = 2;
const STATE: u32 = (1 << STATE_BITS) - 1;

/// Width of the request count; the round number is in the bits above.
const COUNT_BITS: u32 = 16;
const COUNT: u32 = (1 << COUNT_BITS) - 1;

/// A reusable request, addressed to one thread at a time; its response is a `T`.
pub struct WallRequest<'r, T> {
    /// The state in the low bits, the sequence number above.
    state: AtomicU32,
    thread_id: AtomicU32,
    round_number: AtomicU32,
    round: &'r Round,
    response: UnsafeCell<T>,
}

// SAFETY: `response` is accessed by the one handler in WRITING and through the one requester in READY (rule 1).
unsafe impl<T: Send + Sync> Sync for WallRequest<'_, T> {}

impl<'r, T> WallRequest<'r, T> {
    /// A free request, which is counted in `round` whenever it is issued.
    pub fn new(round: &'r Round, response: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            thread_id: AtomicU32::new(0),
            round_number: AtomicU32::new(0),
            round,
            response: UnsafeCell::new(response),
        }
    }

    /// The sides of the sampler thread and of handlers.
    pub fn split(&mut self) -> (Requester<'_, T>, &Self) {
        (Requester { request: self }, self)
    }

    /// In the handler: writes the response if the request is pending for the calling thread.
    pub fn respond(&self, thread_id: u32, write: impl FnOnce(&mut T)) -> bool {
        let word = self.state.load(Ordering::Acquire);
        let is_pending = word & STATE == PENDING && self.thread_id.load(Ordering::Relaxed) == thread_id;
        let writing = word & !STATE | WRITING;
        if !is_pending || self.state.compare_exchange(word, writing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let round_number = self.round_number.load(Ordering::Relaxed);
        // SAFETY: the compare-and-swap to WRITING gives this handler exclusive access until it stores READY (rule 1).
        write(unsafe { &mut *self.response.get() });
        self.state.store(word & !STATE | READY, Ordering::Release);
        self.round.complete_request(round_number);
        true
    }
}

/// The side of the sampler thread.
pub struct Requester<'q, T> {
    request: &'q WallRequest<'q, T>,
}

impl<T> Requester<'_, T> {
    /// Addresses the request to a thread; the caller then sends the signal. False while the request is pending.
    pub fn issue(&mut self, thread_id: u32) -> bool {
        let Self { request } = self;
        let word = request.state.load(Ordering::Acquire);
        if ![FREE, READY].contains(&(word & STATE)) {
            return false;
        }
        request.thread_id.store(thread_id, Ordering::Relaxed);
        request.round_number.store(request.round.add_request(), Ordering::Relaxed);
        request.state.store((word & !STATE).wrapping_add(1 << STATE_BITS) | PENDING, Ordering::Release);
        true
    }

    /// Cancels the request. False unless it is pending: when it is free, or its response is ready or being written.
    pub fn cancel(&mut self) -> bool {
        let Self { request } = self;
        let word = request.state.load(Ordering::Relaxed);
        let free = word & !STATE | FREE;
        let is_cancelled = word & STATE == PENDING
            && request.state.compare_exchange(word, free, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_cancelled {
            request.round.complete_request(request.round_number.load(Ordering::Relaxed));
        }
        is_cancelled
    }

    /// The response, once ready.
    pub fn response(&self) -> Option<&T> {
        let is_ready = self.request.state.load(Ordering::Acquire) & STATE == READY;
        // SAFETY: no handler writes in READY (rule 1). Only `issue` of this one requester leaves READY, and borrows it
        // mutably.
        is_ready.then(|| unsafe { &*self.request.response.get() })
    }
}

/// A batch of requests that the sampler waits for together.
pub struct Round {
    /// The count of pending requests in the low bits, the round number above.
    word: AtomicU32,
}

impl Round {
    /// No round in progress.
    #[allow(clippy::new_without_default, reason = "leaked or local, never a field")]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Begins the next round: requests issued from here on belong to it. Sampler thread only.
    pub fn begin(&self) {
        let number = (self.word.load(Ordering::Relaxed) >> COUNT_BITS).wrapping_add(1);
        // One atomic step: a concurrent decrement for the previous round happens before it.
        self.word.swap(number << COUNT_BITS | 1, Ordering::AcqRel);
    }

    /// Waits until every request of the round is complete; false when `remaining_ns` returns 0. Ends the round. Sampler
    /// thread only, once per round.
    pub fn wait(&self, mut remaining_ns: impl FnMut() -> u64) -> bool {
        self.complete_request(self.word.load(Ordering::Relaxed) >> COUNT_BITS);
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & COUNT == 0 {
                return true;
            }
            match remaining_ns() {
                0 => return false,
                remaining_ns => futex::wait(&self.word, word, Some(remaining_ns)),
            };
        }
    }

    /// Counts one more pending request; returns the round number.
    fn add_request(&self) -> u32 {
        self.word.fetch_add(1, Ordering::Relaxed) >> COUNT_BITS
    }

    /// Decrements the count of pending requests if round `number` is current; wakes the sampler at zero.
    fn complete_request(&self, number: u32) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >> COUNT_BITS == number & (u32::MAX >> COUNT_BITS) && word & COUNT > 0 {
            match self.word.compare_exchange_weak(word, word - 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & COUNT == 1 => return futex::wake(&self.word),
                Ok(_) => return,
                Err(newer) => word = newer,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NO_TIME: fn() -> u64 = || 0;

    #[test]
    fn a_request_takes_one_response_and_only_from_its_thread() {
        let round = Round::new();
        let mut request = WallRequest::new(&round, 0);
        let (mut requester, responder) = request.split();
        round.begin();
        assert!(!responder.respond(7, |response| *response = 1), "no request");
        assert!(requester.issue(7));
        assert!(!requester.issue(8), "pending");
        assert!(!responder.respond(8, |response| *response = 2));
        assert_eq!(requester.response(), None);
        assert!(responder.respond(7, |response| *response = 3));
        assert!(!responder.respond(7, |response| *response = 4));
        assert_eq!(requester.response(), Some(&3));
        assert!(round.wait(NO_TIME));
    }

    #[test]
    fn a_round_ends_when_every_request_is_ready_or_cancelled() {
        let round = Round::new();
        let mut requests = [7, 8].map(|_| WallRequest::new(&round, 0));
        let [(mut seven, responder), (mut eight, _)] = requests.each_mut().map(WallRequest::split);
        round.begin();
        assert!(seven.issue(7) && eight.issue(8));
        assert!(responder.respond(7, |response| *response = 1));
        assert!(!round.wait(NO_TIME), "one is pending");
        assert!(eight.cancel());
        assert!(!seven.cancel(), "already ready");
        assert!(eight.issue(9) && eight.cancel(), "free again");
        round.begin();
        assert!(round.wait(NO_TIME), "no request");
    }

    #[test]
    fn a_late_response_is_kept_and_does_not_end_the_next_round() {
        let round = Round::new();
        let mut requests = [7, 8].map(|_| WallRequest::new(&round, 0));
        let [(mut early, responder), (mut late, _)] = requests.each_mut().map(WallRequest::split);
        round.begin();
        assert!(early.issue(7));
        assert!(!round.wait(NO_TIME));
        round.begin();
        assert!(late.issue(8));
        assert!(responder.respond(7, |response| *response = 1));
        assert!(!round.wait(NO_TIME));
        assert_eq!((early.response(), late.response()), (Some(&1), None));
    }
}
