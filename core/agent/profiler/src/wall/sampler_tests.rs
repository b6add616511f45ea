//! Tests of the wall sampler (`wall`) with threads whose self-walks complete when the test decides.

use super::*;
use crate::wall::live_threads::{LIVE_THREADS_TIMEOUT, LIVE_THREADS_VALID_NS};
use crate::wall::thread::{spawn, WallDemand};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Threads with self-walks. With `completes_on_wait`, a wait completes the requested walks; else the test does.
struct SelfWalkRuntime {
    threads: Vec<RuntimeThread>,
    completes_on_wait: bool,
    are_frames_stable: bool,
}

impl Runtime for SelfWalkRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> spanprof_signal::CaptureFn {
        |_, _| Captured::Dropped(DropReason::NoThreadState)
    }

    fn resolve(&self, _: RawFrame, _: u64, _: &mut Vec<spanprof_aggregate::runtime::Frame>) {}

    fn wall(&self) -> Option<&dyn WallRuntime> {
        Some(self)
    }
}

impl WallRuntime for SelfWalkRuntime {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        Some(walk_when_running)
    }

    fn uses_self_walks(&self) -> bool {
        true
    }

    fn wait_for_responses(&self, _: Duration) -> bool {
        for thread in self.threads.iter().filter(|_| self.completes_on_wait) {
            let state = state(thread.thread_id);
            state.is_running.store(state.requests.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
        }
        self.completes_on_wait
    }

    fn are_frames_stable(&self) -> bool {
        self.are_frames_stable
    }

    fn stabilize_frames(&self, _: u64, _: &mut [RawFrame]) -> bool {
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        out.extend(&self.threads);
    }
}

struct WalkState {
    is_running: AtomicBool,
    requests: AtomicU64,
}

/// Each test uses its own thread ids.
fn state(thread_id: u32) -> &'static WalkState {
    static STATES: [WalkState; 8] =
        [const { WalkState { is_running: AtomicBool::new(false), requests: AtomicU64::new(0) } }; 8];
    &STATES[thread_id as usize]
}

fn walk_when_running(_: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let state = state(thread_id);
    state.requests.fetch_add(1, Ordering::Relaxed);
    if !state.is_running.load(Ordering::Relaxed) {
        return Captured::Dropped(DropReason::SignalBlocked);
    }
    stack.push(RawFrame { code: u64::from(thread_id), at: 0 });
    Captured::Walked
}

fn threads(ids: &[u32]) -> Vec<RuntimeThread> {
    ids.iter().map(|id| RuntimeThread { thread_id: *id, handle: 0 }).collect()
}

static TICK_CPU_NS: AtomicU64 = AtomicU64::new(0);

struct Ticks {
    sampler: WallSampler,
    inbox: &'static Inbox,
}

impl Ticks {
    fn of(thread_ids: &[u32], completes_on_wait: bool) -> Self {
        Self::with(SelfWalkRuntime { threads: threads(thread_ids), completes_on_wait, are_frames_stable: false })
    }

    fn with(runtime: SelfWalkRuntime) -> Self {
        let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
        let mut sampler = WallSampler::new(Arc::new(runtime), walk_when_running, inbox, Arc::default(), None);
        sampler.pace = Pace::new(0);
        // The process uses the CPU, so the interval does not grow.
        sampler.process_cpu_ns = || TICK_CPU_NS.fetch_add(1_000_000_000, Ordering::Relaxed);
        Self { sampler, inbox }
    }

    fn tick(&mut self, now_ns: u64) -> Vec<(Option<RawFrame>, u64)> {
        self.sampler.tick(&Config::default(), now_ns);
        self.samples()
    }

    /// Leaf and weight of the samples since the last call.
    fn samples(&self) -> Vec<(Option<RawFrame>, u64)> {
        let mut samples = Vec::new();
        self.inbox.ring().drain(self.inbox.ring().head(), &mut |_, sample| {
            samples.push((sample.frames.first().copied(), sample.values[0]));
        });
        samples
    }
}

const BLOCKED: Option<RawFrame> = Some(RawFrame::reason(DropReason::SignalBlocked));

fn leaf(thread_id: u32) -> Option<RawFrame> {
    Some(RawFrame { code: u64::from(thread_id), at: 0 })
}

