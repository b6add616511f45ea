//! Stress of the profiler in a Rust program, with every profile on, small intervals, changes of the configuration and
//! restarts: allocations of many sizes, growing buffers, contended locks, condition variables, readers, short-lived threads,
//! panics, labels. Each activity compares its results with results computed before the start. Arguments: the duration in
//! seconds, and `alone` for a run without the profiler.

use std::alloc::System;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spanprof::config::{DestinationConfig, DestinationType, Profiles};
use spanprof::sync::{Condvar, Mutex, RwLock};
use spanprof::{Config, ConfigPatch, ConfigValue, Profiler};

#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

static IS_OVER: AtomicBool = AtomicBool::new(false);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Arguments of the work, so that every result is known before the start.
const NUMBERS: u64 = 4;
/// Threads of each activity.
const THREADS: u64 = 2;
/// Changes of the running profiler, in this order.
const CHANGES: [(&str, bool); 10] = [
    ("heap", false),
    ("lock", false),
    ("heap", true),
    ("off_cpu", false),
    ("cpu", false),
    ("lock", true),
    ("threads", false),
    ("cpu", true),
    ("off_cpu", true),
    ("threads", true),
];
const CHANGES_PER_RUN: usize = 6;

/// An activity: a function of a number.
type Work = fn(u64) -> u64;

const ACTIVITIES: [(&str, Work); 8] = [
    ("sizes", sizes),
    ("growth", growth),
    ("tables", tables),
    ("exchange", exchange),
    ("queue", queue),
    ("readers", readers),
    ("threads", threads),
    ("panics", panics),
];

fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state ^ (state >> 27)
}

/// Objects of 1 byte to 4 MiB, freed in another order.
fn sizes(number: u64) -> u64 {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut sum = 0u64;
    for turn in 0..400 {
        let random = mix(number * 1000 + turn);
        let bytes = 1usize << (random % if turn % 100 == 0 { 23 } else { 12 });
        kept.push(black_box(vec![random as u8; bytes]));
        if kept.len() > 50 {
            let freed = kept.swap_remove(random as usize % kept.len());
            sum = sum.wrapping_mul(31).wrapping_add(freed.len() as u64 + u64::from(freed[freed.len() / 2]));
        }
    }
    sum
}

/// Buffers that are reallocated, larger and smaller.
fn growth(number: u64) -> u64 {
    let mut text = String::new();
    for turn in 0..3000 {
        text.push_str(&mix(number + turn).to_string());
        if turn % 1000 == 999 {
            text.truncate(100);
            text.shrink_to_fit();
        }
    }
    text.bytes().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

fn tables(number: u64) -> u64 {
    let mut table = BTreeMap::new();
    for turn in 0..2000 {
        let key = mix(number * 7 + turn) % 500;
        table.entry(key).or_insert_with(Vec::new).push(turn);
        if turn % 3 == 0 {
            table.remove(&(key / 2));
        }
    }
    table.iter().fold(0, |sum, (key, turns)| sum.wrapping_mul(31).wrapping_add(key ^ turns.len() as u64))
}

/// Two threads add to one number under a contended lock.
fn exchange(number: u64) -> u64 {
    let total = Mutex::new(0u64);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let total = &total;
            scope.spawn(move || {
                for turn in 0..200 {
                    let mut total = total.lock().unwrap();
                    *total = total.wrapping_add(mix(number + thread * 1000 + turn));
                    let held = Instant::now();
                    while turn % 50 == 0 && held.elapsed() < Duration::from_micros(200) {}
                }
            });
        }
    });
    total.into_inner().unwrap()
}

/// One thread waits for each item of the other.
fn queue(number: u64) -> u64 {
    let (items, changed) = (Mutex::new(Vec::new()), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..100 {
                items.lock().unwrap().push(mix(number * 3 + turn));
                changed.notify_one();
            }
        });
        let mut sum = 0u64;
        for _ in 0..100 {
            let mut waiting = changed.wait_while(items.lock().unwrap(), |items| items.is_empty()).unwrap();
            sum = sum.wrapping_add(waiting.remove(0));
        }
        sum
    })
}

fn readers(number: u64) -> u64 {
    let table = RwLock::new(vec![number; 100]);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for turn in 0..200usize {
                    black_box(table.read().unwrap()[(turn * 7 + reader) % 100]);
                }
            });
        }
        for turn in 0..200usize {
            let mut table = table.write().unwrap();
            table[turn % 100] = mix(table[(turn + 1) % 100]);
        }
    });
    let table = table.read().unwrap();
    table.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value))
}

