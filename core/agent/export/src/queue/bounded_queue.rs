//! The bounded queue of one destination, and its counters. One short lock: the profiler takes it to enqueue, the export thread
//! to dequeue and to count results. Network, files and retries belong to the senders and to `deliver`.

use crate::clock::Clock;
use crate::payload::{ExportPayload, SplitFn};
use crate::queue::buffered_request::StoredRequest;
use crate::settings::{BufferSettings, ExporterSettings};
use crate::stats::{DestinationStats, DiscardReason, RemovedFiles};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A payload, or one part of a split payload, in the queue or in flight.
#[derive(Clone)]
pub(crate) struct QueuedPayload {
    pub body: Bytes,
    pub profile_type: Option<String>,
    pub time_unix_ms: u64,
    pub samples: u64,
    pub split: Option<SplitFn>,
    /// JSON text beside a file.
    pub sidecar: Option<Bytes>,
    /// Reading of the monotonic clock after which it is no longer retried.
    pub expires_at: Duration,
    /// Its file in the disk buffer. The body may then be empty until it is loaded.
    pub stored: Option<StoredRequest>,
}

/// Final result of a payload.
#[derive(Debug)]
pub(crate) enum DeliveryResult {
    /// Accepted completely, perhaps with a warning.
    Sent { warning: Option<String> },
    /// Accepted, with profiles rejected.
    Partial { rejected_profiles: u64, message: String },
    /// Discarded. Without a message the last error remains, since it is the reason of the retries.
    Discarded { reason: DiscardReason, message: Option<String> },
}

/// Position and losses of a queue at one moment, read by `flush` or before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueMark {
    next_sequence: u64,
    dropped: u64,
}

impl QueueMark {
    /// This position, with the losses counted from `earlier` on.
    pub fn with_losses_since(self, earlier: Self) -> Self {
        Self { dropped: earlier.dropped, ..self }
    }
}

/// Maximum number of payloads of one destination in the disk buffer: bounds the memory of the list of their names.
const MAX_STORED_PAYLOADS: usize = 16_384;

/// A payload in the queue.
struct WaitingPayload {
    sequence: u64,
    /// False until the disk buffer has stored the payload or failed to. Always true without a disk buffer.
    is_ready: bool,
    payload: QueuedPayload,
}

pub(crate) struct DestinationQueue {
    max_bytes: usize,
    max_payloads: usize,
    max_age: Duration,
    buffer_max_bytes: Option<u64>,
    clock: Arc<dyn Clock>,
    state: Mutex<QueueState>,
    settled: Condvar,
    arrived: Notify,
    /// Notified when a payload became ready; used with a disk buffer only.
    ready: Notify,
}

struct QueueState {
    waiting: VecDeque<WaitingPayload>,
    /// Bytes of bodies in memory.
    waiting_bytes: usize,
    /// Waiting payloads in the disk buffer, and the bytes of their bodies there.
    stored_payloads: usize,
    stored_bytes: u64,
    in_flight: Option<InFlightPayload>,
    next_sequence: u64,
    /// Set when the queue closes: later payloads are discarded for this reason.
    closed: Option<DiscardReason>,
    stats: DestinationStats,
}

struct InFlightPayload {
    sequence: u64,
    /// Parts that are not counted yet.
    payloads: usize,
    bytes: usize,
    /// Bytes of the body in the disk buffer.
    stored_bytes: Option<u64>,
}

impl DestinationQueue {
    pub fn new(kind: &'static str, target: String, settings: &ExporterSettings) -> Self {
        let stats = DestinationStats { kind, target, ..DestinationStats::default() };
        Self {
            max_bytes: settings.queue_max_bytes,
            max_payloads: settings.queue_max_payloads.max(1),
            max_age: settings.retry_max_age,
            buffer_max_bytes: None,
            clock: settings.clock.clone(),
            state: Mutex::new(QueueState {
                waiting: VecDeque::new(),
                waiting_bytes: 0,
                stored_payloads: 0,
                stored_bytes: 0,
                in_flight: None,
                // Adopted payloads have the number 0, so that `flush` waits for them.
                next_sequence: 1,
                closed: None,
                stats,
            }),
            settled: Condvar::new(),
            arrived: Notify::new(),
            ready: Notify::new(),
        }
    }

