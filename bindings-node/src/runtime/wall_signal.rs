//! The wall walk: the sampler's thread asks, with a signal of its own, and the JavaScript thread walks itself in the
//! handler. A thread whose CPU clock stood still since it was last walked has the stack it had then: it is not signalled,
//! so that an idle process is left alone. What the signal itself made it burn does not count: a thread found inside a
//! system call that burnt next to nothing until the next look is still there.
//!
//! # The exchange
//! One asker, one answerer per thread. The asker writes ASKED, signals, and waits on the word; only a handler that turns
//! ASKED into ANSWERING writes the answer, and only ANSWERED is read. A question that is not answered in time stays open:
//! a thread that waits for a processor answers when it gets one, before it does anything else, and the next look takes it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use spanprof::sys;
use spanprof_signal::{futex, guarded, wall_request, Captured, Context, DropReason, RawFrame, RawStack};

use super::js_thread_signal::{self, JsThread};
use super::recent_signal::{Ran, Recent, MAX_WAITED};
use super::ring_position_signal::RingPosition;
use super::{capture_signal, context_signal, marker};

const FREE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERING: u32 = 2;
const ANSWERED: u32 = 3;
/// How long an answer is waited for; one to a question that was open already, less.
const PATIENCE_NS: u64 = 20_000_000;
const SHORT_PATIENCE_NS: u64 = 2_000_000;
/// CPU time from an answer back into the interrupted system call: less than any callback takes.
const WAY_OUT_NS: u64 = 20_000;
/// Questions asked at most before it is said that code moved under each answer.
const MAX_QUESTIONS: usize = 3;
/// Frames kept of a stack.
const MAX_FRAMES: usize = 512;

/// What a thread answered last.
struct Answer {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    truncated: bool,
    context: Context,
    /// Whether the thread was inside a system call.
    in_call: bool,
    /// That of the thread by then: the frames mean what they meant as long as it stays.
    address_epoch: u64,
}

/// The exchange with one thread.
pub struct Exchange {
    state: AtomicU32,
    /// The thread that has not answered since it was asked; 0 when none. The asker's.
    open_for: AtomicU32,
    answer: UnsafeCell<Answer>,
    /// Whether its event loop waited for events when it answered last.
    is_idle: AtomicBool,
    /// When it last answered so, until `take_idle_until`; 0 when it has not.
    idle_until_ns: AtomicU64,
    /// The thread's CPU clock when its answer was last seen to hold; 0 when there is none.
    cpu_ns: AtomicU64,
    /// Whether that was after it came to rest.
    is_settled: AtomicBool,
    /// Looks since the last answer that it still held for. The asker's, taken by the thread.
    held: AtomicU32,
    /// Stacks in which the thread waited in this turn of its event loop.
    waited: Recent<MAX_WAITED>,
}

// SAFETY: `answer` is touched by the handler between ANSWERING and ANSWERED, and by the one asker otherwise.
unsafe impl Sync for Exchange {}

impl Exchange {
    pub fn new() -> Self {
        let none = RawFrame { code: 0, at: 0 };
        let answer = Answer {
            frames: [none; MAX_FRAMES],
            len: 0,
            truncated: false,
            context: Context::None,
            in_call: false,
            address_epoch: 0,
        };
        Self {
            state: AtomicU32::new(FREE),
            open_for: AtomicU32::new(0),
            answer: UnsafeCell::new(answer),
            cpu_ns: AtomicU64::new(0),
            is_idle: AtomicBool::new(true),
            idle_until_ns: AtomicU64::new(0),
            is_settled: AtomicBool::new(false),
            held: AtomicU32::new(0),
            waited: Recent::new(),
        }
    }

    /// Gives the stacks in which the thread has waited since the last call to `take`, and how often it was found in each.
    ///
    /// # Safety
    /// On the thread itself, not in its handler.
    pub unsafe fn take_waited(&self, take: impl FnOnce(&[Ran])) {
        if self.held.load(Ordering::Relaxed) != 0 {
            // SAFETY: on the thread; its handler's answer comes before or behind this.
            unsafe { self.waited.found_again(self.held.swap(0, Ordering::Relaxed)) };
        }
        // SAFETY: as the caller's.
        unsafe { self.waited.take(take) };
    }

