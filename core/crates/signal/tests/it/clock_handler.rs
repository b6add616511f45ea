//! The clock's handler, driven by signals that this process queues to its own threads with the information a timer's
//! signal would carry: any number, at any instruction.

use crate::no_allocation::forbidden;
use crate::{host_installs, one_at_a_time, status_of_child};
use spanprof_signal::{
    counters, guarded, handler, Captured, Context, DropReason, HandlerContext, Inbox, Opening, RawFrame, RawStack, Slot,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

const FRAME: RawFrame = RawFrame { code: 0x4000, at: 3 };

unsafe fn walks(context: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    // Reads like a runtime's walk: through the guarded door, some of it in vain.
    let in_vain = guarded::read_u64(4096 * 3);
    stack.context = Context::Id(context.thread_id as u64);
    for at in 0..20 {
        stack.push(RawFrame { at: at + in_vain.unwrap_or(0), ..FRAME });
    }
    Captured::Walked
}

unsafe fn sees_torn_frames(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    stack.push(FRAME);
    Captured::Dropped(DropReason::InvalidFrame)
}

/// Unblocks the signal inside the handler and has it come again.
unsafe fn comes_again(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    mask(libc::SIG_UNBLOCK, libc::SIGPROF);
    queue(thread_id(), timer_information(handler::signal_value(1, handler::slots()[1].generation())));
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

/// The kernel's siginfo: signal, errno, code, padding, then what the code means.
type Information = [u64; 16];

fn timer_information(value: usize) -> Information {
    let mut information = [0; 16];
    information[0] = libc::SIGPROF as u64;
    information[1] = libc::SI_TIMER as u32 as u64;
    information[3] = value as u64;
    information
}

fn queue(thread_id: u32, information: Information) {
    // SAFETY: the kernel reads 128 bytes; a process may queue any information to its own threads.
    unsafe {
        let (process, thread) = (libc::getpid(), thread_id as libc::c_int);
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGPROF, information.as_ptr());
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
struct Rig {
    generation: u32,
}

impl Rig {
    fn new(capture: spanprof_signal::CaptureFn) -> Self {
        if handler::slots().is_empty() {
            // SAFETY: all-zero slots are free slots; the memory is never freed.
            let table: &'static [Slot; handler::SLOTS] = unsafe {
                let layout = std::alloc::Layout::new::<[Slot; handler::SLOTS]>();
                &*std::alloc::alloc_zeroed(layout).cast()
            };
            handler::set_table(table);
        }
        const DEPTH: usize = 64;
        let scratch = Box::leak(vec![RawFrame::default(); handler::SLOTS * DEPTH].into_boxed_slice()).as_mut_ptr();
        let session = handler::Session { capture, inbox: inbox(), scratch, depth: DEPTH };
        handler::set_session(Some(Box::leak(Box::new(session))));
        assert!(guarded::install() && handler::install(libc::SIGPROF));
        inbox().ring().drain(inbox().ring().head(), &mut |_, _| {});
        handler::touch_slot(1);
        let opening = Opening { thread_id: thread_id(), accounted_cpu_ns: 0, first_of_thread: true, seed: 3 };
        let generation = handler::slots()[1].open(&opening);
        Self { generation }
    }

    fn tick(&self) {
        queue(thread_id(), timer_information(handler::signal_value(1, self.generation)));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        handler::slots()[1].close();
        handler::slots()[1].free();
        handler::set_session(None);
    }
}

/// Leaf, context and number of frames of each sample.
fn samples() -> Vec<(RawFrame, Context, usize, [u64; 2])> {
    let mut samples = Vec::new();
    let ring = inbox().ring();
    ring.drain(ring.head(), &mut |_, sample| {
        samples.push((sample.frames[0], sample.context, sample.frames.len(), sample.values));
    });
    samples
}

#[test]
fn a_tick_leaves_one_sample_with_frames_context_and_the_cpu_time_since_the_last() {
    let _turn = one_at_a_time();
    let rig = Rig::new(walks);
    let before = counters::sampled_cpu_ns();
    rig.tick();
    rig.tick();
    let samples = samples();
    assert_eq!(samples.len(), 2);
    for (leaf, context, frames, values) in &samples {
        assert_eq!((*leaf, *frames), (RawFrame { at: 0, ..FRAME }, 20));
        assert_eq!(*context, Context::Id(thread_id() as u64));
        assert!(values[0] > 0 && values[1] >= 1);
    }
    let told: u64 = samples.iter().map(|sample| sample.3[0]).sum();
    assert_eq!(told, handler::slots()[1].accounted_cpu_ns(), "since birth, as the slot was opened");
    assert_eq!(counters::sampled_cpu_ns() - before, told);
}

#[test]
fn time_without_a_processor_is_not_counted_as_the_handlers() {
    unsafe fn loses_its_processor(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // SAFETY: reads one timespec.
        unsafe { libc::nanosleep(&moment, std::ptr::null_mut()) };
        stack.push(FRAME);
        Captured::Walked
    }
    let _turn = one_at_a_time();
    let rig = Rig::new(loses_its_processor);
    let (handler_ns, walk_ns) = (counters::handler_ns(), counters::walk_ns());
    rig.tick();
    let took = [counters::handler_ns() - handler_ns, counters::walk_ns() - walk_ns];
    assert!(took.iter().all(|ns| (1..10_000_000).contains(ns)), "{took:?} ns of CPU time");
}

#[test]
fn what_cannot_be_walked_keeps_its_weight_and_names_the_reason() {
    let _turn = one_at_a_time();
    let rig = Rig::new(sees_torn_frames);
    let before = counters::by_reason(DropReason::InvalidFrame);
    rig.tick();
    let samples = samples();
    assert_eq!(samples.len(), 1);
    assert_eq!((samples[0].0.as_reason(), samples[0].2), (Some(DropReason::InvalidFrame), 1));
    assert!(samples[0].3[0] > 0);
    assert_eq!(counters::by_reason(DropReason::InvalidFrame), before + 1);
}

#[test]
fn a_thread_that_blocks_fault_signals_is_not_walked() {
    let _turn = one_at_a_time();
    let rig = Rig::new(walks);
    mask(libc::SIG_BLOCK, libc::SIGSEGV);
    rig.tick();
    mask(libc::SIG_UNBLOCK, libc::SIGSEGV);
    let samples = samples();
    assert_eq!(samples[0].0.as_reason(), Some(DropReason::FaultsBlocked));
}

/// Runs `body` with room for signals within signals. With AVX-512 the frames of two fill the 8 KB that Rust gives a thread.
fn with_a_large_signal_stack(body: impl FnOnce()) {
    let mut memory = vec![0u8; 1 << 17];
    let large = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: no signal is being handled; the memory lives until the former stack is back.
    unsafe {
        let mut former: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&large, &mut former), 0);
        body();
        assert_eq!(libc::sigaltstack(&former, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_signal_inside_the_handler_is_counted_and_touches_nothing() {
    let _turn = one_at_a_time();
    let rig = Rig::new(comes_again);
    let before = counters::by_reason(DropReason::Reentered);
    with_a_large_signal_stack(|| rig.tick());
    assert_eq!(samples().len(), 1);
    assert_eq!(counters::by_reason(DropReason::Reentered), before + 1);
}

#[test]
fn a_signal_of_a_closed_slot_touches_nothing() {
    let _turn = one_at_a_time();
    let rig = Rig::new(walks);
    let value = handler::signal_value(1, rig.generation);
    let before = counters::by_reason(DropReason::Disabled);
    handler::slots()[1].close();
    queue(thread_id(), timer_information(value));
    drop(rig);
    let next = Rig::new(walks);
    queue(thread_id(), timer_information(value));
    assert!(samples().is_empty());
    assert_eq!(counters::by_reason(DropReason::Disabled), before + 2);
    next.tick();
    assert_eq!(samples().len(), 1);
}

#[test]
fn the_scan_timers_signal_rings_the_bell_and_is_no_sample() {
    let _turn = one_at_a_time();
    let _rig = Rig::new(walks);
    queue(thread_id(), timer_information(handler::signal_value(0, 0)));
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
fn a_host_with_its_own_handler_gets_all_its_signals_and_errno_stays() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGPROF, host_counts as *const () as usize, libc::SA_SIGINFO);
        let rig = Rig::new(walks);
        for round in 0..1_000 {
            // SAFETY: errno of this thread; a signal to this thread.
            unsafe {
                *libc::__errno_location() = round;
                libc::raise(libc::SIGPROF);
                rig.tick();
                assert_eq!(*libc::__errno_location(), round);
            }
        }
        assert_eq!(HOST_GOT.load(Ordering::Relaxed), 1_000);
        // A timer of the host's, whose value points outside our table, into the void, and next to it.
        for value in [0, 8, usize::MAX, handler::signal_value(0, 0) - 1, handler::signal_value(handler::SLOTS, 0)] {
            queue(thread_id(), timer_information(value));
        }
        assert_eq!(HOST_GOT.load(Ordering::Relaxed), 1_000 + 5 * 1_001);
        assert_eq!(samples().len(), 1_000);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_host_that_installs_its_handler_later_keeps_it_when_we_come_back() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        let rig = Rig::new(walks);
        host_installs(libc::SIGPROF, host_counts as *const () as usize, libc::SA_SIGINFO);
        assert!(!handler::is_installed(libc::SIGPROF));
        assert!(handler::install(libc::SIGPROF) && handler::is_installed(libc::SIGPROF));
        // SAFETY: a signal to this thread.
        unsafe { libc::raise(libc::SIGPROF) };
        rig.tick();
        assert_eq!((HOST_GOT.load(Ordering::Relaxed), samples().len()), (1, 1));
    });
    assert_eq!(status, 0);
}

#[test]
fn signals_that_nobody_wants_are_swallowed_and_counted_also_without_a_session() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGPROF, libc::SIG_DFL, 0);
        drop(Rig::new(walks));
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

