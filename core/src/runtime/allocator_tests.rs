//! The heap profile of Rust programs against known allocations. Each test runs in a process of its own, whose global
//! allocator is `Profiled`, as in all unit tests of this crate.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::Arc;
use std::time::Duration;

use super::fork_live_tests::in_forked_child;
use crate::api::labels::{tag_future, tag_wrapper};
use crate::runtime::allocator_run_testing::{in_own_process, HeapProfiles, HeapRun, HeapStack};
use spanprof_config::{Config, ConfigValue};
use spanprof_profiler::ProfilerHandle;

/// Standard error of an estimate of `bytes` bytes in objects of `size` bytes, relative.
fn relative_error(bytes: f64, size: f64, interval: f64) -> f64 {
    let selected = 1.0 - (-size / interval).exp();
    ((1.0 - selected) / (selected * bytes / size)).sqrt()
}

fn assert_within(estimate: f64, truth: f64, relative: f64, name: &str) {
    assert!((estimate / truth - 1.0).abs() < relative, "{name}: {estimate} instead of {truth} (± {relative})");
}

#[inline(never)]
fn leak(megabytes: usize) {
    for _ in 0..megabytes * 100 {
        std::mem::forget(black_box(vec![1u8; 10_000]));
    }
}

#[inline(never)]
fn churn(megabytes: usize) {
    for _ in 0..megabytes * 100 {
        black_box(vec![1u8; 10_000]);
    }
}

#[test]
fn a_leak_is_in_use_under_its_function_and_label_and_every_allocation_is_counted() {
    in_own_process("a_leak_is_in_use_under_its_function_and_label_and_every_allocation_is_counted", || {
        let run = HeapRun::start(65_536);
        tag_wrapper([("tenant", "a")], || leak(64));
        tag_wrapper([("tenant", "b")], || churn(64));
        let [in_use, allocated] = run.stop();
        let tolerance = 5.0 * relative_error(64e6, 1e4, 65_536.0);
        assert_within(in_use.total_through("inuse_space", "leak"), 64e6, tolerance, "in use");
        assert_within(in_use.total_through("inuse_objects", "leak"), 6400.0, tolerance, "objects in use");
        assert_within(allocated.total_through("alloc_space", "leak"), 64e6, tolerance, "allocated");
        assert_within(allocated.total_through("alloc_space", "churn"), 64e6, tolerance, "allocated and freed");
        assert_eq!(in_use.total_through("inuse_space", "churn"), 0.0);
        for stack in allocated.stacks("alloc_space").iter().chain(&in_use.stacks("inuse_space")) {
            let tenant = if stack.is_through("leak") { "a" } else { "b" };
            if stack.is_through("leak") || stack.is_through("churn") {
                assert!(
                    stack.labels.contains(&("tenant".to_owned(), tenant.to_owned())),
                    "{:?} {:?}",
                    stack.functions,
                    stack.labels
                );
                // Neither functions of the allocator nor of `Vec`.
                let caller = ["leak", "churn"].map(|name| stack.functions[1].ends_with(name));
                assert!(stack.functions[0] == "Vec<u8>" && caller.contains(&true), "{:?}", stack.functions);
            }
        }
    });
}

struct Order {
    _numbers: [u64; 20],
}

struct Item {
    _numbers: [u64; 4],
}

struct Cart {
    _numbers: [u64; 50],
}

const KEPT: usize = 4000;

#[inline(never)]
fn keep_types(run: &HeapRun) {
    std::mem::forget(black_box(HashMap::<u64, Order>::with_capacity(10_000)));
    for number in 0..KEPT as u64 {
        if number % 500 == 0 {
            run.wait_until_drained();
        }
        std::mem::forget(black_box(Box::new(Order { _numbers: [number; 20] })));
        std::mem::forget(black_box(Arc::new(Cart { _numbers: [number; 50] })));
        std::mem::forget(black_box("x".repeat(300)));
        let mut items = Vec::new();
        items.reserve_exact(10);
        items.push(Item { _numbers: [number; 4] });
        std::mem::forget(black_box(items));
        // SAFETY: the layout has a size.
        black_box(unsafe { std::alloc::alloc(std::alloc::Layout::new::<[u64; 100]>()) });
    }
}

