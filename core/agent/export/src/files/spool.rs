//! Moves the payloads of one destination from its queue into the disk buffer, and takes those of exited processes from there.
//! Runs on the export thread beside the delivery; the files are read and written on threads that may block.

use crate::clock::Clock;
use crate::connect::blocking::{self, Pending};
use crate::files::disk_buffer::{DiskBuffer, LoadFailure};
use crate::queue::bounded_queue::{DestinationQueue, QueuedPayload};
use crate::queue::buffered_request::StoredRequest;
use crate::settings::{BufferSettings, StartThread};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a write is given up. The payload is then sent from memory.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Time beyond the deadline of `stop` in which the last payloads are stored; below the grace of `Exporter::stop`.
const FINISH_LIMIT: Duration = Duration::from_millis(40);

/// Operations on the files of a disk buffer, each on a thread of its own.
#[derive(Clone)]
pub(crate) struct BufferedFiles {
    buffer: Arc<DiskBuffer>,
    start_thread: StartThread,
}

impl BufferedFiles {
    pub fn new(buffer: Arc<DiskBuffer>, start_thread: StartThread) -> Self {
        Self { buffer, start_thread }
    }

    pub async fn load(&self, stored: StoredRequest) -> Result<Bytes, LoadFailure> {
        let name = stored.name.clone();
        let loaded = match self.spawn(move |buffer| buffer.load(&stored)) {
            Ok(pending) => pending.await.unwrap_or_else(|_| Err(LoadFailure::Torn(format!("{name}: internal error")))),
            Err(error) => Err(LoadFailure::Torn(format!("{name} cannot be read: {error}"))),
        };
        loaded
    }

    pub async fn remove(&self, stored: Vec<StoredRequest>) {
        if let Ok(pending) = self.spawn(move |buffer| buffer.remove(&stored)) {
            // The result of a panic is a file that remains.
            let _ = pending.await;
        }
    }

    fn spawn<T: Send + 'static>(&self, work: impl FnOnce(&DiskBuffer) -> T + Send + 'static) -> io::Result<Pending<T>> {
        let buffer = self.buffer.clone();
        blocking::spawn(self.start_thread, move || work(&buffer))
    }
}

/// The writer and reader of one destination's disk buffer.
pub(crate) struct Spool {
    pub queue: Arc<DestinationQueue>,
    pub files: BufferedFiles,
    pub clock: Arc<dyn Clock>,
    pub settings: BufferSettings,
    /// A write that has not ended within [`WRITE_LIMIT`], and its file.
    pub stuck: Option<(Pending<io::Result<()>>, StoredRequest)>,
}

impl Spool {
    /// Takes the requests of exited processes, then stores payloads as they arrive. Never returns.
    pub async fn run(&mut self) {
        self.adopt().await;
        loop {
            self.store_waiting().await;
            self.queue.arrival().await;
        }
    }

    /// Stores what waits when the delivery has ended, at most until shortly after the deadline of `stop`.
    pub async fn finish(&mut self, stop_at: Option<Instant>) {
        let until = stop_at.unwrap_or_else(Instant::now).max(Instant::now()) + FINISH_LIMIT;
        // Payloads that are not stored by then are counted when the queue closes.
        let _ = tokio::time::timeout_at(until, self.store_waiting()).await;
        if let Ok(removed) = self.files.spawn(DiskBuffer::finish) {
            // A directory that remains is removed by the next exporter.
            let _ = tokio::time::timeout_at(until, removed).await;
        }
    }

    async fn adopt(&mut self) {
        let adopted = match self.files.spawn(DiskBuffer::adopt) {
            Ok(pending) => pending.await.unwrap_or_else(|_| Err(io::Error::other("internal error"))),
            Err(error) => Err(error),
        };
        match adopted {
            Ok((requests, torn)) => {
                let (now, unix_now) = (self.clock.monotonic(), self.clock.unix());
                let payloads = requests.into_iter().map(|adopted| {
                    let age = unix_now.saturating_sub(Duration::from_millis(adopted.header.time_unix_ms));
                    QueuedPayload {
                        body: Bytes::new(),
                        profile_type: None,
                        time_unix_ms: adopted.header.time_unix_ms,
                        samples: adopted.header.samples,
                        split: self.settings.split,
                        sidecar: None,
                        expires_at: now.saturating_add(self.settings.max_age).saturating_sub(age),
                        stored: Some(adopted.request),
                    }
                });
                let evicted = self.queue.adopt(payloads.collect(), torn);
                self.files.remove(evicted).await;
            }
            Err(error) => self.queue.record_failure(format!("the buffer of exited processes cannot be read: {error}")),
        }
    }

    async fn store_waiting(&mut self) {
        while let Some((sequence, payload)) = self.queue.next_to_store() {
            let name = self.files.buffer.name(payload.time_unix_ms, sequence);
            let stored = StoredRequest { name, bytes: payload.body.len() as u64 };
            match self.store(&payload, &stored).await {
                Ok(()) => {
                    let evicted = self.queue.mark_stored(sequence, stored);
                    if !evicted.is_empty() {
                        self.files.remove(evicted).await;
                    }
                }
                Err(error) => self.queue.mark_not_stored(sequence, &error),
            }
        }
    }

    async fn store(&mut self, payload: &QueuedPayload, stored: &StoredRequest) -> io::Result<()> {
        if let Some((pending, late)) = &mut self.stuck {
            if matches!(pending.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Empty)) {
                return Err(io::Error::other("the disk does not respond"));
            }
            // Its payload was sent from memory, or is.
            let late = vec![late.clone()];
            self.stuck = None;
            self.files.remove(late).await;
        }
        let (name, payload) = (stored.name.clone(), payload.clone());
        let mut pending = self.files.spawn(move |buffer| buffer.store(&name, &payload))?;
        match tokio::time::timeout(WRITE_LIMIT, &mut pending).await {
            Ok(result) => result.unwrap_or_else(|_| Err(io::Error::other("internal error"))),
            Err(_) => {
                self.stuck = Some((pending, stored.clone()));
                Err(io::Error::other(format!("the disk did not respond within {WRITE_LIMIT:?}")))
            }
        }
    }
}
