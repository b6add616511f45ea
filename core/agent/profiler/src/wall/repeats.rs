//! The last observation of each thread by the wall sampler. Consecutive identical observations, as of blocked threads, are
//! held back and submitted as one sample, since a sample in the ring costs more than its walk. This requires raw frames that
//! stay valid meanwhile. Used by the wall sampler only.

use std::collections::BTreeMap;

use super::off_cpu::Wait;
use spanprof_aggregate::runtime::RuntimeThread;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags};

/// Interval between samples of a thread with identical observations.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Capacity; observations of further threads are not held back.
const MAX_THREADS: usize = 4096;

/// The last observation of a thread.
#[derive(Clone)]
pub(crate) struct Repeat {
    pub flags: SampleFlags,
    pub context: Context,
    pub wait: Wait,
    pub frames: Vec<RawFrame>,
    /// Ring position at the observation.
    pub position: u64,
    /// Held-back time, and the part of it off CPU.
    pub held_ns: [u64; 2],
    /// Whether the last two observations are identical.
    is_steady: bool,
}

/// A sample compared with the last observation of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Identical; the sample is held back.
    Merged,
    /// Identical; the caller submits the sample.
    Same,
    /// The same stack, but another reason of the wait.
    OtherReason,
    Different,
}

/// The last observation of each thread, with its held-back time.
#[derive(Default)]
pub(crate) struct Repeats {
    threads: BTreeMap<u32, Repeat>,
    /// Ids of the threads at the previous tick, sorted; empty if that tick covers no time after itself.
    existing: Vec<u32>,
    is_allowed: bool,
    released_ns: u64,
}

impl Repeats {
    /// Sets whether samples may be held back.
    pub fn allow(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
    }

    /// The last observation of a thread, if any.
    pub fn previous(&self, thread_id: u32) -> Option<&Repeat> {
        self.threads.get(&thread_id)
    }

    /// Stores the threads of the previous tick, of which a bounded subset was observed.
    pub fn set_existing(&mut self, threads: &[RuntimeThread]) {
        self.existing.clear();
        self.existing.extend(threads.iter().map(|thread| thread.thread_id));
        self.existing.sort_unstable();
    }

    /// Whether the thread is one of those.
    pub fn existed(&self, thread_id: u32) -> bool {
        self.existing.binary_search(&thread_id).is_ok()
    }

    /// Whether context and frames equal the last observation of a thread. False after a truncated observation.
    pub fn is_previous(&self, thread_id: u32, context: Context, frames: &[RawFrame]) -> bool {
        let is_equal = |it: &Repeat| it.flags == SampleFlags(0) && it.context == context && it.frames == frames;
        self.threads.get(&thread_id).is_some_and(is_equal)
    }

    /// Compares a sample with the last observation of its thread, and holds it back if that is allowed. `position`: head of
    /// the ring.
    pub fn compare(&mut self, sample: &RawSample<'_>, position: u64) -> Comparison {
        let Some(repeat) = self.threads.get_mut(&sample.thread_id) else { return Comparison::Different };
        let is_same =
            repeat.flags == sample.flags && repeat.context == sample.context && repeat.frames == sample.frames;
        if !is_same {
            return Comparison::Different;
        }
        if repeat.wait.reason != sample.key {
            return Comparison::OtherReason;
        }
        repeat.is_steady = true;
        repeat.position = position;
        if !self.is_allowed {
            return Comparison::Same;
        }
        for (held_ns, ns) in repeat.held_ns.iter_mut().zip(sample.values) {
            *held_ns += ns;
        }
        Comparison::Merged
    }

    /// Stores a new observation of a thread; returns the held-back sample of the previous one.
    pub fn replace(&mut self, sample: &RawSample<'_>, wait: Wait, position: u64) -> Option<Repeat> {
        let is_kept = self.threads.len() < MAX_THREADS || self.threads.contains_key(&sample.thread_id);
        let (flags, context, frames) = (sample.flags, sample.context, sample.frames.to_vec());
        let repeat = Repeat { flags, context, wait, frames, position, held_ns: [0, 0], is_steady: false };
        let previous = if is_kept { self.threads.insert(sample.thread_id, repeat) } else { None };
        held_back(previous)
    }

    /// Threads with an observation that are not in `alive`, which is sorted.
    pub fn ended(&self, alive: &[u32]) -> Vec<u32> {
        self.threads.keys().copied().filter(|thread_id| alive.binary_search(thread_id).is_err()).collect()
    }

