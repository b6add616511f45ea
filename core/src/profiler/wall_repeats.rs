//! Wall samples of threads that go on doing the same, as those that wait do: held back and told of as one, since a sample on
//! its way through the ring costs more than the look that took it. Only where raw frames keep their meaning meanwhile.
//! Called by the wall sampler alone.

use std::collections::BTreeMap;

use crate::runtime::RuntimeThread;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags};

/// A thread is told of as often while it does the same.
const INTERVAL_NS: u64 = 1_000_000_000;
/// More threads are told of one by one.
const MAX_THREADS: usize = 4096;

/// What a thread did when it was last told of.
pub(super) struct Repeat {
    pub flags: SampleFlags,
    pub context: Context,
    pub frames: Vec<RawFrame>,
    weight_ns: u64,
    /// Whether it did the same at its last look and the one before.
    is_steady: bool,
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

    /// Holds a sample back, if its thread does what it did.
    pub fn take(&mut self, sample: &RawSample<'_>) -> bool {
        let Some(repeat) = self.threads.get_mut(&sample.thread_id).filter(|_| self.is_allowed) else { return false };
        let is_same =
            repeat.flags == sample.flags && repeat.context == sample.context && repeat.frames == sample.frames;
        if is_same {
            repeat.weight_ns += sample.values[0];
            repeat.is_steady = true;
        }
        is_same
    }

    /// Keeps what a thread is told to do now; what was held back of what it did before.
    pub fn replace(&mut self, sample: &RawSample<'_>) -> Option<(Repeat, u64)> {
        let is_kept =
            self.is_allowed && (self.threads.len() < MAX_THREADS || self.threads.contains_key(&sample.thread_id));
        let (flags, context) = (sample.flags, sample.context);
        let before = match is_kept {
            true => {
                let frames = sample.frames.to_vec();
                let repeat = Repeat { flags, context, frames, weight_ns: 0, is_steady: false };
                self.threads.insert(sample.thread_id, repeat)
            }
            false => self.threads.remove(&sample.thread_id),
        };
        before.map(|repeat| (repeat.weight_ns, repeat)).filter(|(ns, _)| *ns > 0).map(|(ns, repeat)| (repeat, ns))
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
        assert!(!repeats.take(&sample(&WAITS, 5)), "it was not told of yet");
        assert!(repeats.replace(&sample(&WAITS, 5)).is_none());
        assert!(repeats.take(&sample(&WAITS, 6)) && repeats.take(&sample(&WAITS, 7)));
        assert!(!repeats.take(&sample(&WORKS, 1)), "it does something else");
        let (before, weight_ns) = repeats.replace(&sample(&WORKS, 1)).unwrap();
        assert_eq!((before.frames.as_slice(), weight_ns), (&WAITS[..], 13));
        assert!(repeats.take(&sample(&WORKS, 2)));
        let mut told = Vec::new();
        repeats.release(INTERVAL_NS, &[7], |thread_id, repeat, ns| told.push((thread_id, repeat.frames.clone(), ns)));
        assert_eq!(told, [(7, WORKS.to_vec(), 2)]);
        assert!(repeats.are_due(2 * INTERVAL_NS) && !repeats.are_due(2 * INTERVAL_NS - 1));
    }

    #[test]
    fn threads_that_are_gone_are_forgotten_and_nothing_is_held_back_where_frames_do_not_keep() {
        let mut repeats = Repeats::default();
        assert!(repeats.replace(&sample(&WAITS, 5)).is_none());
        assert!(!repeats.take(&sample(&WAITS, 5)), "not allowed");
        repeats.allow(true);
        assert!(repeats.replace(&sample(&WAITS, 5)).is_none());
        assert!(repeats.take(&sample(&WAITS, 5)));
        repeats.allow(false);
        let held = repeats.replace(&sample(&WAITS, 5)).map(|(_, weight_ns)| weight_ns);
        assert_eq!((held, repeats.threads.len()), (Some(5), 0), "what was held back until then is told");
        repeats.allow(true);
        assert!(repeats.replace(&sample(&WAITS, 5)).is_none());
        repeats.release(1, &[6, 7], |_, _, _| {});
        assert_eq!(repeats.threads.len(), 1);
        repeats.release(1, &[6, 8], |_, _, _| {});
        assert!(repeats.threads.is_empty());
    }
}
