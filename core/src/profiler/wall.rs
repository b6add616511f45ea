//! The wall sampler: a thread that walks a bounded random subset of the runtime's threads at random intervals. The weight of
//! a sample is the time since the last tick times the number of threads that it represents. Ticks are rarer while the
//! process is idle (`wall_pace`).
//!
//! The walk of a running thread may yield a torn stack. Such a thread is walked again. Frames that two walks share from the
//! root are kept, the rest becomes `[moved_during_walk]`. The sample is never dropped: that would hide the threads that
//! work.
//!
//! With self-walks, a tick requests all walks first, and then waits once, for a short time. A thread that waits for a
//! processor completes its walk later. It did not run since the request, so the walk is valid for all that time. Until then
//! its time is pending, and it gets no further request.
//!
//! Consecutive identical observations of a thread are submitted once a second, and at the end of a window (`wall_repeats`).
//! If there are more threads than a tick may observe, it observes a random part of the threads with identical observations,
//! which represents the others: shares stay exact, and blocked threads cost little.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wall_pace::{self, Elapsed, Pace};
use super::wall_repeats::{Comparison, Repeat, Repeats};
use crate::config::Config;
use crate::random::Sequence;
use crate::runtime::{Runtime, RuntimeThread};
use crate::stats::Counters;
use crate::sys::{self, Inbox, StartedThread};
use spanprof_signal::{
    CaptureOtherFn, Captured, Context, DropReason, RawFrame, RawSample, RawStack, SampleFlags, SampleKind,
};

/// Maximum number of walks of one thread per tick.
const MAX_WALKS: usize = 3;
/// Time after which a thread with a pending self-walk is reported as `[signal_blocked]`.
const BLOCKED_AFTER_NS: u64 = 1_000_000_000;
/// Time for which a tick waits for self-walks: enough for threads that have a processor.
const SELF_WALK_TIMEOUT: Duration = Duration::from_millis(5);
/// As [`SELF_WALK_TIMEOUT`], for the last tick.
const LAST_SELF_WALK_TIMEOUT_NS: u64 = 50_000_000;
/// A tick observes one in this many of the threads with identical observations.
const STEADY_RATIO: usize = 4;

/// The thread and its control.
pub(super) struct WallThread {
    control: Arc<WallControl>,
    thread: StartedThread,
}

pub(super) struct WallControl {
    requests: Mutex<WallRequests>,
    changed: Condvar,
}

struct WallRequests {
    config: Arc<Config>,
    stop: bool,
    /// Number of requests to submit the held-back samples, and of those that are done.
    releases: u64,
    released: u64,
}

impl WallThread {
    pub fn set_config(&self, config: Arc<Config>) {
        self.control.lock().config = config;
        self.control.changed.notify_all();
    }

    pub fn control(&self) -> Arc<WallControl> {
        self.control.clone()
    }