/// Lets the other thread of a scope end, also when an assertion fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn the_handler_never_allocates_wherever_it_interrupts_an_allocating_thread() {
    let _turn = one_at_a_time();
    let rig = Rig::new(walks);
    let before = forbidden();
    let running = AtomicBool::new(true);
    let turns = AtomicU64::new(0);
    let me = thread_id();
    let mut read = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let information = timer_information(handler::signal_value(1, rig.generation));
            let mut seen = 0;
            while running.load(Ordering::Relaxed) {
                // More signals than turns would fill the ring, and leave the thread no instruction of its own.
                let now = turns.load(Ordering::Relaxed);
                if now != seen {
                    seen = now;
                    queue(me, information);
                }
                std::thread::yield_now();
            }
        });
        let _ends = Ends(&running);
        let mut kept = Vec::new();
        for turn in 0..20_000_000usize {
            turns.fetch_add(1, Ordering::Relaxed);
            kept.push(vec![0u8; 1 + turn * 37 % 5_000]);
            if turn % 50 == 0 {
                kept.clear();
                // A sample's copy allocates nothing either.
                read +=
                    inbox().ring().drain(inbox().ring().head(), &mut |_, sample| assert_eq!(sample.frames.len(), 20));
            }
            if read >= 500 {
                break;
            }
        }
    });
    assert!(read >= 500, "{read} samples");
    assert_eq!(forbidden(), before);
}

#[test]
fn the_watching_allocator_would_see_an_allocation_inside_the_handler() {
    let _turn = one_at_a_time();
    unsafe fn allocates(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
        // What no capture function may do; here nothing else runs, so the lock inside is free.
        std::hint::black_box(Vec::<u8>::with_capacity(100));
        stack.push(FRAME);
        Captured::Walked
    }
    let rig = Rig::new(allocates);
    let before = forbidden();
    rig.tick();
    assert!(forbidden() > before);
}
