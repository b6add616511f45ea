//! What each thread did at its last look of the wall sampler. Samples of threads that go on doing the same, as those that wait
//! do, are held back and told of as one, since a sample on its way through the ring costs more than the look that took it:
//! only where raw frames keep their meaning meanwhile.
//! Called by the wall sampler alone.

use std::collections::BTreeMap;

use crate::runtime::RuntimeThread;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags};

/// A thread is told of as often while it does the same.
const INTERVAL_NS: u64 = 1_000_000_000;
/// More threads are told of one by one.
const MAX_THREADS: usize = 4096;

/// What a thread did at its last look.
#[derive(Clone)]
pub(super) struct Repeat {
    pub flags: SampleFlags,
    pub context: Context,
    pub frames: Vec<RawFrame>,
    /// Where the ring stood when it was last seen to do so.
    pub seen_at: u64,
    weight_ns: u64,
    /// Whether it did the same at its last look and the one before.
    is_steady: bool,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The thread does what it did; the sample is held back.
    Held,
    /// The thread does what it did; the sample is to be told.
    Same,
    Other,
}

/// See the head of the module.
#[derive(Default)]
pub(super) struct Repeats {
    threads: BTreeMap<u32, Repeat>,
    is_allowed: bool,
    released_ns: u64,
}

impl Repeats {
    /// Whether samples may be held back from here on.
    pub fn allow(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
    }

    /// What a thread did at its last look, if it is known.
    pub fn former(&self, thread_id: u32) -> Option<&Repeat> {
        self.threads.get(&thread_id)
    }

    /// Whether a thread did this at its last look, with a stack that was not cut off.
    pub fn is_former(&self, thread_id: u32, context: Context, frames: &[RawFrame]) -> bool {
        let is_this = |it: &Repeat| it.flags == SampleFlags(0) && it.context == context && it.frames == frames;
        self.threads.get(&thread_id).is_some_and(is_this)
    }

    /// Compares a sample with what its thread did, and holds it back if it may. `position`: where the ring stands.
    pub fn take(&mut self, sample: &RawSample<'_>, position: u64) -> Seen {
        let Some(repeat) = self.threads.get_mut(&sample.thread_id) else { return Seen::Other };
        let is_same =
            repeat.flags == sample.flags && repeat.context == sample.context && repeat.frames == sample.frames;
        if !is_same {
            return Seen::Other;
        }
        repeat.is_steady = true;
        repeat.seen_at = position;
        if !self.is_allowed {
            return Seen::Same;
        }
        repeat.weight_ns += sample.values[0];
        Seen::Held
    }

    /// Keeps what a thread is told to do now; what was held back of what it did before.
    pub fn replace(&mut self, sample: &RawSample<'_>, position: u64) -> Option<(Repeat, u64)> {
        let is_kept = self.threads.len() < MAX_THREADS || self.threads.contains_key(&sample.thread_id);
        let (flags, context, frames) = (sample.flags, sample.context, sample.frames.to_vec());
        let repeat = Repeat { flags, context, frames, seen_at: position, weight_ns: 0, is_steady: false };
        let before = if is_kept { self.threads.insert(sample.thread_id, repeat) } else { None };
        held(before)
    }

    /// Threads that are known and not `living`, which is sorted.
    pub fn ended(&self, living: &[u32]) -> Vec<u32> {
        self.threads.keys().copied().filter(|thread_id| living.binary_search(thread_id).is_err()).collect()
    }

    /// Forgets a thread; what was held back of it.
    pub fn forget(&mut self, thread_id: u32) -> Option<(Repeat, u64)> {
        held(self.threads.remove(&thread_id))
    }

