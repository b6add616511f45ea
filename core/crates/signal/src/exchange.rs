//! What one asker and the threads that it asks agree on: who may answer which question, when the answer may be read, and
//! when all of a round have answered. Not here: the signal that asks (`question`), what is answered. Called by runtimes
//! whose threads walk themselves: `Question::answer` in the handler, everything else on the asker's thread.
//!
//! # Rules
//! 1. `FREE → ASKED`, `ASKED → FREE` and `ANSWERED → FREE` by the asker; `ASKED → ANSWERING → ANSWERED` by the handler, on the
//!    thread that was asked. What is answered is written in `ANSWERING` alone, and read in `ANSWERED` alone.
//! 2. Each question has a number of its own, which stands beside the state: a signal that comes late cannot answer the next
//!    question, unless that asks the same thread, whose answer of that moment it then is.
//! 3. A round counts its questions that are still open, and one more while it is being asked. Whoever takes away the last
//!    wakes the asker. An answer to a question of an earlier round is counted in none.

use crate::atomics::{AtomicU32, Ordering};
use crate::futex;
use core::cell::UnsafeCell;

const FREE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERING: u32 = 2;
const ANSWERED: u32 = 3;
const STATE_BITS: u32 = 2;
const STATE: u32 = (1 << STATE_BITS) - 1;

/// Questions of a round; its number stands above their count.
const COUNT_BITS: u32 = 16;
const COUNT: u32 = (1 << COUNT_BITS) - 1;

/// One thread at a time is asked one, and answers with a `T`.
pub struct Question<T> {
    /// The state, and above it the question's number.
    state: AtomicU32,
    thread_id: AtomicU32,
    round: AtomicU32,
    answer: UnsafeCell<T>,
}

// SAFETY: `answer` is touched by the one handler between ANSWERING and ANSWERED, and by the one asker in ANSWERED (rule 1).
unsafe impl<T: Send> Sync for Question<T> {}

/// How far a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody is asked.
    Free,
    /// There is no answer yet.
    Open,
    /// The answer can be read.
    Answered,
}