    pub fn stop(self) {
        self.control.lock().stop = true;
        self.control.changed.notify_all();
        // The thread waits for these requests only; it counts a panic itself.
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
    let requests = WallRequests { config, stop: false, releases: 0, released: 0 };
    let control = Arc::new(WallControl { requests: Mutex::new(requests), changed: Condvar::new() });
    let own_control = control.clone();
    let mut sampler = WallSampler::new(runtime, capture, inbox, counters.clone());
    let thread = sys::start_own_thread(c"spanprof-wall", 256 * 1024, move || {
        let sampling = std::panic::AssertUnwindSafe(|| {
            loop {
                let (config, stop, releases) = own_control.sleep(&mut sampler);
                // Also before the end, to sample the time since the last tick.
                sampler.tick(&config, sys::monotonic_ns());
                if stop {
                    sampler.finish();
                    break;
                }
                if let Some(releases) = releases {
                    sampler.release(sys::monotonic_ns());
                    own_control.lock().released = releases;
                    own_control.changed.notify_all();
                }
            }
        });
        if std::panic::catch_unwind(sampling).is_err() {
            counters.panics.add(1);
        }
    })?;
    Ok(WallThread { control, thread })
}

impl WallControl {
    fn lock(&self) -> MutexGuard<'_, WallRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the held-back samples, and waits until they are submitted, at most for `timeout` and while the sampler runs.
    pub fn release(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut requests = self.lock();
        requests.releases += 1;
        let number = requests.releases;
        self.changed.notify_all();
        while requests.released < number && !requests.stop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            requests = self.changed.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps until the next tick is due, or a request arrives. Returns the configuration, whether to stop, and the number
    /// of the release request.
    fn sleep(&self, sampler: &mut WallSampler) -> (Arc<Config>, bool, Option<u64>) {
        let mut requests = self.lock();
        let rate_hz = requests.config.wall_rate.unwrap_or(requests.config.sample_rate);
        let base_ns = wall_pace::base_ns(rate_hz, sampler.processors);
        let next_tick_ns = sampler.pace.plan(base_ns, &mut sampler.random);
        loop {
            let left_ns = next_tick_ns.saturating_sub(sys::monotonic_ns());
            let release = (requests.releases > requests.released).then_some(requests.releases);
            if requests.stop || release.is_some() || left_ns == 0 {
                return (requests.config.clone(), requests.stop, release);
            }
            let left = Duration::from_nanos(left_ns);
            requests = self.changed.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0;
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
    /// CPU quota of the process in processors, if limited.
    processors: Option<f64>,
    /// Whether the observation of a thread in this tick differs from the previous one, or failed.
    has_moved: bool,
    threads: Vec<RuntimeThread>,
    /// Threads with a pending self-walk.
    pending: BTreeMap<u32, PendingWalk>,
    /// The last observation of each thread.
    repeats: Repeats,
    buffers: [Vec<RawFrame>; 2],
}

struct PendingWalk {
    thread: RuntimeThread,
    /// Time without a sample.
    weight_ns: u64,
    /// Time of the request, or of the last `[signal_blocked]` sample.
    since_ns: u64,
}

/// Result of one walk.
struct WalkResult {
    len: usize,
    truncated: bool,
    context: Context,
    outcome: Captured,
    /// Whether the thread ran during the walk.
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
            pending: BTreeMap::new(),
            repeats: Repeats::default(),
            buffers: [Vec::new(), Vec::new()],
        }
    }

    fn tick(&mut self, config: &Config, now_ns: u64) {
        let elapsed = self.pace.begin_tick(now_ns);
        self.runtime.set_idle(self.pace.is_idle());
        self.has_moved = false;
        let mut threads = std::mem::take(&mut self.threads);
        threads.clear();
        self.runtime.threads(&mut threads);
        let all = threads.len();
        for buffer in &mut self.buffers {
            buffer.resize(config.max_stack_depth as usize + 1, RawFrame::default());
        }
        self.complete_pending(now_ns);
        self.discard_pending(|thread_id| threads.iter().all(|thread| thread.thread_id != thread_id), now_ns);
        if elapsed.previous_ns > 0 {
            self.charge_ended(&threads, elapsed.previous_ns, now_ns);
        }
        let chosen = choose(&mut threads, config.wall_max_threads as usize, &mut self.random);
        let elapsed = elapsed.share(all, chosen);
        self.repeats.allow(self.runtime.are_frames_stable() && !config.keep_timestamps);
        let may_be_pending = config.signals && self.runtime.uses_self_walks();
        let (others, steady) = match chosen < all {
            true => self.repeats.steady_last(&mut threads[..chosen]),
            false => (&mut threads[..], &mut [][..]),
        };
        let observed = choose(steady, steady.len().div_ceil(STEADY_RATIO), &mut self.random);
        let steady_elapsed = elapsed.share(steady.len(), observed);
        for thread in others {
            self.observe(*thread, elapsed, now_ns, may_be_pending);
        }
        for thread in &steady[..observed] {
            self.observe(*thread, steady_elapsed, now_ns, may_be_pending);
        }
        if !self.pending.is_empty() && self.runtime.wait_for_responses(SELF_WALK_TIMEOUT) {
            self.complete_pending(now_ns);
        }
        self.threads = threads;
        let is_at_rest = !self.has_moved && self.pending.is_empty();
        self.pace.adapt(self.runtime.idle_interval().filter(|_| is_at_rest), self.process_cpu_ns);
        self.report_blocked(now_ns);
        if self.repeats.are_due(now_ns) {
            self.release(now_ns);
        }
    }

    /// Samples a thread now, or when its self-walk completes.
    fn observe(&mut self, thread: RuntimeThread, elapsed: Elapsed, now_ns: u64, may_be_pending: bool) {
        if let Some(pending) = self.pending.get_mut(&thread.thread_id) {
            pending.weight_ns += elapsed.all_ns();
        } else if !self.sample(thread, elapsed, now_ns, may_be_pending) {
            let left_ns = self.charge_previous(thread.thread_id, elapsed.previous_ns, now_ns);
            let weight_ns = left_ns + elapsed.current_ns;
            self.pending.insert(thread.thread_id, PendingWalk { thread, weight_ns, since_ns: now_ns });
        }
    }

    /// Charges time to the previous observation of a thread. Returns the time if its frames are no longer valid. Without a
    /// previous observation the thread did not exist, and the time is dropped.
    fn charge_previous(&self, thread_id: u32, weight_ns: u64, now_ns: u64) -> u64 {
        let Some(repeat) = self.repeats.previous(thread_id).filter(|_| weight_ns > 0) else { return 0 };
        let mut repeat = repeat.clone();
        if !self.runtime.stabilize_frames(repeat.position, &mut repeat.frames) {
            return weight_ns;
        }
        self.submit_repeat(thread_id, &repeat, weight_ns, now_ns);
        0
    }

    /// As `charge_previous`, for all threads that ended since. Removes their observations.
    fn charge_ended(&mut self, threads: &[RuntimeThread], weight_ns: u64, now_ns: u64) {
        let mut alive: Vec<u32> = threads.iter().map(|thread| thread.thread_id).collect();
        alive.sort_unstable();
        for thread_id in self.repeats.ended(&alive) {
            self.has_moved = true;
            self.charge_previous(thread_id, weight_ns, now_ns);
            if let Some((repeat, weight_ns)) = self.repeats.forget(thread_id) {
                self.submit_repeat(thread_id, &repeat, weight_ns, now_ns);
            }
        }
    }

    /// Submits the held-back samples of consecutive identical observations.
    fn release(&mut self, now_ns: u64) {
        let mut repeats = std::mem::take(&mut self.repeats);
        let mut alive: Vec<u32> = self.threads.iter().map(|thread| thread.thread_id).collect();
        alive.sort_unstable();
        repeats.release(now_ns, &alive, |thread_id, repeat, weight_ns| {
            self.submit_repeat(thread_id, repeat, weight_ns, now_ns);
        });
        self.repeats = repeats;
    }

    fn submit_repeat(&self, thread_id: u32, repeat: &Repeat, weight_ns: u64, now_ns: u64) {
        let Repeat { flags, context, frames, .. } = repeat;
        self.submit(&RawSample {
            flags: *flags,
            context: *context,
            frames,
            ..empty_wall_sample(thread_id, weight_ns, now_ns)
        });
    }

    /// The end of the sampler: waits for pending self-walks of threads that have no processor.
    fn finish(&mut self) {
        let deadline_ns = sys::monotonic_ns() + LAST_SELF_WALK_TIMEOUT_NS;
        while !self.pending.is_empty() && sys::monotonic_ns() < deadline_ns {
            std::thread::sleep(Duration::from_millis(1));
            self.complete_pending(sys::monotonic_ns());
        }
        let now_ns = sys::monotonic_ns();
        self.discard_pending(|_| true, now_ns);
        self.release(now_ns);
    }

    /// Samples the threads whose self-walk is complete.
    fn complete_pending(&mut self, now_ns: u64) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|_, pending| {
            let elapsed = Elapsed { previous_ns: 0, current_ns: pending.weight_ns };
            !self.sample(pending.thread, elapsed, now_ns, true)
        });
        self.pending = pending;
    }