#[test]
fn the_leaf_is_the_type_where_a_function_of_the_standard_library_names_it() {
    in_own_process("the_leaf_is_the_type_where_a_function_of_the_standard_library_names_it", || {
        const INTERVAL: f64 = 1024.0;
        let run = HeapRun::start(INTERVAL as u64);
        keep_types(&run);
        assert_eq!(run.lost(), 0);
        let [in_use, allocated] = run.stop();
        for (profiles, type_name) in [(in_use, "inuse_space"), (allocated, "alloc_space")] {
            let mut by_leaf: HashMap<String, f64> = HashMap::new();
            // A call of the profiler allocates too.
            let is_kept = |stack: &HeapStack| stack.is_through("keep_types") && !stack.is_through("wait_until_drained");
            for stack in profiles.stacks(type_name).into_iter().filter(is_kept) {
                *by_leaf.entry(stack.functions[0].replace("spanprof::runtime::allocator_tests::", "")).or_default() +=
                    stack.value;
            }
            assert_eq!(by_leaf.len(), 6, "{by_leaf:?}");
            for (leaf, size) in
                [("Box<Order>", 160), ("Arc<Cart>", 416), ("String", 300), ("Vec<Item>", 320), ("keep_types", 800)]
            {
                let truth = (KEPT * size) as f64;
                assert_within(by_leaf[leaf], truth, 5.0 * relative_error(truth, size as f64, INTERVAL), leaf);
            }
            // 16,384 buckets with a byte each, and 16 bytes.
            assert_within(by_leaf["HashMap<u64, Order>"], 16_384.0 * 169.0 + 16.0, 1e-6, "map");
        }
    });
}

/// Sizes of objects, and their shares of the bytes in percent.
const SIZES: [(usize, usize); 5] = [(16, 2), (512, 18), (16_384, 30), (262_144, 20), (4 << 20, 30)];

/// Allocates and frees about `bytes` bytes; returns the exact number and the variance of its estimate.
fn allocate_mix(bytes: usize, run: &HeapRun, interval: f64) -> [f64; 2] {
    let mut total = [0.0; 2];
    for (size, percent) in SIZES {
        let count = (bytes * percent / 100 / size).max(1);
        for number in 1..=count {
            drop(black_box(Vec::<u8>::with_capacity(size)));
            if number % (8 << 20 >> size.ilog2()).max(1) == 0 {
                run.wait_until_drained();
            }
        }
        let allocated = (count * size) as f64;
        total =
            [total[0] + allocated, total[1] + (allocated * relative_error(allocated, size as f64, interval)).powi(2)];
    }
    total
}

#[inline(never)]
fn sixty(run: &HeapRun, interval: f64) -> [f64; 2] {
    allocate_mix(120 << 20, run, interval)
}

#[inline(never)]
fn thirty(run: &HeapRun, interval: f64) -> [f64; 2] {
    allocate_mix(60 << 20, run, interval)
}

#[inline(never)]
fn ten(run: &HeapRun, interval: f64) -> [f64; 2] {
    allocate_mix(20 << 20, run, interval)
}

type AllocateMix = fn(&HeapRun, f64) -> [f64; 2];

#[test]
fn each_run_of_a_mix_of_sizes_is_within_its_error_and_the_mean_of_twenty_within_one_percent() {
    in_own_process("each_run_of_a_mix_of_sizes_is_within_its_error_and_the_mean_of_twenty_within_one_percent", || {
        const RUNS: usize = 20;
        let functions: [(&str, AllocateMix); 3] = [("sixty", sixty), ("thirty", thirty), ("ten", ten)];
        for (interval, runs) in [(16_384, RUNS), (524_288, 2)] {
            let mut ratios = [0.0; 3];
            for _ in 0..runs {
                let run = HeapRun::start(interval);
                let truth = functions.map(|(_, allocate)| allocate(&run, interval as f64));
                assert_eq!(run.lost(), 0);
                let [_, allocated] = run.stop();
                for (index, (name, _)) in functions.iter().enumerate() {
                    let [bytes, variance] = truth[index];
                    let estimate = allocated.total_through("alloc_space", name);
                    // Five standard errors: one false failure in 20,000 runs of this test.
                    assert!((estimate - bytes).abs() < 5.0 * variance.sqrt(), "{name}: {estimate} instead of {bytes}");
                    ratios[index] += estimate / bytes / runs as f64;
                }
            }
            if runs == RUNS {
                // The smallest share has a standard error of 0.35 % over twenty runs.
                let tolerances = [0.01, 0.01, 0.0175];
                for (index, (name, _)) in functions.iter().enumerate() {
                    assert!((ratios[index] - 1.0).abs() < tolerances[index], "{name}: {ratios:?}");
                }
            }
        }
    });
}

