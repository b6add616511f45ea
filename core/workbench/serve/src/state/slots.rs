//! Bounds on concurrent work: connections of both ports, and blocking tasks of one kind. Further ones wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, Instant};

/// Connections served at once, both ports together; further ones wait in the listen queue.
const MAX_CONNECTIONS: usize = 64;
/// Interval of the idle check of a connection.
pub(crate) const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a full server counts as full after a slot became free: other connections keep the short deadlines.
const FULL_LASTS: Duration = Duration::from_secs(1);

/// Slots for connections, shared by both ports.
pub(crate) struct ConnectionSlots {
    slots: Arc<Semaphore>,
    started: Instant,
    /// Milliseconds from `started` to the end of the last wait for a slot, plus 1; 0 when there was none.
    last_full_millis: AtomicU64,
}

impl ConnectionSlots {
    pub(crate) fn new() -> Self {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        ConnectionSlots { slots, started: Instant::now(), last_full_millis: AtomicU64::new(0) }
    }

    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return Some(slot);
        }
        let slot = self.slots.clone().acquire_owned().await.ok();
        self.last_full_millis.store(self.started.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        slot
    }

    /// Whether every slot is in use, or was within [`FULL_LASTS`].
    pub(crate) fn are_full(&self) -> bool {
        let full_at = Duration::from_millis(self.last_full_millis.load(Ordering::Relaxed));
        self.slots.available_permits() == 0 || (!full_at.is_zero() && self.started.elapsed() < full_at + FULL_LASTS)
    }

    /// Resolves when no connection is left.
    pub(crate) async fn all_free(&self) {
        let _ = self.slots.acquire_many(MAX_CONNECTIONS as u32).await;
    }

    /// Resolves `at_most` after `since`, or after `when_full` once the server is full.
    pub(crate) async fn deadline_passed(&self, since: Instant, when_full: Duration, at_most: Duration) {
        loop {
            let passed = since.elapsed();
            if passed >= at_most || (passed >= when_full && self.are_full()) {
                return;
            }
            sleep(IDLE_CHECK_INTERVAL).await;
        }
    }
}

/// Bounds the number of concurrent blocking tasks of one kind; further ones wait.
pub(crate) struct WorkerSlots(Arc<Semaphore>);

impl WorkerSlots {
    pub(crate) fn new(count: usize) -> Self {
        WorkerSlots(Arc::new(Semaphore::new(count)))
    }

    /// Runs `work` on a blocking thread. A panic is an error of this request only.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let slot = self.0.clone().acquire_owned().await.map_err(|_| "the server is stopping".to_owned())?;
        let task = tokio::task::spawn_blocking(move || {
            let outcome = work();
            drop(slot);
            outcome
        });
        task.await.map_err(|_| "internal error of spanprof; please report it".to_owned())
    }
}
