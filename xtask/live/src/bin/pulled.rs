//! The Rust counterpart of xtask/live/pull/program.py: works until it is terminated, with every profile on; prints the address at
//! which profiles are pulled.

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use spanprof::sync::Mutex;
use spanprof::{tag_wrapper, Config, Profiler, Secret, StatValue};

#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

#[inline(never)]
fn burn() -> u64 {
    // Without calls: the stack of the CPU sample needs no frame pointers.
    let (mut total, mut number) = (0, 0);
    while number < 200_000 {
        total = (total * 31 + number) % 65_537;
        number += 1;
    }
    total
}

#[inline(never)]
fn allocate(kept: &mut Vec<Vec<u8>>) {
    kept.push(vec![1; 20_000]);
    if kept.len() > 200 {
        kept.remove(0);
    }
}

#[inline(never)]
fn wait_for_lock() {
    let mut kept = KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    black_box(burn());
    allocate(&mut kept);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config {
        pull: Some("127.0.0.1:0".to_owned()),
        pull_token: Some(Secret::new("live-token")),
        destinations: Some(Vec::new()),
        service_name: "live-pull".to_owned(),
        wall: true,
        lock: true,
        off_cpu: true,
        threads: true,
        heap_interval: 4096,
        upload_interval: Duration::from_secs(3),
        ..Config::default()
    };
    let profiler = Profiler::start(config)?;
    let span =
        [("endpoint", "/cart"), ("trace_id", "0af7651916cd43dd8448eb211c80319c"), ("span_id", "b7ad6b7169203331")];
    for _ in 0..2 {
        std::thread::spawn(move || loop {
            tag_wrapper(span, wait_for_lock);
        });
    }
    if let Some(StatValue::Text(address)) = profiler.stats().get("pull.address") {
        println!("address {address}");
    }
    // The time limit of the suite.
    std::thread::sleep(Duration::from_secs(300));
    Ok(())
}
