//! Time as the exporter sees it: one seam, so that tests need not wait for a back-off.
//!
//! Deadlines given by a caller (`flush`, `stop`) and the timeout of one attempt are real time and do not pass here.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

/// Where ages, dates and the pauses between attempts come from.
pub trait Clock: Send + Sync + 'static {
    /// A reading of a clock that never goes back; only differences mean something.
    fn monotonic(&self) -> Duration;

    /// The date.
    fn unix(&self) -> Duration;

    /// A pause between two attempts; polled on the export thread.
    fn pause(&self, length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The machine's clocks.
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