#[test]
fn a_late_self_walk_is_charged_for_all_the_time_since_its_request() {
    let mut ticks = Ticks::of(&[1], false);
    for now_ms in [10, 20] {
        assert_eq!(ticks.tick(now_ms * 1_000_000), [], "the walk is pending");
    }
    state(1).is_running.store(true, Ordering::Relaxed);
    // The pending walk, and the walk of this tick.
    assert_eq!(ticks.tick(30_000_000), [(leaf(1), 20_000_000), (leaf(1), 10_000_000)]);

    state(1).is_running.store(false, Ordering::Relaxed);
    ticks.tick(40_000_000);
    ticks.sampler.discard_pending(|_| true, 40_000_000);
    assert_eq!(ticks.samples(), [(BLOCKED, 10_000_000)], "the walk was pending until the end");

    ticks.tick(50_000_000);
    let samples = ticks.tick(50_000_000 + BLOCKED_AFTER_NS);
    assert_eq!(samples, [(BLOCKED, 10_000_000 + BLOCKED_AFTER_NS)], "pending for too long");
    state(1).is_running.store(true, Ordering::Relaxed);
    let after_ns = 50_000_000 + BLOCKED_AFTER_NS + 7;
    assert_eq!(ticks.tick(after_ns), [(leaf(1), 7)], "the time of the pending walk was already reported");
    assert_eq!(ticks.sampler.counters.wall_without_stack.value(), 2);
}

#[test]
fn a_tick_requests_all_self_walks_before_it_waits() {
    let mut ticks = Ticks::of(&[5, 6, 7], true);
    let mut samples = ticks.tick(10_000_000);
    samples.sort_by_key(|(leaf, _)| leaf.map(|leaf| leaf.code));
    // A walk completes only during a wait: a wait after each request would delay the requests that follow.
    assert_eq!(samples, [5, 6, 7].map(|id| (leaf(id), 10_000_000)));
    assert!([5, 6, 7].iter().all(|id| state(*id).requests.load(Ordering::Relaxed) == 2), "requested, then read");
}

fn frames(codes: &[u64]) -> Vec<RawFrame> {
    codes.iter().map(|code| RawFrame { code: *code, at: 0 }).collect()
}

#[test]
fn a_random_subset_contains_each_thread_equally_often() {
    let mut random = Sequence::new(3);
    let mut hits = [0u32; 10];
    for _ in 0..10_000 {
        let mut threads: Vec<_> = (0..10).map(|id| RuntimeThread { thread_id: id, handle: 0 }).collect();
        let chosen = choose(&mut threads, 3, &mut random);
        assert_eq!(chosen, 3);
        for thread in &threads[..chosen] {
            hits[thread.thread_id as usize] += 1;
        }
    }
    assert!(hits.iter().all(|hits| hits.abs_diff(3000) < 250), "{hits:?}");
}

/// Walks by `wait_and_work`, and the current tick.
static WALKS: AtomicU64 = AtomicU64::new(0);
static TICK: AtomicU64 = AtomicU64::new(0);

/// Threads from id 100 that wait. The first eight of them work for five of twenty-five ticks, one after the other.
fn wait_and_work(_: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    WALKS.fetch_add(1, Ordering::Relaxed);
    let phase = (TICK.load(Ordering::Relaxed) + 3 * u64::from(thread_id)) % 25;
    let works = thread_id < 108 && phase < 5;
    stack.push(RawFrame { code: if works { 1 } else { u64::from(thread_id) }, at: 0 });
    Captured::Walked
}

#[test]
fn many_waiting_threads_are_walked_rarely_and_shares_are_exact() {
    let ids: Vec<u32> = (100..140).collect();
    let mut ticks =
        Ticks::with(SelfWalkRuntime { threads: threads(&ids), completes_on_wait: false, are_frames_stable: true });
    ticks.sampler.capture = wait_and_work;
    ticks.sampler.random = Sequence::new(3);
    ticks.sampler.max_threads = 20;
    let config = Config::default();
    let (mut worked_ns, mut all_ns) = (0, 0);
    let mut add = |samples: Vec<(Option<RawFrame>, u64)>| {
        for (leaf, weight_ns) in samples {
            all_ns += weight_ns;
            worked_ns += if leaf.is_some_and(|leaf| leaf.code == 1) { weight_ns } else { 0 };
        }
    };
    const TICKS: u64 = 20_000;
    for tick in 1..=TICKS {
        TICK.store(tick, Ordering::Relaxed);
        ticks.sampler.tick(&config, tick * 1_000);
        add(ticks.samples());
    }
    ticks.sampler.release(TICKS * 1_000);
    add(ticks.samples());
    let truth_ns = 40 * TICKS * 1_000;
    assert!(all_ns <= truth_ns && truth_ns - all_ns < truth_ns / 100, "{all_ns} of {truth_ns}");
    // One thread of 25 works at any time.
    let share = worked_ns as f64 / all_ns as f64;
    assert!((share - 0.04).abs() < 0.002, "{share}");
    let walks = WALKS.load(Ordering::Relaxed) / TICKS;
    assert!((5..=10).contains(&walks), "{walks} walks per tick, where 20 are allowed");
}

