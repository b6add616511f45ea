//! Load on the demo's service: clients that send trace context, as an instrumented caller does.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http;
use crate::step::{StepFailure, StepResult};

const CLIENTS: u64 = 3;
/// Pause of a client between two requests: keeps the service below saturation.
const PAUSE: Duration = Duration::from_millis(25);

/// A completed request.
pub struct SlowRequest {
    /// Path and query.
    pub path: String,
    /// Its trace, in hexadecimal digits.
    pub trace_id: String,
    /// Time until the response was complete.
    pub took: Duration,
}

/// Running clients; dropping the value stops them.
pub struct Load {
    port: u16,
    state: Arc<LoadState>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    /// Starts the clients.
    pub fn start(port: u16) -> Self {
        let state = Arc::new(LoadState::default());
        let clients = (0..CLIENTS)
            .map(|client| {
                let state = Arc::clone(&state);
                std::thread::spawn(move || drive(port, client, &state))
            })
            .collect();
        Self { port, state, clients }
    }

    /// Sends one request whose report has `rows`, hundreds of times those of the other requests.
    pub fn slow_request(&self, rows: u64) -> StepResult<SlowRequest> {
        let path = format!("/report?rows={rows}");
        let trace_id = format!("{:016x}{:016x}", random(), random());
        let begun = Instant::now();
        match request(self.port, &path, &trace_id) {
            Ok(200) => Ok(SlowRequest { path, trace_id, took: begun.elapsed() }),
            other => Err(StepFailure::new("one slow request", format!("the service returned {other:?}"))),
        }
    }

    /// Responses with status 200 so far.
    pub fn succeeded(&self) -> u64 {
        self.state.succeeded.load(Ordering::Relaxed)
    }

    /// Requests with another status or none.
    pub fn failed(&self) -> u64 {
        self.state.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

fn drive(port: u16, client: u64, state: &LoadState) {
    let paths = ["/cart/7", "/search?words=bicycle", "/cart/12", "/report?rows=2000"];
    for number in client.. {
        if state.stop.load(Ordering::Relaxed) {
            return;
        }
        let path = paths[(number % paths.len() as u64) as usize];
        let trace_id = format!("{:016x}{:016x}", random(), random());
        let counter = match request(port, path, &trace_id) {
            Ok(200) => &state.succeeded,
            _ => &state.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}

fn request(port: u16, path: &str, trace_id: &str) -> std::io::Result<u16> {
    let traceparent = format!("traceparent: 00-{trace_id}-{:016x}-01", random());
    http::get_with(port, path, &traceparent).map(|(status, _)| status)
}

/// A random number; never zero, which is no valid trace id.
fn random() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}