    /// With a disk buffer, payloads wait until they are stored.
    pub fn with_buffer(mut self, buffer: Option<&BufferSettings>) -> Self {
        if let Some(buffer) = buffer {
            self.buffer_max_bytes = Some(buffer.max_bytes);
            self.max_age = buffer.max_age;
        }
        self
    }

    /// Appends a payload; when it does not fit, the oldest in memory are discarded.
    pub fn enqueue(&self, payload: ExportPayload) {
        let now_unix_ms = self.unix_ms();
        let payload = QueuedPayload {
            body: Bytes::from(payload.body),
            profile_type: payload.profile_type,
            time_unix_ms: payload.time_unix_ms,
            samples: payload.samples,
            split: payload.split,
            sidecar: payload.sidecar.map(Bytes::from),
            expires_at: self.clock.monotonic().saturating_add(self.max_age),
            stored: None,
        };
        // Declared before the lock guard, so that evicted payloads are freed after the lock is released.
        let mut evicted = Vec::new();
        let mut state = self.lock();
        state.stats.enqueued += 1;
        if let Some(reason) = state.closed {
            state.count_discarded(reason, payload.samples);
            evicted.push(payload);
            return;
        }
        if payload.body.len() > self.max_bytes {
            let message = format!(
                "a payload of {} bytes is larger than the whole queue of {} bytes",
                payload.body.len(),
                self.max_bytes
            );
            state.record_failure(message, now_unix_ms);
            state.count_discarded(DiscardReason::QueueFull, payload.samples);
            evicted.push(payload);
            return;
        }
        while state.waiting.len() - state.stored_payloads >= self.max_payloads
            || state.waiting_bytes + payload.body.len() > self.max_bytes
        {
            let Some(oldest) = state.waiting.iter().position(|waiting| waiting.payload.stored.is_none()) else { break };
            let Some(oldest) = state.remove(oldest) else { break };
            state.count_discarded(DiscardReason::QueueFull, oldest.samples);
            evicted.push(oldest);
        }
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        state.waiting_bytes += payload.body.len();
        state.waiting.push_back(WaitingPayload { sequence, is_ready: self.buffer_max_bytes.is_none(), payload });
        drop(state);
        self.arrived.notify_one();
    }

    /// Resolves when a payload was enqueued since the last call; may resolve spuriously once.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Resolves when a payload may have become ready.
    pub async fn readiness(&self) {
        match self.buffer_max_bytes {
            Some(_) => self.ready.notified().await,
            None => self.arrived.notified().await,
        }
    }

    /// Dequeues the oldest payload if it is ready; it is in flight until [`DestinationQueue::settle`].
    pub fn take(&self) -> Option<QueuedPayload> {
        let mut state = self.lock();
        let WaitingPayload { sequence, .. } = state.waiting.front().filter(|oldest| oldest.is_ready)?;
        let sequence = *sequence;
        let payload = state.remove(0)?;
        let stored_bytes = payload.stored.as_ref().map(|stored| stored.bytes);
        let bytes = payload.body.len();
        state.in_flight = Some(InFlightPayload { sequence, payloads: 1, bytes, stored_bytes });
        Some(payload)
    }

    /// The oldest payload that the disk buffer has not stored.
    pub fn next_to_store(&self) -> Option<(u64, QueuedPayload)> {
        let state = self.lock();
        let waiting = state.waiting.iter().rev().take_while(|waiting| !waiting.is_ready).last()?;
        Some((waiting.sequence, waiting.payload.clone()))
    }

    /// Marks a payload as stored and frees its body, except that of the oldest, which is sent next. Returns the requests to
    /// remove: the oldest beyond the bounds, or this one when the queue has discarded it meanwhile.
    pub fn mark_stored(&self, sequence: u64, stored: StoredRequest) -> Vec<StoredRequest> {
        let mut state = self.lock();
        let Some(index) = state.waiting_at(sequence) else { return vec![stored] };
        let is_next = index == 0 && state.in_flight.is_none();
        state.stored_payloads += 1;
        state.stored_bytes += stored.bytes;
        let waiting = &mut state.waiting[index];
        waiting.is_ready = true;
        waiting.payload.stored = Some(stored);
        if !is_next {
            let body = std::mem::take(&mut waiting.payload.body);
            state.waiting_bytes -= body.len();
        }
        let evicted = state.evict_stored(self.buffer_max_bytes);
        drop(state);
        self.ready.notify_one();
        evicted
    }

