//! Estimates against known allocations: sampler, live set and estimator together, with the seeds of the random numbers as the
//! only input. No hooks, no clock.

use super::*;
use spanprof_os::new_live_set;
use spanprof_signal::{exponential_distance, split_mix, AddressFilter};

const SEEDS: u64 = 20;
const INTERVAL: u64 = 16_384;

/// Size and number of objects of each class.
type Mix = [(u64, u64)];

/// 60 / 30 / 10 percent of 64 MiB in objects of 64 B, 4 KiB and 1 MiB.
const MIX: &Mix = &[(64, 629_146), (4096, 4915), (1 << 20, 6)];

/// The countdown of the only thread.
struct Sampler {
    random: u64,
    remaining: i64,
    drawn_with: u64,
    interval: u64,
}

impl Sampler {
    fn new(interval: u64, seed: u64) -> Self {
        let mut sampler = Self { random: seed, remaining: 0, drawn_with: 0, interval };
        sampler.draw();
        sampler
    }

    fn draw(&mut self) {
        self.random = self.random.wrapping_add(split_mix::INCREMENT);
        self.drawn_with = self.interval;
        self.remaining = exponential_distance(split_mix::mix(self.random), self.interval);
    }

    /// The interval with which an allocation was selected.
    fn select(&mut self, size: u64) -> Option<u64> {
        self.remaining -= size as i64;
        let selected = (self.remaining < 0).then_some(self.drawn_with);
        if selected.is_some() {
            self.draw();
        }
        selected
    }
}

/// A program that allocates objects and frees some of them.
struct Simulation {
    sampler: Sampler,
    live: &'static LiveSet,
    estimator: HeapEstimator,
    stack: LiveStack,
    next_address: usize,
    /// Estimate of all allocations: bytes and objects.
    allocated: [u64; 2],
}

impl Simulation {
    fn new(interval: u64, max_samples: u32, seed: u64) -> Self {
        let filter: &'static AddressFilter = Box::leak(Box::new(AddressFilter::new()));
        let live: &'static LiveSet = Box::leak(Box::new(new_live_set(max_samples, filter).unwrap()));
        let sampler = Sampler::new(interval, seed);
        Self {
            sampler,
            live,
            estimator: HeapEstimator::new(Some(live), interval, max_samples as usize, seed + 1000),
            stack: [Arc::from([Frame::default()])].into(),
            next_address: 4096,
            allocated: [0; 2],
        }
    }

    /// The hook and the drain thread; returns the address.
    fn allocate(&mut self, size: u64) -> usize {
        self.next_address += 16;
        if let Some(interval) = self.sampler.select(size) {
            let sample = self.live.insert(self.next_address, size, interval).expect("there is a free slot");
            self.estimator.add(sample, [size, interval], LabelSetId::EMPTY, self.stack.clone());
            let weights = self.estimator.allocation_weights(size, interval);
            self.allocated = [self.allocated[0] + weights[0], self.allocated[1] + weights[1]];
            if let Some(interval) = self.estimator.limit() {
                self.sampler.interval = interval;
            }
        }
        self.next_address
    }

    fn in_use(&mut self) -> [u64; 2] {
        let totals = self.estimator.in_use(false, None);
        totals.iter().fold([0; 2], |sum, totals| [sum[0] + totals.values[0], sum[1] + totals.values[1]])
    }
}

/// Mean of `estimate` over the seeds, relative to the truth.
fn mean_ratio(truth: f64, estimate: impl Fn(u64) -> u64) -> f64 {
    (0..SEEDS).map(|seed| estimate(seed) as f64).sum::<f64>() / SEEDS as f64 / truth
}

fn total(mix: &Mix) -> [f64; 2] {
    let bytes: u64 = mix.iter().map(|(size, count)| size * count).sum();
    let objects: u64 = mix.iter().map(|(_, count)| count).sum();
    [bytes as f64, objects as f64]
}

fn assert_near(ratio: f64, tolerance: f64, name: &str) {
    assert!((ratio - 1.0).abs() < tolerance, "{name}: estimate / truth = {ratio}");
}

