//! The drain thread's part of the heap profile: weights of sampled allocations, and the stacks of live objects for in-use
//! profiles. Owned by the drain. Not here: sampling and the live set itself (`spanprof_signal::heap`), allocator hooks (the
//! bindings).
//!
//! # Estimates
//! A sample of S bytes that was selected with probability p = 1 − e^(−S/R) represents S/p bytes and 1/p objects, where R is
//! the mean interval of its selection. Each sample keeps its own R, so estimates are unbiased even if R changes.
//!
//! # Thinning
//! When the live set is full, R doubles and each live sample is kept with probability p(2R)/p(R): it is then as likely in
//! the set as if it had been selected with 2R. R returns to its configured value in steps when the set is at most a quarter full.
//!
//! # Rate
//! New samples are taken with the longer of two intervals: that of the thinning, and the one that bounds the number of samples
//! per second (`sample_rate`). The latter thins nothing.
//!
//! # Age
//! The age of a live object is the number of in-use profiles before the current one that contained it ([`HeapAge`]). A moved
//! object (realloc) is a new object. Objects inherited from the parent process are old.
//!
//! # Memory
//! A live sample takes 64 bytes in the live set (two slots of 32 bytes) and 49 bytes per bucket of a table here, of which 44 to
//! 88 % are used; its stack is shared. 65 536 live samples take 10 MiB and their stacks. Measured: 179 bytes per sample with
//! 100,338 live samples of one stack.

mod live_stacks;
mod peak_profile;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::context::LabelSetId;
use crate::hash::WordMap;
use crate::runtime::{Frame, HeapRuntime};
use crate::sample_rate::SampleRate;
use spanprof_profile::HeapAge;
use spanprof_signal::{LiveSet, Sequence};

pub(crate) use live_stacks::{LiveStack, LiveStacks};
pub(crate) use peak_profile::{encode_peak, in_use_profiles, InUseProfileInput, PeakProfileInput};

/// The interval is not doubled beyond this, bytes.
const MAX_INTERVAL: u64 = 1 << 40;

/// Probability that an object of `size` bytes is selected at a mean interval of `interval` bytes.
fn probability(size: u64, interval: u64) -> f64 {
    -(-(size.max(1) as f64) / interval.max(1) as f64).exp_m1()
}

/// Bytes and objects that a sample represents.
fn weights(size: u64, interval: u64) -> [f64; 2] {
    let objects = 1.0 / probability(size, interval);
    [size as f64 * objects, objects]
}

/// A live sampled object.
struct LiveRecord {
    size: u64,
    interval: u64,
    label_set: LabelSetId,
    /// [`HeapEstimator::windows`] when it was added.
    added_in: u32,
    stack: LiveStack,
    object_type: ObjectType,
}

/// The type of a live object, which is read when an in-use profile first contains it. Memory that is no object then, or not yet, is
/// read once more.
#[derive(Clone)]
enum ObjectType {
    Unknown { reads: u8 },
    Known(Arc<[Frame]>),
}

const MAX_TYPE_READS: u8 = 2;

/// Address of the stack and of the frame of the type, label set, age.
type InUseKey = (usize, usize, u32, Option<HeapAge>);

/// Estimate of the live objects of one stack, label set and age.
#[derive(Debug)]
pub(crate) struct InUseTotals {
    pub stack: LiveStack,
    pub label_set: LabelSetId,
    /// `None` for objects of all ages.
    pub age: Option<HeapAge>,
    /// Bytes and objects.
    pub values: [u64; 2],
}

/// Estimates bytes and objects from sampled allocations, and thins the live set when it is full.
pub(crate) struct HeapEstimator {
    live: Option<&'static LiveSet>,
    records: WordMap<u64, LiveRecord>,
    pub stacks: LiveStacks,
    max_samples: usize,
    configured_interval: u64,
    /// The shortest interval of live samples.
    live_interval: u64,
    /// The interval of new samples, as last returned.
    interval: u64,
    pub rate: SampleRate,
    random: Sequence,
    /// Fractions of bytes and objects that allocation profiles do not contain yet.
    carry: [f64; 2],
    thinned: u64,
    /// Number of samples added.
    added: u64,
    /// Number of windows with an in-use profile that ended, plus [`HeapAge::OLD_WINDOWS`] for inherited objects.
    windows: u32,
}