    /// Marks a payload as ready that could not be stored: it is sent from memory.
    pub fn mark_not_stored(&self, sequence: u64, error: &std::io::Error) {
        let now_unix_ms = self.unix_ms();
        let mut state = self.lock();
        state.stats.buffer_errors += 1;
        state.record_failure(format!("a request stays in memory, since it cannot be buffered: {error}"), now_unix_ms);
        if let Some(index) = state.waiting_at(sequence) {
            state.waiting[index].is_ready = true;
        }
        drop(state);
        self.ready.notify_one();
    }

    /// Puts the requests of exited processes before all others. Returns those beyond the bounds, which are to be removed.
    pub fn adopt(&self, payloads: Vec<QueuedPayload>, torn: u64) -> Vec<StoredRequest> {
        let mut state = self.lock();
        state.stats.enqueued += payloads.len() as u64 + torn;
        state.stats.buffer_adopted += payloads.len() as u64;
        state.stats.dropped[DiscardReason::Torn as usize].payloads += torn;
        for payload in payloads.into_iter().rev() {
            state.stored_payloads += 1;
            state.stored_bytes += payload.stored.as_ref().map_or(0, |stored| stored.bytes);
            state.waiting.push_front(WaitingPayload { sequence: 0, is_ready: true, payload });
        }
        let evicted = state.evict_stored(self.buffer_max_bytes);
        drop(state);
        self.ready.notify_one();
        evicted
    }

    /// Whether nothing waits, ready or not.
    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Counts the split of the payload in flight.
    pub fn count_split(&self, parts: usize, bytes: usize) {
        let mut state = self.lock();
        state.stats.splits += 1;
        if let Some(in_flight) = &mut state.in_flight {
            in_flight.payloads += parts - 1;
            in_flight.bytes = bytes;
        }
    }

    /// Records the error of a failed attempt.
    pub fn record_failure(&self, message: String) {
        let now_unix_ms = self.unix_ms();
        self.lock().record_failure(message, now_unix_ms);
    }

    /// Counts files that an attempt removed.
    pub fn count_removed(&self, files: RemovedFiles) {
        self.lock().stats.files_removed.add(files);
    }

    /// Counts another attempt for the same payload.
    pub fn count_retry(&self) {
        self.lock().stats.retries += 1;
    }

    /// Counts the result of one part of the payload in flight.
    pub fn count_result(&self, payload: &QueuedPayload, result: DeliveryResult) {
        let now_unix_ms = self.unix_ms();
        let mut state = self.lock();
        if let Some(in_flight) = &mut state.in_flight {
            in_flight.payloads = in_flight.payloads.saturating_sub(1);
            in_flight.bytes = in_flight.bytes.saturating_sub(payload.body.len());
        }
        match result {
            DeliveryResult::Sent { warning } => {
                state.stats.sent += 1;
                state.stats.sent_samples += payload.samples;
                state.stats.sent_bytes += payload.body.len() as u64;
                state.stats.last_success_unix_ms = Some(now_unix_ms);
                if warning.is_some() {
                    state.stats.last_warning = warning;
                }
            }
            DeliveryResult::Partial { rejected_profiles, message } => {
                state.stats.rejected_profiles += rejected_profiles;
                state.stats.last_success_unix_ms = Some(now_unix_ms);
                state.record_failure(message, now_unix_ms);
                state.count_discarded(DiscardReason::Partial, payload.samples);
            }
            DeliveryResult::Discarded { reason, message } => {
                if let Some(message) = message {
                    state.record_failure(message, now_unix_ms);
                }
                state.count_discarded(reason, payload.samples);
            }
        }
    }

    /// Counts a part in flight that stays in the disk buffer for another process.
    pub fn count_left(&self, payload: &QueuedPayload) {
        let mut state = self.lock();
        if let Some(in_flight) = &mut state.in_flight {
            in_flight.payloads = in_flight.payloads.saturating_sub(1);
            in_flight.bytes = in_flight.bytes.saturating_sub(payload.body.len());
        }
        state.stats.buffer_left += 1;
    }

    /// Marks the payload of the last [`DestinationQueue::take`] as settled.
    pub fn settle(&self) {
        self.lock().in_flight = None;
        self.settled.notify_all();
    }

