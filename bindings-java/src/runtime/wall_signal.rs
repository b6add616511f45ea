//! The wall walk. A thread that waits, in native code or in the VM, has left an anchor: the sampler's thread walks it from
//! there, and the waiting thread does not notice. One that runs Java code walks itself, in the handler of a signal. One whose
//! CPU clock stands still since it was last seen at rest has the stack it had then.
//!
//! # The exchange
//! There is one asker. It writes whom it asks and ASKED with a new number, signals, and waits on the word. Only the handler
//! that turns this ASKED into ANSWERING writes the answer, and only ANSWERED is read. An asker that lost patience takes
//! ASKED back; when an answer is on its way by then, it is waited for.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spanprof::sys;
use spanprof_signal::{futex, question, Captured, Context, DropReason, HandlerContext, RawFrame, RawStack};

use super::{capture_signal, frame_word, layout, threads_signal, walk_signal};

const FREE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERING: u32 = 2;
const ANSWERED: u32 = 3;
/// How long a thread may take to answer; one that waits for a processor takes longer.
const PATIENCE_NS: u64 = 50_000_000;
/// CPU time from an answer back into the interrupted system call.
const WAY_OUT_NS: u64 = 20_000;
/// Threads whose stacks are kept while they stand still.
const MAX_AT_REST: usize = 2048;
/// Frames kept of a stack.
const MAX_FRAMES: usize = 1024;

struct Answer {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    truncated: bool,
    context: Context,
}

struct Exchange {
    /// The number of the question in the upper bits.
    state: AtomicU32,
    asked: AtomicU32,
    answer: UnsafeCell<Answer>,
}

// SAFETY: `answer` is touched by the handler between ANSWERING and ANSWERED, and by the one asker otherwise.
unsafe impl Sync for Exchange {}

static EXCHANGE: Exchange = Exchange {
    state: AtomicU32::new(FREE),
    asked: AtomicU32::new(0),
    answer: UnsafeCell::new(Answer {
        frames: [RawFrame { code: 0, at: 0 }; MAX_FRAMES],
        len: 0,
        truncated: false,
        context: Context::None,
    }),
};
static ASKED_SO_FAR: AtomicU64 = AtomicU64::new(0);

/// Threads that were asked to walk themselves.
pub fn asked_so_far() -> u64 {
    ASKED_SO_FAR.load(Ordering::Relaxed)
}