    /// When the thread was last asked while its event loop waited for events, since the last call; 0 when it was not.
    pub fn take_idle_until(&self) -> u64 {
        self.idle_until_ns.swap(0, Ordering::Relaxed)
    }

    /// Whether the last answer is what the thread would answer now. The asker's.
    fn still_holds(&self, cpu_ns: u64) -> bool {
        let seen_ns = self.cpu_ns.load(Ordering::Relaxed);
        if seen_ns == 0 || cpu_ns == 0 || self.is_settled.load(Ordering::Relaxed) {
            return seen_ns == cpu_ns && cpu_ns != 0;
        }
        // SAFETY: no question is open, so that no handler writes.
        let holds = unsafe { (*self.answer.get()).in_call } && cpu_ns.saturating_sub(seen_ns) < WAY_OUT_NS;
        if holds {
            self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
            self.is_settled.store(true, Ordering::Relaxed);
        }
        holds
    }

    /// Another thread takes the entry.
    pub fn reset(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        self.cpu_ns.store(0, Ordering::Relaxed);
        self.open_for.store(0, Ordering::Relaxed);
    }
}

/// Whether every thread waited for events when it was last asked: what waits in a turn of an event loop is found by looks alone.
pub fn all_are_idle() -> bool {
    let mut threads = js_thread_signal::all().iter().filter(|thread| thread.thread_id.load(Ordering::Acquire) != 0);
    threads.all(|thread| thread.exchange().is_none_or(|exchange| exchange.is_idle.load(Ordering::Relaxed)))
}

