//! The wall sampler: a thread that walks a bounded random subset of the runtime's threads at random intervals. A sample
//! weighs the time since the last tick times how many threads it stands for.
//!
//! A thread that runs while it is walked may show a torn stack. It is walked again; frames on which two walks agree from
//! the root were really there, what lies below becomes `[moved_during_walk]`. The sample is kept in every case: dropping
//! it would hide exactly the threads that work.
//!
//! Where threads walk themselves, all of a tick are asked before any answer is waited for, once and not for long. One that
//! waits for a processor answers late. It did not run since it was asked, so its answer holds for all that time: until then
//! its time is owed, and it is asked nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::config::Config;
use crate::own_thread::{self, StartedThread};
use crate::random::Sequence;
use crate::runtime::{Runtime, RuntimeThread};
use crate::stats::Counters;
use crate::sys::{self, Inbox};
use spanprof_signal::{
    CaptureOtherFn, Captured, Context, DropReason, RawFrame, RawSample, RawStack, SampleFlags, SampleKind,
};

/// Walks of one thread per tick.
const MAX_WALKS: usize = 3;
/// What is owed to a thread at most; one that still does not answer blocks the signal.
const MAX_OWED_NS: u64 = 1_000_000_000;
/// How long a tick waits for those it asked: longer than it takes who has a processor.
const PATIENCE: Duration = Duration::from_millis(5);

/// The thread, and how to reach it.
pub(super) struct WallThread {
    orders: Arc<Orders>,
    thread: StartedThread,
}

struct Orders {
    current: Mutex<(Arc<Config>, bool)>,
    changed: Condvar,
}

impl WallThread {
    pub fn set_config(&self, config: Arc<Config>) {
        self.orders.current.lock().unwrap_or_else(PoisonError::into_inner).0 = config;
        self.orders.changed.notify_all();
    }

    pub fn stop(self) {
        self.orders.current.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.orders.changed.notify_all();
        // It never waits for anything but these orders; a panic inside was counted there.
        self.thread.join();
    }
}

/// Starts the thread.
pub(super) fn spawn(
    runtime: Arc<dyn Runtime>,
    capture: CaptureOtherFn,
    inbox: &'static Inbox,
    counters: Arc<Counters>,
    config: Arc<Config>,
) -> std::io::Result<WallThread> {
    let orders = Arc::new(Orders { current: Mutex::new((config, false)), changed: Condvar::new() });
    let followed = orders.clone();
    let mut sampler = WallSampler::new(runtime, capture, inbox, counters.clone());
    let thread = own_thread::start(c"spanprof-wall", 256 * 1024, move || {
        let sampling = std::panic::AssertUnwindSafe(|| {
            loop {
                let (config, stop) = followed.sleep(&mut sampler.random);
                // At the end too: the time since the last tick is not lost.
                sampler.tick(&config, sys::monotonic_ns());
                if stop {
                    sampler.settle(|_| true, sys::monotonic_ns());
                    break;
                }
            }
        });
        if std::panic::catch_unwind(sampling).is_err() {
            counters.panics.add(1);
        }
    })?;
    Ok(WallThread { orders, thread })
}