#[test]
fn a_large_pending_weight_alone_does_not_mean_that_the_signal_is_blocked() {
    let mut ticks = Ticks::of(&[4], false);
    ticks.tick(0);
    let elapsed = Elapsed { previous_ns: 0, current_ns: 3 * BLOCKED_AFTER_NS };
    ticks.sampler.observe(threads(&[4])[0], elapsed, 0, true);
    assert_eq!(ticks.tick(10_000_000), [], "the request is recent");
    state(4).is_running.store(true, Ordering::Relaxed);
    assert_eq!(ticks.tick(20_000_000), [(leaf(4), 3 * BLOCKED_AFTER_NS + 10_000_000), (leaf(4), 10_000_000)]);
}

#[test]
fn only_frames_that_two_walks_share_from_the_root_are_kept() {
    let first = frames(&[9, 8, 2, 1]);
    let mut second = frames(&[7, 2, 1, 0]);
    second.truncate(3);
    let common = common_root(&first, &second);
    assert_eq!(common, 2);
    second.push(RawFrame::default());
    let kept = place_reason(&mut second, 3 - common..3, 3);
    assert_eq!(second[kept.clone()][0].as_reason(), Some(DropReason::MovedDuringWalk));
    assert_eq!(second[kept][1..], frames(&[2, 1]));
}

#[test]
fn the_reason_is_inserted_above_a_stack_that_only_grew_between_two_walks() {
    let mut buffer = frames(&[3, 2, 1, 0]);
    let kept = place_reason(&mut buffer, 0..3, 3);
    assert_eq!(kept, 0..4);
    assert_eq!(buffer[0].as_reason(), Some(DropReason::MovedDuringWalk));
    assert_eq!(buffer[1..], frames(&[3, 2, 1]));
}

#[test]
fn identical_observations_are_submitted_at_the_end_of_a_window_and_once_a_second() {
    let mut ticks =
        Ticks::with(SelfWalkRuntime { threads: threads(&[2]), completes_on_wait: false, are_frames_stable: true });
    state(2).is_running.store(true, Ordering::Relaxed);
    let begun_ns = 5_000_000_000;
    ticks.sampler.pace = Pace::new(begun_ns);
    ticks.sampler.release(begun_ns);
    assert_eq!(ticks.tick(begun_ns + 10), [(leaf(2), 10)]);
    assert_eq!(ticks.tick(begun_ns + 30), []);
    assert_eq!(ticks.tick(begun_ns + 35), []);
    ticks.sampler.release(begun_ns + 35);
    assert_eq!(ticks.samples(), [(leaf(2), 25)]);
    assert_eq!(ticks.tick(begun_ns + 40), []);
    assert_eq!(ticks.tick(begun_ns + 1_000_000_035), [(leaf(2), 1_000_000_000)]);
}

#[test]
fn release_waits_for_a_running_sampler_and_returns_after_its_end() {
    let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
    state(3).is_running.store(true, Ordering::Relaxed);
    let runtime =
        Arc::new(SelfWalkRuntime { threads: threads(&[3]), completes_on_wait: false, are_frames_stable: true });
    let before_ns = spanprof_os::monotonic_ns();
    let config = Config { wall: true, wall_rate: Some(1), ..Config::default() };
    let thread = spawn(
        runtime,
        walk_when_running,
        inbox,
        Arc::default(),
        None,
        WallDemand { config: Arc::new(config), for_collections: false },
    )
    .unwrap();
    let control = thread.control();
    let submitted_ns = || {
        let mut submitted_ns = 0;
        inbox.ring().drain(inbox.ring().head(), &mut |_, sample| submitted_ns += sample.values[0]);
        submitted_ns
    };
    let timeout = Duration::from_secs(20);
    let first_release_ns = spanprof_os::monotonic_ns();
    control.release(timeout, false);
    let first_ns = submitted_ns();
    // The sampler started between these two times.
    assert!(first_ns > 0 && first_ns <= spanprof_os::monotonic_ns() - before_ns, "{first_ns}");
    control.release(timeout, false);
    let second_ns = submitted_ns();
    thread.stop();
    control.release(timeout, false);
    let all_ns = first_ns + second_ns + submitted_ns();
    assert!(all_ns <= spanprof_os::monotonic_ns() - before_ns && second_ns > 0, "{all_ns}");
    assert!(spanprof_os::monotonic_ns() - first_release_ns < timeout.as_nanos() as u64, "no release timed out");
}

