//! Load on the demo's service: a few clients that send trace context as an instrumented caller would.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http;
use crate::step::{Failure, Outcome};

const CLIENTS: u64 = 3;
/// Pause of a client between two requests: keeps the service below saturation.
const PAUSE: Duration = Duration::from_millis(25);

/// A request that was answered.
pub struct SlowRequest {
    /// Path and query.
    pub path: &'static str,
    /// Its trace, in hexadecimal digits.
    pub trace_id: String,
    /// Until the answer was whole.
    pub took: Duration,
}

/// Clients at work; they end when it is dropped.
pub struct Load {
    port: u16,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    /// Starts the clients.
    pub fn start(port: u16) -> Self {
        let shared = Arc::new(Shared::default());
        let clients = (0..CLIENTS)
            .map(|client| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || drive(port, client, &shared))
            })
            .collect();
        Self { port, shared, clients }
    }

    /// One request that uses enough CPU time to be seen alone.
    pub fn one_slow_request(&self) -> Outcome<SlowRequest> {
        let path = "/report?rows=60000";
        let trace_id = format!("{:016x}{:016x}", random(), random());
        let begun = Instant::now();
        match request(self.port, path, &trace_id) {
            Ok(200) => Ok(SlowRequest { path, trace_id, took: begun.elapsed() }),
            other => Err(Failure::new("one slow request", format!("the service answered {other:?}"))),
        }
    }

    /// Requests answered with 200 so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Requests answered otherwise, or not at all.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

fn drive(port: u16, client: u64, shared: &Shared) {
    let paths = ["/cart/7", "/search?words=bicycle", "/cart/12", "/report?rows=2000"];
    for number in client.. {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let path = paths[(number % paths.len() as u64) as usize];
        let trace_id = format!("{:016x}{:016x}", random(), random());
        let counter = match request(port, path, &trace_id) {
            Ok(200) => &shared.answered,
            _ => &shared.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}

fn request(port: u16, path: &str, trace_id: &str) -> std::io::Result<u16> {
    let traceparent = format!("traceparent: 00-{trace_id}-{:016x}-01", random());
    http::get_with(port, path, &traceparent).map(|(status, _)| status)
}

/// A number that no other caller has; never zero, which a trace id may not be.
fn random() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}