#[test]
fn a_million_freed_objects_leave_the_live_set_at_once() {
    in_own_process("a_million_freed_objects_leave_the_live_set_at_once", || {
        let run = HeapRun::start(4096);
        let mut objects = Vec::with_capacity(1_000_000);
        let before = run.counter("heap.live_samples");
        for number in 0..1_000_000u64 {
            objects.push(Box::new([number; 8]));
            if number % 50_000 == 0 {
                run.wait_until_drained();
            }
        }
        let kept = run.counter("heap.live_samples") - before;
        // 15,504 expected.
        assert!((14_900..16_100).contains(&kept), "{kept}");
        objects.clear();
        let left = run.counter("heap.live_samples");
        // `stats` itself allocates.
        assert!(left < before + 50, "{left}");
        run.stop();
    });
}

#[inline(never)]
fn grow_and_keep() {
    let mut numbers: Vec<u64> = Vec::new();
    (0..2_000_000u64).for_each(|number| numbers.push(number));
    numbers.shrink_to(1_000_000);
    std::mem::forget(numbers);
    // 4 MB in zeroed objects.
    (0..1000).for_each(|_| std::mem::forget(black_box(vec![0u8; 4000])));
}

#[inline(never)]
fn fail() {
    let mut bytes: Vec<u8> = Vec::new();
    assert!(bytes.try_reserve_exact(isize::MAX as usize).is_err());
    bytes.reserve_exact(1000);
    assert!(bytes.try_reserve_exact(isize::MAX as usize - 1000).is_err());
    assert!(bytes.capacity() >= 1000);
}

#[test]
fn a_reallocated_object_is_in_use_once_with_its_last_size_and_a_failed_request_counts_nothing() {
    in_own_process(
        "a_reallocated_object_is_in_use_once_with_its_last_size_and_a_failed_request_counts_nothing",
        || {
            let run = HeapRun::start(1024);
            grow_and_keep();
            fail();
            let [in_use, allocated] = run.stop();
            assert_within(
                in_use.total_through("inuse_space", "grow_and_keep"),
                20e6,
                0.05,
                "16 MB of numbers, 4 MB of zeros",
            );
            assert_within(in_use.total_through("inuse_objects", "grow_and_keep"), 1001.0, 0.2, "objects");
            assert!(allocated.total_through("alloc_space", "fail") < 1e6);
            assert_eq!(in_use.total_through("inuse_space", "fail"), 0.0);
        },
    );
}

#[inline(never)]
fn produce(objects: usize, consumer: &std::sync::mpsc::SyncSender<Vec<u8>>) {
    for number in 0..objects {
        let object = black_box(vec![7u8; 1000]);
        match number % 4 {
            0 => std::mem::forget(object),
            1 => drop(object),
            _ => consumer.send(object).unwrap(),
        }
    }
}