impl Orders {
    /// Sleeps a random interval around the period, or until the end; whether it is the end.
    fn sleep(&self, random: &mut Sequence) -> (Arc<Config>, bool) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let period_ns = 1_000_000_000 / u64::from(current.0.wall_rate.unwrap_or(current.0.sample_rate).clamp(1, 1000));
        let until = sys::monotonic_ns() + random.around(period_ns);
        loop {
            let left_ns = until.saturating_sub(sys::monotonic_ns());
            if current.1 || left_ns == 0 {
                return (current.0.clone(), current.1);
            }
            let left = Duration::from_nanos(left_ns);
            current = self.changed.wait_timeout(current, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct WallSampler {
    runtime: Arc<dyn Runtime>,
    capture: CaptureOtherFn,
    inbox: &'static Inbox,
    counters: Arc<Counters>,
    random: Sequence,
    last_tick_ns: u64,
    threads: Vec<RuntimeThread>,
    /// Threads that were asked and have not answered, and the time since then.
    owed: BTreeMap<u32, Owed>,
    buffers: [Vec<RawFrame>; 2],
}

struct Owed {
    thread: RuntimeThread,
    /// What no sample carries yet.
    weight_ns: u64,
}

/// What one walk saw.
struct Walk {
    len: usize,
    truncated: bool,
    context: Context,
    outcome: Captured,
    /// Whether the thread ran meanwhile.
    moved: bool,
}

impl WallSampler {
    fn new(runtime: Arc<dyn Runtime>, capture: CaptureOtherFn, inbox: &'static Inbox, counters: Arc<Counters>) -> Self {
        let seed = u64::from_le_bytes(crate::random::bytes());
        Self {
            runtime,
            capture,
            inbox,
            counters,
            random: Sequence::new(seed),
            last_tick_ns: sys::monotonic_ns(),
            threads: Vec::new(),
            owed: BTreeMap::new(),
            buffers: [Vec::new(), Vec::new()],
        }
    }

    fn tick(&mut self, config: &Config, now_ns: u64) {
        let interval_ns = now_ns.saturating_sub(self.last_tick_ns);
        self.last_tick_ns = now_ns;
        let mut threads = std::mem::take(&mut self.threads);
        threads.clear();
        self.runtime.threads(&mut threads);
        let all = threads.len();
        for buffer in &mut self.buffers {
            buffer.resize(config.max_stack_depth as usize + 1, RawFrame::default());
        }
        self.take_answers(now_ns);
        self.settle(|thread_id| threads.iter().all(|thread| thread.thread_id != thread_id), now_ns);
        let chosen = choose(&mut threads, config.wall_max_threads as usize, &mut self.random);
        let weight_ns = (u128::from(interval_ns) * all as u128 / chosen.max(1) as u128) as u64;
        let may_answer = config.signals && self.runtime.others_walk_themselves();
        for thread in &threads[..chosen] {
            if let Some(owed) = self.owed.get_mut(&thread.thread_id) {
                owed.weight_ns += weight_ns;
            } else if !self.sample(*thread, weight_ns, now_ns, may_answer) {
                self.owed.insert(thread.thread_id, Owed { thread: *thread, weight_ns });
            }
        }
        if !self.owed.is_empty() && self.runtime.wait_for_answers(PATIENCE) {
            self.take_answers(now_ns);
        }
        self.threads = threads;
        self.give_up(now_ns);
    }

    /// Takes what those answered that were asked.
    fn take_answers(&mut self, now_ns: u64) {
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|_, owed| !self.sample(owed.thread, owed.weight_ns, now_ns, true));
        self.owed = owed;
    }

    /// Takes a sample of a thread; false when it was asked and may yet answer.
    fn sample(&mut self, thread: RuntimeThread, weight_ns: u64, now_ns: u64, may_answer: bool) -> bool {
        let [mut last, mut before] = std::mem::take(&mut self.buffers);
        let mut walk = self.walk(thread, &mut last);
        let mut frames = 0..walk.len;
        if walk.moved {
            let mut agreed = false;
            for _ in 1..MAX_WALKS {
                self.counters.wall_repeated.add(1);
                std::mem::swap(&mut last, &mut before);
                let len_before = walk.len;
                walk = self.walk(thread, &mut last);
                let common = common_root(&before[..len_before], &last[..walk.len]);
                agreed = !walk.moved || (common == walk.len && common == len_before);
                frames = walk.len - common..walk.len;
                if agreed {
                    frames = 0..walk.len;
                    break;
                }
            }
            if !agreed && walk.outcome == Captured::Walked {
                self.counters.wall_moved.add(1);
                // The reason takes the place of the youngest frame that is not sure, or stands before the rest.
                frames = place_reason(&mut last, frames, walk.len);
            }
        }
        let is_answered = !may_answer || walk.outcome != Captured::Dropped(DropReason::SignalBlocked);
        if is_answered {
            if let Captured::Dropped(reason) = walk.outcome {
                last[0] = RawFrame::reason(reason);
                frames = 0..1;
                self.counters.wall_without_stack.add(u64::from(weight_ns > 0));
            }
            let flags = SampleFlags(if walk.truncated { SampleFlags::TRUNCATED } else { 0 });
            let (thread_id, context, frames) = (thread.thread_id, walk.context, &last[frames]);
            self.submit(&RawSample { flags, context, frames, ..bare(thread_id, weight_ns, now_ns) });
        }
        self.buffers = [last, before];
        is_answered
    }

    /// Says of threads that have not answered for long that they block the signal. They are still asked.
    fn give_up(&mut self, now_ns: u64) {
        let mut owed = std::mem::take(&mut self.owed);
        for owed in owed.values_mut().filter(|owed| owed.weight_ns >= MAX_OWED_NS) {
            self.say_blocked(owed, now_ns);
        }
        self.owed = owed;
    }

    /// Forgets the threads that `is_gone` names: what is owed to them was spent somewhere unknown.
    fn settle(&mut self, is_gone: impl Fn(u32) -> bool, now_ns: u64) {
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|thread_id, owed| {
            if is_gone(*thread_id) {
                self.say_blocked(owed, now_ns);
            }
            !is_gone(*thread_id)
        });
        self.owed = owed;
    }

    fn say_blocked(&self, owed: &mut Owed, now_ns: u64) {
        let frames = [RawFrame::reason(DropReason::SignalBlocked)];
        let weight_ns = std::mem::take(&mut owed.weight_ns);
        if weight_ns > 0 {
            self.counters.wall_without_stack.add(1);
            self.submit(&RawSample { frames: &frames, ..bare(owed.thread.thread_id, weight_ns, now_ns) });
        }
    }

    /// A sample that the ring has no room for is lost and counted. One that stands for no time is none.
    fn submit(&self, sample: &RawSample<'_>) {
        if sample.values[0] > 0 && self.inbox.submit(sample).is_err() {
            self.counters.submit_dropped.add(1);
        }
    }

    fn walk(&mut self, thread: RuntimeThread, buffer: &mut [RawFrame]) -> Walk {
        let walks_itself = self.runtime.others_walk_themselves();
        let clock = || if walks_itself { None } else { sys::thread_cpu_ns(thread.thread_id) };
        let clock_before = clock();
        let depth = buffer.len() - 1;
        let mut stack = RawStack::new(&mut buffer[..depth]);
        let outcome = sys::walk_other_thread(self.capture, thread.handle, thread.thread_id, &mut stack);
        let moved = !walks_itself && (clock_before.is_none() || clock() != clock_before);
        Walk { len: stack.len(), truncated: stack.is_truncated(), context: stack.context, outcome, moved }
    }
}

/// A sample without frames.
fn bare(thread_id: u32, weight_ns: u64, time_ns: u64) -> RawSample<'static> {
    let (kind, flags, values, context) = (SampleKind::Wall, SampleFlags(0), [weight_ns, 1], Context::None);
    RawSample { kind, flags, thread_id, time_ns, values, key: 0, context, frames: &[] }
}