    /// Closes the queue: waiting and later payloads are discarded for `reason`, except those in the disk buffer. The payload in
    /// flight is counted by `InFlightParts`. The first reason remains.
    pub fn close(&self, reason: DiscardReason) {
        let waiting = {
            let mut state = self.lock();
            state.closed.get_or_insert(reason);
            (state.waiting_bytes, state.stored_payloads, state.stored_bytes) = (0, 0, 0);
            let waiting = std::mem::take(&mut state.waiting);
            for WaitingPayload { payload, .. } in &waiting {
                match payload.stored {
                    Some(_) => state.stats.buffer_left += 1,
                    None => state.count_discarded(reason, payload.samples),
                }
            }
            waiting
        };
        self.settled.notify_all();
        drop(waiting);
    }

    /// Disables the destination after a panic of its task.
    pub fn disable(&self, message: String) {
        let now_unix_ms = self.unix_ms();
        {
            let mut state = self.lock();
            state.stats.panics += 1;
            state.stats.disabled = true;
            state.record_failure(message, now_unix_ms);
        }
        self.close(DiscardReason::Disabled);
    }

    /// Position and losses of the queue at this moment.
    pub fn mark(&self) -> QueueMark {
        let state = self.lock();
        QueueMark { next_sequence: state.next_sequence, dropped: state.undelivered() }
    }

    /// Waits until all payloads enqueued before the mark are settled, at most until `until`; `true` when none was lost.
    pub fn wait_until_settled(&self, mark: QueueMark, until: Instant) -> bool {
        let mut state = self.lock();
        while state.oldest_sequence().is_some_and(|sequence| sequence < mark.next_sequence) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.settled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.undelivered() == mark.dropped && !state.stats.disabled
    }

    pub fn stats(&self) -> DestinationStats {
        let state = self.lock();
        let mut stats = state.stats.clone();
        let (payloads, bytes) = state.in_flight.as_ref().map_or((0, 0), |flight| (flight.payloads, flight.bytes));
        let stored_in_flight = state.in_flight.as_ref().and_then(|flight| flight.stored_bytes);
        stats.queue_payloads = state.waiting.len() + payloads;
        stats.queue_bytes = state.waiting_bytes + bytes;
        stats.buffer_payloads = state.stored_payloads + usize::from(stored_in_flight.is_some());
        stats.buffer_bytes = state.stored_bytes + stored_in_flight.unwrap_or(0);
        stats
    }

    fn unix_ms(&self) -> u64 {
        u64::try_from(self.clock.unix().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code panics in the middle of an update under the lock, so the counters behind a poisoned lock are valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn record_failure(&mut self, message: String, now_unix_ms: u64) {
        self.stats.last_error = Some(message);
        self.stats.last_error_unix_ms = Some(now_unix_ms);
    }

    fn count_discarded(&mut self, reason: DiscardReason, samples: u64) {
        let dropped = &mut self.stats.dropped[reason as usize];
        dropped.payloads += 1;
        dropped.samples += samples;
    }

    fn oldest_sequence(&self) -> Option<u64> {
        match &self.in_flight {
            Some(in_flight) => Some(in_flight.sequence),
            None => self.waiting.front().map(|waiting| waiting.sequence),
        }
    }

    /// Position of a payload of this process.
    fn waiting_at(&self, sequence: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&sequence, |waiting| waiting.sequence).ok()
    }

    /// Discards the oldest stored payloads beyond the bounds of the disk buffer.
    fn evict_stored(&mut self, max_bytes: Option<u64>) -> Vec<StoredRequest> {
        let mut evicted = Vec::new();
        while self.stored_bytes > max_bytes.unwrap_or(u64::MAX) || self.stored_payloads > MAX_STORED_PAYLOADS {
            let Some(oldest) = self.waiting.iter().position(|waiting| waiting.payload.stored.is_some()) else { break };
            let Some(oldest) = self.remove(oldest) else { break };
            self.count_discarded(DiscardReason::QueueFull, oldest.samples);
            evicted.extend(oldest.stored);
        }
        evicted
    }

    /// Payloads that were not delivered by this process.
    fn undelivered(&self) -> u64 {
        self.stats.dropped_total().payloads + self.stats.buffer_left
    }

    /// Removes a waiting payload.
    fn remove(&mut self, at: usize) -> Option<QueuedPayload> {
        let payload = self.waiting.remove(at)?.payload;
        self.waiting_bytes -= payload.body.len();
        if let Some(stored) = &payload.stored {
            self.stored_payloads -= 1;
            self.stored_bytes -= stored.bytes;
        }
        Some(payload)
    }
}

#[cfg(test)]
#[path = "bounded_queue_tests.rs"]
mod tests;
