//! The bounded queue of one destination, and its counters: one short lock, taken by the facade to enqueue and by the
//! export thread to take and to account. Knows nothing of networks, files or retries.

use crate::clock::Clock;
use crate::payload::{Payload, SplitFn};
use crate::settings::ExporterSettings;
use crate::stats::{DestinationStats, DropReason};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A payload, or one part of a split one, on its way.
#[derive(Clone)]
pub(crate) struct Parcel {
    pub body: Bytes,
    pub profile_type: Option<String>,
    pub time_unix_ms: u64,
    pub samples: u64,
    pub split: Option<SplitFn>,
    pub enqueued_at: Duration,
}

/// What the export thread did with a parcel.
#[derive(Debug)]
pub(crate) enum Fate {
    /// Taken whole; the receiver may have added a remark.
    Sent { warning: Option<String> },
    /// Taken, with profiles refused.
    Partial { rejected_profiles: u64, message: String },
    /// Lost. Without a message the last error stands: it tells why waiting was in vain.
    Dropped { reason: DropReason, message: Option<String> },
}

/// A moment in the life of a queue, taken by `flush` or before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    next_sequence: u64,
    dropped: u64,
}

impl Mark {
    /// This moment, with the losses counted from `earlier` on.
    pub fn since(self, earlier: Self) -> Self {
        Self { dropped: earlier.dropped, ..self }
    }
}

pub(crate) struct Queue {
    max_bytes: usize,
    max_payloads: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    settled: Condvar,
    arrived: Notify,
}

struct State {
    waiting: VecDeque<(u64, Parcel)>,
    waiting_bytes: usize,
    in_flight: Option<InFlight>,
    next_sequence: u64,
    /// Set once nothing more will be sent: what arrives later is lost for this reason.
    closed: Option<DropReason>,
    stats: DestinationStats,
}

struct InFlight {
    sequence: u64,
    /// Parts of it that are not accounted yet.
    payloads: usize,
    bytes: usize,
}

