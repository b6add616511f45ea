//! The live threads with their stacks, for the profile of threads at the end of a window, and for pulls.

use std::time::{Duration, Instant};

use super::sampler::{empty_sample, WallSampler, SELF_WALK_TIMEOUT};
use spanprof_aggregate::runtime::RuntimeThread;
use spanprof_config::Config;
use spanprof_signal::{Captured, DropReason, RawFrame, RawSample, SampleFlags, SampleKind};

/// Time for which the profile of threads waits for self-walks; threads without a response are shown as `[signal_blocked]`.
pub(super) const LIVE_THREADS_TIMEOUT: Duration = Duration::from_millis(40);
/// The last live threads stand for the next window too, if that ends within this time.
pub(super) const LIVE_THREADS_VALID_NS: u64 = 50_000_000;

impl WallSampler {
    /// Submits the stack of each thread and of each suspended task, for the profile of threads.
    pub fn submit_live_threads(&mut self, config: &Config) {
        if spanprof_os::monotonic_ns().saturating_sub(self.live_threads_ns) >= LIVE_THREADS_VALID_NS {
            self.submit_all_threads(config, SampleFlags(0));
            self.live_threads_ns = spanprof_os::monotonic_ns();
        }
    }

    /// As [`Self::submit_live_threads`], for a pull.
    pub fn submit_threads_on_demand(&mut self, config: &Config) {
        self.submit_all_threads(config, SampleFlags(SampleFlags::ON_DEMAND));
    }

    fn submit_all_threads(&mut self, config: &Config, flags: SampleFlags) {
        let now_ns = spanprof_os::monotonic_ns();
        let mut left = Vec::new();
        self.walks().threads(&mut left);
        self.set_depth(config);
        let deadline = Instant::now() + LIVE_THREADS_TIMEOUT;
        loop {
            // Requests the self-walks; the next pass takes those that are complete.
            let is_last = !self.walks().uses_self_walks() || Instant::now() >= deadline;
            left.retain(|thread| !self.submit_live_thread(*thread, is_last, flags, now_ns));
            if left.is_empty() {
                break;
            }
            if !self.walks().wait_for_responses(SELF_WALK_TIMEOUT) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.walks().suspended_tasks(&mut |context, frames| {
            let frames = frames.get(..config.max_stack_depth as usize).unwrap_or(frames);
            let (kind, values) = (SampleKind::Threads, [1, 0]);
            self.submit(&RawSample { kind, flags, time_ns: now_ns, values, context, frames, ..empty_sample(0) });
        });
    }

    /// Submits the stack of one live thread; false while its self-walk is pending, unless `is_last`.
    fn submit_live_thread(&mut self, thread: RuntimeThread, is_last: bool, flags: SampleFlags, now_ns: u64) -> bool {
        let [mut last, mut before] = std::mem::take(&mut self.buffers);
        let (walk, mut frames) = self.walk_until_agreed(thread, &mut last, &mut before);
        let is_complete = is_last || walk.outcome != Captured::Dropped(DropReason::SignalBlocked);
        // A thread that ended meanwhile is not alive.
        if is_complete && walk.outcome != Captured::Dropped(DropReason::NoThreadState) {
            if let Captured::Dropped(reason) = walk.outcome {
                last[0] = RawFrame::reason(reason);
                frames = 0..1;
            }
            let flags = SampleFlags(flags.0 | if walk.truncated { SampleFlags::TRUNCATED } else { 0 });
            let (kind, context, frames) = (SampleKind::Threads, walk.context, &last[frames]);
            let empty = empty_sample(thread.thread_id);
            self.submit(&RawSample { kind, flags, time_ns: now_ns, values: [1, 0], context, frames, ..empty });
        }
        self.buffers = [last, before];
        is_complete
    }
}
