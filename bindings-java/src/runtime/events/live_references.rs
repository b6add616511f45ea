//! Weak references to sampled objects: they show which of these objects are in use. One in several samples gets a reference,
//! since collectors visit each of them. The references are checked before each in-use profile, on the drain thread. Not for
//! signal handlers. Not here: the live set itself (`spanprof_signal::heap`), the events (`allocations`).
//!
//! # Thinning
//! A sample gets a reference with a probability that the budget decides before the sample is drawn, so that estimates are
//! unbiased: 10⁴ references a minute in the long run, and up to 2·10⁴ at once. The probability follows the events of the
//! previous second. The live set stores the interval with which a sample of the VM would have had the same probability.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{jobject, JNIEnv};
use spanprof_signal::heap::HEAP;

/// References per second in the long run.
const PER_SECOND: f64 = 10_000.0 / 60.0;
/// References at once, after a minute or more without any.
const BURST: f64 = 20_000.0;
/// Part of the saved references that a second may use.
const BURST_PER_SECOND: f64 = 0.1;
const SECOND_NS: u64 = 1_000_000_000;

static REFERENCES: Mutex<Vec<LiveReference>> = Mutex::new(Vec::new());
static BUDGET: Mutex<ReferenceBudget> = Mutex::new(ReferenceBudget::new());

/// A reference, and the sample of its object in the live set.
struct LiveReference {
    weak: usize,
    sample: u64,
}

fn references() -> MutexGuard<'static, Vec<LiveReference>> {
    REFERENCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decides whether a sample gets a reference; returns the probability with which it does. `random` is uniform in 0 to 1.
pub fn choose(now_ns: u64, random: f64) -> Option<f64> {
    BUDGET.lock().unwrap_or_else(PoisonError::into_inner).choose(now_ns, random)
}

/// The longer interval at which an object of `size` bytes is `probability` times as likely to be selected as at `interval`.
pub fn thinned_interval(size: u64, interval: u64, probability: f64) -> u64 {
    if probability >= 1.0 {
        return interval;
    }
    let selected = -(-(size as f64) / interval as f64).exp_m1();
    let thinned = -(size as f64) / (-selected * probability).ln_1p();
    // The sum of a live set's bytes stays in the range of exact numbers.
    thinned.clamp(interval as f64, (1u64 << 40) as f64) as u64
}

/// A weak reference to an object; `None` if the VM has no memory for it.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `object` a live reference of it.
pub unsafe fn create(env: *mut JNIEnv, object: jobject) -> Option<usize> {
    // SAFETY: guaranteed by the caller; null means out of memory, whose pending exception is cleared.
    unsafe {
        let weak = ((**env).v1_2.NewWeakGlobalRef)(env, object);
        if weak.is_null() {
            ((**env).v1_1.ExceptionClear)(env);
            HEAP.count_lost();
            return None;
        }
        Some(weak as usize)
    }
}

/// Keeps a reference until its object is collected. `sample` is 0 if the live set has no space: the reference is deleted.
///
/// # Safety
/// `env` is the calling thread's JNI environment, `weak` a reference from [`create`].
pub unsafe fn keep(env: *mut JNIEnv, weak: usize, sample: u64) {
    if sample == 0 {
        // SAFETY: guaranteed by the caller; the reference is stored nowhere.
        unsafe { ((**env).v1_2.DeleteWeakGlobalRef)(env, weak as jobject) };
        return;
    }
    references().push(LiveReference { weak, sample });
}

/// Number of references.
pub fn count() -> usize {
    references().len()
}

/// Removes collected objects from the live set, and deletes the references of objects that are no longer in it.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
pub unsafe fn remove_collected(env: *mut JNIEnv) {
    let live = HEAP.live_set();
    // The VM is not called under the lock: threads that allocate would wait for a collection.
    let mut checked = std::mem::take(&mut *references());
    checked.retain(|reference| {
        let is_live = live.is_some_and(|live| live.contains(reference.sample));
        // SAFETY: guaranteed by the caller; the reference is deleted here only, and once. One to a collected object equals
        // null. The live set forgets the reference before the VM can reuse it.
        unsafe {
            let weak = reference.weak as jobject;
            let is_collected = is_live && ((**env).v1_1.IsSameObject)(env, weak, std::ptr::null_mut());
            if is_collected {
                HEAP.freed(reference.weak);
            }
            let keep = is_live && !is_collected;
            if !keep {
                ((**env).v1_2.DeleteWeakGlobalRef)(env, weak);
            }
            keep
        }
    });
    references().append(&mut checked);
}

