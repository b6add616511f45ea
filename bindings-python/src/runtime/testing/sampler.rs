//! A minimal sampler for the tests: a thread sends a signal to every Python thread, the handler walks and pushes into a ring,
//! the same thread drains and resolves. Not here: the production sampler, which is the engine's.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::prelude::*;
use spanprof_aggregate::runtime::WallRuntime;
use spanprof_aggregate::runtime::{Frame, Runtime};
use spanprof_signal::{
    Captured, DropReason, HandlerContext, RawFrame, RawSample, RawStack, Ring, SampleFlags, SampleKind,
};

use super::{id_of, outcome, runtime, Walked};
use crate::runtime::{capture, PythonRuntime};

const DEPTH: usize = 256;
const RING_WORDS: usize = 1 << 17;

static RING: AtomicPtr<Ring> = AtomicPtr::new(std::ptr::null_mut());
static COLLECTED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);
static SAMPLER: Mutex<Option<JoinHandle<Report>>> = Mutex::new(None);

/// Context id, outcome (empty when walked), function names with lines, leaf first.
type Sample = (u64, String, Vec<(String, u32)>);

#[derive(Default)]
struct Report {
    samples: Vec<Sample>,
    sent: u64,
}

fn signal_number() -> i32 {
    libc::SIGRTMIN() + 9
}

fn install(handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) {
    // SAFETY: an all-zero action is valid, then filled; no other code in a test process uses the signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal_number(), &action, std::ptr::null_mut());
    }
}

unsafe extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: errno of this thread; the ring is leaked; the walk runs on the interrupted thread.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        if let Some(ring) = RING.load(Ordering::Acquire).as_ref() {
            let mut buffer = [RawFrame { code: 0, at: 0 }; DEPTH];
            let mut stack = RawStack::new(&mut buffer);
            let thread_id = libc::syscall(libc::SYS_gettid) as u32;
            let captured = capture::capture(&HandlerContext { ucontext, thread_id, stack_limit: 0 }, &mut stack);
            let reason;
            let frames = match captured {
                Captured::Walked => stack.frames(),
                Captured::Dropped(drop_reason) => {
                    reason = [RawFrame::reason(drop_reason)];
                    &reason
                }
            };
            let sample = RawSample {
                kind: SampleKind::Cpu,
                flags: SampleFlags(0),
                thread_id,
                time_ns: 0,
                values: [1, 1],
                key: 0,
                context: stack.context,
                frames,
            };
            if ring.push(&sample).is_err() {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        *errno = saved;
    }
}

fn fresh_ring() -> &'static Ring {
    let words: &'static [AtomicU64] = Box::leak((0..RING_WORDS).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>());
    match Ring::new(words) {
        Some(ring) => Box::leak(Box::new(ring)),
        None => unreachable!("the number of words is a power of two"),
    }
}

/// Starts sampling all Python threads every `interval_us` microseconds; drains every `drain_ms` milliseconds.
#[pyfunction]
pub fn sampler_start(py: Python<'_>, interval_us: u64, drain_ms: u64) -> PyResult<()> {
    let runtime = runtime(py)?;
    let ring = fresh_ring();
    COLLECTED.store(0, Ordering::Relaxed);
    RING.store(ring as *const Ring as *mut Ring, Ordering::Release);
    install(on_signal);
    RUNNING.store(true, Ordering::Release);
    let sampler = std::thread::spawn(move || run(&runtime, ring, interval_us, drain_ms));
    *SAMPLER.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(sampler);
    Ok(())
}