#[test]
fn the_mean_of_twenty_seeds_is_within_one_percent_of_the_allocated_and_of_the_live_bytes_and_objects() {
    let runs: Vec<([u64; 2], [u64; 2])> = (0..SEEDS)
        .map(|seed| {
            let mut program = Simulation::new(INTERVAL, 65_536, seed);
            for &(size, count) in MIX {
                for number in 0..count {
                    let address = program.allocate(size);
                    // Every second object is freed.
                    if number % 2 == 0 {
                        program.live.remove(address);
                    }
                }
            }
            (program.allocated, program.in_use())
        })
        .collect();
    let truth = total(MIX);
    let live: Vec<_> = MIX.iter().map(|(size, count)| (*size, count / 2)).collect();
    let live = total(&live);
    for (index, name) in ["bytes", "objects"].iter().enumerate() {
        assert_near(mean_ratio(truth[index], |seed| runs[seed as usize].0[index]), 0.01, &format!("allocated {name}"));
        assert_near(mean_ratio(live[index], |seed| runs[seed as usize].1[index]), 0.01, &format!("live {name}"));
    }
}

#[test]
fn a_class_of_objects_of_any_size_has_the_right_share() {
    for &(size, count) in &[(16u64, 400_000u64), (1000, 20_000), (16_384, 2000), (100_000, 500), (4 << 20, 10)] {
        let mix = [(size, count)];
        let estimate = |seed, index: usize| {
            let mut program = Simulation::new(INTERVAL, 65_536, seed);
            (0..count).for_each(|_| _ = program.allocate(size));
            program.allocated[index]
        };
        for index in 0..2 {
            let ratio = mean_ratio(total(&mix)[index], |seed| estimate(seed, index));
            // Standard error of the mean: 1.2 % with 400 expected samples per seed.
            assert_near(ratio, 0.025, &format!("{size} bytes, value {index}"));
        }
    }
}

#[test]
fn thinning_keeps_the_set_below_its_limit_and_the_estimate_unbiased() {
    const OBJECTS: u64 = 60_000;
    let run = |seed| {
        let mut program = Simulation::new(64, 1024, seed);
        for number in 0..OBJECTS {
            // Small objects, and one per mille that is larger than any interval.
            program.allocate(if number % 1000 == 0 { 1 << 20 } else { 64 });
            assert!(program.live.len() <= 1024);
        }
        assert!(program.estimator.take_thinned() > 1024 && program.sampler.interval > 64);
        program.in_use()
    };
    let runs: Vec<_> = (0..SEEDS).map(run).collect();
    let truth = total(&[(1 << 20, OBJECTS / 1000), (64, OBJECTS - OBJECTS / 1000)]);
    for index in 0..2 {
        // About 500 samples per seed remain: the standard error of the mean is 1 %.
        assert_near(mean_ratio(truth[index], |seed| runs[seed as usize][index]), 0.03, &format!("value {index}"));
    }
}

#[test]
fn a_sample_that_the_last_thinning_did_not_see_is_thinned_when_it_arrives() {
    let mut kept = 0;
    for seed in 0..400 {
        let mut program = Simulation::new(1 << 20, 1024, seed);
        let sample = program.live.insert(4096, 64, 1 << 10).unwrap();
        program.estimator.add(sample, [64, 1 << 10], LabelSetId::EMPTY, program.stack.clone());
        let in_use = program.in_use();
        assert_eq!(program.live.contains(sample), in_use[0] > 0);
        if in_use[0] > 0 {
            kept += 1;
            assert!((in_use[0] as f64 / f64::from(1 << 20) - 1.0).abs() < 0.01, "{in_use:?}");
        }
    }
    // 400 / 1024 are expected.
    assert!(kept <= 4, "{kept}");
}

#[test]
fn freed_objects_leave_the_profile_and_their_stacks_are_freed() {
    let mut program = Simulation::new(1, 1024, 1);
    let addresses: Vec<_> = (0..500).map(|_| program.allocate(1000)).collect();
    assert_eq!(program.in_use(), [500_000, 500]);
    let users = Arc::strong_count(&program.stack);
    for address in &addresses[..400] {
        assert!(program.live.remove(*address).is_some());
    }
    assert_eq!(program.in_use(), [100_000, 100]);
    assert_eq!(users - Arc::strong_count(&program.stack), 400);
}

#[test]
fn the_interval_returns_in_steps_to_the_configured_one_when_the_set_empties() {
    let mut program = Simulation::new(64, 1024, 1);
    let addresses: Vec<_> = (0..20_000).map(|_| program.allocate(64)).collect();
    let grown = program.sampler.interval;
    assert!(grown >= 1024, "{grown}");
    assert_eq!(program.estimator.relax(), None, "the set is full");
    addresses.iter().for_each(|address| _ = program.live.remove(*address));
    assert_eq!(program.in_use(), [0, 0]);
    let mut steps = Vec::new();
    while let Some(interval) = program.estimator.relax() {
        steps.push(interval);
    }
    assert_eq!((steps.first(), steps.last()), (Some(&(grown / 2)), Some(&64)));
}