impl<T> Question<T> {
    /// Nobody is asked yet.
    pub fn new(answer: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            thread_id: AtomicU32::new(0),
            round: AtomicU32::new(0),
            answer: UnsafeCell::new(answer),
        }
    }

    /// How far it is. The asker's.
    pub fn stage(&self) -> Stage {
        match self.state.load(Ordering::Acquire) & STATE {
            FREE => Stage::Free,
            ANSWERED => Stage::Answered,
            _ => Stage::Open,
        }
    }

    /// Puts the question to a thread, which is told of it by the signal that follows. False while it is open.
    ///
    /// # Safety
    /// By the one asker, who holds nothing that `read` gave.
    pub unsafe fn put(&self, thread_id: u32, round: &Round) -> bool {
        let word = self.state.load(Ordering::Acquire);
        if self.stage() == Stage::Open {
            return false;
        }
        self.thread_id.store(thread_id, Ordering::Relaxed);
        self.round.store(round.add(), Ordering::Relaxed);
        self.state.store((word & !STATE).wrapping_add(1 << STATE_BITS) | ASKED, Ordering::Release);
        true
    }

    /// Takes an unanswered question back; false when its answer is there, or on its way.
    ///
    /// # Safety
    /// By the one asker.
    pub unsafe fn take_back(&self, round: &Round) -> bool {
        let word = self.state.load(Ordering::Relaxed);
        let free = word & !STATE | FREE;
        let is_taken = word & STATE == ASKED
            && self.state.compare_exchange(word, free, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_taken {
            round.take(self.round.load(Ordering::Relaxed));
        }
        is_taken
    }

    /// The answer, when it is there. The asker's.
    pub fn read(&self) -> Option<&T> {
        // SAFETY: no handler writes in ANSWERED (rule 1), which only the asker ends; `put` demands that he holds no answer.
        (self.stage() == Stage::Answered).then(|| unsafe { &*self.answer.get() })
    }

    /// In the handler: writes the calling thread's answer, if it is the one that is asked.
    pub fn answer(&self, thread_id: u32, round: &Round, write: impl FnOnce(&mut T)) -> bool {
        let word = self.state.load(Ordering::Acquire);
        let is_asked = word & STATE == ASKED && self.thread_id.load(Ordering::Relaxed) == thread_id;
        let answering = word & !STATE | ANSWERING;
        if !is_asked || self.state.compare_exchange(word, answering, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let asked_in = self.round.load(Ordering::Relaxed);
        // SAFETY: ANSWERING is this handler's alone, until it is ANSWERED (rule 1).
        write(unsafe { &mut *self.answer.get() });
        self.state.store(word & !STATE | ANSWERED, Ordering::Release);
        round.take(asked_in);
        true
    }
}

/// The questions that are put together and waited for together.
pub struct Round {
    /// Questions still open, and above them the round's number.
    word: AtomicU32,
}

impl Round {
    /// Between two rounds. Not `const` in the model, whose atomics are not.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default, reason = "a static, never a field")]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Another round begins: questions put from here on belong to it. The asker's.
    pub fn begin(&self) {
        let number = (self.word.load(Ordering::Relaxed) >> COUNT_BITS).wrapping_add(1);
        // In one step with what came before: an answer that counts itself off at this moment does so before it.
        self.word.swap(number << COUNT_BITS | 1, Ordering::AcqRel);
    }

    /// Waits until every question of the round is answered; false when `left_ns` says that there is no time left. The
    /// asker's, once per round: the round ends here.
    pub fn wait(&self, mut left_ns: impl FnMut() -> u64) -> bool {
        self.take(self.word.load(Ordering::Relaxed) >> COUNT_BITS);
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & COUNT == 0 {
                return true;
            }
            match left_ns() {
                0 => return false,
                left_ns => futex::wait(&self.word, word, Some(left_ns)),
            };
        }
    }

    /// One question more; the number of the round.
    fn add(&self) -> u32 {
        self.word.fetch_add(1, Ordering::Relaxed) >> COUNT_BITS
    }

    /// One question less, if the round is still this one.
    fn take(&self, number: u32) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >> COUNT_BITS == number & (u32::MAX >> COUNT_BITS) && word & COUNT > 0 {
            match self.word.compare_exchange_weak(word, word - 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & COUNT == 1 => return futex::wake(&self.word),
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NO_TIME: fn() -> u64 = || 0;

    #[test]
    fn a_question_is_answered_once_by_the_thread_that_is_asked() {
        let (question, round) = (Question::new(0), Round::new());
        round.begin();
        assert!(!question.answer(7, &round, |answer| *answer = 1), "nobody is asked");
        // SAFETY: this test is the one asker, and keeps no answer.
        assert!(unsafe { question.put(7, &round) });
        // SAFETY: as above.
        assert!(unsafe { !question.put(8, &round) }, "it is open");
        assert!(!question.answer(8, &round, |answer| *answer = 2));
        assert_eq!(question.read(), None);
        assert!(question.answer(7, &round, |answer| *answer = 3));
        assert!(!question.answer(7, &round, |answer| *answer = 4));
        assert_eq!(question.read(), Some(&3));
        assert!(round.wait(NO_TIME));
    }

    #[test]
    fn a_round_is_over_when_all_have_answered_or_were_taken_back_and_not_before() {
        let (questions, round) = ([Question::new(0), Question::new(0)], Round::new());
        round.begin();
        for (question, thread_id) in questions.iter().zip([7, 8]) {
            // SAFETY: this test is the one asker, and keeps no answer.
            assert!(unsafe { question.put(thread_id, &round) });
        }
        assert!(questions[0].answer(7, &round, |answer| *answer = 1));
        assert!(!round.wait(NO_TIME), "one is open");
        // SAFETY: as above.
        assert!(unsafe { questions[1].take_back(&round) });
        // SAFETY: as above.
        assert!(unsafe { !questions[0].take_back(&round) }, "it is answered");
        assert_eq!(questions[1].stage(), Stage::Free);
        round.begin();
        assert!(round.wait(NO_TIME), "nobody is asked");
    }

    #[test]
    fn an_answer_to_an_earlier_round_is_kept_and_shortens_no_other() {
        let (early, late, round) = (Question::new(0), Question::new(0), Round::new());
        round.begin();
        // SAFETY: this test is the one asker, and keeps no answer.
        assert!(unsafe { early.put(7, &round) });
        assert!(!round.wait(NO_TIME));
        round.begin();
        // SAFETY: as above.
        assert!(unsafe { late.put(8, &round) });
        assert!(early.answer(7, &round, |answer| *answer = 1));
        assert!(!round.wait(NO_TIME));
        assert_eq!((early.read(), late.read()), (Some(&1), None));
    }
}
