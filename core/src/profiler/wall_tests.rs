//! Tests of the wall sampler (`wall`) with threads that answer when they are told to.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Threads that walk themselves when they come to run: at once, or never while nobody waits for them.
struct LateRuntime {
    threads: Vec<RuntimeThread>,
    is_waited_for: bool,
    frames_keep: bool,
}

impl Runtime for LateRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> spanprof_signal::CaptureFn {
        |_, _| Captured::Dropped(DropReason::NoThreadState)
    }

    fn others_walk_themselves(&self) -> bool {
        true
    }

    fn wait_for_answers(&self, _: Duration) -> bool {
        for thread in self.threads.iter().filter(|_| self.is_waited_for) {
            let asked = asked(thread.thread_id);
            asked.runs.store(asked.times.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
        }
        self.is_waited_for
    }

    fn frames_keep(&self) -> bool {
        self.frames_keep
    }

    fn keep_frames(&self, _: u64, _: &mut [RawFrame]) -> bool {
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        out.extend(&self.threads);
    }

    fn resolve(&self, _: RawFrame, _: u64, _: &mut Vec<crate::runtime::Frame>) {}
}

struct Asked {
    runs: AtomicBool,
    times: AtomicU64,
}

/// Each test has threads of its own.
fn asked(thread_id: u32) -> &'static Asked {
    static ASKED: [Asked; 8] = [const { Asked { runs: AtomicBool::new(false), times: AtomicU64::new(0) } }; 8];
    &ASKED[thread_id as usize]
}

