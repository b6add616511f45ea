//! The wall sampler: a thread that walks a bounded random subset of the runtime's threads at random intervals. The weight of a
//! sample is the time since the last tick times the number of threads that it represents. Ticks are rarer in an idle process
//! (`pace`).
//!
//! The walk of a running thread may yield a torn stack. Such a thread is walked again. Frames that two walks share from the root are
//! kept, the rest becomes `[moved_during_walk]`. The sample is never dropped: that would hide the threads that work.
//!
//! With self-walks, a tick requests all walks first, and then waits once, for a short time. A thread that waits for a processor
//! completes its walk later. It did not run since the request, so the walk is valid for all that time.
//!
//! Consecutive identical observations of a thread are submitted once a second, and at the end of a window (`wall_repeats`).
//! If there are more threads than a tick may observe, it observes a random part of the threads with identical observations,
//! which represents the others: shares stay exact, and blocked threads cost little.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::off_cpu::{OffCpu, Wait};
use super::torn_stack::{common_root, place_reason};
use crate::wall::pace::{Elapsed, Pace};
use crate::wall::repeats::{Comparison, Repeat, Repeats};
use spanprof_aggregate::context::opened_and_refused;
use spanprof_aggregate::runtime::{DisabledRuntime, Runtime, RuntimeThread, WallRuntime};
use spanprof_aggregate::Counters;
use spanprof_config::Config;
use spanprof_os::Inbox;
use spanprof_signal::{
    parking, CaptureOtherFn, Captured, Context, DropReason, RawFrame, RawSample, RawStack, SampleFlags, SampleKind,
    Sequence,
};

/// Maximum number of walks of one thread per tick.
const MAX_WALKS: usize = 3;
/// Time after which a thread with a pending self-walk is reported as `[signal_blocked]`.
const BLOCKED_AFTER_NS: u64 = 1_000_000_000;
/// Time for which a tick waits for self-walks: enough for threads that have a processor.
pub(super) const SELF_WALK_TIMEOUT: Duration = Duration::from_millis(5);
/// As [`SELF_WALK_TIMEOUT`], for the last tick.
const LAST_SELF_WALK_TIMEOUT_NS: u64 = 50_000_000;
/// The interval of ticks for requests is at most this fraction of the time for which all threads have waited.
const REST_DIVISOR: u64 = 64;
/// A tick observes one in this many of the threads with identical observations.
const STEADY_RATIO: usize = 4;

pub(crate) struct WallSampler {
    runtime: Arc<dyn Runtime>,
    capture: CaptureOtherFn,
    inbox: &'static Inbox,
    counters: Arc<Counters>,
    pub random: Sequence,
    pub pace: Pace,
    process_cpu_ns: fn() -> u64,
    /// CPU quota of the process in processors, if limited.
    pub processors: Option<f64>,
    /// Whether the observation of a thread in this tick differs from the previous one, or failed.
    has_moved: bool,
    threads: Vec<RuntimeThread>,
    /// Threads with a pending self-walk.
    pending: BTreeMap<u32, PendingWalk>,
    /// The last observation of each thread.
    repeats: Repeats,
    /// Whether the samples are not for the wall-clock profile of the window, but for collections and the off-CPU profile.
    pub is_on_demand: bool,
    /// Whether only threads that carry a context are sampled.
    pub is_of_requests: bool,
    /// Whether one had a context in the last tick.
    has_seen_context: bool,
    /// Contexts that were opened until then.
    opened: u64,
    /// Time of the last tick that found a thread that moved.
    rest_began_ns: u64,
    /// Whether the time off CPU is measured.
    measures_off_cpu: bool,
    /// Whether the time off CPU is that of threads with a context only.
    has_off_cpu_of_requests: bool,
    off_cpu: OffCpu,
    /// Monotonic time of the last profile of threads.
    pub(super) live_threads_ns: u64,
    pub(super) buffers: [Vec<RawFrame>; 2],
    max_threads: usize,
}

struct PendingWalk {
    thread: RuntimeThread,
    /// Time without a sample.
    weight_ns: u64,
    /// The part of it off CPU, and the code of the reason at the request.
    off_ns: u64,
    reason: u64,
    /// Time of the request, or of the last `[signal_blocked]` sample.
    since_ns: u64,
}

