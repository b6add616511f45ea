//! The bounded queue of one destination, and its counters. One short lock: the facade takes it to enqueue, the export thread
//! to dequeue and to count results. Network, files and retries belong to the senders and to `delivery`.

use crate::clock::Clock;
use crate::payload::{ExportPayload, SplitFn};
use crate::settings::ExporterSettings;
use crate::stats::{DestinationStats, DiscardReason};
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
    pub enqueued_at: Duration,
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

pub(crate) struct DestinationQueue {
    max_bytes: usize,
    max_payloads: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<QueueState>,
    settled: Condvar,
    arrived: Notify,
}

struct QueueState {
    waiting: VecDeque<(u64, QueuedPayload)>,
    waiting_bytes: usize,
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
}

impl DestinationQueue {
    pub fn new(kind: &'static str, target: String, settings: &ExporterSettings) -> Self {
        let stats = DestinationStats { kind, target, ..DestinationStats::default() };
        Self {
            max_bytes: settings.queue_max_bytes,
            max_payloads: settings.queue_max_payloads.max(1),
            clock: settings.clock.clone(),
            state: Mutex::new(QueueState {
                waiting: VecDeque::new(),
                waiting_bytes: 0,
                in_flight: None,
                next_sequence: 0,
                closed: None,
                stats,
            }),
            settled: Condvar::new(),
            arrived: Notify::new(),
        }
    }