/// Installs the handler, once. False when somebody else has the signal.
pub fn install() -> bool {
    sys::may_use(sys::SystemCall::RtTgsigqueueinfo) && wall_request::install::<Answerer>(super::FALLBACK_SIGNAL)
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`].
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let thread = usize::try_from(handle).ok().and_then(|index| js_thread_signal::all().get(index));
    let known = thread.filter(|thread| thread.thread_id.load(Ordering::Acquire) == thread_id);
    let Some((thread, exchange)) = known.and_then(|thread| thread.exchange().map(|exchange| (thread, exchange))) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    for _ in 0..MAX_QUESTIONS {
        if !exchange.still_holds(sys::thread_cpu_ns(thread_id).unwrap_or(0)) {
            exchange.is_settled.store(false, Ordering::Relaxed);
            exchange.cpu_ns.store(0, Ordering::Relaxed);
            if !ask(thread, exchange, thread_id) {
                return Captured::Dropped(DropReason::SignalBlocked);
            }
            exchange.cpu_ns.store(sys::thread_cpu_ns(thread_id).unwrap_or(0), Ordering::Relaxed);
        } else {
            exchange.held.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: no question is open, so that no handler writes.
        let answer = unsafe { &*exchange.answer.get() };
        if answer.address_epoch == thread.address_epoch.load(Ordering::Relaxed) {
            answer.copy_to(stack);
            return Captured::Walked;
        }
        // It came long ago, from a thread that waited for a processor: its code may have moved since.
        exchange.cpu_ns.store(0, Ordering::Relaxed);
    }
    Captured::Dropped(DropReason::MovedDuringWalk)
}

impl Answer {
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

/// True when the answer is there.
fn ask(thread: &JsThread, exchange: &Exchange, thread_id: u32) -> bool {
    // One that the entry's last thread left open is nobody's to answer.
    let was_open = exchange.open_for.swap(thread_id, Ordering::Relaxed) == thread_id;
    if !was_open {
        exchange.state.store(ASKED, Ordering::Release);
    }
    // Also for a question that is still open: a tick of the thread's clock that was pending may have absorbed its signal.
    let is_answered = exchange.state.load(Ordering::Acquire) == ANSWERED;
    let is_sent = is_answered || wall_request::send(thread_id, std::ptr::from_ref(thread) as usize);
    if !is_sent && !was_open {
        exchange.open_for.store(0, Ordering::Relaxed);
        return false;
    }
    let patience_ns = if was_open { SHORT_PATIENCE_NS } else { PATIENCE_NS };
    let until_ns = sys::monotonic_ns() + patience_ns;
    loop {
        match exchange.state.load(Ordering::Acquire) {
            ANSWERED => break,
            _ if sys::monotonic_ns() >= until_ns => return false,
            state => futex::wait(&exchange.state, state, Some(patience_ns)),
        };
    }
    exchange.open_for.store(0, Ordering::Relaxed);
    true
}

struct Answerer;

impl wall_request::WallResponder for Answerer {
    unsafe fn respond(value: usize, ucontext: *mut libc::c_void) {
        if let Some(thread) = js_thread_signal::by_address(value) {
            answer(thread, ucontext);
        }
    }
}

fn answer(thread: &JsThread, ucontext: *mut libc::c_void) {
    // SAFETY: asks the kernel for a number.
    let own_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let Some(exchange) = thread.exchange() else { return };
    let is_asked = || exchange.state.compare_exchange(ASKED, ANSWERING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if thread.thread_id.load(Ordering::Relaxed) != own_id || !is_asked() {
        return;
    }
    // SAFETY: ANSWERING is this handler's, until it is ANSWERED.
    let answer = unsafe { &mut *exchange.answer.get() };
    answer.address_epoch = thread.address_epoch.load(Ordering::Relaxed);
    let mut stack = RawStack::new(&mut answer.frames);
    stack.context = context_signal::read(thread);
    // SAFETY: the kernel's context of this signal, in the handler of the thread itself.
    unsafe { capture_signal::walk_interrupted(thread, ucontext, &mut stack) };
    let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
    (answer.len, answer.truncated, answer.context) = (len, truncated, context);
    // SAFETY: the kernel's context of this signal, in its handler.
    answer.in_call = unsafe { guarded::is_in_system_call(ucontext) };
    let frames = answer.frames.get(..len).unwrap_or(&[]);
    let is_idle = is_waiting_for_events(frames);
    exchange.is_idle.store(is_idle, Ordering::Relaxed);
    if is_idle {
        exchange.idle_until_ns.store(sys::monotonic_ns(), Ordering::Relaxed);
    }
    let held = exchange.held.swap(0, Ordering::Relaxed);
    // SAFETY: in a handler of the thread; that of the clocks and this one exclude each other.
    unsafe {
        exchange.waited.found_again(held);
        match answer.in_call && !is_idle {
            true => exchange.waited.note(frames, context, RingPosition::now()),
            false => exchange.waited.went_on(),
        }
    }
    if is_idle {
        // What leads there is Node's, and always the same.
        if let Some(caller) = answer.frames.get_mut(1) {
            *caller = marker::IDLE;
            (answer.len, answer.truncated) = (2, false);
        }
    }
    exchange.state.store(ANSWERED, Ordering::Release);
    futex::wake(&exchange.state);
}

/// Bytes of libc's waits.
const WAIT_BYTES: usize = 192;

/// The beginnings of libc's waits for events; looked up on normal ground.
static WAITS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Looks up what `is_waiting_for_events` compares with. Normal ground.
pub fn learn_waits() {
    let waits: [*const (); 2] = [libc::epoll_wait as *const (), libc::epoll_pwait as *const ()];
    for (place, wait) in WAITS.iter().zip(waits) {
        place.store(wait as u64, Ordering::Relaxed);
    }
}

/// Whether an event loop waits that no JavaScript called: `spawnSync` runs one of its own.
fn is_waiting_for_events(frames: &[RawFrame]) -> bool {
    let pc = frames.first().copied().and_then(RawFrame::native_pc).unwrap_or(0);
    let is_wait = WAITS.iter().any(|wait| {
        let start = wait.load(Ordering::Relaxed);
        start != 0 && pc.wrapping_sub(start) < WAIT_BYTES as u64
    });
    is_wait && !frames.iter().any(|frame| marker::is_code(*frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(in_call: bool, cpu_ns: u64) -> Exchange {
        let mut exchange = Exchange::new();
        exchange.answer.get_mut().in_call = in_call;
        exchange.cpu_ns.store(cpu_ns, Ordering::Relaxed);
        exchange
    }

    #[test]
    fn a_thread_that_went_back_into_its_system_call_keeps_its_answer_until_its_clock_moves() {
        let exchange = answered(true, 1_000_000);
        assert!(exchange.still_holds(1_004_000), "the way back");
        assert!(exchange.still_holds(1_004_000));
        assert!(!exchange.still_holds(1_004_001), "it ran again");
    }

    #[test]
    fn a_loop_that_javascript_runs_is_not_idle() {
        learn_waits();
        let wait = RawFrame::native(libc::epoll_wait as *const () as u64 + 20);
        let (native, code) = (RawFrame::native(0x5000), RawFrame { code: 0x7000, at: 4 });
        assert!(is_waiting_for_events(&[wait, native]));
        for other in [&[wait, native, code][..], &[native, wait], &[]] {
            assert!(!is_waiting_for_events(other));
        }
    }

    #[test]
    fn an_open_question_is_not_asked_twice_and_its_late_answer_is_taken_once() {
        let thread = js_thread_signal::claim().unwrap();
        let exchange = Exchange::new();
        exchange.open_for.store(u32::MAX, Ordering::Relaxed);
        exchange.state.store(ASKED, Ordering::Relaxed);
        // No thread has this id: a signal to it would fail, and close the question.
        assert!(!ask(thread, &exchange, u32::MAX));
        assert_eq!(exchange.open_for.load(Ordering::Relaxed), u32::MAX, "still open");
        exchange.state.store(ANSWERED, Ordering::Relaxed);
        assert!(ask(thread, &exchange, u32::MAX));
        assert!(!ask(thread, &exchange, u32::MAX), "a new question, which nobody gets");
        thread.thread_id.store(0, Ordering::Relaxed);
    }

    #[test]
    fn an_answer_from_before_code_moved_is_not_taken() {
        let thread = js_thread_signal::claim().unwrap();
        // No thread has this id: a question that is asked anew fails at once.
        let id = u32::MAX - 1;
        thread.thread_id.store(id, Ordering::Release);
        let handle = js_thread_signal::all().iter().position(|other| std::ptr::eq(other, thread)).unwrap() as u64;
        let exchange = thread.exchange().unwrap();
        let taken_in = |epoch| {
            thread.address_epoch.store(epoch, Ordering::Relaxed);
            exchange.open_for.store(id, Ordering::Relaxed);
            exchange.state.store(ANSWERED, Ordering::Relaxed);
            let mut frames = [RawFrame::default(); 4];
            // SAFETY: nobody else asks this entry.
            unsafe { capture_other(handle, id, &mut RawStack::new(&mut frames)) }
        };
        assert_eq!(taken_in(0), Captured::Walked);
        assert_eq!(taken_in(1), Captured::Dropped(DropReason::SignalBlocked));
        thread.release();
    }

    #[test]
    fn a_question_that_the_entrys_last_thread_left_open_is_asked_anew_of_the_next() {
        let thread = js_thread_signal::claim().unwrap();
        let exchange = Exchange::new();
        exchange.open_for.store(1 << 30, Ordering::Relaxed);
        exchange.state.store(ASKED, Ordering::Relaxed);
        // The signal that asks it fails, which closes the question: one taken for open would have stayed so.
        assert!(!ask(thread, &exchange, u32::MAX));
        assert_eq!(exchange.open_for.load(Ordering::Relaxed), 0);
        thread.thread_id.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_thread_that_ran_is_asked_again() {
        assert!(!answered(true, 1_000_000).still_holds(1_030_000));
        assert!(!answered(false, 1_000_000).still_holds(1_001_000), "it was not waiting");
        assert!(!answered(true, 0).still_holds(0), "it was never asked");
    }
}
