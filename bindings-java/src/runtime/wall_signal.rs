//! The wall walk. A thread that waits, in native code or in the VM, has left an anchor: the sampler's thread walks it from
//! there, and the waiting thread does not notice. One that runs Java code walks itself, in the handler of a signal. One whose
//! CPU clock stands still since it was last seen at rest has the stack it had then. While looks are rare, a waiting thread is
//! walked instead of reading its clock: a walk takes longer and no system call.
//!
//! # The exchange
//! There is one asker. Whoever must walk itself is asked by a first look, and its answer taken by a later one; between them
//! the asker waits once for all it asked in a tick. A question stays open until it is answered: a thread that waits for a
//! processor answers when it gets one, before it does anything else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spanprof::sys;
use spanprof_signal::exchange::{Round, WallRequest};
use spanprof_signal::{guarded, wall_request, Captured, Context, DropReason, HandlerContext, RawFrame, RawStack};

use super::layout::Layout;
use super::threads_signal::{self, Row};
use super::{call_trace_signal, capture_signal, layout, walk_signal};

/// CPU time from an answer back into the interrupted system call.
const WAY_OUT_NS: u64 = 20_000;
/// Threads whose stacks are kept while they stand still.
const MAX_AT_REST: usize = 2048;
/// Threads that are asked at one time: those that run, or wait for a processor.
const MAX_QUESTIONS: usize = 256;
/// Frames kept of a stack.
const MAX_FRAMES: usize = 1024;

struct Answer {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    truncated: bool,
    context: Context,
    /// The thread's CPU clock before its answer, and behind it.
    clock_ns: [u64; 2],
    /// Whether it was interrupted in a system call.
    in_call: bool,
}

impl Answer {
    fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }
}

/// Made as they are needed, and kept: a signal names one by its index.
static QUESTIONS: [AtomicPtr<WallRequest<Answer>>; MAX_QUESTIONS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_QUESTIONS];
static ROUND: Round = Round::new();
static ASKED_SO_FAR: AtomicU64 = AtomicU64::new(0);
static LOOKS_ARE_RARE: AtomicBool = AtomicBool::new(false);