impl HeapEstimator {
    /// For a live set; `None`: none yet. Objects that are in it are inherited from the parent process: their stack is
    /// `[inherited]`.
    pub fn new(live: Option<&'static LiveSet>, interval: u64, max_samples: usize, seed: u64) -> Self {
        let mut estimator = Self {
            live,
            records: WordMap::default(),
            stacks: LiveStacks::default(),
            max_samples,
            configured_interval: interval,
            live_interval: interval,
            interval,
            rate: SampleRate::default(),
            random: Sequence::new(seed),
            carry: [0.0; 2],
            thinned: 0,
            added: 0,
            windows: HeapAge::OLD_WINDOWS,
        };
        let inherited = Frame { function: "[inherited]".into(), ..Frame::default() };
        let stack: LiveStack = [Arc::from([inherited])].into();
        for object in live.iter().flat_map(|live| live.objects()) {
            let record = LiveRecord {
                size: object.size,
                interval: object.interval,
                label_set: LabelSetId::EMPTY,
                added_in: 0,
                stack: stack.clone(),
                object_type: ObjectType::Unknown { reads: 0 },
            };
            estimator.records.insert(object.sample, record);
        }
        estimator
    }

    /// Follows the creation of the live set after the start.
    pub fn set_live(&mut self, live: Option<&'static LiveSet>) {
        self.live = live;
    }

    /// Whether the live set is known.
    pub fn has_live(&self) -> bool {
        self.live.is_some()
    }

    /// Changes the configured mean interval, bytes.
    pub fn set_interval(&mut self, interval: u64) {
        if interval != self.configured_interval {
            (self.configured_interval, self.live_interval, self.interval) = (interval, interval, interval);
            self.rate = SampleRate::new(self.rate.is_limited);
        }
    }

    /// Bytes and objects of a sampled allocation as whole numbers. Fractions are carried to the next sample, so that totals
    /// are exact.
    pub fn allocation_weights(&mut self, size: u64, interval: u64) -> [u64; 2] {
        let exact = weights(size, interval);
        std::array::from_fn(|index| {
            let sum = exact[index] + self.carry[index];
            self.carry[index] = sum.fract();
            sum as u64
        })
    }

    /// Adds a sampled object, as [`spanprof_signal::LiveObject`]. It may have been freed since.
    pub fn add(&mut self, sample: u64, [size, interval]: [u64; 2], label_set: LabelSetId, stack: LiveStack) {
        let Some((live, object)) = self.live.and_then(|live| Some((live, live.object(sample)?))) else { return };
        // A runtime may keep fewer objects than it samples.
        let interval = object.interval.max(interval);
        let object_type = ObjectType::Unknown { reads: 0 };
        let mut record = LiveRecord { size, interval, label_set, added_in: self.windows, stack, object_type };
        // Selected before the last thinning, which did not see it.
        if thin(&mut record, self.live_interval, &mut self.random) {
            self.records.insert(sample, record);
            self.added += 1;
        } else {
            self.thinned += u64::from(live.remove_sample(sample));
        }
    }

    /// Thins the live set if it has more than the maximum number of samples, and follows the rate of samples. Returns the interval
    /// of new samples if it changed. Called after each batch of samples.
    pub fn limit(&mut self) -> Option<u64> {
        self.thin_live();
        self.changed_interval()
    }

    fn changed_interval(&mut self) -> Option<u64> {
        let interval = self.rate.interval(self.configured_interval).max(self.live_interval);
        (std::mem::replace(&mut self.interval, interval) != interval).then_some(interval)
    }

    fn thin_live(&mut self) {
        let Some(live) = self.live else { return };
        if self.records.len() >= 2 * self.max_samples {
            self.records.retain(|sample, _| live.contains(*sample));
        }
        let mut len = live.len();
        while len > self.max_samples as u64 && self.live_interval < MAX_INTERVAL {
            self.live_interval *= 2;
            let (interval, random) = (self.live_interval, &mut self.random);
            let mut thinned = 0;
            self.records.retain(|sample, record| {
                let keep = thin(record, interval, random);
                thinned += u64::from(!keep && live.remove_sample(*sample));
                keep
            });
            self.thinned += thinned;
            len = live.len();
        }
    }