#[test]
fn four_threads_whose_objects_are_freed_by_others_have_exact_estimates() {
    in_own_process("four_threads_whose_objects_are_freed_by_others_have_exact_estimates", || {
        const OBJECTS: usize = 40_000;
        const INTERVAL: f64 = 131_072.0;
        let run = HeapRun::start(INTERVAL as u64);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (send, receive) = sync_channel::<Vec<u8>>(100);
                let consumer = std::thread::spawn(move || receive.iter().for_each(drop));
                (std::thread::spawn(move || produce(OBJECTS, &send)), consumer)
            })
            .collect();
        for (producer, consumer) in threads {
            producer.join().unwrap();
            consumer.join().unwrap();
        }
        assert_eq!(run.lost(), 0);
        let [in_use, allocated] = run.stop();
        let (kept, all) = (1e6 * OBJECTS as f64 / 250.0 / 4.0, 4e3 * OBJECTS as f64);
        assert_within(
            in_use.total_through("inuse_space", "produce"),
            kept,
            5.0 * relative_error(kept, 1e3, INTERVAL),
            "in use",
        );
        assert_within(
            allocated.total_through("alloc_space", "produce"),
            all,
            5.0 * relative_error(all, 1e3, INTERVAL),
            "all",
        );
    });
}

/// Allocates when its thread ends.
struct AllocatesInDrop;

impl Drop for AllocatesInDrop {
    fn drop(&mut self) {
        leak(1);
    }
}

thread_local!(static AT_THREAD_END: AllocatesInDrop = const { AllocatesInDrop });

#[test]
fn short_threads_and_destructors_of_their_storage_are_counted() {
    in_own_process("short_threads_and_destructors_of_their_storage_are_counted", || {
        let run = HeapRun::start(65_536);
        for _ in 0..60 {
            let threads = (0..4).map(|_| std::thread::spawn(|| AT_THREAD_END.with(|_| ())));
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        }
        let [in_use, _] = run.stop();
        let tolerance = 5.0 * relative_error(240e6, 1e4, 65_536.0);
        assert_within(in_use.total_through("inuse_space", "leak"), 240e6, tolerance, "in use");
    });
}

/// Allocates, grows and frees objects of a thread, whose content it checks; until `stop` is set.
fn mutate_objects(seed: u64, stop: &AtomicBool) {
    let mut objects: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut random = seed;
    while !stop.load(Ordering::Relaxed) {
        random = spanprof_signal::split_mix::mix(random.wrapping_add(spanprof_signal::split_mix::INCREMENT));
        let (mark, size) = (random as u8, (random >> 8) as usize % 3000);
        match random >> 60 {
            0..=5 => objects.push((mark, vec![mark; size])),
            6..=7 => objects.push((0, vec![0; size])),
            8..=10 if !objects.is_empty() => {
                let index = random as usize % objects.len();
                let (mark, object) = &mut objects[index];
                object.resize(size, *mark);
            }
            _ if objects.len() > 50 => {
                let (mark, object) = objects.swap_remove(random as usize % objects.len());
                assert!(object.iter().all(|byte| *byte == mark), "an object was overwritten");
            }
            _ => {}
        }
    }
}