    /// Removes a thread; returns its held-back sample.
    pub fn forget(&mut self, thread_id: u32) -> Option<Repeat> {
        held_back(self.threads.remove(&thread_id))
    }

    /// Whether the held-back samples are due.
    pub fn are_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.released_ns) >= INTERVAL_NS
    }

    /// Partitions threads: those with identical observations are last.
    pub fn steady_last<'t>(
        &self,
        threads: &'t mut [RuntimeThread],
    ) -> (&'t mut [RuntimeThread], &'t mut [RuntimeThread]) {
        let is_steady = |thread: &RuntimeThread| self.threads.get(&thread.thread_id).is_some_and(|it| it.is_steady);
        let mut others = 0;
        for index in 0..threads.len() {
            if !self.is_allowed || !is_steady(&threads[index]) {
                threads.swap(others, index);
                others += 1;
            }
        }
        threads.split_at_mut(others)
    }

    /// Submits all held-back samples, and removes threads that are not in `alive`, which is sorted.
    pub fn release(&mut self, now_ns: u64, alive: &[u32], mut submit: impl FnMut(u32, &Repeat)) {
        self.released_ns = now_ns;
        self.threads.retain(|thread_id, repeat| {
            if repeat.held_ns[0] > 0 {
                submit(*thread_id, repeat);
            }
            repeat.held_ns = [0, 0];
            alive.binary_search(thread_id).is_ok()
        });
    }
}

/// The observation, if it has held-back time.
fn held_back(repeat: Option<Repeat>) -> Option<Repeat> {
    repeat.filter(|repeat| repeat.held_ns[0] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::SampleKind;

    fn sample(code: &[RawFrame; 1], weight_ns: u64) -> RawSample<'_> {
        RawSample {
            kind: SampleKind::Wall,
            flags: SampleFlags(0),
            thread_id: 7,
            time_ns: 0,
            values: [weight_ns, weight_ns / 2],
            key: 0,
            context: Context::None,
            frames: code,
        }
    }

    const WAITS: [RawFrame; 1] = [RawFrame { code: 1, at: 0 }];
    const WORKS: [RawFrame; 1] = [RawFrame { code: 2, at: 0 }];

    #[test]
    fn identical_observations_are_merged_and_submitted_before_a_different_one() {
        let mut repeats = Repeats::default();
        repeats.allow(true);
        assert_eq!(repeats.compare(&sample(&WAITS, 5), 0), Comparison::Different, "the first observation");
        assert!(repeats.replace(&sample(&WAITS, 5), Wait::default(), 0).is_none());
        assert_eq!([6, 7].map(|ns| repeats.compare(&sample(&WAITS, ns), ns)), [Comparison::Merged; 2]);
        assert_eq!(repeats.compare(&sample(&WORKS, 1), 8), Comparison::Different, "another stack");
        let previous = repeats.replace(&sample(&WORKS, 1), Wait::default(), 8).unwrap();
        assert_eq!((previous.frames.as_slice(), previous.position, previous.held_ns), (&WAITS[..], 7, [13, 6]));
        assert_eq!(repeats.compare(&sample(&WORKS, 2), 9), Comparison::Merged);
        let mut released = Vec::new();
        repeats.release(INTERVAL_NS, &[7], |id, repeat| released.push((id, repeat.frames.clone(), repeat.held_ns)));
        assert_eq!(released, [(7, WORKS.to_vec(), [2, 1])]);
        assert!(repeats.are_due(2 * INTERVAL_NS) && !repeats.are_due(2 * INTERVAL_NS - 1));
    }

    #[test]
    fn ended_threads_are_removed_and_samples_are_held_back_only_if_allowed() {
        let mut repeats = Repeats::default();
        assert!(repeats.replace(&sample(&WAITS, 5), Wait::default(), 0).is_none());
        assert_eq!(repeats.compare(&sample(&WAITS, 5), 0), Comparison::Same, "not allowed");
        repeats.allow(true);
        assert_eq!(repeats.compare(&sample(&WAITS, 5), 0), Comparison::Merged);
        repeats.allow(false);
        let held_ns = repeats.replace(&sample(&WORKS, 5), Wait::default(), 0).map(|repeat| repeat.held_ns);
        assert_eq!(held_ns, Some([5, 2]), "weight from before `allow(false)` is submitted");
        repeats.release(1, &[6, 7], |_, _| {});
        assert_eq!(repeats.threads.len(), 1);
        repeats.release(1, &[6, 8], |_, _| {});
        assert!(repeats.threads.is_empty());
    }
}