fn run(runtime: &PythonRuntime, ring: &Ring, interval_us: u64, drain_ms: u64) -> Report {
    let mut report = Report::default();
    let mut threads = Vec::new();
    // SAFETY: identifies the process.
    let process = unsafe { libc::getpid() };
    let mut drained = std::time::Instant::now();
    while RUNNING.load(Ordering::Acquire) {
        threads.clear();
        runtime.threads(&mut threads);
        for thread in &threads {
            // SAFETY: the signal's handler is installed; the target is a thread of this process or none.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread.thread_id, signal_number()) };
            report.sent += 1;
        }
        std::thread::sleep(Duration::from_micros(interval_us));
        if drained.elapsed() >= Duration::from_millis(drain_ms) {
            drain(runtime, ring, &mut report);
            drained = std::time::Instant::now();
        }
    }
    // Signals that are still pending use the ring.
    std::thread::sleep(Duration::from_millis(20));
    drain(runtime, ring, &mut report);
    report
}

fn drain(runtime: &PythonRuntime, ring: &Ring, report: &mut Report) {
    let up_to = ring.head();
    let mut ended = Vec::new();
    runtime.ended(&mut ended);
    let mut frames: Vec<Frame> = Vec::new();
    ring.drain(up_to, &mut |position, sample| {
        let mut named = Vec::with_capacity(sample.frames.len());
        let mut reason = String::new();
        for &raw in sample.frames {
            if let Some(drop_reason) = raw.as_reason() {
                reason = drop_reason.name().into();
                continue;
            }
            frames.clear();
            runtime.resolve(raw, position, &mut frames);
            match frames.first() {
                Some(frame) => named.push((frame.function.to_string(), frame.line)),
                None => named.push(("[code_ended]".into(), 0)),
            }
        }
        report.samples.push((id_of(sample.context), reason, named));
    });
    COLLECTED.store(report.samples.len() as u64, Ordering::Relaxed);
}

/// Number of samples drained since the start. The rate depends on the machine.
#[pyfunction]
pub fn sampler_collected() -> u64 {
    COLLECTED.load(Ordering::Relaxed)
}

/// Stops sampling: samples, signals sent, samples dropped because the ring was full.
#[pyfunction]
pub fn sampler_stop(py: Python<'_>) -> (Vec<Sample>, u64, u64) {
    RUNNING.store(false, Ordering::Release);
    let sampler = SAMPLER.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    let report = py.detach(|| sampler.and_then(|sampler| sampler.join().ok()).unwrap_or_default());
    (report.samples, report.sent, DROPPED.swap(0, Ordering::Relaxed))
}

thread_local! {
    static ONE: Cell<Option<(Captured, u64, usize, bool)>> = const { Cell::new(None) };
    static FRAMES: Cell<[RawFrame; DEPTH]> = const { Cell::new([RawFrame { code: 0, at: 0 }; DEPTH]) };
}

unsafe extern "C" fn on_one(_: i32, _: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    let mut frames = [RawFrame { code: 0, at: 0 }; DEPTH];
    let mut stack = RawStack::new(&mut frames);
    // SAFETY: the walk runs on the interrupted thread.
    let captured = unsafe { capture::capture(&HandlerContext { ucontext, thread_id: 0, stack_limit: 0 }, &mut stack) };
    ONE.set(Some((captured, id_of(stack.context), stack.len(), stack.is_truncated())));
    FRAMES.set(frames);
}

/// Raises the signal on this thread and reports the stack that its handler captured.
pub fn capture_by_signal(report: impl FnOnce(Captured, &RawStack<'_>) -> Walked) -> Walked {
    ONE.set(None);
    FRAMES.set([RawFrame::default(); DEPTH]);
    install(on_one);
    // SAFETY: the handler is installed.
    unsafe { libc::raise(signal_number()) };
    let Some((captured, id, length, truncated)) = ONE.take() else {
        return (outcome(Captured::Dropped(DropReason::Disabled)), Vec::new(), 0, false);
    };
    let mut copy = [RawFrame::default(); DEPTH];
    let mut stack = RawStack::new(&mut copy);
    for &raw in FRAMES.get().iter().take(length) {
        stack.push(raw);
    }
    let (outcome, frames, _, _) = report(captured, &stack);
    (outcome, frames, id, truncated)
}