#[test]
fn objects_that_were_live_before_belong_to_the_parent_process() {
    let mut parent = Simulation::new(1, 1024, 1);
    let kept = parent.allocate(3000);
    let freed = parent.allocate(500);
    let mut child = HeapEstimator::new(Some(parent.live), 1, 1024, 2);
    parent.live.remove(freed);
    let totals = child.in_use(true, None);
    assert_eq!(totals.len(), 1);
    assert_eq!((totals[0].values, &*totals[0].stack[0][0].function), ([3000, 1], "[inherited]"));
    assert_eq!(totals[0].age, Some(HeapAge::Old));
    parent.live.remove(kept);
    assert!(child.in_use(true, None).is_empty());
}

/// Bytes by age.
fn ages(estimator: &mut HeapEstimator) -> Vec<(&'static str, u64)> {
    let totals = estimator.in_use(true, None);
    let mut ages: Vec<_> = totals.iter().map(|total| (total.age.unwrap().text(), total.values[0])).collect();
    ages.sort_unstable();
    ages
}

#[test]
fn an_object_is_new_in_its_first_profile_survives_five_more_and_is_old_afterwards() {
    let mut program = Simulation::new(1, 1024, 1);
    program.allocate(1000);
    let mut seen = Vec::new();
    for _ in 0..8 {
        let [(age, 1000)] = ages(&mut program.estimator)[..] else { panic!("one object of one age") };
        seen.push(age);
        // The heap at its peak is no window.
        assert_eq!(program.in_use(), [1000, 1]);
        program.estimator.end_window();
    }
    assert_eq!(seen, ["new", "survived", "survived", "survived", "survived", "survived", "old", "old"]);
}

#[test]
fn ages_divide_the_objects_of_a_stack_and_leave_its_total() {
    let mut program = Simulation::new(1, 1024, 1);
    let leaked: Vec<_> = (0..10)
        .map(|_| {
            let leaked = program.allocate(1000);
            let freed = program.allocate(500);
            program.estimator.end_window();
            program.live.remove(freed);
            leaked
        })
        .collect();
    program.allocate(70);
    assert_eq!(ages(&mut program.estimator), [("new", 70), ("old", 5000), ("survived", 5000)]);
    assert_eq!(program.in_use(), [10_070, 11]);
    program.live.remove(leaked[0]);
    assert_eq!(ages(&mut program.estimator), [("new", 70), ("old", 4000), ("survived", 5000)]);
}

#[test]
fn weights_of_samples_add_up_to_whole_totals() {
    let mut estimator = HeapEstimator::new(None, 1000, 1024, 1);
    let mut sum = [0; 2];
    for _ in 0..1000 {
        let weights = estimator.allocation_weights(1000, 1000);
        sum = [sum[0] + weights[0], sum[1] + weights[1]];
    }
    let exact = 1000.0 / (1.0 - (-1.0f64).exp());
    assert_eq!(sum, [(exact * 1000.0) as u64, exact as u64]);
}

/// Bytes per second and seconds of each phase of a program that allocates objects of `RATE_SIZE`.
const PHASES: [(u64, u64); 4] = [(1_000_000_000, 10), (4_000_000, 30), (50_000_000, 10), (2_000_000_000, 30)];
const RATE_SIZE: u64 = 262_144;
/// Time between two batches of samples.
const BATCH_NS: u64 = 250_000_000;