    /// Samples a thread; false while its self-walk is pending.
    fn sample(&mut self, thread: RuntimeThread, elapsed: Elapsed, now_ns: u64, may_be_pending: bool) -> bool {
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
                frames = place_reason(&mut last, frames, walk.len);
            }
        }
        let is_complete = !may_be_pending || walk.outcome != Captured::Dropped(DropReason::SignalBlocked);
        if is_complete {
            if let Captured::Dropped(reason) = walk.outcome {
                last[0] = RawFrame::reason(reason);
                frames = 0..1;
                self.counters.wall_without_stack.add(u64::from(elapsed.all_ns() > 0));
            }
            let flags = SampleFlags(if walk.truncated { SampleFlags::TRUNCATED } else { 0 });
            let (thread_id, context, frames) = (thread.thread_id, walk.context, &last[frames]);
            let mut sample =
                RawSample { flags, context, frames, ..empty_wall_sample(thread_id, elapsed.all_ns(), now_ns) };
            let position = self.inbox.ring().head();
            match self.repeats.compare(&sample, position) {
                Comparison::Merged => {}
                Comparison::Same => self.submit(&sample),
                Comparison::Different => {
                    self.has_moved = true;
                    let left_ns = self.charge_previous(thread_id, elapsed.previous_ns, now_ns);
                    sample.values[0] = left_ns + elapsed.current_ns;
                    if let Some((repeat, weight_ns)) = self.repeats.replace(&sample, position) {
                        self.submit_repeat(thread_id, &repeat, weight_ns, now_ns);
                    }
                    self.submit(&sample);
                }
            }
        }
        self.buffers = [last, before];
        is_complete
    }

    /// Submits a `[signal_blocked]` sample for threads whose self-walk is pending for too long. The self-walk stays
    /// pending.
    fn report_blocked(&mut self, now_ns: u64) {
        let mut pending = std::mem::take(&mut self.pending);
        for pending in pending.values_mut().filter(|it| now_ns.saturating_sub(it.since_ns) >= BLOCKED_AFTER_NS) {
            self.submit_blocked(pending, now_ns);
            pending.since_ns = now_ns;
        }
        self.pending = pending;
    }

    /// Removes the pending self-walks of threads for which `has_ended` is true; their time is submitted as
    /// `[signal_blocked]`.
    fn discard_pending(&mut self, has_ended: impl Fn(u32) -> bool, now_ns: u64) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|thread_id, pending| {
            if has_ended(*thread_id) {
                self.submit_blocked(pending, now_ns);
            }
            !has_ended(*thread_id)
        });
        self.pending = pending;
    }

    fn submit_blocked(&self, pending: &mut PendingWalk, now_ns: u64) {
        let frames = [RawFrame::reason(DropReason::SignalBlocked)];
        let weight_ns = std::mem::take(&mut pending.weight_ns);
        if weight_ns > 0 {
            self.counters.wall_without_stack.add(1);
            self.submit(&RawSample {
                frames: &frames,
                ..empty_wall_sample(pending.thread.thread_id, weight_ns, now_ns)
            });
        }
    }

    /// Submits a sample with a weight above 0. A sample that a full ring rejects is counted.
    fn submit(&self, sample: &RawSample<'_>) {
        if sample.values[0] > 0 && self.inbox.submit(sample).is_err() {
            self.counters.submit_dropped.add(1);
        }
    }

    fn walk(&mut self, thread: RuntimeThread, buffer: &mut [RawFrame]) -> WalkResult {
        let walks_itself = self.runtime.uses_self_walks();
        let depth = buffer.len() - 1;
        if self.pace.is_idle() && !walks_itself {
            // A walk with the same result as the previous one was not torn, so the thread's CPU clock is not needed.
            let mut stack = RawStack::new(&mut buffer[..depth]);
            let outcome = sys::walk_other_thread(self.capture, thread.handle, thread.thread_id, &mut stack);
            let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
            if outcome == Captured::Walked && self.repeats.is_previous(thread.thread_id, context, &buffer[..len]) {
                return WalkResult { len, truncated, context, outcome, moved: false };
            }
        }
        let clock = || if walks_itself { None } else { sys::thread_cpu_ns(thread.thread_id) };
        let clock_before = clock();
        let mut stack = RawStack::new(&mut buffer[..depth]);
        let outcome = sys::walk_other_thread(self.capture, thread.handle, thread.thread_id, &mut stack);
        let moved = !walks_itself && (clock_before.is_none() || clock() != clock_before);
        WalkResult { len: stack.len(), truncated: stack.is_truncated(), context: stack.context, outcome, moved }
    }
}

