//! 400 blocked threads: idle, then a burst of one function, then idle. Prints the profiler's CPU time in each 10 s as
//! `window ELAPSED_NS COST_NS PROCESS_NS SAMPLE_RATE LIMITED_BY`. Arguments: the directory of the profiles, idle windows, burst windows.

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spanprof::{Config, Profiler, StatValue};

#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

const WINDOW: Duration = Duration::from_secs(10);
/// Time from the start to the first window: the governor's first interval, and what remains of the next.
const SETTLING: Duration = Duration::from_secs(21);

static BLOCKED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

#[inline(never)]
fn hot_function(until: Instant) -> u64 {
    let mut total = 0u64;
    while Instant::now() < until {
        for number in 0..100_000 {
            total = black_box(total.wrapping_mul(31) ^ number);
        }
    }
    total
}

fn cost_ns(profiler: &Profiler) -> u64 {
    let stats = profiler.stats();
    ["cost.own_cpu_ns", "clock.handler_ns", "clock.delivery_ns"].iter().map(|name| stats.counter(name)).sum()
}

fn window(profiler: &Profiler) {
    let process_ns = || profiler.stats().counter("cost.process_cpu_ns");
    let (began, before_ns, process_before_ns) = (Instant::now(), cost_ns(profiler), process_ns());
    std::thread::sleep(WINDOW);
    let (elapsed_ns, spent_ns) = (began.elapsed().as_nanos(), cost_ns(profiler) - before_ns);
    let stats = profiler.stats();
    let limited_by = match stats.get("governor.limited_by") {
        Some(StatValue::Text(text)) => text.as_str(),
        _ => "",
    };
    let used_ns = process_ns() - process_before_ns;
    println!("window {elapsed_ns} {spent_ns} {used_ns} {} {limited_by}", stats.counter("governor.sample_rate"));
}

fn run(directory: String, idle: u32, burst: u32) -> Result<(), spanprof::Error> {
    for _ in 0..400 {
        std::thread::spawn(|| {
            let held = BLOCKED.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(BLOCKED.1.wait(held));
        });
    }
    let profiler = Profiler::start(Config::builder().file_directory(Some(directory)).load()?)?;
    std::thread::sleep(SETTLING);
    (0..idle).for_each(|_| window(&profiler));
    let until = Instant::now() + WINDOW * burst;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || black_box(hot_function(until)));
        }
        (0..burst).for_each(|_| window(&profiler));
    });
    window(&profiler);
    profiler.stop();
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, idle, burst] = words.as_slice() else {
        eprintln!("usage: rust-governor DIRECTORY IDLE_WINDOWS BURST_WINDOWS");
        return ExitCode::FAILURE;
    };
    let (Ok(idle), Ok(burst)) = (idle.parse(), burst.parse()) else { return ExitCode::FAILURE };
    match run(directory.clone(), idle, burst) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rust-governor: {error}");
            ExitCode::FAILURE
        }
    }
}