pub(super) struct WalkResult {
    pub len: usize,
    pub truncated: bool,
    pub context: Context,
    pub outcome: Captured,
    /// Whether the thread ran during the walk.
    moved: bool,
    /// Number of frames, counted from the root, that the previous walk has too.
    confirmed: usize,
}

impl WallSampler {
    /// The walks of the runtime, which has some when the sampler runs.
    pub(super) fn walks(&self) -> &dyn WallRuntime {
        self.runtime.wall().unwrap_or(&DisabledRuntime)
    }

    pub fn new(
        runtime: Arc<dyn Runtime>,
        capture: CaptureOtherFn,
        inbox: &'static Inbox,
        counters: Arc<Counters>,
        processors: Option<f64>,
    ) -> Self {
        let seed = u64::from_le_bytes(spanprof_os::random::bytes());
        Self {
            runtime,
            capture,
            inbox,
            counters,
            random: Sequence::new(seed),
            pace: Pace::new(spanprof_os::monotonic_ns()),
            process_cpu_ns: spanprof_os::process_cpu_ns,
            processors,
            has_moved: false,
            threads: Vec::new(),
            pending: BTreeMap::new(),
            repeats: Repeats::default(),
            is_on_demand: false,
            is_of_requests: false,
            has_seen_context: false,
            opened: 0,
            rest_began_ns: 0,
            measures_off_cpu: false,
            has_off_cpu_of_requests: false,
            off_cpu: OffCpu::default(),
            live_threads_ns: 0,
            buffers: [Vec::new(), Vec::new()],
            max_threads: super::MAX_THREADS,
        }
    }

    pub fn tick(&mut self, config: &Config, now_ns: u64) {
        if config.signals {
            spanprof_os::restore_fault_guard();
        }
        let run_delay_ns = || spanprof_os::run_delay_ns(spanprof_os::thread_id());
        let elapsed = self.pace.begin_tick(now_ns, (self.process_cpu_ns)(), run_delay_ns);
        self.walks().set_idle(self.pace.is_idle());
        self.has_moved = false;
        self.measures_off_cpu = config.off_cpu;
        self.has_off_cpu_of_requests = config.has_off_cpu_of_requests_only();
        let mut threads = std::mem::take(&mut self.threads);
        self.repeats.set_existing(if elapsed.previous_ns > 0 { &threads } else { &[] });
        threads.clear();
        self.walks().threads(&mut threads);
        self.has_seen_context = false;
        if self.is_of_requests {
            self.opened = opened_and_refused().0;
            threads.retain(|thread| self.walks().has_context(*thread));
        }
        let all = threads.len();
        self.set_depth(config);
        self.complete_pending(now_ns);
        self.discard_pending(|thread_id| threads.iter().all(|thread| thread.thread_id != thread_id), now_ns);
        if elapsed.previous_ns > 0 {
            self.charge_ended(&threads, elapsed.previous_ns, now_ns);
        }
        let chosen = choose(&mut threads, self.max_threads, &mut self.random);
        let elapsed = elapsed.share(all, chosen);
        self.repeats.allow(self.walks().are_frames_stable() && !config.keep_timestamps);
        let may_be_pending = config.signals && self.walks().uses_self_walks();
        let (others, steady) = if chosen < all {
            self.repeats.steady_last(&mut threads[..chosen])
        } else {
            (&mut threads[..], &mut [][..])
        };
        let observed = choose(steady, steady.len().div_ceil(STEADY_RATIO), &mut self.random);
        let steady_elapsed = elapsed.share(steady.len(), observed);
        for thread in others {
            self.observe(*thread, elapsed, now_ns, may_be_pending);
        }
        for thread in &steady[..observed] {
            self.observe(*thread, steady_elapsed, now_ns, may_be_pending);
        }
        if !self.pending.is_empty() && self.walks().wait_for_responses(SELF_WALK_TIMEOUT) {
            self.complete_pending(now_ns);
        }
        self.threads = threads;
        let is_at_rest = !self.has_moved && self.pending.is_empty();
        if !is_at_rest {
            self.rest_began_ns = now_ns;
        }
        // The wait of a request is to be measured within some percent.
        let at_most = if self.is_of_requests {
            Duration::from_nanos(now_ns.saturating_sub(self.rest_began_ns) / REST_DIVISOR)
        } else {
            Duration::MAX
        };
        self.pace.adapt(self.walks().idle_interval().filter(|_| is_at_rest).map(|interval| interval.min(at_most)));
        self.report_blocked(now_ns);
        if self.repeats.are_due(now_ns) {
            self.release(now_ns);
        }
    }