impl Queue {
    pub fn new(kind: &'static str, target: String, settings: &ExporterSettings) -> Self {
        let stats = DestinationStats { kind, target, ..DestinationStats::default() };
        Self {
            max_bytes: settings.queue_max_bytes,
            max_payloads: settings.queue_max_payloads.max(1),
            clock: settings.clock.clone(),
            state: Mutex::new(State {
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

    /// Puts a payload at the end; the oldest leave when it does not fit.
    pub fn enqueue(&self, payload: Payload) {
        let now_unix_ms = self.unix_ms();
        let parcel = Parcel {
            body: Bytes::from(payload.body),
            profile_type: payload.profile_type,
            time_unix_ms: payload.time_unix_ms,
            samples: payload.samples,
            split: payload.split,
            enqueued_at: self.clock.monotonic(),
        };
        // Declared before the lock: what is evicted is freed after the lock is gone.
        let mut evicted = Vec::new();
        let mut state = self.lock();
        state.stats.enqueued += 1;
        if let Some(reason) = state.closed {
            state.count_drop(reason, parcel.samples);
            evicted.push(parcel);
            return;
        }
        if parcel.body.len() > self.max_bytes {
            let message = format!(
                "a payload of {} bytes is larger than the whole queue of {} bytes",
                parcel.body.len(),
                self.max_bytes
            );
            state.note_failure(message, now_unix_ms);
            state.count_drop(DropReason::QueueFull, parcel.samples);
            evicted.push(parcel);
            return;
        }
        while state.waiting.len() >= self.max_payloads || state.waiting_bytes + parcel.body.len() > self.max_bytes {
            let Some((_, oldest)) = state.waiting.pop_front() else { break };
            state.waiting_bytes -= oldest.body.len();
            state.count_drop(DropReason::QueueFull, oldest.samples);
            evicted.push(oldest);
        }
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        state.waiting_bytes += parcel.body.len();
        state.waiting.push_back((sequence, parcel));
        drop(state);
        self.arrived.notify_one();
    }

    /// Resolves when something was put in since the last call; may resolve once too often.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Takes the oldest; it stays in flight until [`Queue::settle`].
    pub fn take(&self) -> Option<Parcel> {
        let mut state = self.lock();
        let (sequence, parcel) = state.waiting.pop_front()?;
        let bytes = parcel.body.len();
        state.waiting_bytes -= bytes;
        state.in_flight = Some(InFlight { sequence, payloads: 1, bytes });
        Some(parcel)
    }

    /// The parcel in flight was cut into parts.
    pub fn count_split(&self, parts: usize, bytes: usize) {
        let mut state = self.lock();
        state.stats.splits += 1;
        if let Some(in_flight) = &mut state.in_flight {
            in_flight.payloads += parts - 1;
            in_flight.bytes = bytes;
        }
    }

    /// An attempt failed, and `message` says why.
    pub fn note_failure(&self, message: String) {
        let now_unix_ms = self.unix_ms();
        self.lock().note_failure(message, now_unix_ms);
    }

    /// Another attempt for the same parcel follows.
    pub fn count_retry(&self) {
        self.lock().stats.retries += 1;
    }

    /// Accounts one part of what is in flight.
    pub fn account(&self, parcel: &Parcel, fate: Fate) {
        let now_unix_ms = self.unix_ms();
        let mut state = self.lock();
        if let Some(in_flight) = &mut state.in_flight {
            in_flight.payloads = in_flight.payloads.saturating_sub(1);
            in_flight.bytes = in_flight.bytes.saturating_sub(parcel.body.len());
        }
        match fate {
            Fate::Sent { warning } => {
                state.stats.sent += 1;
                state.stats.sent_samples += parcel.samples;
                state.stats.sent_bytes += parcel.body.len() as u64;
                state.stats.last_success_unix_ms = Some(now_unix_ms);
                if warning.is_some() {
                    state.stats.last_warning = warning;
                }
            }
            Fate::Partial { rejected_profiles, message } => {
                state.stats.rejected_profiles += rejected_profiles;
                state.stats.last_success_unix_ms = Some(now_unix_ms);
                state.note_failure(message, now_unix_ms);
                state.count_drop(DropReason::Partial, parcel.samples);
            }
            Fate::Dropped { reason, message } => {
                if let Some(message) = message {
                    state.note_failure(message, now_unix_ms);
                }
                state.count_drop(reason, parcel.samples);
            }
        }
    }

    /// Everything taken by the last [`Queue::take`] is accounted.
    pub fn settle(&self) {
        self.lock().in_flight = None;
        self.settled.notify_all();
    }

    /// Nothing more will be sent: what waits is lost for `reason`, and so is what arrives later. What is in flight stays
    /// to be accounted by its owner. The first reason stands.
    pub fn close(&self, reason: DropReason) {
        let waiting = {
            let mut state = self.lock();
            state.closed.get_or_insert(reason);
            state.waiting_bytes = 0;
            let waiting = std::mem::take(&mut state.waiting);
            for (_, parcel) in &waiting {
                state.count_drop(reason, parcel.samples);
            }
            waiting
        };
        self.settled.notify_all();
        drop(waiting);
    }

    /// The destination's part of the export thread panicked: it is off from now on, and the host goes on.
    pub fn disable(&self, message: String) {
        let now_unix_ms = self.unix_ms();
        {
            let mut state = self.lock();
            state.stats.panics += 1;
            state.stats.disabled = true;
            state.note_failure(message, now_unix_ms);
        }
        self.close(DropReason::Disabled);
    }

    /// What has been enqueued and lost so far.
    pub fn mark(&self) -> Mark {
        let state = self.lock();
        Mark { next_sequence: state.next_sequence, dropped: state.stats.dropped_total().payloads }
    }

    /// Waits until all that was enqueued before the mark has left, at most until `until`; `true` when nothing was lost.
    pub fn wait_until_settled(&self, mark: Mark, until: Instant) -> bool {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding the lock half-way through a change; a poisoned lock still holds true counters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_failure(&mut self, message: String, now_unix_ms: u64) {
        self.stats.last_error = Some(message);
        self.stats.last_error_unix_ms = Some(now_unix_ms);
    }

    fn count_drop(&mut self, reason: DropReason, samples: u64) {
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
    use super::{Fate, Queue};
    use crate::payload::Payload;
    use crate::settings::ExporterSettings;
    use crate::stats::{DropReason, Dropped};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn queue(max_bytes: usize, max_payloads: usize) -> Arc<Queue> {
        let settings = ExporterSettings {
            queue_max_bytes: max_bytes,
            queue_max_payloads: max_payloads,
            ..ExporterSettings::default()
        };
        Arc::new(Queue::new("file", "target".to_owned(), &settings))
    }

    fn payload(bytes: usize, samples: u64) -> Payload {
        Payload { body: vec![0; bytes], samples, ..Payload::default() }
    }

    fn deliver_one(queue: &Queue) -> bool {
        let Some(parcel) = queue.take() else { return false };
        queue.account(&parcel, Fate::Sent { warning: None });
        queue.settle();
        true
    }

    #[test]
    fn the_oldest_make_room_for_the_newest_and_are_counted() {
        let queue = queue(10, 100);

        for samples in 1..=4 {
            queue.enqueue(payload(4, samples));
        }

        let stats = queue.stats();
        assert_eq!((stats.queue_payloads, stats.queue_bytes), (2, 8));
        assert_eq!(stats.dropped(DropReason::QueueFull), Dropped { payloads: 2, samples: 3 });
        assert_eq!(queue.take().unwrap().samples, 3);
    }

    #[test]
    fn one_large_payload_pushes_out_as_many_as_it_needs_and_none_when_it_cannot_fit() {
        let queue = queue(10, 100);
        for _ in 0..5 {
            queue.enqueue(payload(2, 1));
        }

        queue.enqueue(payload(5, 1));
        assert_eq!(queue.stats().queue_bytes, 9);
        queue.enqueue(payload(11, 7));

        let stats = queue.stats();
        assert_eq!((stats.queue_bytes, stats.dropped(DropReason::QueueFull).payloads), (9, 4));
        assert!(stats.last_error.unwrap().contains("11 bytes"));
    }

    #[test]
    fn a_closed_queue_counts_what_it_no_longer_takes_under_the_first_reason() {
        let queue = queue(10, 100);
        queue.enqueue(payload(1, 2));

        queue.close(DropReason::Deadline);
        queue.close(DropReason::Disabled);
        queue.enqueue(payload(1, 3));

        let stats = queue.stats();
        assert_eq!(stats.dropped(DropReason::Deadline), Dropped { payloads: 2, samples: 5 });
        assert_eq!((stats.queue_payloads, stats.queue_bytes, queue.take().is_none()), (0, 0, true));
    }

    #[test]
    fn waiting_ends_when_what_was_there_before_has_left_whatever_came_later() {
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
    fn waiting_tells_that_something_was_lost() {
        let queue = queue(1, 100);
        queue.enqueue(payload(1, 1));
        let mark = queue.mark();
        queue.enqueue(payload(1, 1));

        assert!(!queue.wait_until_settled(mark, Instant::now() + Duration::from_secs(5)));
    }

    #[test]
    fn every_payload_of_many_threads_is_accounted_once() {
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
        assert_eq!(stats.sent + stats.dropped(DropReason::QueueFull).payloads, 8000);
        assert_eq!(stats.sent_samples + stats.dropped(DropReason::QueueFull).samples, 24_000);
    }
}
