//! Clock of the exporter behind a trait, so that tests skip the back-off.
//!
//! Deadlines of `flush` and `stop` and the timeout of one attempt use real time.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

/// Source of ages, dates and the delays between attempts.
pub trait Clock: Send + Sync + 'static {
    /// A monotonic reading; only differences are meaningful.
    fn monotonic(&self) -> Duration;

    /// Time since the Unix epoch.
    fn unix(&self) -> Duration;

    /// Waits between two attempts; polled on the export thread.
    fn pause(&self, length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn unix(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn pause(&self, length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(length))
    }
}
