//! Six phases of equal CPU time under a label. Prints `phase NAME NS` with the kernel's CPU time of the thread in each
//! (schedstat), then `stats JSON`. The settings are environment variables.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use spanprof::{tag_wrapper, Config, Profiler};

/// The statistics that are compared.
const NAMES: [&str; 8] = [
    "clock.ticks.perf",
    "clock.ticks_due.perf",
    "clock.ticks.thread_timer",
    "clock.ticks_due.thread_timer",
    "clock.rearmed",
    "dropped.late_tick",
    "cost.process_cpu_ns",
    "cost.own_cpu_ns",
];

fn ran_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[inline(never)]
fn burn(ns: u64) -> u64 {
    let (end, mut total) = (ran_ns() + ns, 0u64);
    while ran_ns() < end {
        for number in 0..300_000 {
            total = black_box(total.wrapping_mul(31) ^ number);
        }
    }
    total
}

fn run() -> Result<(), spanprof::Error> {
    let profiler = Profiler::start(Config::builder().load()?)?;
    for number in 0..6 {
        let before_ns = ran_ns();
        let phase = format!("p{number}");
        tag_wrapper([("phase", phase.as_str())], || burn(250_000_000));
        println!("phase {phase} {}", ran_ns() - before_ns);
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = profiler.stats();
    let numbers: Vec<_> = NAMES.iter().map(|name| format!("\"{name}\":{}", stats.counter(name))).collect();
    println!("stats {{{}}}", numbers.join(","));
    profiler.stop();
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
