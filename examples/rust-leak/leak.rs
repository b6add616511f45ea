//! A program that leaks: each request adds to a cache that nothing empties. Writes two windows of its heap into a directory.
//!
//! ```sh
//! cargo run -p spanprof --example rust-leak -- profiles
//! spanprof diff profiles/inuse-*.pb.gz --type inuse_space
//! ```

use std::alloc::System;
use std::collections::HashMap;
use std::time::Duration;

use spanprof::config::{DestinationConfig, DestinationType};
use spanprof::{Config, Profiler};

#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

type Cache = HashMap<u32, Vec<u8>>;

fn remember(cache: &mut Cache, request: u32) {
    cache.insert(request, vec![0; 20_000]);
}

fn render(request: u32) -> String {
    (0..1000).map(|item| format!("<li>{request} {item}</li>")).collect()
}

fn serve(cache: &mut Cache, requests: std::ops::Range<u32>) {
    for request in requests {
        spanprof::tag_wrapper([("endpoint", "/cart")], || {
            remember(cache, request);
            render(request)
        });
    }
}

fn main() -> Result<(), spanprof::Error> {
    let mut files = DestinationConfig::new(DestinationType::File);
    files.directory = std::env::args().nth(1);
    let config = Config {
        service_name: "checkout-leak".to_owned(),
        heap: true,
        destinations: Some(vec![files]),
        ..Config::default()
    };
    let profiler = Profiler::start(config)?;
    let mut cache = Cache::new();
    serve(&mut cache, 0..1000);
    profiler.flush(Duration::from_secs(10));
    serve(&mut cache, 1000..4000);
    profiler.stop();
    Ok(())
}
