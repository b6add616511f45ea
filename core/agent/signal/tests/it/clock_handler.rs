//! The clock handler, driven by signals that this process queues to its own threads with the siginfo of a timer: any
//! number, at any instruction.

use crate::no_allocation::calls_in_handler;
use crate::stack_space::with_signal_stack;
use crate::{host_installs, one_at_a_time, status_of_child};
use spanprof_signal::exchange::{Round, WallRequest};
use spanprof_signal::self_walk::{self, SelfWalk};
use spanprof_signal::{
    counters, guarded, handler, slot_table, Captured, Context, DropReason, HandlerContext, Inbox, RawFrame, RawStack,
    Slot, SlotInit,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

pub const FRAME: RawFrame = RawFrame { code: 0x4000, at: 3 };

unsafe fn capture_twenty(context: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    // Guarded reads as in a runtime's walk, including one that fails.
    let failed_read = guarded::read_u64(4096 * 3);
    stack.context = Context::Id(context.thread_id as u64);
    for at in 0..20 {
        stack.push(RawFrame { at: at + failed_read.unwrap_or(0), ..FRAME });
    }
    Captured::Walked
}

unsafe fn capture_torn_frames(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    stack.push(FRAME);
    Captured::Dropped(DropReason::InvalidFrame)
}

/// Unblocks the signal inside the handler and queues it again.
unsafe fn capture_with_nested_signal(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    mask(libc::SIG_UNBLOCK, libc::SIGPROF);
    queue(thread_id(), timer_siginfo(slot_table::signal_value(1, slot_table::slots()[1].generation())));
    stack.push(FRAME);
    Captured::Walked
}

fn thread_id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

fn mask(how: libc::c_int, signal: libc::c_int) {
    // SAFETY: works on a local and on this thread's own mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(how, &set, std::ptr::null_mut());
    }
}

/// The kernel's siginfo: signal, errno, code, padding, then the fields of the code.
type SigInfo = [u64; 16];

fn timer_siginfo(value: usize) -> SigInfo {
    let mut siginfo = [0; 16];
    siginfo[0] = libc::SIGPROF as u64;
    siginfo[1] = libc::SI_TIMER as u32 as u64;
    siginfo[3] = value as u64;
    siginfo
}

fn queue(thread_id: u32, siginfo: SigInfo) {
    // SAFETY: the kernel reads 128 bytes; a process may queue any siginfo to its own threads.
    unsafe {
        let (process, thread) = (libc::getpid(), thread_id as libc::c_int);
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGPROF, siginfo.as_ptr());
    }
}

fn inbox() -> &'static Inbox {
    static INBOX: OnceLock<&'static Inbox> = OnceLock::new();
    INBOX.get_or_init(|| {
        let words: Vec<AtomicU64> = (0..1 << 16).map(|_| AtomicU64::new(0)).collect();
        Box::leak(Box::new(Inbox::new(Box::leak(words.into_boxed_slice())).unwrap()))
    })
}

/// Slot 1 for the calling thread, and a session that captures with `capture`.
pub struct HandlerFixture {
    generation: u32,
}

impl HandlerFixture {
    pub fn new(capture: spanprof_signal::CaptureFn) -> Self {
        if slot_table::slots().is_empty() {
            // SAFETY: all-zero slots are free slots; the memory is never freed.
            let table: &'static [Slot; slot_table::SLOTS] = unsafe {
                let layout = std::alloc::Layout::new::<[Slot; slot_table::SLOTS]>();
                &*std::alloc::alloc_zeroed(layout).cast()
            };
            slot_table::set_slot_table(table);
        }
        const DEPTH: usize = 64;
        let scratch = Box::leak(vec![RawFrame::default(); slot_table::SLOTS * DEPTH].into_boxed_slice()).as_mut_ptr();
        let session = handler::SamplingSession { capture, inbox: inbox(), scratch, depth: DEPTH };
        handler::set_session(Some(Box::leak(Box::new(session))));
        assert!(guarded::install() && handler::install(libc::SIGPROF));
        inbox().ring().drain(inbox().ring().head(), &mut |_, _| {});
        slot_table::mark_slot_used(1);
        let init = SlotInit { thread_id: thread_id(), accounted_cpu_ns: 0, first_of_thread: true, seed: 3 };
        let generation = slot_table::slots()[1].open(&init);
        Self { generation }
    }

    pub fn tick(&self) {
        queue(thread_id(), timer_siginfo(slot_table::signal_value(1, self.generation)));
    }
}

impl Drop for HandlerFixture {
    fn drop(&mut self) {
        slot_table::slots()[1].close();
        slot_table::slots()[1].free();
        handler::set_session(None);
    }
}

/// Leaf, context and number of frames of each sample.
pub fn samples() -> Vec<(RawFrame, Context, usize, [u64; 2])> {
    let mut samples = Vec::new();
    let ring = inbox().ring();
    ring.drain(ring.head(), &mut |_, sample| {
        samples.push((sample.frames[0], sample.context, sample.frames.len(), sample.values));
    });
    samples
}