/// Threads that end at once.
fn threads(number: u64) -> u64 {
    let running: Vec<_> = (0..8).map(|thread| std::thread::spawn(move || sizes(number + thread))).collect();
    running.into_iter().map(|thread| thread.join().unwrap()).fold(0, u64::wrapping_add)
}

/// Panics that unwind through allocating frames.
fn panics(number: u64) -> u64 {
    let unwound = |turn: u64| {
        let outcome = std::panic::catch_unwind(|| {
            let kept = vec![turn as u8; 1000];
            std::panic::resume_unwind(Box::new(black_box(kept).len() as u64 + turn));
        });
        outcome.err().and_then(|payload| payload.downcast::<u64>().ok()).map_or(0, |number| *number)
    };
    (0..50).map(|turn| unwound(number + turn)).sum()
}

/// Repeats one activity under labels until the end, and compares its results.
fn repeat(name: &str, work: Work, expected: &[u64]) -> u64 {
    let mut done = 0;
    while !IS_OVER.load(Ordering::Relaxed) {
        let number = mix(done) % NUMBERS;
        let turn = (done % 50).to_string();
        let found = spanprof::tag_wrapper([("work", name), ("turn", &turn)], || work(number));
        if found != expected[number as usize] {
            eprintln!("{name}({number}) is {found}, not {}", expected[number as usize]);
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
        done += 1;
    }
    done
}

/// Every other run has the smallest live set, which is thinned all the time.
fn settings(directory: &str, run: usize) -> Config {
    let mut files = DestinationConfig::new(DestinationType::File);
    files.directory = Some(directory.to_owned());
    Config::builder()
        .service_name("rust-stress")
        .profiles(Profiles::All)
        .sample_rate(1000u32)
        .wall_rate(Some(200))
        .heap_interval(8192u64)
        .heap_live_samples(if run.is_multiple_of(2) { 65_536u32 } else { 1024 })
        .lock_threshold(Duration::ZERO)
        .upload_interval(Duration::from_secs(1))
        .destinations(vec![files])
        .load()
        .expect("valid settings")
}

/// Starts, changes and stops the profiler until the end; returns the samples of all runs.
fn restart(directory: &str, end: Instant) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut changes = CHANGES.iter().cycle();
    for run in 0.. {
        if Instant::now() >= end {
            break;
        }
        let profiler = Profiler::start(settings(directory, run)).expect("a start");
        for (key, value) in changes.by_ref().take(CHANGES_PER_RUN) {
            std::thread::sleep(Duration::from_millis(500));
            let patch = ConfigPatch(vec![((*key).to_owned(), ConfigValue::Bool(*value))]);
            profiler.update(&patch).expect("a valid change");
        }
        profiler.flush(Duration::from_secs(10));
        let stats = profiler.stats();
        for name in ["samples.cpu", "samples.wall", "samples.off_cpu", "heap.samples", "internal.panics"] {
            *counts.entry(name.to_owned()).or_default() += stats.counter(name);
        }
        profiler.stop();
    }
    counts
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10);
    let is_alone = arguments.next().is_some_and(|word| word == "alone");
    let expected: Vec<Vec<u64>> = ACTIVITIES.iter().map(|(_, work)| (0..NUMBERS).map(work).collect()).collect();
    let directory = std::env::temp_dir().join(format!("rust-stress-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let end = Instant::now() + Duration::from_secs(seconds);
    let counts = std::thread::scope(|scope| {
        let running: Vec<_> = ACTIVITIES
            .iter()
            .zip(&expected)
            .flat_map(|activity| std::iter::repeat_n(activity, THREADS as usize))
            .map(|((name, work), expected)| (name, scope.spawn(move || repeat(name, *work, expected))))
            .collect();
        let counts = match is_alone {
            true => {
                std::thread::sleep(Duration::from_secs(seconds));
                BTreeMap::new()
            }
            false => restart(&directory.to_string_lossy(), end),
        };
        IS_OVER.store(true, Ordering::Relaxed);
        for (name, thread) in running {
            println!("{name}: {} times", thread.join().expect("no panic"));
        }
        counts
    });
    let _ = std::fs::remove_dir_all(&directory);
    println!("{counts:?}");
    if WRONG.load(Ordering::Relaxed) == 0 && counts.get("internal.panics").is_none_or(|count| *count == 0) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