    /// Number of samples removed by thinning since the last call.
    pub fn take_thinned(&mut self) -> u64 {
        std::mem::take(&mut self.thinned)
    }

    /// Halves the interval of live samples if the set is less than a quarter full and the interval was doubled. Returns the interval
    /// of new samples if it changed.
    pub fn relax(&mut self) -> Option<u64> {
        let is_sparse = self.records.len() < self.max_samples / 4;
        if is_sparse {
            self.live_interval = (self.live_interval / 2).max(self.configured_interval);
        }
        self.changed_interval()
    }

    /// Estimated bytes of the live objects. Forgets those that were freed.
    pub fn live_bytes(&mut self) -> u64 {
        let Some(live) = self.live else { return 0 };
        self.records.retain(|sample, _| live.contains(*sample));
        self.records.values().map(|record| weights(record.size, record.interval)[0]).sum::<f64>().round() as u64
    }

    /// Number of samples added since the start: without a new one, live bytes do not grow.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Mean interval of new samples, bytes.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Ends a window: from now on, its objects are no longer new.
    pub fn end_window(&mut self) {
        self.windows = self.windows.saturating_add(1);
    }

    /// The live objects by stack and label set, with `by_age` by age, and with the heap of a runtime by type. Forgets those that were
    /// freed.
    pub fn in_use(&mut self, by_age: bool, heap: Option<&dyn HeapRuntime>) -> Vec<InUseTotals> {
        let Some(live) = self.live else { return Vec::new() };
        self.records.retain(|sample, _| live.contains(*sample));
        if let Some(heap) = heap {
            let stacks = &mut self.stacks;
            for (sample, record) in &mut self.records {
                record.read_type(|size| {
                    let frame = heap.object_type(live.address(*sample)?, size)?;
                    // Else the memory may have been another object's.
                    live.contains(*sample).then(|| stacks.type_frame(frame))
                });
            }
        }
        let mut sums: WordMap<InUseKey, (&LiveRecord, [f64; 2])> = WordMap::default();
        for record in self.records.values() {
            let age = by_age.then(|| HeapAge::of_windows(self.windows - record.added_in));
            let type_frame = record.type_frame().filter(|_| heap.is_some());
            let of_type = type_frame.map_or(0, |frame| frame.as_ptr() as usize);
            let key = (record.stack.as_ptr() as usize, of_type, record.label_set.0, age);
            let (_, sum) = sums.entry(key).or_insert((record, [0.0; 2]));
            let weights = weights(record.size, record.interval);
            *sum = [sum[0] + weights[0], sum[1] + weights[1]];
        }
        let totals = sums.into_iter().map(|((_, _, _, age), (record, sum))| InUseTotals {
            stack: self.stacks.below_type(record.type_frame().filter(|_| heap.is_some()), &record.stack),
            label_set: record.label_set,
            age,
            values: sum.map(|value| value.round() as u64),
        });
        let totals = totals.collect();
        self.stacks.forget_unused();
        totals
    }
}

impl LiveRecord {
    fn read_type(&mut self, read: impl FnOnce(u64) -> Option<Arc<[Frame]>>) {
        let ObjectType::Unknown { reads: reads @ 0..MAX_TYPE_READS } = self.object_type else { return };
        self.object_type = read(self.size).map_or(ObjectType::Unknown { reads: reads + 1 }, ObjectType::Known);
    }

    fn type_frame(&self) -> Option<&Arc<[Frame]>> {
        match &self.object_type {
            ObjectType::Known(frame) => Some(frame),
            ObjectType::Unknown { .. } => None,
        }
    }
}

/// Adapts a record to a longer interval; false if it is thinned out.
fn thin(record: &mut LiveRecord, interval: u64, random: &mut Sequence) -> bool {
    if record.interval >= interval {
        return true;
    }
    let keep = probability(record.size, interval) / probability(record.size, record.interval);
    record.interval = interval;
    random.fraction() < keep
}
