//! Tests of the wall sampler's side of self-walks. Signals are only counted as sent: each test responds itself.

use super::*;
use std::io::{Read, Write};

const TARGET: WalkTarget = WalkTarget { thread_id: u32::MAX - 1, identity: 4096, epoch: 5 };
const PENDING: Option<Captured> = Some(Captured::Dropped(DropReason::SignalBlocked));
const FRAME: RawFrame = RawFrame { code: 0x7000, at: 4 };

/// Self-walks whose signals are sent, and received by no thread.
fn walks() -> SelfWalks {
    SelfWalks { send_signal: Some(|_, _| true), ..SelfWalks::new() }
}

fn responder(walks: &SelfWalks, thread_id: u32) -> &'static WallRequest<'static, SelfWalk> {
    self_walk::published(walks.pending[&thread_id].request.index).unwrap()
}

/// Responds from within a system call, as the handler on the target's thread does, with one frame.
fn respond(walks: &SelfWalks, epoch: u64, cpu_ns: [u64; 2]) {
    let response = |walk: &mut SelfWalk| {
        walk.record(|stack| {
            stack.context = Context::Id(9);
            stack.push(FRAME);
            epoch
        });
        (walk.cpu_ns, walk.in_system_call) = (cpu_ns, true);
    };
    assert!(responder(walks, TARGET.thread_id).respond(TARGET.thread_id, response));
}

/// Takes a response whose frames are valid in the target's epoch; at most one walk is repeated.
fn take(walks: &mut SelfWalks, identity: Option<u64>, stack: &mut RawStack<'_>) -> Option<Captured> {
    walks.take_response(TARGET.thread_id, identity, stack, |response| {
        match (response.walk.epoch == TARGET.epoch, response.discarded) {
            (true, _) if response.has_run => WalkReview::Drop(DropReason::InvalidFrame),
            (true, _) => WalkReview::Accept,
            (false, 0) => WalkReview::Repeat,
            (false, _) => WalkReview::Drop(DropReason::MovedDuringWalk),
        }
    })
}

/// As `take`, for the thread that was requested; with the frames.
fn taken(walks: &mut SelfWalks) -> (Option<Captured>, Vec<RawFrame>) {
    let mut frames = [RawFrame::default(); 4];
    let mut stack = RawStack::new(&mut frames);
    let captured = take(walks, Some(TARGET.identity), &mut stack);
    (captured, stack.frames().to_vec())
}

fn repeats(walks: &mut SelfWalks, target: WalkTarget, cpu_ns: u64) -> bool {
    let mut frames = [RawFrame::default(); 4];
    let mut stack = RawStack::new(&mut frames);
    let is_repeated = walks.repeat(target, cpu_ns, &mut stack).is_some();
    assert_eq!(
        (stack.frames(), stack.context),
        if is_repeated { (&[FRAME][..], Context::Id(9)) } else { (&[][..], Context::None) }
    );
    is_repeated
}

/// The target has responded from within a system call, when its CPU clock was 1,000.
fn walked() -> SelfWalks {
    let mut walks = walks();
    assert_eq!(walks.request(TARGET), DropReason::SignalBlocked);
    respond(&walks, TARGET.epoch, [900, 1_000]);
    assert_eq!(taken(&mut walks), (Some(Captured::Walked), vec![FRAME]));
    walks
}

#[test]
fn a_pending_request_is_not_replaced_and_its_late_response_is_taken_once() {
    let mut walks = walks();
    assert_eq!(taken(&mut walks), (None, vec![]));
    walks.request(TARGET);
    assert_eq!(taken(&mut walks), (PENDING, vec![]));
    walks.wait(Duration::ZERO);
    respond(&walks, TARGET.epoch, [900, 1_000]);
    assert_eq!(taken(&mut walks), (Some(Captured::Walked), vec![FRAME]));
    assert_eq!(taken(&mut walks), (None, vec![]));
    assert_eq!((walks.pending.len(), walks.free.len()), (0, 1));
}

#[test]
fn a_thread_back_in_its_system_call_keeps_its_stack_until_its_clock_advances() {
    let mut walks = walked();
    assert!(repeats(&mut walks, TARGET, 1_000 + RETURN_NS), "the return");
    assert!(repeats(&mut walks, TARGET, 1_000 + RETURN_NS));
    assert!(!repeats(&mut walks, TARGET, 1_001 + RETURN_NS), "it ran again");
    assert!(!repeats(&mut walked(), TARGET, 1_001 + RETURN_NS), "more than the return");
}

