//! A program that leaks: each request adds to a cache that nothing empties. Sessions expire after two windows. Writes the heap of
//! eight windows into a directory.
//!
//! ```sh
//! cargo run -p spanprof --example rust-leak -- profiles
//! spanprof top profiles --type inuse_space --label age=old
//! ```

use std::alloc::System;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use spanprof::config::{DestinationConfig, DestinationType};
use spanprof::{Config, Profiler};

#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

const MAX_SESSIONS: usize = 1000;

#[derive(Default)]
struct Shop {
    cache: HashMap<u32, Vec<u8>>,
    sessions: VecDeque<Vec<u8>>,
}

fn remember(shop: &mut Shop, request: u32) {
    shop.cache.insert(request, vec![0; 20_000]);
}

fn open_session(shop: &mut Shop) {
    if shop.sessions.len() == MAX_SESSIONS {
        shop.sessions.pop_front();
    }
    shop.sessions.push_back(vec![0; 40_000]);
}

fn render(request: u32) -> String {
    (0..1000).map(|item| format!("<li>{request} {item}</li>")).collect()
}

fn serve(shop: &mut Shop, requests: std::ops::Range<u32>) {
    for request in requests {
        spanprof::tag_wrapper([("endpoint", "/cart")], || {
            remember(shop, request);
            open_session(shop);
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
    let mut shop = Shop::default();
    for window in 0..8 {
        if window > 0 {
            // Ends a window. In a service, one ends every 10 seconds.
            profiler.flush(Duration::from_secs(10));
        }
        serve(&mut shop, 500 * window..500 * window + 500);
    }
    profiler.stop();
    Ok(())
}