    /// Whether it is time to tell what is held back.
    pub fn are_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.released_ns) >= INTERVAL_NS
    }

    /// Puts the threads that go on doing the same behind the others.
    pub fn steady_last<'t>(
        &self,
        threads: &'t mut [RuntimeThread],
    ) -> (&'t mut [RuntimeThread], &'t mut [RuntimeThread]) {
        let is_steady = |thread: &RuntimeThread| self.threads.get(&thread.thread_id).is_some_and(|it| it.is_steady);
        let mut others = 0;
        for place in 0..threads.len() {
            if !self.is_allowed || !is_steady(&threads[place]) {
                threads.swap(others, place);
                others += 1;
            }
        }
        threads.split_at_mut(others)
    }

    /// Tells all that is held back, and forgets the threads that are not `living`, which is sorted.
    pub fn release(&mut self, now_ns: u64, living: &[u32], mut tell: impl FnMut(u32, &Repeat, u64)) {
        self.released_ns = now_ns;
        self.threads.retain(|thread_id, repeat| {
            let weight_ns = std::mem::take(&mut repeat.weight_ns);
            if weight_ns > 0 {
                tell(*thread_id, repeat, weight_ns);
            }
            living.binary_search(thread_id).is_ok()
        });
    }
}

/// What was held back, if anything.
fn held(repeat: Option<Repeat>) -> Option<(Repeat, u64)> {
    repeat.map(|repeat| (repeat.weight_ns, repeat)).filter(|(ns, _)| *ns > 0).map(|(ns, repeat)| (repeat, ns))
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
            values: [weight_ns, 1],
            key: 0,
            context: Context::None,
            frames: code,
        }
    }

    const WAITS: [RawFrame; 1] = [RawFrame { code: 1, at: 0 }];
    const WORKS: [RawFrame; 1] = [RawFrame { code: 2, at: 0 }];

    #[test]
    fn time_of_a_thread_that_does_the_same_is_told_of_as_one_and_before_what_it_does_next() {
        let mut repeats = Repeats::default();
        repeats.allow(true);
        assert_eq!(repeats.take(&sample(&WAITS, 5), 0), Seen::Other, "it was not told of yet");
        assert!(repeats.replace(&sample(&WAITS, 5), 0).is_none());
        assert_eq!([6, 7].map(|ns| repeats.take(&sample(&WAITS, ns), ns)), [Seen::Held; 2]);
        assert_eq!(repeats.take(&sample(&WORKS, 1), 8), Seen::Other, "it does something else");
        let (before, weight_ns) = repeats.replace(&sample(&WORKS, 1), 8).unwrap();
        assert_eq!((before.frames.as_slice(), before.seen_at, weight_ns), (&WAITS[..], 7, 13));
        assert_eq!(repeats.take(&sample(&WORKS, 2), 9), Seen::Held);
        let mut told = Vec::new();
        repeats.release(INTERVAL_NS, &[7], |thread_id, repeat, ns| told.push((thread_id, repeat.frames.clone(), ns)));
        assert_eq!(told, [(7, WORKS.to_vec(), 2)]);
        assert!(repeats.are_due(2 * INTERVAL_NS) && !repeats.are_due(2 * INTERVAL_NS - 1));
    }

    #[test]
    fn threads_that_are_gone_are_forgotten_and_nothing_is_held_back_where_frames_do_not_keep() {
        let mut repeats = Repeats::default();
        assert!(repeats.replace(&sample(&WAITS, 5), 0).is_none());
        assert_eq!(repeats.take(&sample(&WAITS, 5), 0), Seen::Same, "not allowed");
        repeats.allow(true);
        assert_eq!(repeats.take(&sample(&WAITS, 5), 0), Seen::Held);
        repeats.allow(false);
        let held = repeats.replace(&sample(&WORKS, 5), 0).map(|(_, weight_ns)| weight_ns);
        assert_eq!(held, Some(5), "what was held back until then is told");
        repeats.release(1, &[6, 7], |_, _, _| {});
        assert_eq!(repeats.threads.len(), 1);
        repeats.release(1, &[6, 8], |_, _, _| {});
        assert!(repeats.threads.is_empty());
    }
}