#[test]
fn a_stack_is_not_repeated_for_another_thread_or_after_its_frames_became_invalid() {
    let mut walks = walked();
    assert!(!repeats(&mut walks, WalkTarget { identity: 8192, ..TARGET }, 1_000));
    assert!(!repeats(&mut walks, WalkTarget { epoch: 6, ..TARGET }, 1_000));
    assert!(!repeats(&mut walks, WalkTarget { thread_id: 7, ..TARGET }, 1_000));
    assert!(repeats(&mut walks, TARGET, 1_000));
}

#[test]
fn a_stack_that_was_walked_from_outside_is_repeated_while_the_clock_stands_still() {
    let mut walks = walks();
    let mut frames = [FRAME; 1];
    let mut stack = RawStack::new(&mut frames);
    (stack.context, _) = (Context::Id(9), stack.push(FRAME));
    walks.store(TARGET, 1_000, &stack);
    assert!(repeats(&mut walks, TARGET, 1_000) && !repeats(&mut walks, TARGET, 1_001));
    stack.clear();
    walks.store(TARGET, 1_000, &stack);
    assert!(walks.last_stack(TARGET).is_none(), "without frames");
}

#[test]
fn a_thread_that_was_not_in_a_system_call_or_has_an_incomplete_stack_is_walked_again() {
    for (in_system_call, root) in [(false, FRAME), (true, RawFrame::reason(DropReason::InvalidFrame))] {
        let mut walks = walks();
        walks.request(TARGET);
        responder(&walks, TARGET.thread_id).respond(TARGET.thread_id, |walk| {
            walk.record(|stack| u64::from(stack.push(root)) * TARGET.epoch);
            (walk.in_system_call, walk.cpu_ns) = (in_system_call, [1_000; 2]);
        });
        assert_eq!(taken(&mut walks), (Some(Captured::Walked), vec![root]));
        assert!(walks.last_stack(TARGET).is_none());
    }
}

#[test]
fn discarded_responses_are_counted_until_the_threads_next_sample() {
    let mut walks = walks();
    for _ in 0..2 {
        walks.request(TARGET);
        respond(&walks, 4, [900, 1_000]);
        assert_eq!(taken(&mut walks), (PENDING, vec![]));
        respond(&walks, 4, [900, 1_000]);
        assert_eq!(taken(&mut walks), (Some(Captured::Dropped(DropReason::MovedDuringWalk)), vec![]));
    }
    assert!(walks.last_stack(TARGET).is_none());
}

#[test]
fn a_thread_that_runs_after_a_discarded_response_has_run() {
    for (begun_ns, outcome) in
        [(1_000 + RETURN_NS, Captured::Walked), (1_001 + RETURN_NS, Captured::Dropped(DropReason::InvalidFrame))]
    {
        let mut walks = walks();
        walks.request(TARGET);
        respond(&walks, 4, [900, 1_000]);
        assert_eq!(taken(&mut walks), (PENDING, vec![]));
        respond(&walks, TARGET.epoch, [begun_ns, begun_ns + 100]);
        assert_eq!(taken(&mut walks).0, Some(outcome));
    }
}

#[test]
fn a_later_thread_with_the_same_id_takes_no_response_and_no_count_of_discarded_ones() {
    let mut walks = walks();
    walks.request(TARGET);
    respond(&walks, 4, [900, 1_000]);
    assert_eq!(taken(&mut walks), (PENDING, vec![]));
    respond(&walks, TARGET.epoch, [900, 1_000]);
    let mut stack = RawStack::new(&mut []);
    assert_eq!(take(&mut walks, Some(8192), &mut stack), None);
    walks.request(WalkTarget { identity: 8192, ..TARGET });
    respond(&walks, 4, [900, 1_000]);
    assert_eq!(take(&mut walks, Some(8192), &mut stack), PENDING, "its first discarded response");
}

#[test]
fn the_response_of_a_thread_that_has_ended_is_taken_and_its_pending_request_is_not() {
    let mut walks = walks();
    let mut frames = [RawFrame::default(); 4];
    walks.request(TARGET);
    respond(&walks, TARGET.epoch, [900, 1_000]);
    assert_eq!(take(&mut walks, None, &mut RawStack::new(&mut frames)), Some(Captured::Walked));
    walks.request(TARGET);
    assert_eq!(take(&mut walks, None, &mut RawStack::new(&mut frames)), None);
    assert!(walks.pending.is_empty());
}

#[test]
fn a_thread_that_does_not_exist_or_may_not_be_signaled_has_no_pending_request() {
    let mut walks = walked();
    walks.send_signal = Some(|_, _| false);
    assert_eq!(walks.request(TARGET), DropReason::NoThreadState);
    walks.send_signal = None;
    assert_eq!(walks.request(TARGET), DropReason::SignalBlocked);
    assert!(walks.pending.is_empty() && walks.last_stack(TARGET).is_none());
}

