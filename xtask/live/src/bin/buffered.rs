//! The Rust counterpart of xtask/live/outage/buffered.py.

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use spanprof::{tag_wrapper, Config, Profiler, StatValue, Stats};

#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

#[inline(never)]
fn work() -> u64 {
    (0..2_000_000).fold(0u64, |total, number| black_box(total.wrapping_mul(31) ^ number))
}

fn print_counters(stats: &Stats) {
    let counters: Vec<String> = stats
        .entries
        .iter()
        .filter_map(|(name, value)| match (name.strip_prefix("export.0."), value) {
            (Some(name), StatValue::Count(value)) => Some(format!("\"{name}\": {value}")),
            _ => None,
        })
        .collect();
    println!("{{{}}}", counters.join(", "));
}

fn main() -> Result<(), spanprof::Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, directory] = words.as_slice() else { panic!("usage: buffered PORT DIRECTORY") };
    let config = Config {
        service_name: "live-buffer".to_owned(),
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        buffer_directory: Some(directory.clone()),
        upload_interval: Duration::from_secs(1),
        timeout: Duration::from_secs(2),
        cpu_budget: 0.0,
        ..Config::default()
    };
    let profiler = Profiler::start(config)?;
    for turn in 0.. {
        tag_wrapper([("endpoint", format!("/orders/{}", turn % 50).as_str())], || black_box(work()));
        std::thread::sleep(Duration::from_millis(20));
        if turn % 10 == 0 {
            print_counters(&profiler.stats());
        }
    }
    Ok(())
}