#[test]
fn time_between_rare_ticks_is_charged_to_threads_that_existed() {
    for are_frames_stable in [true, false] {
        let mut ticks =
            Ticks::with(SelfWalkRuntime { threads: threads(&[2, 201]), completes_on_wait: false, are_frames_stable });
        ticks.sampler.capture = |_, thread_id, stack| {
            stack.push(RawFrame { code: u64::from(thread_id), at: 0 });
            Captured::Walked
        };
        ticks.sampler.process_cpu_ns = || 0;
        let mut now_ns = 0;
        for _ in 0..50 {
            now_ns = ticks.sampler.pace.plan(10_000_000, &mut ticks.sampler.random);
            ticks.tick(now_ns);
        }
        ticks.sampler.release(now_ns);
        ticks.samples();
        // Thread 201 ends, and thread 202 starts.
        let runtime = SelfWalkRuntime { threads: threads(&[2, 202]), completes_on_wait: false, are_frames_stable };
        ticks.sampler.runtime = Arc::new(runtime);
        let until_ns = ticks.sampler.pace.plan(10_000_000, &mut ticks.sampler.random);
        let mut samples = ticks.tick(until_ns);
        ticks.sampler.release(until_ns);
        samples.extend(ticks.samples());
        let charged_ns =
            |id| samples.iter().filter(|(it, _)| *it == leaf(id)).map(|(_, weight_ns)| weight_ns).sum::<u64>();
        let elapsed_ns = until_ns - now_ns;
        assert_eq!((charged_ns(2), charged_ns(201) + charged_ns(202)), (elapsed_ns, elapsed_ns), "{samples:?}");
        assert!(charged_ns(201) > 0 && !ticks.sampler.pace.is_idle(), "{samples:?}");
    }
}

#[test]
fn time_before_the_first_observation_of_a_thread_is_charged_if_the_thread_existed() {
    for seed in 0..50 {
        let mut ticks = Ticks::with(SelfWalkRuntime {
            threads: threads(&[2, 201]),
            completes_on_wait: false,
            are_frames_stable: false,
        });
        ticks.sampler.capture = |_, thread_id, stack| {
            stack.push(RawFrame { code: u64::from(thread_id), at: 0 });
            Captured::Walked
        };
        ticks.sampler.process_cpu_ns = || 0;
        ticks.sampler.random = Sequence::new(seed);
        // Rare ticks may begin before the second thread is observed.
        ticks.sampler.max_threads = 1;
        let config = Config::default();
        let (mut now_ns, mut charged_ns) = (0, 0);
        for _ in 0..20 {
            now_ns = ticks.sampler.pace.plan(10_000_000, &mut ticks.sampler.random);
            ticks.sampler.tick(&config, now_ns);
            charged_ns += ticks.samples().iter().map(|(_, weight_ns)| weight_ns).sum::<u64>();
        }
        assert_eq!(charged_ns, 2 * now_ns, "of two threads, seed {seed}");
    }
}

/// Activity of thread 200 at the time of a walk: 0 waits, 1 works.
static ACTIVITY: AtomicU64 = AtomicU64::new(0);

fn walk_activity(_: u64, _: u32, stack: &mut RawStack<'_>) -> Captured {
    stack.push(RawFrame { code: 1 + ACTIVITY.load(Ordering::Relaxed), at: 0 });
    Captured::Walked
}

/// A thread that alternately waits for about `wait_ms` and works for about `work_ms`, in a process with negligible CPU time.
/// Returns the share of time charged to its work, the true share, and ticks per second.
fn charged_to_work(wait_ms: u64, work_ms: u64, are_frames_stable: bool) -> [f64; 3] {
    let runtime = SelfWalkRuntime { threads: threads(&[200]), completes_on_wait: false, are_frames_stable };
    let mut ticks = Ticks::with(runtime);
    ticks.sampler.capture = walk_activity;
    ticks.sampler.random = Sequence::new(5);
    ticks.sampler.process_cpu_ns = || 0;
    let mut random = Sequence::new(11);
    let (mut now_ns, mut turns_at_ns, mut works, mut worked_ns) = (0, 0, true, 0u64);
    let (mut charged_ns, mut all_ns, mut tick_count) = (0, 0, 0);
    const END_NS: u64 = 4_000_000_000_000;
    while now_ns < END_NS {
        now_ns = ticks.sampler.pace.plan(10_000_000, &mut ticks.sampler.random);
        while turns_at_ns <= now_ns {
            works = !works;
            let lasts_ns = random.around(if works { work_ms } else { wait_ms } * 1_000_000);
            worked_ns += if works { lasts_ns } else { 0 };
            turns_at_ns += lasts_ns;
        }
        ACTIVITY.store(u64::from(works), Ordering::Relaxed);
        tick_count += 1;
        for (leaf, weight_ns) in ticks.tick(now_ns) {
            all_ns += weight_ns;
            charged_ns += if leaf == Some(RawFrame { code: 2, at: 0 }) { weight_ns } else { 0 };
        }
    }
    ticks.sampler.release(now_ns);
    for (leaf, weight_ns) in ticks.samples() {
        all_ns += weight_ns;
        charged_ns += if leaf == Some(RawFrame { code: 2, at: 0 }) { weight_ns } else { 0 };
    }
    assert_eq!(all_ns, now_ns, "no time is lost, and none is counted twice");
    let seconds = now_ns as f64 / 1e9;
    [charged_ns as f64 / all_ns as f64, worked_ns as f64 / turns_at_ns as f64, tick_count as f64 / seconds]
}