fn question_at(index: usize) -> Option<&'static WallRequest<Answer>> {
    // SAFETY: only leaked boxes are ever stored there.
    QUESTIONS.get(index).and_then(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Threads that were asked to walk themselves.
pub fn asked_so_far() -> u64 {
    ASKED_SO_FAR.load(Ordering::Relaxed)
}

/// Installs the handler, once. False when somebody else has the signal.
pub fn install() -> bool {
    sys::may_use(sys::SystemCall::RtTgsigqueueinfo) && wall_request::install::<Answerer>(super::FALLBACK_SIGNAL)
}

/// A sampler begins: what another one was told is of another time.
pub fn begin() {
    let mut asker = asker();
    asker.at_rest.threads.clear();
    let open: Vec<u32> = asker.open.keys().copied().collect();
    open.into_iter().for_each(|thread_id| asker.close(thread_id));
}

/// See [`spanprof::runtime::Runtime::looks_are_rare`].
pub fn looks_are_rare(are_rare: bool) {
    LOOKS_ARE_RARE.store(are_rare, Ordering::Relaxed);
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`].
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(_handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    asker().look(thread_id, stack)
}

/// Waits for the answers of all that were asked since the last call.
pub fn wait_for_answers(patience: Duration) -> bool {
    let mut asker = asker();
    if std::mem::take(&mut asker.is_asking) {
        let until_ns = sys::monotonic_ns() + patience.as_nanos() as u64;
        ROUND.wait(|| until_ns.saturating_sub(sys::monotonic_ns()));
    }
    true
}

/// The one asker's: whom it asked, and whom it saw at rest.
struct Asker {
    /// By the kernel's id of the thread.
    open: BTreeMap<u32, Open>,
    at_rest: AtRest,
    /// Whether a round has begun and nobody has waited for it yet.
    is_asking: bool,
}

/// A question that is not answered yet, or whose answer nobody has taken.
struct Open {
    index: usize,
    java_thread: usize,
    /// Its CPU clock when the VM refused to walk it while it waited, as it does while a collector works; it is asked again.
    refused_ns: Option<u64>,
}

fn asker() -> MutexGuard<'static, Asker> {
    static ASKER: Mutex<Asker> =
        Mutex::new(Asker { open: BTreeMap::new(), at_rest: AtRest { threads: BTreeMap::new() }, is_asking: false });
    ASKER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asker {
    fn look(&mut self, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
        let known = threads_signal::of(thread_id).map(|row| (row, row.java_thread()));
        let known = known.filter(|(_, java_thread)| *java_thread != 0);
        if let Some(open) = self.open.get(&thread_id) {
            let index = open.index;
            let is_the_same = known.is_none_or(|(_, java_thread)| java_thread == open.java_thread);
            if is_the_same && self.take_answer(thread_id, stack) {
                return Captured::Walked;
            }
            if is_the_same && known.is_some() {
                // A tick of its clock that was pending may have absorbed the signal.
                wall_request::send(thread_id, index);
                return Captured::Dropped(DropReason::SignalBlocked);
            }
            // It ended, unanswered; a later thread may have its id.
            self.close(thread_id);
        }
        let Some((row, java_thread)) = known else { return Captured::Dropped(DropReason::NoThreadState) };
        let layout = layout::published();
        let rarely = layout.filter(|_| LOOKS_ARE_RARE.load(Ordering::Relaxed));
        let state = rarely.and_then(|layout| walk_signal::state_without_java(layout, java_thread));
        if rarely.is_some_and(|layout| self.at_rest.still_waits(layout, thread_id, row, state, stack)) {
            return Captured::Walked;
        }
        let Some(clock_ns) = sys::thread_cpu_ns(thread_id) else {
            return Captured::Dropped(DropReason::NoThreadState);
        };
        if self.at_rest.repeat(thread_id, java_thread, clock_ns, state, stack) {
            return Captured::Walked;
        }
        if layout.is_some_and(|layout| walk_signal::walk_waiting(layout, java_thread, stack)) {
            stack.context = row.scope.context();
            if sys::thread_cpu_ns(thread_id) == Some(clock_ns) {
                walk_signal::waiting_walk_holds(stack);
                self.at_rest.keep(thread_id, Rest::of(java_thread, clock_ns, 0, stack));
                return Captured::Walked;
            }
        }
        // It runs, or ran meanwhile: what was seen may be torn.
        stack.clear();
        stack.context = Context::None;
        self.at_rest.threads.remove(&thread_id);
        Captured::Dropped(self.ask(thread_id, java_thread))
    }

    /// Asks a thread to walk itself; what is to be said of it until it has.
    fn ask(&mut self, thread_id: u32, java_thread: usize) -> DropReason {
        if !super::may_signal() {
            return DropReason::SignalBlocked;
        }
        self.join_round();
        let Some(index) = self.put(thread_id) else { return DropReason::TooManyThreads };
        self.open.insert(thread_id, Open { index, java_thread, refused_ns: None });
        ASKED_SO_FAR.fetch_add(1, Ordering::Relaxed);
        if wall_request::send(thread_id, index) {
            return DropReason::SignalBlocked;
        }
        self.close(thread_id);
        DropReason::NoThreadState
    }

    fn join_round(&mut self) {
        if !std::mem::replace(&mut self.is_asking, true) {
            ROUND.begin();
        }
    }

    /// Puts a question that is free, or a new one; its index.
    fn put(&mut self, thread_id: u32) -> Option<usize> {
        if self.open.len() >= MAX_QUESTIONS {
            // Those of threads that ended meanwhile.
            let has_ended = |(id, open): (&u32, &Open)| {
                let lives = threads_signal::of(*id).is_some_and(|row| row.java_thread() == open.java_thread);
                (!lives).then_some(*id)
            };
            let ended: Vec<u32> = self.open.iter().filter_map(has_ended).collect();
            ended.into_iter().for_each(|thread_id| self.close(thread_id));
        }
        let is_free = |index: &usize| self.open.values().all(|open| open.index != *index);
        // One that is still being answered although nobody waits for it any more cannot be put.
        (0..MAX_QUESTIONS).filter(is_free).find(|index| {
            let question = question_at(*index).unwrap_or_else(|| made(*index));
            // SAFETY: under the lock of the one asker; no answer is held.
            unsafe { question.issue(thread_id, &ROUND) }
        })
    }

    /// Writes the stack that a thread answered with, if it has.
    fn take_answer(&mut self, thread_id: u32, stack: &mut RawStack<'_>) -> bool {
        let Some(open) = self.open.get_mut(&thread_id) else { return false };
        let Some(question) = question_at(open.index) else { return false };
        let Some(answer) = question.response() else { return false };
        let [begun_ns, ended_ns] = answer.clock_ns;
        let has_run = open.refused_ns.is_some_and(|refused_ns| begun_ns.wrapping_sub(refused_ns) > WAY_OUT_NS);
        let is_refused = layout::published().is_none() && call_trace_signal::is_refusal(answer.frames());
        if is_refused && answer.in_call && !has_run {
            // It waits: where, the VM will say when its collector is done.
            open.refused_ns = Some(ended_ns);
            let index = open.index;
            self.join_round();
            // SAFETY: under the lock of the one asker; the answer is not looked at any more.
            unsafe { question.issue(thread_id, &ROUND) };
            wall_request::send(thread_id, index);
            return false;
        }
        stack.context = answer.context;
        if has_run {
            stack.push(RawFrame::reason(DropReason::InvalidFrame));
        } else {
            let pushed = answer.frames().iter().all(|frame| stack.push(*frame));
            if pushed && answer.truncated {
                stack.push(RawFrame::reason(DropReason::InvalidFrame));
            }
        }
        // It goes back into its system call: it is not asked again while it has burnt no more than its way there.
        let is_whole = stack.frames().last().is_some_and(|root| root.as_reason().is_none());
        if answer.in_call && is_whole {
            self.at_rest.keep(thread_id, Rest::of(open.java_thread, ended_ns, WAY_OUT_NS, stack));
        }
        self.open.remove(&thread_id);
        true
    }

    /// Takes a question back, or throws its answer away.
    fn close(&mut self, thread_id: u32) {
        let open = self.open.remove(&thread_id);
        if let Some(question) = open.and_then(|open| question_at(open.index)) {
            // SAFETY: under the lock of the one asker.
            unsafe { question.cancel(&ROUND) };
        }
    }
}

fn made(index: usize) -> &'static WallRequest<Answer> {
    let answer = Answer {
        frames: [RawFrame { code: 0, at: 0 }; MAX_FRAMES],
        len: 0,
        truncated: false,
        context: Context::None,
        clock_ns: [0; 2],
        in_call: false,
    };
    let question: &'static WallRequest<Answer> = Box::leak(Box::new(WallRequest::new(answer)));
    if let Some(place) = QUESTIONS.get(index) {
        place.store(std::ptr::from_ref(question).cast_mut(), Ordering::Release);
    }
    question
}

/// A stack that holds as long as its thread's CPU clock stands still.
struct Rest {
    java_thread: usize,
    clock_ns: u64,
    /// What the clock may move on before it stands still.
    slack_ns: u64,
    /// The VM's word for what it does, if it has no Java frames.
    state: Option<i32>,
    frames: Vec<RawFrame>,
    context: Context,
}

impl Rest {
    fn of(java_thread: usize, clock_ns: u64, slack_ns: u64, stack: &RawStack<'_>) -> Self {
        let frames = if stack.is_truncated() { Vec::new() } else { stack.frames().to_vec() };
        Self { java_thread, clock_ns, slack_ns, state: None, frames, context: stack.context }
    }
}

/// The threads that were seen at rest.
struct AtRest {
    threads: BTreeMap<u32, Rest>,
}

impl AtRest {
    /// Writes the stack that a thread had, if it still has it.
    fn repeat(
        &mut self,
        thread_id: u32,
        java_thread: usize,
        clock_ns: u64,
        state: Option<i32>,
        stack: &mut RawStack<'_>,
    ) -> bool {
        let Some(rest) = self.threads.get_mut(&thread_id) else { return false };
        let still = rest.java_thread == java_thread && clock_ns.wrapping_sub(rest.clock_ns) <= rest.slack_ns;
        if !still || rest.frames.is_empty() {
            return false;
        }
        // It has come to rest by now.
        (rest.clock_ns, rest.slack_ns, rest.state) = (clock_ns, 0, state);
        stack.context = rest.context;
        rest.frames.iter().all(|frame| stack.push(*frame));
        true
    }

    /// Writes a thread's former stack if the thread still waits there. No system call is made: either a walk finds the same Java
    /// frames, which a torn walk would not, or the thread has no Java frames and the VM's state of it is the same.
    fn still_waits(
        &self,
        layout: &Layout,
        thread_id: u32,
        row: &Row,
        state: Option<i32>,
        stack: &mut RawStack<'_>,
    ) -> bool {
        let java_thread = row.java_thread();
        let rest = self.threads.get(&thread_id).filter(|rest| rest.java_thread == java_thread);
        let Some(rest) = rest.filter(|rest| !rest.frames.is_empty()) else { return false };
        let is_same = match state {
            Some(_) => state == rest.state && rest.frames.iter().all(|frame| stack.push(*frame)),
            None => walk_signal::walk_waiting(layout, java_thread, stack) && stack.frames() == rest.frames,
        };
        stack.context = row.scope.context();
        let is_same = is_same && !stack.is_truncated() && stack.context == rest.context;
        if !is_same {
            stack.clear();
            stack.context = Context::None;
        }
        is_same
    }

    fn keep(&mut self, thread_id: u32, rest: Rest) {
        if self.threads.len() >= MAX_AT_REST && !self.threads.contains_key(&thread_id) {
            self.threads.clear();
        }
        self.threads.insert(thread_id, rest);
    }
}

struct Answerer;

impl wall_request::WallResponder for Answerer {
    unsafe fn respond(value: usize, ucontext: *mut libc::c_void) {
        let Some(question) = question_at(value) else { return };
        // SAFETY: asks the kernel for a number.
        let thread_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        question.respond(thread_id, &ROUND, |answer| {
            let begun_ns = sys::current_thread_cpu_ns();
            let mut stack = RawStack::new(&mut answer.frames);
            // SAFETY: the kernel's context of this signal, on the thread it interrupted.
            unsafe { capture_signal::capture(&HandlerContext { ucontext, thread_id }, &mut stack) };
            let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
            (answer.len, answer.truncated, answer.context) = (len, truncated, context);
            // SAFETY: the kernel's context of this signal, in its handler.
            answer.in_call = unsafe { guarded::is_in_system_call(ucontext) };
            answer.clock_ns = [begun_ns, sys::current_thread_cpu_ns()];
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::frame_word;

    #[test]
    fn a_stack_is_repeated_until_its_threads_clock_moves_or_another_thread_has_its_number() {
        let mut frames = [RawFrame::default(); 4];
        let mut stack = RawStack::new(&mut frames);
        stack.push(frame_word::thread(7));
        let mut resting = AtRest { threads: BTreeMap::new() };
        resting.keep(7, Rest::of(4096, 1_000, 0, &stack));
        resting.keep(8, Rest::of(8192, 1_000, WAY_OUT_NS, &stack));
        resting.keep(9, Rest::of(8192, 1_000, WAY_OUT_NS, &stack));
        let mut repeats = |thread_id, java_thread, clock_ns| {
            stack.clear();
            resting.repeat(thread_id, java_thread, clock_ns, None, &mut stack)
                && stack.frames() == [frame_word::thread(7)]
        };
        assert!(repeats(7, 4096, 1_000));
        assert!(!repeats(7, 4096, 1_001), "it ran");
        assert!(!repeats(7, 8192, 1_000), "another thread");
        assert!(!repeats(8, 8192, 1_001 + WAY_OUT_NS), "more than its way back");
        assert!(repeats(9, 8192, 1_000 + WAY_OUT_NS), "its way back");
        assert!(!repeats(9, 8192, 1_001 + WAY_OUT_NS), "it was back, and ran again");
        assert!(!repeats(10, 4096, 1_000));
    }
}