#[test]
fn every_allocation_can_be_sampled_while_the_profile_starts_stops_and_changes() {
    in_own_process("every_allocation_can_be_sampled_while_the_profile_starts_stops_and_changes", || {
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (1..=4)
            .map(|seed| {
                let stop = stop.clone();
                std::thread::spawn(move || mutate_objects(seed, &stop))
            })
            .collect();
        let mut samples = 0;
        for round in 0..10 {
            let run = HeapRun::start_with(Config { heap_interval: 1, heap_live_samples: 1024, ..Config::default() });
            std::thread::sleep(Duration::from_millis(50));
            run.set("heap_interval", ConfigValue::Int(1 + 1000 * (round % 2)));
            run.set("heap", ConfigValue::Bool(false));
            run.set("heap", ConfigValue::Bool(true));
            run.profiler.flush(Duration::from_secs(60));
            samples = run.counter("heap.samples");
            let [_, allocated] = run.stop();
            for stack in allocated.stacks("alloc_space") {
                let own = stack.functions.iter().find(|name| name.contains("drain_thread"));
                assert_eq!(own, None, "the profiler's own threads are not sampled: {:?}", stack.functions);
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(samples > 1000, "{samples}");
    });
}

#[test]
fn a_forked_child_shows_the_objects_of_its_parent_and_its_own() {
    in_own_process("a_forked_child_shows_the_objects_of_its_parent_and_its_own", || {
        let run = HeapRun::start(16_384);
        leak(30);
        // A symbolizer that is busy at the fork is unusable in the child.
        run.wait_until_drained();
        let code = in_forked_child(|| {
            leak(5);
            let Some(profiler) = ProfilerHandle::after_fork_in_child() else { return 1 };
            leak(10);
            drop(black_box(vec![1u8; 1 << 20]));
            i32::from(!profiler.stop()) * 2
        });
        assert_eq!(code, Some(0));
        let [in_use, _] = run.stop();
        let inherited: f64 = in_use
            .stacks("inuse_space")
            .iter()
            .filter(|stack| stack.functions.iter().any(|name| name == "[inherited]"))
            .map(|stack| stack.value)
            .sum();
        assert!((27e6..40e6).contains(&inherited), "{inherited}");
        // Of the parent and of the child.
        assert_within(in_use.total_through("inuse_space", "leak"), 40e6, 0.1, "in use");
    });
}

#[inline(never)]
fn allocate_in_cart() {
    churn(1);
}

#[inline(never)]
fn allocate_in_search() {
    churn(1);
}

/// A request that is suspended between its allocations.
async fn request(allocate: fn()) {
    for _ in 0..20 {
        allocate();
        tokio::task::yield_now().await;
    }
}

#[test]
fn allocations_of_tokio_tasks_carry_the_labels_of_their_task() {
    in_own_process("allocations_of_tokio_tasks_carry_the_labels_of_their_task", || {
        let run = HeapRun::start(262_144);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        // In groups, so that the ring has space for their deep stacks.
        for _ in 0..6 {
            let cart = || runtime.spawn(tag_future([("route", "cart")], request(allocate_in_cart)));
            let search = || runtime.spawn(tag_future([("route", "search")], request(allocate_in_search)));
            let tasks = [cart(), search(), cart(), search()];
            tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
            run.wait_until_drained();
        }
        assert_eq!(run.lost(), 0);
        let [_, allocated] = run.stop();
        let (mut labelled, mut total) = (0.0, 0.0);
        for stack in allocated.stacks("alloc_space") {
            let route = ["cart", "search"].into_iter().find(|route| stack.is_through(&format!("allocate_in_{route}")));
            let Some(route) = route else { continue };
            let label = stack.labels.iter().find(|(key, _)| key == "route");
            assert!(label.is_none_or(|(_, value)| value == route), "{route}: {:?}", stack.labels);
            total += stack.value;
            labelled += if label.is_some() { stack.value } else { 0.0 };
        }
        assert_within(total, 480e6, 5.0 * relative_error(480e6, 1e4, 262_144.0), "all requests");
        assert!(labelled >= 0.995 * total, "{labelled} of {total}");
    });
}

/// Total of the stacks through both functions.
fn nested(profiles: &HeapProfiles, outer: &str, inner: &str) -> f64 {
    let stacks = profiles.stacks("alloc_space");
    stacks.iter().filter(|stack| stack.is_through(outer) && stack.is_through(inner)).map(|stack| stack.value).sum()
}

#[test]
fn allocations_before_the_start_and_after_the_stop_pass_through() {
    in_own_process("allocations_before_the_start_and_after_the_stop_pass_through", || {
        let before: Vec<_> = (0..1000).map(|_| black_box(vec![1u8; 10_000])).collect();
        for _ in 0..3 {
            let run = HeapRun::start(16_384);
            allocate_in_cart();
            let panicked = std::panic::catch_unwind(|| {
                allocate_in_search();
                panic!("on purpose: an allocation during unwinding");
            });
            assert!(panicked.is_err());
            let samples = run.counter("heap.samples");
            assert!(samples > 0);
            let profiler = run.profiler.clone();
            let [in_use, allocated] = run.stop();
            assert_within(nested(&allocated, "allocate_in_cart", "churn"), 1e6, 0.9, "a million bytes");
            assert!(in_use.total_through("inuse_space", "churn") == 0.0);
            let samples = profiler.stats().counter("heap.samples");
            churn(10);
            assert_eq!(profiler.stats().counter("heap.samples"), samples);
        }
        drop(before);
    });
}