/// Runs the phases. One object in a hundred is of another site and stays live. Samples in the last 5 s of each phase; then
/// estimate, truth and standard error of the allocated bytes, of those of the other site, and of the live bytes.
fn run_phases(seed: u64) -> (Vec<u64>, [[f64; 3]; 3]) {
    let mut program = Simulation::new(524_288, 65_536, seed);
    program.estimator.rate.is_limited = true;
    let (mut now_ns, mut batch_ns, mut number) = (0, 0, 0);
    let mut sums = [[0.0; 3]; 3];
    let mut add = |index: usize, estimate: f64| {
        sums[index][0] += estimate;
        sums[index][2] += estimate * estimate;
    };
    let mut truth = [0.0; 2];
    let mut per_phase = Vec::new();
    for (bytes_per_second, seconds) in PHASES {
        let end_ns = now_ns + seconds * 1_000_000_000;
        let mut late_samples = 0;
        while now_ns < end_ns {
            now_ns += RATE_SIZE * 1_000_000_000 / bytes_per_second;
            number += 1;
            let is_other = number % 100 == 0;
            truth[0] += RATE_SIZE as f64;
            truth[1] += if is_other { RATE_SIZE as f64 } else { 0.0 };
            if let Some(interval) = program.sampler.select(RATE_SIZE) {
                late_samples += u64::from(now_ns > end_ns - 5_000_000_000);
                program.estimator.rate.count(now_ns);
                let [bytes, _] = weights(RATE_SIZE, interval);
                add(0, bytes);
                if is_other {
                    add(1, bytes);
                    add(2, bytes);
                    let sample = program.live.insert(4096 + 16 * number, RATE_SIZE, interval).unwrap();
                    program.estimator.add(sample, [RATE_SIZE, interval], LabelSetId::EMPTY, program.stack.clone());
                }
            }
            if now_ns - batch_ns > BATCH_NS {
                batch_ns = now_ns;
                if let Some(interval) = program.estimator.limit() {
                    program.sampler.interval = interval;
                }
            }
        }
        per_phase.push(late_samples / 5);
    }
    sums[2][0] = program.in_use()[0] as f64;
    let [all, other] = truth;
    for (sum, truth) in sums.iter_mut().zip([all, other, other]) {
        *sum = [sum[0], truth, sum[2].sqrt()];
    }
    (per_phase, sums)
}

#[test]
fn a_program_that_allocates_fast_is_sampled_at_a_bounded_rate_and_its_estimates_stay_unbiased() {
    for seed in 0..3 {
        let (rates, estimates) = run_phases(seed);
        assert!(rates.iter().all(|rate| *rate <= 200) && rates[0] >= 60 && rates[3] >= 60, "{rates:?}");
        // Without a limit: 4 MB/s at 512 KiB.
        assert!((3..=12).contains(&rates[1]), "{rates:?}");
        for (name, [estimate, truth, error]) in ["all", "a hundredth", "live"].iter().zip(estimates) {
            let errors = (estimate - truth) / error;
            assert!(errors.abs() < 3.0, "{name}: {estimate} instead of {truth}, {errors:+.1} standard errors");
        }
        // Of about 30 samples in the last half minute alone.
        assert!(estimates[1][2] < 0.2 * estimates[1][1], "{estimates:?}");
    }
}

#[test]
fn a_configured_rate_has_no_limit_and_a_new_interval_begins_without_doublings() {
    let mut rate = SampleRate::default();
    let second = |rate: &mut SampleRate, from: u64, samples: u64| {
        (0..=samples).for_each(|sample| rate.count(from + sample * 1_000_000_000 / samples));
        rate.interval(1024)
    };
    assert_eq!(second(&mut rate, 0, 3000), 1024);
    rate.is_limited = true;
    assert_eq!(second(&mut rate, 2_000_000_000, 3000), 16_384);
    assert_eq!(second(&mut rate, 4_000_000_000, 20), 4096);
    assert_eq!(SampleRate::new(true).interval(1024), 1024);
}

/// Objects whose address is divisible by 32 have a type; the one at `freed` is freed while its type is read.
struct TypedHeap {
    live: &'static LiveSet,
    freed: usize,
}

impl HeapRuntime for TypedHeap {
    fn install_hooks(&self) -> Result<(), String> {
        Ok(())
    }

    fn object_type(&self, address: usize, _: u64) -> Option<Frame> {
        if address == self.freed {
            self.live.remove(address);
        }
        address.is_multiple_of(32).then(|| Frame { function: "dict".into(), ..Frame::default() })
    }
}

#[test]
fn the_leaf_of_an_object_in_use_is_its_type_unless_it_is_unknown_or_the_object_was_freed_meanwhile() {
    let mut program = Simulation::new(1, 1024, 1);
    let addresses: Vec<_> = (0..8).map(|_| program.allocate(1000)).collect();
    let freed = *addresses.iter().find(|address| address.is_multiple_of(32)).unwrap();
    let heap = TypedHeap { live: program.live, freed };
    let mut leaves: Vec<_> = program
        .estimator
        .in_use(false, Some(&heap))
        .iter()
        .map(|total| (total.stack.len(), total.stack[0][0].function.to_string(), total.values[1]))
        .collect();
    leaves.sort();
    assert_eq!(leaves, [(1, String::new(), 5), (2, "dict".to_owned(), 3)]);
    // Without the runtime, objects are not divided by type.
    assert_eq!(program.estimator.in_use(false, None).len(), 1);
}
