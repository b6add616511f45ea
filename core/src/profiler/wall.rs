//! The wall sampler: a thread that walks a bounded random subset of the runtime's threads at random intervals. A sample
//! weighs the time since the last tick times how many threads it stands for. While the process is idle, ticks are rarer
//! (`wall_pace`).
//!
//! A thread that runs while it is walked may show a torn stack. It is walked again; frames on which two walks agree from
//! the root were really there, what lies below becomes `[moved_during_walk]`. The sample is kept in every case: dropping
//! it would hide exactly the threads that work.
//!
//! Where threads walk themselves, all of a tick are asked before any answer is waited for, once and not for long. One that
//! waits for a processor answers late. It did not run since it was asked, so its answer holds for all that time: until then
//! its time is owed, and it is asked nothing else.
//!
//! A thread that goes on doing the same is told of once a second, and at the end of a window (`wall_repeats`). Where there
//! are more threads than a tick may look at, of those that did the same at their last looks only some are looked at, chosen
//! at random at every tick, and stand for all: shares stay right, and threads that wait cost little.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wall_pace::{self, Elapsed, Pace};
use super::wall_repeats::{Repeat, Repeats, Seen};
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
/// How long an answer is waited for; a thread that has not given it by then blocks the signal.
const LONGEST_OWED_NS: u64 = 1_000_000_000;
/// How long a tick waits for those it asked: longer than it takes who has a processor.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long the last one does.
const LAST_PATIENCE_NS: u64 = 50_000_000;
/// One of so many threads that go on doing the same is looked at.
const STEADY: usize = 4;

/// The thread, and how to reach it.
pub(super) struct WallThread {
    orders: Arc<Orders>,
    thread: StartedThread,
}

pub(super) struct Orders {
    current: Mutex<Order>,
    changed: Condvar,
}

struct Order {
    config: Arc<Config>,
    stop: bool,
    /// How often the sampler was to tell all it knows, and how often it has.
    releases: u64,
    released: u64,
}

impl WallThread {
    pub fn set_config(&self, config: Arc<Config>) {
        self.orders.lock().config = config;
        self.orders.changed.notify_all();
    }

    pub fn orders(&self) -> Arc<Orders> {
        self.orders.clone()
    }