fn walk_when_running(_: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let asked = asked(thread_id);
    asked.times.fetch_add(1, Ordering::Relaxed);
    if !asked.runs.load(Ordering::Relaxed) {
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
    fn of(thread_ids: &[u32], is_waited_for: bool) -> Self {
        Self::with(LateRuntime { threads: threads(thread_ids), is_waited_for, frames_keep: false })
    }

    fn with(runtime: LateRuntime) -> Self {
        let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
        let mut sampler = WallSampler::new(Arc::new(runtime), walk_when_running, inbox, Arc::default());
        sampler.pace = Pace::new(0);
        // A busy process: ticks come as they are called.
        sampler.process_cpu_ns = || TICK_CPU_NS.fetch_add(1_000_000_000, Ordering::Relaxed);
        Self { sampler, inbox }
    }

    fn tick(&mut self, now_ns: u64) -> Vec<(Option<RawFrame>, u64)> {
        self.sampler.tick(&Config::default(), now_ns);
        self.samples()
    }

    /// Leaf and weight of the samples since the last look.
    fn samples(&self) -> Vec<(Option<RawFrame>, u64)> {
        let mut seen = Vec::new();
        self.inbox.ring().drain(self.inbox.ring().head(), &mut |_, sample| {
            seen.push((sample.frames.first().copied(), sample.values[0]));
        });
        seen
    }
}

const BLOCKED: Option<RawFrame> = Some(RawFrame::reason(DropReason::SignalBlocked));

fn leaf(thread_id: u32) -> Option<RawFrame> {
    Some(RawFrame { code: u64::from(thread_id), at: 0 })
}

#[test]
fn a_thread_that_answers_late_is_charged_for_all_the_time_since_it_was_asked() {
    let mut ticks = Ticks::of(&[1], false);
    for now_ms in [10, 20] {
        assert_eq!(ticks.tick(now_ms * 1_000_000), [], "what it does is not known yet");
    }
    asked(1).runs.store(true, Ordering::Relaxed);
    // The answer of the time before, and what it does now.
    assert_eq!(ticks.tick(30_000_000), [(leaf(1), 20_000_000), (leaf(1), 10_000_000)]);

    asked(1).runs.store(false, Ordering::Relaxed);
    ticks.tick(40_000_000);
    ticks.sampler.settle(|_| true, 40_000_000);
    assert_eq!(ticks.samples(), [(BLOCKED, 10_000_000)], "no answer came before the end");

    ticks.tick(50_000_000);
    let told = ticks.tick(50_000_000 + LONGEST_OWED_NS);
    assert_eq!(told, [(BLOCKED, 10_000_000 + LONGEST_OWED_NS)], "a thread that never answers blocks the signal");
    asked(1).runs.store(true, Ordering::Relaxed);
    let after_ns = 50_000_000 + LONGEST_OWED_NS + 7;
    assert_eq!(ticks.tick(after_ns), [(leaf(1), 7)], "its late answer stands for no time");
    assert_eq!(ticks.sampler.counters.wall_without_stack.value(), 2);
}

#[test]
fn all_threads_of_a_tick_are_asked_before_any_answer_is_waited_for() {
    let mut ticks = Ticks::of(&[5, 6, 7], true);
    let mut samples = ticks.tick(10_000_000);
    samples.sort_by_key(|(leaf, _)| leaf.map(|leaf| leaf.code));
    // Nobody runs before somebody waits: whoever was waited for alone would have kept the others from being asked.
    assert_eq!(samples, [5, 6, 7].map(|id| (leaf(id), 10_000_000)));
    assert!([5, 6, 7].iter().all(|id| asked(*id).times.load(Ordering::Relaxed) == 2), "asked, then read");
}

fn frames(codes: &[u64]) -> Vec<RawFrame> {
    codes.iter().map(|code| RawFrame { code: *code, at: 0 }).collect()
}

#[test]
fn a_random_subset_has_each_thread_as_often_as_any_other() {
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

/// Looks that were taken of threads from 100 on, and the tick they are taken in.
static LOOKS: AtomicU64 = AtomicU64::new(0);
static TICK: AtomicU64 = AtomicU64::new(0);

/// Threads that wait; the first eight of them work for five ticks of twenty-five, one after the other.
fn wait_and_work(_: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    LOOKS.fetch_add(1, Ordering::Relaxed);
    let phase = (TICK.load(Ordering::Relaxed) + 3 * u64::from(thread_id)) % 25;
    let works = thread_id < 108 && phase < 5;
    stack.push(RawFrame { code: if works { 1 } else { u64::from(thread_id) }, at: 0 });
    Captured::Walked
}

#[test]
fn threads_that_wait_are_seldom_looked_at_where_there_are_many_and_shares_stay_right() {
    let ids: Vec<u32> = (100..140).collect();
    let mut ticks = Ticks::with(LateRuntime { threads: threads(&ids), is_waited_for: false, frames_keep: true });
    ticks.sampler.capture = wait_and_work;
    ticks.sampler.random = Sequence::new(3);
    let config = Config { wall_max_threads: 20, ..Config::default() };
    let (mut worked_ns, mut all_ns) = (0, 0);
    let mut take = |samples: Vec<(Option<RawFrame>, u64)>| {
        for (leaf, weight_ns) in samples {
            all_ns += weight_ns;
            worked_ns += if leaf.is_some_and(|leaf| leaf.code == 1) { weight_ns } else { 0 };
        }
    };
    const TICKS: u64 = 20_000;
    for tick in 1..=TICKS {
        TICK.store(tick, Ordering::Relaxed);
        ticks.sampler.tick(&config, tick * 1_000);
        take(ticks.samples());
    }
    ticks.sampler.release(TICKS * 1_000);
    take(ticks.samples());
    let truth_ns = 40 * TICKS * 1_000;
    assert!(all_ns <= truth_ns && truth_ns - all_ns < truth_ns / 100, "{all_ns} of {truth_ns}");
    // One thread of 25 works at any time.
    let share = worked_ns as f64 / all_ns as f64;
    assert!((share - 0.04).abs() < 0.002, "{share}");
    let looks = LOOKS.load(Ordering::Relaxed) / TICKS;
    assert!((5..=10).contains(&looks), "{looks} looks per tick, where 20 are allowed");
}

#[test]
fn a_thread_that_stands_for_many_and_answers_late_does_not_block_the_signal() {
    let mut ticks = Ticks::of(&[4], false);
    ticks.tick(0);
    let elapsed = Elapsed { before_ns: 0, since_ns: 3 * LONGEST_OWED_NS };
    ticks.sampler.look(threads(&[4])[0], elapsed, 0, true);
    assert_eq!(ticks.tick(10_000_000), [], "it has just been asked");
    asked(4).runs.store(true, Ordering::Relaxed);
    assert_eq!(ticks.tick(20_000_000), [(leaf(4), 3 * LONGEST_OWED_NS + 10_000_000), (leaf(4), 10_000_000)]);
}

#[test]
fn only_what_two_walks_agree_on_from_the_root_is_kept() {
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
fn a_stack_that_only_grew_between_two_walks_keeps_all_its_frames_below_the_reason() {
    let mut buffer = frames(&[3, 2, 1, 0]);
    let kept = place_reason(&mut buffer, 0..3, 3);
    assert_eq!(kept, 0..4);
    assert_eq!(buffer[0].as_reason(), Some(DropReason::MovedDuringWalk));
    assert_eq!(buffer[1..], frames(&[3, 2, 1]));
}

#[test]
fn a_thread_that_goes_on_doing_the_same_is_told_of_when_a_window_ends_and_once_a_second() {
    let mut ticks = Ticks::with(LateRuntime { threads: threads(&[2]), is_waited_for: false, frames_keep: true });
    asked(2).runs.store(true, Ordering::Relaxed);
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
fn who_ends_a_window_waits_until_the_sampler_has_told_and_not_for_one_that_has_ended() {
    let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
    asked(3).runs.store(true, Ordering::Relaxed);
    let runtime = Arc::new(LateRuntime { threads: threads(&[3]), is_waited_for: false, frames_keep: true });
    let before_ns = sys::monotonic_ns();
    let config = Config { wall_rate: Some(1), ..Config::default() };
    let thread = spawn(runtime, walk_when_running, inbox, Arc::default(), Arc::new(config)).unwrap();
    let orders = thread.orders();
    let told_ns = || {
        let mut told_ns = 0;
        inbox.ring().drain(inbox.ring().head(), &mut |_, sample| told_ns += sample.values[0]);
        told_ns
    };
    let patience = Duration::from_secs(20);
    let asked_ns = sys::monotonic_ns();
    orders.release(patience);
    let first_ns = told_ns();
    // The sampler began somewhere between these two.
    assert!(first_ns > 0 && first_ns <= sys::monotonic_ns() - before_ns, "{first_ns}");
    orders.release(patience);
    let second_ns = told_ns();
    thread.stop();
    orders.release(patience);
    let all_ns = first_ns + second_ns + told_ns();
    assert!(all_ns <= sys::monotonic_ns() - before_ns && second_ns > 0, "{all_ns}");
    assert!(sys::monotonic_ns() - asked_ns < patience.as_nanos() as u64, "nobody waited in vain");
}

#[test]
fn time_between_rare_looks_is_that_of_threads_that_were_there() {
    for frames_keep in [true, false] {
        let mut ticks = Ticks::with(LateRuntime { threads: threads(&[2, 201]), is_waited_for: false, frames_keep });
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
        // One ends, and another begins.
        let runtime = LateRuntime { threads: threads(&[2, 202]), is_waited_for: false, frames_keep };
        ticks.sampler.runtime = Arc::new(runtime);
        let until_ns = ticks.sampler.pace.plan(10_000_000, &mut ticks.sampler.random);
        let mut told = ticks.tick(until_ns);
        ticks.sampler.release(until_ns);
        told.extend(ticks.samples());
        let of = |id| told.iter().filter(|(seen, _)| *seen == leaf(id)).map(|(_, weight_ns)| weight_ns).sum::<u64>();
        assert_eq!((of(2), of(201) + of(202)), (until_ns - now_ns, until_ns - now_ns), "{told:?}");
        assert!(of(201) > 0 && !ticks.sampler.pace.is_idle(), "{told:?}");
    }
}

/// What the thread 200 does at the time of a look.
static DOES: AtomicU64 = AtomicU64::new(0);

fn walk_what_it_does(_: u64, _: u32, stack: &mut RawStack<'_>) -> Captured {
    stack.push(RawFrame { code: 1 + DOES.load(Ordering::Relaxed), at: 0 });
    Captured::Walked
}

/// A thread that waits for about `wait_ms` and works for about `work_ms`, again and again, at times of its own, in a process
/// that uses no CPU time to speak of. Gives the share of time charged to its work, the true share, and looks per second.
fn charged_to_work(wait_ms: u64, work_ms: u64, frames_keep: bool) -> [f64; 3] {
    let runtime = LateRuntime { threads: threads(&[200]), is_waited_for: false, frames_keep };
    let mut ticks = Ticks::with(runtime);
    ticks.sampler.capture = walk_what_it_does;
    ticks.sampler.random = Sequence::new(5);
    ticks.sampler.process_cpu_ns = || 0;
    let mut random = Sequence::new(11);
    let (mut now_ns, mut turns_at_ns, mut works, mut worked_ns) = (0, 0, true, 0u64);
    let (mut charged_ns, mut all_ns, mut looks) = (0, 0, 0);
    const END_NS: u64 = 4_000_000_000_000;
    while now_ns < END_NS {
        now_ns = ticks.sampler.pace.plan(10_000_000, &mut ticks.sampler.random);
        while turns_at_ns <= now_ns {
            works = !works;
            let lasts_ns = random.around(if works { work_ms } else { wait_ms } * 1_000_000);
            worked_ns += if works { lasts_ns } else { 0 };
            turns_at_ns += lasts_ns;
        }
        DOES.store(u64::from(works), Ordering::Relaxed);
        looks += 1;
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
    [charged_ns as f64 / all_ns as f64, worked_ns as f64 / turns_at_ns as f64, looks as f64 / (now_ns as f64 / 1e9)]
}

#[test]
fn rare_looks_at_an_idle_process_do_not_change_the_shares_however_long_its_work_lasts() {
    for frames_keep in [true, false] {
        // Short work is met by one look in fifteen: what is charged to it spreads as widely as so many looks do.
        for (wait_ms, work_ms, spread) in [(1000, 10, 0.2), (1000, 100, 0.06), (2000, 300, 0.03), (700, 1500, 0.02)] {
            let [charged, truth, _] = charged_to_work(wait_ms, work_ms, frames_keep);
            assert!((charged / truth - 1.0).abs() < spread, "{work_ms} ms: {charged} of {truth}, {frames_keep}");
        }
    }
    let [.., looks_hz] = charged_to_work(1_000_000, 1, true);
    assert!(looks_hz < 10.0, "{looks_hz} looks per second");
}