#[test]
fn a_tick_submits_one_sample_with_frames_context_and_the_cpu_time_since_the_last() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_twenty);
    let before = counters::sampled_cpu_ns();
    fixture.tick();
    fixture.tick();
    let samples = samples();
    assert_eq!(samples.len(), 2);
    for (leaf, context, frames, values) in &samples {
        assert_eq!((*leaf, *frames), (RawFrame { at: 0, ..FRAME }, 20));
        assert_eq!(*context, Context::Id(thread_id() as u64));
        assert!(values[0] > 0 && values[1] >= 1);
    }
    let reported: u64 = samples.iter().map(|sample| sample.3[0]).sum();
    assert_eq!(reported, slot_table::slots()[1].accounted_cpu_ns(), "since the slot was opened");
    assert_eq!(counters::sampled_cpu_ns() - before, reported);
}

#[test]
fn preempted_time_is_not_counted_as_handler_time() {
    unsafe fn capture_preempted(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // SAFETY: reads one timespec.
        unsafe { libc::nanosleep(&moment, std::ptr::null_mut()) };
        stack.push(FRAME);
        Captured::Walked
    }
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_preempted);
    let (handler_ns, walk_ns) = (counters::handler_ns(), counters::walk_ns());
    fixture.tick();
    let took = [counters::handler_ns() - handler_ns, counters::walk_ns() - walk_ns];
    assert!(took.iter().all(|ns| (1..10_000_000).contains(ns)), "{took:?} ns of CPU time");
}

#[test]
fn a_failed_walk_keeps_its_weight_and_reports_the_reason() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_torn_frames);
    let before = counters::by_reason(DropReason::InvalidFrame);
    fixture.tick();
    let samples = samples();
    assert_eq!(samples.len(), 1);
    assert_eq!((samples[0].0.as_reason(), samples[0].2), (Some(DropReason::InvalidFrame), 1));
    assert!(samples[0].3[0] > 0);
    assert_eq!(counters::by_reason(DropReason::InvalidFrame), before + 1);
}

#[test]
fn a_thread_that_blocks_fault_signals_is_not_walked() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_twenty);
    mask(libc::SIG_BLOCK, libc::SIGSEGV);
    fixture.tick();
    mask(libc::SIG_UNBLOCK, libc::SIGSEGV);
    let samples = samples();
    assert_eq!(samples[0].0.as_reason(), Some(DropReason::FaultsBlocked));
}

/// Runs `body` on a signal stack that holds nested signals. With AVX-512 two frames fill the 8 KB that Rust allocates.
fn with_a_large_signal_stack(body: impl FnOnce()) {
    with_signal_stack(1 << 16, body);
}

#[test]
fn a_nested_signal_is_counted_and_submits_no_sample() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_with_nested_signal);
    let before = counters::by_reason(DropReason::Reentered);
    with_a_large_signal_stack(|| fixture.tick());
    assert_eq!(samples().len(), 1);
    assert_eq!(counters::by_reason(DropReason::Reentered), before + 1);
}

/// A stack that begins in the handler would be wrong.
#[test]
fn a_wall_request_within_a_tick_gets_no_response_and_one_after_it_does() {
    static REQUEST: AtomicU64 = AtomicU64::new(0);
    unsafe fn walk(_: &HandlerContext, _: bool, stack: &mut RawStack<'_>) -> u64 {
        stack.push(FRAME);
        0
    }
    unsafe fn capture_with_nested_request(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
        mask(libc::SIG_UNBLOCK, libc::SIGPROF);
        assert!(self_walk::send(thread_id(), REQUEST.load(Ordering::Relaxed) as usize, libc::SIGPROF));
        mask(libc::SIG_BLOCK, libc::SIGPROF);
        stack.push(FRAME);
        Captured::Walked
    }
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_with_nested_request);
    self_walk::set_walk(walk);
    let round = Box::leak(Box::new(Round::new()));
    let (mut requester, request) = Box::leak(Box::new(WallRequest::new(round, SelfWalk::new()))).split();
    assert!(requester.issue(thread_id()));
    let index = self_walk::publish(request).expect("a free index");
    REQUEST.store(index as u64, Ordering::Relaxed);
    with_a_large_signal_stack(|| fixture.tick());
    assert_eq!(samples().len(), 1);
    assert!(requester.response().is_none());
    assert!(self_walk::send(thread_id(), index, libc::SIGPROF));
    assert!(requester.response().is_some());
}

#[test]
fn a_signal_of_a_closed_slot_is_counted_and_submits_no_sample() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_twenty);
    let value = slot_table::signal_value(1, fixture.generation);
    let before = counters::by_reason(DropReason::Disabled);
    slot_table::slots()[1].close();
    queue(thread_id(), timer_siginfo(value));
    drop(fixture);
    let next = HandlerFixture::new(capture_twenty);
    queue(thread_id(), timer_siginfo(value));
    assert!(samples().is_empty());
    assert_eq!(counters::by_reason(DropReason::Disabled), before + 2);
    next.tick();
    assert_eq!(samples().len(), 1);
}

