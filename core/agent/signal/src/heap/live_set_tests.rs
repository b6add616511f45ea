//! Tests of the live set against a model, and with threads that free each other's objects.

use std::collections::HashMap;

use crate::heap::address_filter::AddressFilter;
use crate::heap::live_set::{LiveSet, LiveSlot};

fn live_set(slots: usize) -> LiveSet {
    let slots: Vec<LiveSlot> = (0..slots).map(|_| LiveSlot::free()).collect();
    let filter: &'static AddressFilter = Box::leak(Box::new(AddressFilter::new()));
    LiveSet::new(Box::leak(slots.into_boxed_slice()), filter).unwrap()
}

/// Repeatable numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn random_inserts_and_removals_equal_those_of_a_map() {
    const STEPS: u64 = if cfg!(miri) { 300 } else { 200_000 };
    for seed in 0..3 {
        let set = live_set(256);
        let (mut model, mut random) = (HashMap::new(), Numbers(seed));
        for step in 0..STEPS {
            let address = 4096 + 16 * random.below(300) as usize;
            match (random.below(4), model.contains_key(&address)) {
                (0 | 1, false) => {
                    if let Some(sample) = set.insert(address, step, step + 1) {
                        model.insert(address, (sample, step));
                    }
                }
                (2, _) => {
                    let removed = set.remove(address).map(|object| (object.sample, object.size));
                    assert_eq!(removed, model.remove(&address));
                }
                (3, true) => {
                    let (sample, _) = model.remove(&address).unwrap();
                    assert!(set.remove_sample(sample) && !set.remove_sample(sample));
                }
                (_, is_live) => assert!(!is_live || set.filter().may_contain(address), "a false negative"),
            }
            assert_eq!(set.len(), model.len() as u64);
        }
        let mut objects: Vec<_> = set.objects().map(|object| (object.sample, object.size)).collect();
        let mut expected: Vec<_> = model.values().copied().collect();
        objects.sort_unstable();
        expected.sort_unstable();
        assert_eq!(objects, expected);
        assert!(model.keys().all(|address| set.filter().may_contain(*address)), "a false negative");
        assert!(model.values().all(|(sample, _)| set.contains(*sample)));
        set.clear();
        assert!(set.is_empty() && set.objects().next().is_none());
        assert!(model.keys().all(|address| !set.filter().may_contain(*address)), "the filter is empty again");
    }
}

#[test]
fn a_full_set_refuses_and_works_again_after_a_removal() {
    let set = live_set(32);
    let samples: Vec<_> = (1..=40).filter_map(|number| set.insert(number * 64, 1, 1)).collect();
    assert_eq!((samples.len(), set.len()), (32, 32));
    assert!(set.insert(64 * 41, 1, 1).is_none());
    assert!(set.remove_sample(samples[7]));
    assert!(set.insert(64 * 41, 1, 1).is_some());
}

#[test]
fn ids_are_never_reused() {
    let set = live_set(1);
    let first = set.insert(64, 1, 1).unwrap();
    set.remove(64).unwrap();
    let second = set.insert(64, 1, 1).unwrap();
    assert_ne!(first, second);
    assert!(!set.contains(first) && set.contains(second) && !set.contains(0));
}

#[test]
fn threads_that_free_each_others_objects_while_samples_are_thinned_leave_an_empty_set() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let set = live_set(1 << 12);
    let (sent, received) = std::sync::mpsc::sync_channel::<Box<[u64; 4]>>(64);
    let (thinned, to_thin) = std::sync::mpsc::sync_channel::<u64>(64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for object in received {
                set.remove(&raw const *object as usize);
                drop(object);
            }
        });
        scope.spawn(|| {
            for sample in to_thin {
                set.remove_sample(sample);
            }
        });
        for round in 0..ROUNDS {
            let object = Box::new([round as u64; 4]);
            let sample = set.insert(&raw const *object as usize, 32, 1).expect("there are free slots");
            if round % 3 == 0 {
                thinned.send(sample).unwrap();
            }
            sent.send(object).unwrap();
        }
        drop((sent, thinned));
    });
    assert!(set.is_empty(), "{} objects left", set.len());
    assert!(set.objects().next().is_none());
}