/// Brings a random subset to the front; gives its size.
fn choose(threads: &mut [RuntimeThread], at_most: usize, random: &mut Sequence) -> usize {
    let chosen = threads.len().min(at_most);
    for place in 0..chosen {
        let from = place + random.below(threads.len() - place);
        threads.swap(place, from);
    }
    chosen
}

/// Number of frames, counted from the root, that two stacks share.
fn common_root(left: &[RawFrame], right: &[RawFrame]) -> usize {
    left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count()
}

/// Puts the reason leafwards of the frames that are sure; the buffer has room for one more than the depth.
fn place_reason(buffer: &mut [RawFrame], sure: std::ops::Range<usize>, len: usize) -> std::ops::Range<usize> {
    let reason = RawFrame::reason(DropReason::MovedDuringWalk);
    match sure.start {
        0 => {
            buffer.copy_within(0..len, 1);
            buffer[0] = reason;
            0..len + 1
        }
        start => {
            buffer[start - 1] = reason;
            start - 1..len
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Threads that walk themselves when they come to run: at once, or never while nobody waits for them.
    struct LateRuntime {
        threads: Vec<RuntimeThread>,
        is_waited_for: bool,
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

    struct Ticks {
        sampler: WallSampler,
        inbox: &'static Inbox,
    }

    impl Ticks {
        fn of(thread_ids: &[u32], is_waited_for: bool) -> Self {
            let words = Vec::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
            let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
            let threads = thread_ids.iter().map(|id| RuntimeThread { thread_id: *id, handle: 0 }).collect();
            let runtime = Arc::new(LateRuntime { threads, is_waited_for });
            let mut sampler = WallSampler::new(runtime, walk_when_running, inbox, Arc::default());
            sampler.last_tick_ns = 0;
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

        let told = ticks.tick(40_000_000 + MAX_OWED_NS);
        assert_eq!(told, [(BLOCKED, MAX_OWED_NS)], "a thread that never answers blocks the signal");
        asked(1).runs.store(true, Ordering::Relaxed);
        let after_ns = 40_000_000 + MAX_OWED_NS + 7;
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
}