/// A sample without frames.
fn empty_wall_sample(thread_id: u32, weight_ns: u64, time_ns: u64) -> RawSample<'static> {
    let (kind, flags, values, context) = (SampleKind::Wall, SampleFlags(0), [weight_ns, 1], Context::None);
    RawSample { kind, flags, thread_id, time_ns, values, key: 0, context, frames: &[] }
}

/// Moves a random subset to the front (Fisher–Yates) and returns its size.
fn choose(threads: &mut [RuntimeThread], at_most: usize, random: &mut Sequence) -> usize {
    let chosen = threads.len().min(at_most);
    for index in 0..chosen {
        let from = index + random.below(threads.len() - index);
        threads.swap(index, from);
    }
    chosen
}

/// Number of frames, counted from the root, that two stacks share.
fn common_root(left: &[RawFrame], right: &[RawFrame]) -> usize {
    left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count()
}

/// Puts the reason on the leaf side of the confirmed frames: it replaces the next frame, or is inserted if all frames are
/// confirmed. The buffer has a capacity of the depth plus one.
fn place_reason(buffer: &mut [RawFrame], confirmed: std::ops::Range<usize>, len: usize) -> std::ops::Range<usize> {
    let reason = RawFrame::reason(DropReason::MovedDuringWalk);
    match confirmed.start {
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