#[test]
fn rare_ticks_in_an_idle_process_do_not_change_the_shares_for_work_of_any_duration() {
    for are_frames_stable in [true, false] {
        // One tick in fifteen observes short work, so its share has the variance of that few observations.
        for (wait_ms, work_ms, spread) in [(1000, 10, 0.2), (1000, 100, 0.06), (2000, 300, 0.03), (700, 1500, 0.02)] {
            let [charged, truth, _] = charged_to_work(wait_ms, work_ms, are_frames_stable);
            assert!((charged / truth - 1.0).abs() < spread, "{work_ms} ms: {charged} of {truth}, {are_frames_stable}");
        }
    }
    let [.., ticks_hz] = charged_to_work(1_000_000, 1, true);
    assert!(ticks_hz < 10.0, "{ticks_hz} ticks per second");
}

#[test]
fn each_live_thread_is_submitted_once_and_a_thread_that_does_not_respond_with_the_reason() {
    let mut ticks = Ticks::of(&[0, 202], false);
    state(0).is_running.store(true, Ordering::Relaxed);
    ticks.sampler.capture = |handle, thread_id, stack| match thread_id {
        202 => Captured::Dropped(DropReason::SignalBlocked),
        _ => walk_when_running(handle, thread_id, stack),
    };
    let config = Config { threads: true, ..Config::default() };
    let begun_ns = spanprof_os::monotonic_ns();
    ticks.sampler.submit_live_threads(&config);
    assert_eq!(ticks.samples(), [(leaf(0), 1), (BLOCKED, 1)]);
    assert!(ticks.sampler.live_threads_ns > begun_ns + LIVE_THREADS_TIMEOUT.as_nanos() as u64, "after the wait");
    // A window that ends right after the first one, on a machine of any load.
    ticks.sampler.live_threads_ns = u64::MAX;
    ticks.sampler.submit_live_threads(&config);
    assert_eq!(ticks.samples(), []);
    ticks.sampler.live_threads_ns = spanprof_os::monotonic_ns().saturating_sub(LIVE_THREADS_VALID_NS);
    ticks.sampler.submit_live_threads(&config);
    assert_eq!(ticks.samples().len(), 2);
}

#[test]
fn threads_alone_need_no_ticks() {
    let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
    let runtime =
        Arc::new(SelfWalkRuntime { threads: threads(&[203]), completes_on_wait: false, are_frames_stable: true });
    static WALKS_OF_203: AtomicU64 = AtomicU64::new(0);
    let walk: CaptureOtherFn = |_, thread_id, stack| {
        WALKS_OF_203.fetch_add(1, Ordering::Relaxed);
        stack.push(RawFrame { code: u64::from(thread_id), at: 0 });
        Captured::Walked
    };
    let config = Config { threads: true, off_cpu: false, wall_rate: Some(1000), ..Config::default() };
    let thread = spawn(
        runtime,
        walk,
        inbox,
        Arc::default(),
        None,
        WallDemand { config: Arc::new(config), for_collections: false },
    )
    .unwrap();
    let control = thread.control();
    let timeout = Duration::from_secs(20);
    control.release(timeout, false);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(WALKS_OF_203.load(Ordering::Relaxed), 0);
    control.release(timeout, true);
    assert_eq!(WALKS_OF_203.load(Ordering::Relaxed), 1);
    let mut kinds = Vec::new();
    inbox.ring().drain(inbox.ring().head(), &mut |_, sample| kinds.push((sample.kind, sample.values[0])));
    assert_eq!(kinds, [(SampleKind::Threads, 1)]);
    thread.stop();
}
