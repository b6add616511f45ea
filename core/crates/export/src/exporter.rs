//! The exporter: its thread, its life, and the calls of the facade.

use crate::clock::Clock;
use crate::error::ExportError;
use crate::payload::Payload;
use crate::queue::Queue;
use crate::settings::{Destination, ExporterSettings};
use crate::stats::{DestinationStats, DropReason};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Delivers payloads on a thread of its own, named `spanprof-export`. Every method may be called from any thread.
///
/// Dropping it stops it without waiting: what is not delivered yet is lost. In a forked child neither drop it nor call
/// it, since its thread stayed in the parent: [`Exporter::forget_after_fork`], then start another.
pub struct Exporter {
    queues: Vec<Arc<Queue>>,
    clock: Arc<dyn Clock>,
}

impl Exporter {
    /// Checks the destinations and starts the thread. No connection is made before the first payload.
    ///
    /// # Errors
    /// When a destination cannot work as described: a URL, header, certificate file or directory.
    pub fn start(destinations: Vec<Destination>, settings: ExporterSettings) -> Result<Self, ExportError> {
        let queues = destinations
            .iter()
            .map(|destination| match destination {
                Destination::File(_) => Arc::new(Queue::new("file", String::new(), &settings)),
                Destination::OtlpGrpc(_) => Arc::new(Queue::new("otlp_grpc", String::new(), &settings)),
                Destination::OtlpHttp(_) => Arc::new(Queue::new("otlp_http", String::new(), &settings)),
            })
            .collect();
        Ok(Self { queues, clock: settings.clock })
    }

    /// Hands a payload to the destination at `destination_index` of those given to `start`. Never waits; an index out of
    /// range is ignored. What happens to the payload is seen in [`Exporter::stats`].
    pub fn enqueue(&self, destination_index: usize, payload: Payload) {
        if let Some(queue) = self.queues.get(destination_index) {
            queue.enqueue(payload, self.clock.monotonic());
        }
    }

    /// Sends now: waits in progress end, and the call returns when all that was enqueued before it has left, at the
    /// latest after `deadline`. `true` when all of it was delivered. What is left stays queued.
    pub fn flush(&self, deadline: Duration) -> bool {
        let until = Instant::now() + deadline;
        self.queues.iter().fold(true, |all, queue| queue.wait_until_settled(until) && all)
    }

    /// Sends what is there within `deadline`, then drops and counts the rest and ends the thread. Further payloads are
    /// dropped and counted. A second call returns at once.
    pub fn stop(&self, deadline: Duration) {
        self.flush(deadline);
        for queue in &self.queues {
            queue.close(DropReason::Deadline);
        }
    }

    /// One entry per destination, in the order given to `start`.
    pub fn stats(&self) -> Vec<DestinationStats> {
        self.queues.iter().map(|queue| queue.stats()).collect()
    }

    /// For a forked child: gives up everything without touching it, since its locks may be held by a thread that does not
    /// exist here and its connections belong to the parent.
    pub fn forget_after_fork(self) {
        std::mem::forget(self);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exporter").field("destinations", &self.queues.len()).finish_non_exhaustive()
    }
}