#[test]
fn requests_of_ended_threads_are_reused_and_further_living_threads_are_dropped() {
    let mut walks = walks();
    let mut request = |thread_id| walks.request(WalkTarget { thread_id, ..TARGET });
    for thread_id in 1..=MAX_PENDING as u32 + 2 {
        assert_eq!(request(u32::MAX - thread_id), DropReason::SignalBlocked);
    }
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (send_id, receive_id) = std::sync::mpsc::channel();
    let living = std::thread::spawn(move || (send_id.send(spanprof_os::thread_id()), ended.recv().is_err()));
    assert_eq!(MAX_PENDING, 2);
    for thread_id in [spanprof_os::thread_id(), receive_id.recv().unwrap()] {
        assert_eq!(request(thread_id), DropReason::SignalBlocked);
    }
    assert_eq!(request(u32::MAX - 1), DropReason::TooManyThreads);
    drop(end);
    living.join().unwrap().0.unwrap();
}

#[test]
fn a_request_whose_response_is_being_written_is_not_reused() {
    let mut walks = walks();
    walks.request(TARGET);
    let responder = responder(&walks, TARGET.thread_id);
    let busy = walks.pending[&TARGET.thread_id].request.index;
    responder.respond(TARGET.thread_id, |_| {
        walks.close(|_| true);
        walks.request(TARGET);
        assert_ne!(walks.pending[&TARGET.thread_id].request.index, busy);
    });
}

#[test]
fn a_new_sampler_discards_requests_and_stacks() {
    let mut walks = walked();
    walks.request(WalkTarget { thread_id: 7, ..TARGET });
    assert!(!walks.begin(false, |_, _, _| 0, libc::SIGSTKFLT));
    assert!(walks.pending.is_empty() && walks.last_stack(TARGET).is_none());
    assert_eq!(walks.request(TARGET), DropReason::SignalBlocked);
}

#[test]
fn the_number_of_stored_stacks_is_bounded() {
    let mut walks = walks();
    let mut frames = [FRAME; 1];
    let mut stack = RawStack::new(&mut frames);
    stack.push(FRAME);
    for thread_id in 0..=MAX_STACKS as u32 {
        walks.store(WalkTarget { thread_id, ..TARGET }, 1_000, &stack);
    }
    assert_eq!(walks.stacks.len(), 1);
}

#[test]
fn a_wait_that_a_signal_would_end_gets_none_and_its_request_is_canceled() {
    fn until_in(thread_id: u32, number: libc::c_long) {
        while spanprof_os::system_call_wait(thread_id).is_none_or(|wait| wait.number != number) {
            std::thread::yield_now();
        }
    }
    const NOT_INTERRUPTED: DropReason = DropReason::WaitNotInterrupted;
    let ((tell, told), (leave, left)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        tell.send(spanprof_os::thread_id()).unwrap();
        // In a futex, then on a socket.
        left.recv().unwrap();
        there.read(&mut [0])
    });
    let thread_id = told.recv().unwrap();
    let target = WalkTarget { thread_id, ..TARGET };
    let mut walks = walks();
    until_in(thread_id, libc::SYS_futex);
    assert_eq!(walks.request(target), DropReason::SignalBlocked, "the kernel restarts a futex");
    leave.send(()).unwrap();
    until_in(thread_id, libc::SYS_recvfrom);
    walks.send_signal = Some(|_, _| panic!("a signal was sent"));
    let mut stack = RawStack::new(&mut []);
    let response = walks.take_response(thread_id, Some(TARGET.identity), &mut stack, |_| WalkReview::Accept);
    assert_eq!(response, Some(Captured::Dropped(NOT_INTERRUPTED)), "the signal of a request is not repeated");
    assert_eq!(walks.request(target), NOT_INTERRUPTED);
    assert!(walks.pending.is_empty());
    here.write_all(&[0]).unwrap();
    assert_eq!(thread.join().unwrap().unwrap(), 1);
}

#[test]
fn a_thread_gets_no_signal_when_the_sampler_was_delayed_since_it_looked_at_the_threads_wait() {
    let ends_wait = |_| {
        std::thread::sleep(Duration::from_nanos(2 * MAX_ANSWER_NS));
        false
    };
    let send_signal: Option<fn(u32, usize) -> bool> = Some(|_, _| panic!("a signal was sent"));
    let mut walks = SelfWalks { ends_wait, send_signal, ..walks() };
    assert_eq!(walks.request(TARGET), DropReason::SignalBlocked);
    walks.send_signal = Some(|_, _| true);
    assert_eq!(taken(&mut walks), (PENDING, vec![]), "asked again at the next tick");
}