/// The number of references that a second may create.
struct ReferenceBudget {
    /// Number of the current second.
    second: u64,
    events: u64,
    /// References of the current second.
    taken: f64,
    /// References that this second may use.
    allowed: f64,
    /// `taken` at which the probability is halved: there are more events than in the previous second.
    halve_at: f64,
    probability: f64,
    /// References saved by earlier seconds, at most `BURST`.
    saved: f64,
}

impl ReferenceBudget {
    const fn new() -> Self {
        Self { second: 0, events: 0, taken: 0.0, allowed: 0.0, halve_at: 0.0, probability: 1.0, saved: BURST }
    }

    fn choose(&mut self, now_ns: u64, random: f64) -> Option<f64> {
        let second = now_ns / SECOND_NS;
        if second != self.second {
            self.begin_second(second);
        }
        self.events += 1;
        while self.taken >= self.halve_at {
            self.probability /= 2.0;
            self.halve_at += self.allowed / 2.0;
        }
        let probability = self.probability;
        if random >= probability {
            return None;
        }
        self.taken += 1.0;
        self.saved -= 1.0;
        Some(probability)
    }

    fn begin_second(&mut self, second: u64) {
        let passed = second.saturating_sub(self.second).max(1);
        self.saved = (self.saved + PER_SECOND * passed as f64).min(BURST);
        self.allowed = (self.saved * BURST_PER_SECOND).max(PER_SECOND / 10.0);
        let expected = if passed == 1 { self.events as f64 } else { 0.0 };
        self.probability = (self.allowed / expected.max(1.0)).min(1.0);
        (self.second, self.events, self.taken, self.halve_at) = (second, 0, 0.0, self.allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// References of each second, and the estimate of all events, at these events per second.
    fn run(rates: &[u64]) -> (Vec<u64>, f64) {
        let mut budget = ReferenceBudget::new();
        let (mut estimate, mut random) = (0.0, 12345u64);
        let per_second = rates.iter().enumerate().map(|(second, rate)| {
            let mut taken = 0;
            for event in 0..*rate {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
                let now_ns = (second as u64 + 1) * SECOND_NS + event * SECOND_NS / rate;
                if let Some(probability) = budget.choose(now_ns, uniform) {
                    taken += 1;
                    estimate += 1.0 / probability;
                }
            }
            taken
        });
        (per_second.collect(), estimate)
    }

    #[test]
    fn few_events_all_get_a_reference() {
        assert_eq!(run(&[100; 60]).0, [100; 60]);
    }

    #[test]
    fn many_events_get_ten_thousand_references_a_minute_after_a_burst() {
        let (taken, estimate) = run(&[20_000; 240]);
        assert!(taken[..60].iter().sum::<u64>() <= 30_000 + 10_000, "{taken:?}");
        let last_minute: u64 = taken[180..].iter().sum();
        assert!((9_000..=11_000).contains(&last_minute), "{last_minute}");
        assert!((estimate / (20_000.0 * 240.0) - 1.0).abs() < 0.05, "{estimate}");
    }

    #[test]
    fn a_sudden_burst_stays_within_the_limit_and_its_estimate_is_unbiased() {
        let (taken, estimate) = run(&[1, 1, 1_000_000, 10, 1_000_000, 10]);
        assert!(taken.iter().sum::<u64>() <= 20_000, "{taken:?}");
        assert!((estimate / 2_000_022.0 - 1.0).abs() < 0.2, "{estimate}");
    }

    #[test]
    fn the_thinned_interval_gives_the_product_of_both_probabilities() {
        let probability_of = |size: f64, interval: f64| -(-size / interval).exp_m1();
        for size in [16u64, 1024, 524_288, 4 << 20] {
            for thinning in [1.0, 0.5, 0.01] {
                let thinned = thinned_interval(size, 524_288, thinning);
                let expected = probability_of(size as f64, 524_288.0) * thinning;
                assert!(
                    (probability_of(size as f64, thinned as f64) / expected - 1.0).abs() < 1e-4,
                    "{size} {thinning}"
                );
            }
        }
    }
}
