//! The protocol by which the wall sampler requests stacks from threads that walk themselves. It defines which handler
//! may respond to a request, when the response may be read, and when a round is complete. Not here: the signal that
//! delivers a request (`wall_request`) and the contents of a response. `WallRequest::respond` runs in the handler;
//! everything else runs on the sampler thread.
//!
//! # Rules
//! 1. The sampler moves `FREE → PENDING`, `READY → PENDING` and `PENDING → FREE`. The handler, on the requested thread,
//!    moves `PENDING → WRITING → READY`. The response is written in `WRITING` only and read in `READY` only.
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
pub struct WallRequest<T> {
    /// The state in the low bits, the sequence number above.
    state: AtomicU32,
    thread_id: AtomicU32,
    round: AtomicU32,
    response: UnsafeCell<T>,
}

// SAFETY: `response` is accessed by the one handler in WRITING and by the one sampler thread in READY (rule 1).
unsafe impl<T: Send> Sync for WallRequest<T> {}

/// The state of a request as the sampler reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No request is outstanding.
    Free,
    /// The response is not complete.
    Pending,
    /// The response can be read.
    Ready,
}

impl<T> WallRequest<T> {
    /// A free request.
    pub fn new(response: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            thread_id: AtomicU32::new(0),
            round: AtomicU32::new(0),
            response: UnsafeCell::new(response),
        }
    }

    /// The current state. Sampler thread only.
    pub fn stage(&self) -> Stage {
        match self.state.load(Ordering::Acquire) & STATE {
            FREE => Stage::Free,
            READY => Stage::Ready,
            _ => Stage::Pending,
        }
    }

    /// Addresses the request to a thread; the caller then sends the signal. False while the request is pending.
    ///
    /// # Safety
    /// Called by the one sampler thread, which holds no reference returned by `response`.
    pub unsafe fn issue(&self, thread_id: u32, round: &Round) -> bool {
        let word = self.state.load(Ordering::Acquire);
        if self.stage() == Stage::Pending {
            return false;
        }
        self.thread_id.store(thread_id, Ordering::Relaxed);
        self.round.store(round.add_request(), Ordering::Relaxed);
        self.state.store((word & !STATE).wrapping_add(1 << STATE_BITS) | PENDING, Ordering::Release);
        true
    }

    /// Cancels the request. False unless it is pending: when it is free, or its response is ready or being written.
    ///
    /// # Safety
    /// Called by the one sampler thread.
    pub unsafe fn cancel(&self, round: &Round) -> bool {
        let word = self.state.load(Ordering::Relaxed);
        let free = word & !STATE | FREE;
        let is_cancelled = word & STATE == PENDING
            && self.state.compare_exchange(word, free, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_cancelled {
            round.complete_request(self.round.load(Ordering::Relaxed));
        }
        is_cancelled
    }

    /// The response, once ready. Sampler thread only.
    pub fn response(&self) -> Option<&T> {
        // SAFETY: no handler writes in READY (rule 1). Only `issue` leaves READY, and requires that no response is borrowed.
        (self.stage() == Stage::Ready).then(|| unsafe { &*self.response.get() })
    }

    /// In the handler: writes the response if the request is pending for the calling thread.
    pub fn respond(&self, thread_id: u32, round: &Round, write: impl FnOnce(&mut T)) -> bool {
        let word = self.state.load(Ordering::Acquire);
        let is_pending = word & STATE == PENDING && self.thread_id.load(Ordering::Relaxed) == thread_id;
        let writing = word & !STATE | WRITING;
        if !is_pending || self.state.compare_exchange(word, writing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let request_round = self.round.load(Ordering::Relaxed);
        // SAFETY: the compare-and-swap to WRITING gives this handler exclusive access until it stores READY (rule 1).
        write(unsafe { &mut *self.response.get() });
        self.state.store(word & !STATE | READY, Ordering::Release);
        round.complete_request(request_round);
        true
    }
}

/// A batch of requests that the sampler waits for together.
pub struct Round {
    /// The count of pending requests in the low bits, the round number above.
    word: AtomicU32,
}

impl Round {
    /// No round in progress. Not `const` under loom, whose atomics have no `const` constructor.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default, reason = "a static, never a field")]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    #[cfg(loom)]
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
        let (request, round) = (WallRequest::new(0), Round::new());
        round.begin();
        assert!(!request.respond(7, &round, |response| *response = 1), "no request");
        // SAFETY: this test is the only sampler and borrows no response.
        assert!(unsafe { request.issue(7, &round) });
        // SAFETY: as above.
        assert!(unsafe { !request.issue(8, &round) }, "pending");
        assert!(!request.respond(8, &round, |response| *response = 2));
        assert_eq!(request.response(), None);
        assert!(request.respond(7, &round, |response| *response = 3));
        assert!(!request.respond(7, &round, |response| *response = 4));
        assert_eq!(request.response(), Some(&3));
        assert!(round.wait(NO_TIME));
    }

    #[test]
    fn a_round_ends_when_every_request_is_ready_or_cancelled() {
        let (requests, round) = ([WallRequest::new(0), WallRequest::new(0)], Round::new());
        round.begin();
        for (request, thread_id) in requests.iter().zip([7, 8]) {
            // SAFETY: this test is the only sampler and borrows no response.
            assert!(unsafe { request.issue(thread_id, &round) });
        }
        assert!(requests[0].respond(7, &round, |response| *response = 1));
        assert!(!round.wait(NO_TIME), "one is pending");
        // SAFETY: as above.
        assert!(unsafe { requests[1].cancel(&round) });
        // SAFETY: as above.
        assert!(unsafe { !requests[0].cancel(&round) }, "already ready");
        assert_eq!(requests[1].stage(), Stage::Free);
        round.begin();
        assert!(round.wait(NO_TIME), "no request");
    }

    #[test]
    fn a_late_response_is_kept_and_does_not_end_the_next_round() {
        let (early, late, round) = (WallRequest::new(0), WallRequest::new(0), Round::new());
        round.begin();
        // SAFETY: this test is the only sampler and borrows no response.
        assert!(unsafe { early.issue(7, &round) });
        assert!(!round.wait(NO_TIME));
        round.begin();
        // SAFETY: as above.
        assert!(unsafe { late.issue(8, &round) });
        assert!(early.respond(7, &round, |response| *response = 1));
        assert!(!round.wait(NO_TIME));
        assert_eq!((early.response(), late.response()), (Some(&1), None));
    }
}
