//! Test clocks: one whose delays end at once, one that runs fast.

use spanprof_export::Clock;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Start of [`InstantClock`]: 2026-11-21 00:00:00 UTC.
pub const START_UNIX: Duration = Duration::from_secs(1_795_219_200);

/// Advances only by delays, and records them.
#[derive(Default)]
pub struct InstantClock {
    pauses: Mutex<Vec<Duration>>,
}

impl InstantClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn pauses(&self) -> Vec<Duration> {
        self.pauses.lock().unwrap().clone()
    }
}

impl Clock for InstantClock {
    fn monotonic(&self) -> Duration {
        self.pauses.lock().unwrap().iter().sum()
    }

    fn unix(&self) -> Duration {
        START_UNIX + self.monotonic()
    }

    fn pause(&self, length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.pauses.lock().unwrap().push(length);
        // Real receivers need real time to change state.
        Box::pin(tokio::time::sleep(Duration::from_millis(1)))
    }
}

/// Runs `factor` times as fast as real time.
pub struct FastClock {
    origin: Instant,
    factor: u32,
}

impl FastClock {
    pub fn new(factor: u32) -> Arc<Self> {
        Arc::new(Self { origin: Instant::now(), factor })
    }
}

impl Clock for FastClock {
    fn monotonic(&self) -> Duration {
        self.origin.elapsed() * self.factor
    }

    fn unix(&self) -> Duration {
        START_UNIX + self.monotonic()
    }

    fn pause(&self, length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(length / self.factor))
    }
}