    /// Samples a thread now, or when its self-walk completes.
    fn observe(&mut self, thread: RuntimeThread, elapsed: Elapsed, now_ns: u64, may_be_pending: bool) {
        // Before the walk: a request of a self-walk would end the wait.
        let wait = if self.measures_off_cpu {
            self.off_cpu.observe(thread.thread_id, elapsed.all_ns(), now_ns)
        } else {
            Wait::default()
        };
        if let Some(pending) = self.pending.get_mut(&thread.thread_id) {
            pending.weight_ns += elapsed.all_ns();
            pending.off_ns += wait.off_ns(elapsed.all_ns());
        } else if !self.sample(thread, elapsed, wait, now_ns, may_be_pending) {
            let left_ns = self.charge_previous(thread.thread_id, elapsed.previous_ns, now_ns);
            let weight_ns = left_ns + elapsed.current_ns;
            let (off_ns, reason) = (wait.off_ns(weight_ns), wait.reason);
            let pending = PendingWalk { thread, weight_ns, off_ns, reason, since_ns: now_ns };
            self.pending.insert(thread.thread_id, pending);
        }
    }

    /// Charges time to the previous observation of a thread. Returns the time if there is none, or if its frames are no
    /// longer valid. The time of a thread that did not exist is dropped.
    fn charge_previous(&self, thread_id: u32, weight_ns: u64, now_ns: u64) -> u64 {
        let Some(mut repeat) = self.repeats.previous(thread_id).filter(|_| weight_ns > 0).cloned() else {
            return if self.repeats.existed(thread_id) { weight_ns } else { 0 };
        };
        if !self.walks().stabilize_frames(repeat.position, &mut repeat.frames) {
            return weight_ns;
        }
        self.submit_repeat(thread_id, &repeat, [weight_ns, repeat.wait.off_ns(weight_ns)], now_ns);
        0
    }

    /// As `charge_previous`, for all threads that ended since. Removes their observations.
    fn charge_ended(&mut self, threads: &[RuntimeThread], weight_ns: u64, now_ns: u64) {
        let mut alive: Vec<u32> = threads.iter().map(|thread| thread.thread_id).collect();
        alive.sort_unstable();
        for thread_id in self.repeats.ended(&alive) {
            self.has_moved = true;
            self.charge_previous(thread_id, weight_ns, now_ns);
            if let Some(repeat) = self.repeats.forget(thread_id) {
                self.submit_repeat(thread_id, &repeat, repeat.held_ns, now_ns);
            }
        }
    }

    /// Submits the held-back samples of consecutive identical observations.
    pub fn release(&mut self, now_ns: u64) {
        let mut repeats = std::mem::take(&mut self.repeats);
        let mut alive: Vec<u32> = self.threads.iter().map(|thread| thread.thread_id).collect();
        alive.sort_unstable();
        repeats.release(now_ns, &alive, |thread_id, repeat| {
            self.submit_repeat(thread_id, repeat, repeat.held_ns, now_ns);
        });
        self.repeats = repeats;
        self.off_cpu.retain(&alive);
    }

    fn submit_repeat(&self, thread_id: u32, repeat: &Repeat, values: [u64; 2], now_ns: u64) {
        let Repeat { flags, context, wait, frames, .. } = repeat;
        let sample =
            RawSample { flags: *flags, context: *context, key: wait.reason, frames, ..empty_sample(thread_id) };
        self.submit(&RawSample { values, time_ns: now_ns, ..sample });
    }

    /// Whether no tick is needed until a thread gets a context.
    pub fn may_park(&self) -> bool {
        self.is_of_requests && !self.has_seen_context && self.pending.is_empty() && self.pace.used_little()
    }