    pub fn stop(self) {
        self.orders.lock().stop = true;
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
    let current = Order { config, stop: false, releases: 0, released: 0 };
    let orders = Arc::new(Orders { current: Mutex::new(current), changed: Condvar::new() });
    let followed = orders.clone();
    let mut sampler = WallSampler::new(runtime, capture, inbox, counters.clone());
    let thread = own_thread::start(c"spanprof-wall", 256 * 1024, move || {
        let sampling = std::panic::AssertUnwindSafe(|| {
            loop {
                let (config, stop, releases) = followed.sleep(&mut sampler);
                // At the end too: the time since the last tick is not lost.
                sampler.tick(&config, sys::monotonic_ns());
                if stop {
                    sampler.finish();
                    break;
                }
                if let Some(releases) = releases {
                    sampler.release(sys::monotonic_ns());
                    followed.lock().released = releases;
                    followed.changed.notify_all();
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
    fn lock(&self) -> MutexGuard<'_, Order> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the sampler tell what it holds back, and waits for it; not for long, and not for one that has ended.
    pub fn release(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut current = self.lock();
        current.releases += 1;
        let mine = current.releases;
        self.changed.notify_all();
        while current.released < mine && !current.stop {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            current = self.changed.wait_timeout(current, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps until the next tick is due, or until something is asked: the end, or a release.
    fn sleep(&self, sampler: &mut WallSampler) -> (Arc<Config>, bool, Option<u64>) {
        let mut current = self.lock();
        let rate_hz = current.config.wall_rate.unwrap_or(current.config.sample_rate);
        let base_ns = wall_pace::base_ns(rate_hz, sampler.processors);
        let until = sampler.pace.plan(base_ns, &mut sampler.random);
        loop {
            let left_ns = until.saturating_sub(sys::monotonic_ns());
            let release = (current.releases > current.released).then_some(current.releases);
            if current.stop || release.is_some() || left_ns == 0 {
                return (current.config.clone(), current.stop, release);
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
    pace: Pace,
    process_cpu_ns: fn() -> u64,
    /// How many processors the process may use, where that is limited.
    processors: Option<f64>,
    /// Whether a thread was seen elsewhere in this tick than in the one before, or could not be seen.
    has_moved: bool,
    threads: Vec<RuntimeThread>,
    /// Threads that were asked and have not answered, and the time since then.
    owed: BTreeMap<u32, Owed>,
    /// What threads do that have done the same since.
    repeats: Repeats,
    buffers: [Vec<RawFrame>; 2],
}

struct Owed {
    thread: RuntimeThread,
    /// What no sample carries yet.
    weight_ns: u64,
    /// When it was asked, or last said to block the signal.
    since_ns: u64,
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
            pace: Pace::new(sys::monotonic_ns()),
            process_cpu_ns: sys::process_cpu_ns,
            processors: sys::cpu_quota(),
            has_moved: false,
            threads: Vec::new(),
            owed: BTreeMap::new(),
            repeats: Repeats::default(),
            buffers: [Vec::new(), Vec::new()],
        }
    }

    fn tick(&mut self, config: &Config, now_ns: u64) {
        let elapsed = self.pace.look(now_ns);
        self.runtime.looks_are_rare(self.pace.is_idle());
        self.has_moved = false;
        let mut threads = std::mem::take(&mut self.threads);
        threads.clear();
        self.runtime.threads(&mut threads);
        let all = threads.len();
        for buffer in &mut self.buffers {
            buffer.resize(config.max_stack_depth as usize + 1, RawFrame::default());
        }
        self.take_answers(now_ns);
        self.settle(|thread_id| threads.iter().all(|thread| thread.thread_id != thread_id), now_ns);
        if elapsed.before_ns > 0 {
            self.charge_ended(&threads, elapsed.before_ns, now_ns);
        }
        let chosen = choose(&mut threads, config.wall_max_threads as usize, &mut self.random);
        let elapsed = elapsed.share(all, chosen);
        self.repeats.allow(self.runtime.frames_keep() && !config.keep_timestamps);
        let may_answer = config.signals && self.runtime.others_walk_themselves();
        let (others, steady) = match chosen < all {
            true => self.repeats.steady_last(&mut threads[..chosen]),
            false => (&mut threads[..], &mut [][..]),
        };
        let looked_at = choose(steady, steady.len().div_ceil(STEADY), &mut self.random);
        let steady_elapsed = elapsed.share(steady.len(), looked_at);
        for thread in others {
            self.look(*thread, elapsed, now_ns, may_answer);
        }
        for thread in &steady[..looked_at] {
            self.look(*thread, steady_elapsed, now_ns, may_answer);
        }
        if !self.owed.is_empty() && self.runtime.wait_for_answers(PATIENCE) {
            self.take_answers(now_ns);
        }
        self.threads = threads;
        let is_at_rest = !self.has_moved && self.owed.is_empty();
        self.pace.judge(self.runtime.idle_interval().filter(|_| is_at_rest), self.process_cpu_ns);
        self.give_up(now_ns);
        if self.repeats.are_due(now_ns) {
            self.release(now_ns);
        }
    }

    /// Takes a sample of a thread now, or when it has answered.
    fn look(&mut self, thread: RuntimeThread, elapsed: Elapsed, now_ns: u64, may_answer: bool) {
        if let Some(owed) = self.owed.get_mut(&thread.thread_id) {
            owed.weight_ns += elapsed.all_ns();
        } else if !self.sample(thread, elapsed, now_ns, may_answer) {
            // It runs.
            let left_ns = self.charge_former(thread.thread_id, elapsed.before_ns, now_ns);
            let weight_ns = left_ns + elapsed.since_ns;
            self.owed.insert(thread.thread_id, Owed { thread, weight_ns, since_ns: now_ns });
        }
    }

    /// Charges time to what a thread did at its last look; gives what cannot be, since that has no meaning any more. A thread
    /// that had none was not there.
    fn charge_former(&self, thread_id: u32, weight_ns: u64, now_ns: u64) -> u64 {
        let Some(repeat) = self.repeats.former(thread_id).filter(|_| weight_ns > 0) else { return 0 };
        let mut repeat = repeat.clone();
        if !self.runtime.keep_frames(repeat.seen_at, &mut repeat.frames) {
            return weight_ns;
        }
        self.tell_repeat(thread_id, &repeat, weight_ns, now_ns);
        0
    }

    /// As `charge_former`, for all threads that ended since, which are forgotten.
    fn charge_ended(&mut self, threads: &[RuntimeThread], weight_ns: u64, now_ns: u64) {
        let mut living: Vec<u32> = threads.iter().map(|thread| thread.thread_id).collect();
        living.sort_unstable();
        for thread_id in self.repeats.ended(&living) {
            self.has_moved = true;
            self.charge_former(thread_id, weight_ns, now_ns);
            if let Some((repeat, weight_ns)) = self.repeats.forget(thread_id) {
                self.tell_repeat(thread_id, &repeat, weight_ns, now_ns);
            }
        }
    }

    /// Tells what is held back of threads that go on doing the same.
    fn release(&mut self, now_ns: u64) {
        let mut repeats = std::mem::take(&mut self.repeats);
        let mut living: Vec<u32> = self.threads.iter().map(|thread| thread.thread_id).collect();
        living.sort_unstable();
        repeats.release(now_ns, &living, |thread_id, repeat, weight_ns| {
            self.tell_repeat(thread_id, repeat, weight_ns, now_ns);
        });
        self.repeats = repeats;
    }

    fn tell_repeat(&self, thread_id: u32, repeat: &Repeat, weight_ns: u64, now_ns: u64) {
        let Repeat { flags, context, frames, .. } = repeat;
        self.submit(&RawSample { flags: *flags, context: *context, frames, ..bare(thread_id, weight_ns, now_ns) });
    }

    /// The end: who waits for a processor may yet answer.
    fn finish(&mut self) {
        let until_ns = sys::monotonic_ns() + LAST_PATIENCE_NS;
        while !self.owed.is_empty() && sys::monotonic_ns() < until_ns {
            std::thread::sleep(Duration::from_millis(1));
            self.take_answers(sys::monotonic_ns());
        }
        let now_ns = sys::monotonic_ns();
        self.settle(|_| true, now_ns);
        self.release(now_ns);
    }

    /// Takes what those answered that were asked.
    fn take_answers(&mut self, now_ns: u64) {
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|_, owed| {
            let elapsed = Elapsed { before_ns: 0, since_ns: owed.weight_ns };
            !self.sample(owed.thread, elapsed, now_ns, true)
        });
        self.owed = owed;
    }

    /// Takes a sample of a thread; false when it was asked and may yet answer.
    fn sample(&mut self, thread: RuntimeThread, elapsed: Elapsed, now_ns: u64, may_answer: bool) -> bool {
        let [mut last, mut before] = std::mem::take(&mut self.buffers);
        let mut walk = self.walk(thread, &mut last);
        self.has_moved |= walk.moved;
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
                self.counters.wall_without_stack.add(u64::from(elapsed.all_ns() > 0));
            }
            let flags = SampleFlags(if walk.truncated { SampleFlags::TRUNCATED } else { 0 });
            let (thread_id, context, frames) = (thread.thread_id, walk.context, &last[frames]);
            let mut sample = RawSample { flags, context, frames, ..bare(thread_id, elapsed.all_ns(), now_ns) };
            let position = self.inbox.ring().head();
            match self.repeats.take(&sample, position) {
                Seen::Held => {}
                Seen::Same => self.submit(&sample),
                Seen::Other => {
                    self.has_moved = true;
                    let left_ns = self.charge_former(thread_id, elapsed.before_ns, now_ns);
                    sample.values[0] = left_ns + elapsed.since_ns;
                    if let Some((repeat, weight_ns)) = self.repeats.replace(&sample, position) {
                        self.tell_repeat(thread_id, &repeat, weight_ns, now_ns);
                    }
                    self.submit(&sample);
                }
            }
        }
        self.buffers = [last, before];
        is_answered
    }

    /// Says of threads that have not answered for long that they block the signal. They are still asked.
    fn give_up(&mut self, now_ns: u64) {
        let mut owed = std::mem::take(&mut self.owed);
        for owed in owed.values_mut().filter(|owed| now_ns.saturating_sub(owed.since_ns) >= LONGEST_OWED_NS) {
            self.say_blocked(owed, now_ns);
            owed.since_ns = now_ns;
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
        let depth = buffer.len() - 1;
        if self.pace.is_idle() && !walks_itself {
            // A walk that finds what the last one found was not torn, whatever the clock says.
            let mut stack = RawStack::new(&mut buffer[..depth]);
            let outcome = sys::walk_other_thread(self.capture, thread.handle, thread.thread_id, &mut stack);
            let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
            if outcome == Captured::Walked && self.repeats.is_former(thread.thread_id, context, &buffer[..len]) {
                return Walk { len, truncated, context, outcome, moved: false };
            }
        }
        let clock = || if walks_itself { None } else { sys::thread_cpu_ns(thread.thread_id) };
        let clock_before = clock();
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
#[path = "wall_tests.rs"]
mod tests;