/// Installs the handler, once. False when somebody else has the signal.
pub fn install() -> bool {
    question::install::<Answerer>(super::CPU_SIGNAL)
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`].
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(_handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let known = threads_signal::of(thread_id).map(|row| (row, row.java_thread()));
    let Some((row, java_thread)) = known.filter(|(_, java_thread)| *java_thread != 0) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let Some(clock_ns) = sys::thread_cpu_ns(thread_id) else { return Captured::Dropped(DropReason::NoThreadState) };
    if at_rest().repeat(thread_id, java_thread, clock_ns, stack) {
        return Captured::Walked;
    }
    if layout::published().is_some_and(|layout| walk_signal::walk_waiting(layout, java_thread, stack)) {
        stack.context = row.scope.context();
        if sys::thread_cpu_ns(thread_id) == Some(clock_ns) {
            walk_signal::waiting_walk_holds(stack);
            at_rest().keep(thread_id, Rest::of(java_thread, clock_ns, 0, stack));
            return Captured::Walked;
        }
    }
    // It runs, or ran meanwhile: what was seen may be torn.
    stack.clear();
    stack.context = Context::None;
    if !ask(thread_id) {
        return Captured::Dropped(DropReason::SignalBlocked);
    }
    // SAFETY: the question is answered, so that no handler writes.
    let answer = unsafe { &*EXCHANGE.answer.get() };
    stack.context = answer.context;
    let all = answer.frames.get(..answer.len).unwrap_or(&[]);
    let pushed = all.iter().all(|frame| stack.push(*frame));
    if pushed && answer.truncated {
        stack.push(RawFrame::reason(DropReason::InvalidFrame));
    }
    // One that runs no Java code leaves no anchor: it is not asked again while it has burnt no more than its way back.
    let runs_no_java = all.last().is_some_and(|root| root.code == frame_word::THREAD);
    match sys::thread_cpu_ns(thread_id).filter(|_| runs_no_java) {
        Some(clock_ns) => at_rest().keep(thread_id, Rest::of(java_thread, clock_ns, WAY_OUT_NS, stack)),
        None => drop(at_rest().threads.remove(&thread_id)),
    }
    Captured::Walked
}

/// A stack that holds as long as its thread's CPU clock stands still.
struct Rest {
    java_thread: usize,
    clock_ns: u64,
    /// What the clock may have moved on since.
    slack_ns: u64,
    frames: Vec<RawFrame>,
    context: Context,
}

impl Rest {
    fn of(java_thread: usize, clock_ns: u64, slack_ns: u64, stack: &RawStack<'_>) -> Self {
        let frames = if stack.is_truncated() { Vec::new() } else { stack.frames().to_vec() };
        Self { java_thread, clock_ns, slack_ns, frames, context: stack.context }
    }
}

/// The threads that were seen at rest. The asker's alone.
#[derive(Default)]
struct AtRest {
    threads: BTreeMap<u32, Rest>,
}

impl AtRest {
    /// Writes the stack that a thread had, if it still has it.
    fn repeat(&self, thread_id: u32, java_thread: usize, clock_ns: u64, stack: &mut RawStack<'_>) -> bool {
        let Some(rest) = self.threads.get(&thread_id) else { return false };
        let still = rest.java_thread == java_thread && clock_ns.wrapping_sub(rest.clock_ns) <= rest.slack_ns;
        if !still || rest.frames.is_empty() {
            return false;
        }
        stack.context = rest.context;
        rest.frames.iter().all(|frame| stack.push(*frame));
        true
    }

    fn keep(&mut self, thread_id: u32, rest: Rest) {
        if self.threads.len() >= MAX_AT_REST && !self.threads.contains_key(&thread_id) {
            self.threads.clear();
        }
        self.threads.insert(thread_id, rest);
    }
}

fn at_rest() -> MutexGuard<'static, AtRest> {
    static AT_REST: Mutex<AtRest> = Mutex::new(AtRest { threads: BTreeMap::new() });
    AT_REST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state_of(word: u32) -> u32 {
    word & 3
}

/// True when the answer is there.
fn ask(thread_id: u32) -> bool {
    if !super::may_signal() {
        return false;
    }
    let state = &EXCHANGE.state;
    let question = state.load(Ordering::Relaxed).wrapping_add(4) & !3;
    EXCHANGE.asked.store(thread_id, Ordering::Relaxed);
    state.store(question | ASKED, Ordering::Release);
    ASKED_SO_FAR.fetch_add(1, Ordering::Relaxed);
    let until_ns = sys::monotonic_ns() + PATIENCE_NS;
    let sent = question::send(thread_id, std::ptr::from_ref(&EXCHANGE) as usize);
    while sent && sys::monotonic_ns() < until_ns {
        match state.load(Ordering::Acquire) {
            word if state_of(word) == ANSWERED => return true,
            word => wait_while(word),
        }
    }
    // Taken back, unless the handler has begun to answer: it ends by itself.
    if state.compare_exchange(question | ASKED, question | FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        return false;
    }
    while state_of(state.load(Ordering::Acquire)) == ANSWERING {
        wait_while(question | ANSWERING);
        if sys::thread_cpu_ns(thread_id).is_none() {
            return false;
        }
    }
    true
}

fn wait_while(value: u32) {
    futex::wait(&EXCHANGE.state, value, Some(PATIENCE_NS));
}

struct Answerer;

impl question::Answer for Answerer {
    unsafe fn answer(value: usize, ucontext: *mut libc::c_void) {
        if value == std::ptr::from_ref(&EXCHANGE) as usize {
            answer(ucontext);
        }
    }
}

fn answer(ucontext: *mut libc::c_void) {
    // SAFETY: asks the kernel for a number.
    let thread_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let word = EXCHANGE.state.load(Ordering::Acquire);
    let answering = word & !3 | ANSWERING;
    let is_asked = state_of(word) == ASKED && EXCHANGE.asked.load(Ordering::Relaxed) == thread_id;
    if !is_asked || EXCHANGE.state.compare_exchange(word, answering, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: ANSWERING is this handler's, until it is ANSWERED.
    let answer = unsafe { &mut *EXCHANGE.answer.get() };
    let mut stack = RawStack::new(&mut answer.frames);
    // SAFETY: the kernel's context of this signal, on the thread it interrupted.
    unsafe { capture_signal::capture(&HandlerContext { ucontext, thread_id }, &mut stack) };
    let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
    (answer.len, answer.truncated, answer.context) = (len, truncated, context);
    EXCHANGE.state.store(word & !3 | ANSWERED, Ordering::Release);
    futex::wake(&EXCHANGE.state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_repeated_until_its_threads_clock_moves_or_another_thread_has_its_number() {
        let mut frames = [RawFrame::default(); 4];
        let mut stack = RawStack::new(&mut frames);
        stack.push(frame_word::thread(7));
        let mut resting = AtRest::default();
        resting.keep(7, Rest::of(4096, 1_000, 0, &stack));
        resting.keep(8, Rest::of(8192, 1_000, WAY_OUT_NS, &stack));
        let mut repeats = |thread_id, java_thread, clock_ns| {
            stack.clear();
            resting.repeat(thread_id, java_thread, clock_ns, &mut stack) && stack.frames() == [frame_word::thread(7)]
        };
        assert!(repeats(7, 4096, 1_000));
        assert!(!repeats(7, 4096, 1_001), "it ran");
        assert!(!repeats(7, 8192, 1_000), "another thread");
        assert!(repeats(8, 8192, 1_000 + WAY_OUT_NS) && !repeats(8, 8192, 1_001 + WAY_OUT_NS));
        assert!(!repeats(9, 4096, 1_000));
    }
}