#[test]
fn the_scan_timers_signal_wakes_the_drain_thread_and_submits_no_sample() {
    let _turn = one_at_a_time();
    let _rig = HandlerFixture::new(capture_twenty);
    queue(thread_id(), timer_siginfo(slot_table::signal_value(0, 0)));
    assert_eq!(inbox().wait(Some(0)), spanprof_signal::WakeReason::ScanDue);
    assert!(samples().is_empty());
}

static HOST_GOT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn host_counts(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo; errno of this thread.
    unsafe {
        HOST_GOT.fetch_add(1 + ((*info).si_code == libc::SI_TIMER) as u64 * 1_000, Ordering::Relaxed);
        *libc::__errno_location() = 99;
    }
}

#[test]
fn a_host_handler_receives_all_its_signals_and_errno_is_preserved() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGPROF, host_counts as *const () as usize, libc::SA_SIGINFO);
        let fixture = HandlerFixture::new(capture_twenty);
        for round in 0..1_000 {
            // SAFETY: errno of this thread; a signal to this thread.
            unsafe {
                *libc::__errno_location() = round;
                libc::raise(libc::SIGPROF);
                fixture.tick();
                assert_eq!(*libc::__errno_location(), round);
            }
        }
        assert_eq!(HOST_GOT.load(Ordering::Relaxed), 1_000);
        // A timer of the host, with values outside the slot table, unmapped, and adjacent to it.
        for value in
            [0, 8, usize::MAX, slot_table::signal_value(0, 0) - 1, slot_table::signal_value(slot_table::SLOTS, 0)]
        {
            queue(thread_id(), timer_siginfo(value));
        }
        assert_eq!(HOST_GOT.load(Ordering::Relaxed), 1_000 + 5 * 1_001);
        assert_eq!(samples().len(), 1_000);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_later_host_handler_still_receives_its_signals_after_ours_is_reinstalled() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        let fixture = HandlerFixture::new(capture_twenty);
        host_installs(libc::SIGPROF, host_counts as *const () as usize, libc::SA_SIGINFO);
        assert!(!handler::is_installed(libc::SIGPROF));
        assert!(handler::install(libc::SIGPROF) && handler::is_installed(libc::SIGPROF));
        // SAFETY: a signal to this thread.
        unsafe { libc::raise(libc::SIGPROF) };
        fixture.tick();
        assert_eq!((HOST_GOT.load(Ordering::Relaxed), samples().len()), (1, 1));
    });
    assert_eq!(status, 0);
}

#[test]
fn signals_without_an_owner_are_swallowed_and_counted_even_without_a_session() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGPROF, libc::SIG_DFL, 0);
        drop(HandlerFixture::new(capture_twenty));
        let before = counters::stray();
        for _ in 0..10_000 {
            // SAFETY: a signal to this thread.
            unsafe { libc::raise(libc::SIGPROF) };
        }
        assert_eq!(counters::stray(), before + 10_000);
        assert!(handler::is_installed(libc::SIGPROF));
    });
    assert_eq!(status, 0);
}

/// Stops the other thread of a scope, also when an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn the_handler_never_allocates_wherever_it_interrupts_an_allocating_thread() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_twenty);
    let before = calls_in_handler();
    let running = AtomicBool::new(true);
    let turns = AtomicU64::new(0);
    let me = thread_id();
    let mut read = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let siginfo = timer_siginfo(slot_table::signal_value(1, fixture.generation));
            let mut seen = 0;
            while running.load(Ordering::Relaxed) {
                // At most one signal per turn: more would fill the ring and starve the thread.
                let now = turns.load(Ordering::Relaxed);
                if now != seen {
                    seen = now;
                    queue(me, siginfo);
                }
                std::thread::yield_now();
            }
        });
        let _stop = StopOnDrop(&running);
        let mut kept = Vec::new();
        for turn in 0..20_000_000usize {
            turns.fetch_add(1, Ordering::Relaxed);
            kept.push(vec![0u8; 1 + turn * 37 % 5_000]);
            if turn % 50 == 0 {
                kept.clear();
                // Draining allocates nothing either.
                read += inbox().ring().drain(inbox().ring().head(), &mut |_, sample| {
                    // CPU time of a tick that came late, as on a slow machine.
                    let is_loss = sample.frames[0].as_reason().is_some();
                    assert!(sample.frames.len() == 20 || is_loss, "{:?}", sample.frames);
                });
            }
            if read >= 500 {
                break;
            }
        }
    });
    assert!(read >= 500, "{read} samples");
    assert_eq!(calls_in_handler(), before);
}

#[test]
fn the_counting_allocator_detects_an_allocation_inside_the_handler() {
    let _turn = one_at_a_time();
    unsafe fn capture_with_allocation(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
        // Forbidden in capture functions. Here no other thread runs, so the allocator's lock is free.
        std::hint::black_box(Vec::<u8>::with_capacity(100));
        stack.push(FRAME);
        Captured::Walked
    }
    let fixture = HandlerFixture::new(capture_with_allocation);
    let before = calls_in_handler();
    fixture.tick();
    assert!(calls_in_handler() > before);
}