    /// Appends a payload; when it does not fit, the oldest are discarded.
    pub fn enqueue(&self, payload: ExportPayload) {
        let now_unix_ms = self.unix_ms();
        let payload = QueuedPayload {
            body: Bytes::from(payload.body),
            profile_type: payload.profile_type,
            time_unix_ms: payload.time_unix_ms,
            samples: payload.samples,
            split: payload.split,
            enqueued_at: self.clock.monotonic(),
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
        while state.waiting.len() >= self.max_payloads || state.waiting_bytes + payload.body.len() > self.max_bytes {
            let Some((_, oldest)) = state.waiting.pop_front() else { break };
            state.waiting_bytes -= oldest.body.len();
            state.count_discarded(DiscardReason::QueueFull, oldest.samples);
            evicted.push(oldest);
        }
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        state.waiting_bytes += payload.body.len();
        state.waiting.push_back((sequence, payload));
        drop(state);
        self.arrived.notify_one();
    }

    /// Resolves when a payload was enqueued since the last call; may resolve spuriously once.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Dequeues the oldest payload; it is in flight until [`DestinationQueue::settle`].
    pub fn take(&self) -> Option<QueuedPayload> {
        let mut state = self.lock();
        let (sequence, payload) = state.waiting.pop_front()?;
        let bytes = payload.body.len();
        state.waiting_bytes -= bytes;
        state.in_flight = Some(InFlightPayload { sequence, payloads: 1, bytes });
        Some(payload)
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

    /// Marks the payload of the last [`DestinationQueue::take`] as settled.
    pub fn settle(&self) {
        self.lock().in_flight = None;
        self.settled.notify_all();
    }

    /// Closes the queue: waiting and later payloads are discarded for `reason`. The payload in flight is counted by
    /// `InFlightParts`. The first reason remains.
    pub fn close(&self, reason: DiscardReason) {
        let waiting = {
            let mut state = self.lock();
            state.closed.get_or_insert(reason);
            state.waiting_bytes = 0;
            let waiting = std::mem::take(&mut state.waiting);
            for (_, payload) in &waiting {
                state.count_discarded(reason, payload.samples);
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
        QueueMark { next_sequence: state.next_sequence, dropped: state.stats.dropped_total().payloads }
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
        state.stats.dropped_total().payloads == mark.dropped && !state.stats.disabled
    }

    pub fn stats(&self) -> DestinationStats {
        let state = self.lock();
        let mut stats = state.stats.clone();
        let (payloads, bytes) = state.in_flight.as_ref().map_or((0, 0), |flight| (flight.payloads, flight.bytes));
        stats.queue_payloads = state.waiting.len() + payloads;
        stats.queue_bytes = state.waiting_bytes + bytes;
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
            None => self.waiting.front().map(|(sequence, _)| *sequence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeliveryResult, DestinationQueue};
    use crate::payload::ExportPayload;
    use crate::settings::ExporterSettings;
    use crate::stats::{DiscardReason, Discarded};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn queue(max_bytes: usize, max_payloads: usize) -> Arc<DestinationQueue> {
        let settings = ExporterSettings {
            queue_max_bytes: max_bytes,
            queue_max_payloads: max_payloads,
            ..ExporterSettings::default()
        };
        Arc::new(DestinationQueue::new("file", "target".to_owned(), &settings))
    }

    fn payload(bytes: usize, samples: u64) -> ExportPayload {
        ExportPayload { body: vec![0; bytes], samples, ..ExportPayload::default() }
    }

    fn deliver_one(queue: &DestinationQueue) -> bool {
        let Some(payload) = queue.take() else { return false };
        queue.count_result(&payload, DeliveryResult::Sent { warning: None });
        queue.settle();
        true
    }

    #[test]
    fn the_oldest_are_discarded_for_the_newest_and_counted() {
        let queue = queue(10, 100);

        for samples in 1..=4 {
            queue.enqueue(payload(4, samples));
        }

        let stats = queue.stats();
        assert_eq!((stats.queue_payloads, stats.queue_bytes), (2, 8));
        assert_eq!(stats.dropped(DiscardReason::QueueFull), Discarded { payloads: 2, samples: 3 });
        assert_eq!(queue.take().unwrap().samples, 3);
    }

    #[test]
    fn a_large_payload_evicts_as_many_as_it_needs_and_none_when_it_exceeds_the_queue() {
        let queue = queue(10, 100);
        for _ in 0..5 {
            queue.enqueue(payload(2, 1));
        }

        queue.enqueue(payload(5, 1));
        assert_eq!(queue.stats().queue_bytes, 9);
        queue.enqueue(payload(11, 7));

        let stats = queue.stats();
        assert_eq!((stats.queue_bytes, stats.dropped(DiscardReason::QueueFull).payloads), (9, 4));
        assert!(stats.last_error.unwrap().contains("11 bytes"));
    }

    #[test]
    fn a_closed_queue_counts_waiting_and_later_payloads_under_the_first_reason() {
        let queue = queue(10, 100);
        queue.enqueue(payload(1, 2));

        queue.close(DiscardReason::Deadline);
        queue.close(DiscardReason::Disabled);
        queue.enqueue(payload(1, 3));

        let stats = queue.stats();
        assert_eq!(stats.dropped(DiscardReason::Deadline), Discarded { payloads: 2, samples: 5 });
        assert_eq!((stats.queue_payloads, stats.queue_bytes, queue.take().is_none()), (0, 0, true));
    }

    #[test]
    fn waiting_ends_when_the_payloads_before_the_mark_are_settled() {
        let queue = queue(1000, 100);
        queue.enqueue(payload(1, 1));
        let mark = queue.mark();
        queue.enqueue(payload(1, 1));

        assert!(!queue.wait_until_settled(queue.mark(), Instant::now()));
        assert!(deliver_one(&queue));

        assert!(queue.wait_until_settled(mark, Instant::now()));
        assert_eq!(queue.stats().queue_payloads, 1);
    }

    #[test]
    fn waiting_reports_a_loss_after_the_mark() {
        let queue = queue(1, 100);
        queue.enqueue(payload(1, 1));
        let mark = queue.mark();
        queue.enqueue(payload(1, 1));

        assert!(!queue.wait_until_settled(mark, Instant::now() + Duration::from_secs(5)));
    }

    #[test]
    fn every_payload_of_many_threads_is_counted_once() {
        let queue = queue(2000, 100);
        let producers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                std::thread::spawn(move || (0..2000).for_each(|_| queue.enqueue(payload(100, 3))))
            })
            .collect();
        while producers.iter().any(|producer| !producer.is_finished()) {
            deliver_one(&queue);
            let stats = queue.stats();
            assert!(stats.queue_bytes <= 2000 && stats.queue_payloads <= 20, "{stats:?}");
        }
        while deliver_one(&queue) {}

        let stats = queue.stats();
        assert_eq!(stats.enqueued, 8000);
        assert_eq!(stats.sent + stats.dropped(DiscardReason::QueueFull).payloads, 8000);
        assert_eq!(stats.sent_samples + stats.dropped(DiscardReason::QueueFull).samples, 24_000);
    }
}