    /// Sleeps until then, or until [`parking::unpark`]; not at all if `has_work`.
    pub fn park(&mut self, has_work: impl FnOnce() -> bool) {
        self.pause(spanprof_os::monotonic_ns());
        parking::park(parking::Sleeper::Sampler, None, || opened_and_refused().0 != self.opened || has_work());
        self.pace = Pace::new(spanprof_os::monotonic_ns());
        self.has_seen_context = true;
    }

    /// Forgets all observations while there are no ticks.
    pub fn pause(&mut self, now_ns: u64) {
        self.release(now_ns);
        self.pending.clear();
        self.repeats = Repeats::default();
        self.off_cpu = OffCpu::default();
        self.pace = Pace::new(now_ns);
    }

    pub(super) fn set_depth(&mut self, config: &Config) {
        for buffer in &mut self.buffers {
            buffer.resize(config.max_stack_depth as usize + 1, RawFrame::default());
        }
    }

    /// The end of the sampler: waits for pending self-walks of threads that have no processor.
    pub fn finish(&mut self) {
        let deadline_ns = spanprof_os::monotonic_ns() + LAST_SELF_WALK_TIMEOUT_NS;
        while !self.pending.is_empty() && spanprof_os::monotonic_ns() < deadline_ns {
            std::thread::sleep(Duration::from_millis(1));
            self.complete_pending(spanprof_os::monotonic_ns());
        }
        let now_ns = spanprof_os::monotonic_ns();
        self.discard_pending(|_| true, now_ns);
        self.release(now_ns);
    }

    /// Samples the threads whose self-walk is complete.
    fn complete_pending(&mut self, now_ns: u64) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|_, pending| {
            let elapsed = Elapsed { previous_ns: 0, current_ns: pending.weight_ns };
            let share = pending.off_ns as f64 / pending.weight_ns.max(1) as f64;
            !self.sample(pending.thread, elapsed, Wait { reason: pending.reason, share }, now_ns, true)
        });
        self.pending = pending;
    }

    /// Samples a thread; false while its self-walk is pending.
    fn sample(
        &mut self,
        thread: RuntimeThread,
        elapsed: Elapsed,
        wait: Wait,
        now_ns: u64,
        may_be_pending: bool,
    ) -> bool {
        let [mut last, mut before] = std::mem::take(&mut self.buffers);
        let (walk, mut frames) = self.walk_until_agreed(thread, &mut last, &mut before);
        let is_complete = !may_be_pending || walk.outcome != Captured::Dropped(DropReason::SignalBlocked);
        if is_complete {
            if let Captured::Dropped(reason) = walk.outcome {
                last[0] = RawFrame::reason(reason);
                frames = 0..1;
                self.counters.wall_without_stack.add(u64::from(elapsed.all_ns() > 0));
            }
            let flags = SampleFlags(if walk.truncated { SampleFlags::TRUNCATED } else { 0 });
            let (thread_id, context, frames) = (thread.thread_id, walk.context, &last[frames]);
            self.has_seen_context |= !context.is_empty();
            let values = [elapsed.all_ns(), wait.off_ns(elapsed.all_ns())];
            let mut sample = RawSample { flags, context, frames, key: wait.reason, ..empty_sample(thread_id) };
            (sample.values, sample.time_ns) = (values, now_ns);
            let position = self.inbox.ring().head();
            match self.repeats.compare(&sample, position) {
                Comparison::Merged => {}
                Comparison::Same => self.submit(&sample),
                different => {
                    self.has_moved |= different == Comparison::Different;
                    let left_ns = self.charge_previous(thread_id, elapsed.previous_ns, now_ns);
                    let weight_ns = left_ns + elapsed.current_ns;
                    sample.values = [weight_ns, wait.off_ns(weight_ns)];
                    if let Some(repeat) = self.repeats.replace(&sample, wait, position) {
                        self.submit_repeat(thread_id, &repeat, repeat.held_ns, now_ns);
                    }
                    self.submit(&sample);
                }
            }
        }
        self.buffers = [last, before];
        is_complete
    }

    /// Walks a thread; a thread that runs, until two walks agree or for the last time. Returns the last walk and its frames
    /// that were on the stack.
    pub(super) fn walk_until_agreed(
        &mut self,
        thread: RuntimeThread,
        last: &mut Vec<RawFrame>,
        before: &mut Vec<RawFrame>,
    ) -> (WalkResult, Range<usize>) {
        let mut walk = self.walk(thread, last);
        self.has_moved |= walk.moved;
        if !walk.moved {
            let frames = 0..walk.len;
            return (walk, frames);
        }
        for _ in 1..MAX_WALKS {
            self.counters.wall_repeated.add(1);
            std::mem::swap(last, before);
            let len_before = walk.len;
            walk = self.walk(thread, last);
            let common = common_root(&before[..len_before], &last[..walk.len]);
            if !walk.moved || (common == walk.len && common == len_before) {
                let frames = 0..walk.len;
                return (walk, frames);
            }
            walk.confirmed = common;
        }
        let mut frames = walk.len - walk.confirmed..walk.len;
        if walk.outcome == Captured::Walked {
            self.counters.wall_moved.add(1);
            frames = place_reason(last, frames, walk.len);
        }
        (walk, frames)
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
        let values = [std::mem::take(&mut pending.weight_ns), std::mem::take(&mut pending.off_ns)];
        if values[0] > 0 {
            self.counters.wall_without_stack.add(1);
            let empty = empty_sample(pending.thread.thread_id);
            self.submit(&RawSample { values, time_ns: now_ns, key: pending.reason, frames: &frames, ..empty });
        }
    }

    /// Submits a sample with a weight above 0. A sample that a full ring rejects is counted.
    pub(super) fn submit(&self, sample: &RawSample<'_>) {
        let is_wall = sample.kind == SampleKind::Wall;
        let is_beside_requests = is_wall && sample.context.is_empty();
        if self.is_of_requests && is_beside_requests {
            return;
        }
        let [wall_ns, off_ns] = sample.values;
        let off_ns = if self.has_off_cpu_of_requests && is_beside_requests { 0 } else { off_ns };
        let values = if is_wall { [wall_ns, off_ns] } else { sample.values };
        let is_on_demand = self.is_on_demand && is_wall;
        let flags = SampleFlags(sample.flags.0 | if is_on_demand { SampleFlags::ON_DEMAND } else { 0 });
        if sample.values[0] > 0 && self.inbox.submit(&RawSample { flags, values, ..*sample }).is_err() {
            self.counters.submit_dropped.add(1);
        }
    }

    fn walk(&mut self, thread: RuntimeThread, buffer: &mut [RawFrame]) -> WalkResult {
        let walks_itself = self.walks().uses_self_walks();
        let depth = buffer.len() - 1;
        if self.pace.is_idle() && !walks_itself {
            // A walk with the same result as the previous one was not torn, so the thread's CPU clock is not needed.
            let mut stack = RawStack::new(&mut buffer[..depth]);
            let outcome = spanprof_os::walk_other_thread(self.capture, thread.handle, thread.thread_id, &mut stack);
            let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
            if outcome == Captured::Walked && self.repeats.is_previous(thread.thread_id, context, &buffer[..len]) {
                return WalkResult { len, truncated, context, outcome, moved: false, confirmed: 0 };
            }
        }
        let clock = || if walks_itself { None } else { spanprof_os::thread_cpu_ns(thread.thread_id) };
        let clock_before = clock();
        let mut stack = RawStack::new(&mut buffer[..depth]);
        let outcome = spanprof_os::walk_other_thread(self.capture, thread.handle, thread.thread_id, &mut stack);
        let moved = !walks_itself && (clock_before.is_none() || clock() != clock_before);
        let (len, truncated, context) = (stack.len(), stack.is_truncated(), stack.context);
        WalkResult { len, truncated, context, outcome, moved, confirmed: 0 }
    }
}

/// A sample without values and frames.
pub(super) fn empty_sample(thread_id: u32) -> RawSample<'static> {
    let (kind, flags, context) = (SampleKind::Wall, SampleFlags(0), Context::None);
    RawSample { kind, flags, thread_id, time_ns: 0, values: [0, 0], key: 0, context, frames: &[] }
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

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
