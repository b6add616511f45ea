//! Delivery on the export thread: one task per destination, one payload at a time and in order. Decides when a payload is
//! retried, split or discarded. The senders perform the attempts, the queue counts the results.
//!
//! Where OTLP leaves a choice: a 2xx response with an incomplete body counts as delivered, since a second request would count
//! every sample twice. A kept connection that fails during a request is replaced once within the attempt. `stop` does not wait
//! for an unreachable receiver, and never shortens a pause that a receiver demanded. A pause belongs to the destination, not to
//! the payload.

use crate::clock::Clock;
use crate::files::disk_buffer::LoadFailure;
use crate::files::file::FileSender;
use crate::files::spool::{BufferedFiles, Spool};
use crate::files::writer_sender::WriterSender;
use crate::outcome::{AttemptOutcome, RetryReason};
use crate::queue::backoff::{Backoff, RetryDelay};
use crate::queue::bounded_queue::{DeliveryResult, DestinationQueue, QueuedPayload};
use crate::queue::buffered_request::StoredRequest;
use crate::send::request_sender::RequestSender;
use crate::stats::{DiscardReason, RemovedFiles};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Commands of the profiler to the export thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryControl {
    /// Number of `flush` calls: each ends the delays in progress.
    pub flushes: u64,
    /// Set by `stop`: the deadline of all delivery.
    pub stop_at: Option<Instant>,
}

/// The sender of one destination.
pub(crate) enum Sender {
    File(FileSender),
    Request(RequestSender),
    Writer(WriterSender),
}

impl Sender {
    async fn attempt(&mut self, payload: &QueuedPayload, clock: &dyn Clock) -> AttemptOutcome {
        match self {
            Self::File(sender) => sender.attempt(payload).await,
            Self::Request(sender) => sender.attempt(&payload.body, clock).await,
            Self::Writer(sender) => sender.attempt(payload).await,
        }
    }

    /// Files that the last attempt removed.
    fn removed_files(&self) -> RemovedFiles {
        match self {
            Self::File(sender) => sender.removed,
            Self::Request(_) | Self::Writer(_) => RemovedFiles::default(),
        }
    }

    fn forget_payload(&mut self) {
        match self {
            Self::File(_) | Self::Writer(_) => {}
            Self::Request(sender) => sender.forget_payload(),
        }
    }
}

/// One destination's task.
pub(crate) struct DeliveryTask {
    pub queue: Arc<DestinationQueue>,
    pub sender: Sender,
    pub clock: Arc<dyn Clock>,
    pub max_request_bytes: usize,
    /// Stores payloads on disk until they are settled.
    pub spool: Option<Spool>,
    /// The files of `spool`, which is moved out of this struct when the task runs.
    pub buffer: Option<BufferedFiles>,
    pub control: watch::Receiver<DeliveryControl>,
}

/// The delay after the last failure, in readings of the monotonic clock. It applies to the destination: the next payload
/// waits for it as well.
struct PendingDelay {
    requested_until: Duration,
    until: Duration,
    /// The control when the failed attempt began. A later `flush` or `stop` ends the jittered part of the delay.
    control_at_attempt: DeliveryControl,
}

struct RetryState {
    backoff: Backoff,
    delay: Option<PendingDelay>,
}

/// Result of all attempts for one payload or part.
enum PartResult {
    Settled(DeliveryResult),
    TooLarge(String),
    /// No delivery is possible before the deadline of `stop`.
    GiveUp,
}

impl DeliveryTask {
    /// Runs until `stop`; sleeps without a timer while the queue is empty.
    pub async fn run(mut self) {
        let mut stopping = self.control.clone();
        let mut retries = RetryState { backoff: Backoff::new(), delay: None };
        let mut spool = self.spool.take();
        let store_arrivals = async {
            match &mut spool {
                Some(spool) => spool.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop_reached(&mut stopping) => {}
            () = self.deliver_all(&mut retries) => {}
            () = store_arrivals => {}
        }
        if let Some(spool) = &mut spool {
            let stop_at = self.control.borrow().stop_at;
            spool.finish(stop_at).await;
        }
        // The drop of `InFlightParts` has counted the payload that was in flight.
        self.queue.close(DiscardReason::Deadline);
    }

    async fn deliver_all(&mut self, retries: &mut RetryState) {
        loop {
            if let Some(payload) = self.queue.take() {
                let can_continue = self.deliver(payload, retries).await;
                self.sender.forget_payload();
                if can_continue {
                    continue;
                }
                return;
            }
            if self.control.borrow_and_update().stop_at.is_some() && self.queue.is_empty() {
                return;
            }
            tokio::select! {
                () = self.queue.readiness() => {}
                changed = self.control.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Delivers one payload, in parts if it must be split; `false` when the task must end.
    async fn deliver(&mut self, payload: QueuedPayload, retries: &mut RetryState) -> bool {
        let stored = payload.stored.clone();
        let mut in_flight = InFlightParts {
            queue: self.queue.clone(),
            parts: VecDeque::from([payload]),
            may_split: true,
            is_stored: stored.is_some(),
        };
        if let Some(stored) = &stored {
            self.load_front(&mut in_flight, stored).await;
        }
        while let Some(part) = in_flight.parts.front().cloned() {
            let result = if part.body.len() > self.max_request_bytes {
                let (bytes, limit) = (part.body.len(), self.max_request_bytes);
                PartResult::TooLarge(format!(
                    "a request of {bytes} bytes is over the limit of {limit} bytes and was not sent"
                ))
            } else {
                self.try_until_settled(&part, retries).await
            };
            match result {
                PartResult::Settled(result) => in_flight.settle_front(result),
                PartResult::TooLarge(message) => in_flight.split_front(message),
                PartResult::GiveUp => return false,
            }
        }
        if let (Some(buffer), Some(stored)) = (&self.buffer, stored) {
            buffer.remove(vec![stored]).await;
        }
        true
    }

    /// Reads the body from the disk buffer, unless it is in memory or too old.
    async fn load_front(&self, in_flight: &mut InFlightParts, stored: &StoredRequest) {
        let (Some(buffer), Some(payload)) = (&self.buffer, in_flight.parts.front_mut()) else { return };
        if self.clock.monotonic() > payload.expires_at {
            in_flight.settle_front(DeliveryResult::Discarded { reason: DiscardReason::Expired, message: None });
            return;
        }
        if payload.body.len() as u64 == stored.bytes {
            return;
        }
        match buffer.load(stored.clone()).await {
            Ok(body) => payload.body = body,
            Err(LoadFailure::Missing) => in_flight.leave_all(),
            Err(LoadFailure::Torn(message)) => in_flight
                .settle_front(DeliveryResult::Discarded { reason: DiscardReason::Torn, message: Some(message) }),
        }
    }

    async fn try_until_settled(&mut self, payload: &QueuedPayload, retries: &mut RetryState) -> PartResult {
        let mut is_retry = false;
        loop {
            if let Some(delay) = retries.delay.take() {
                if delay.until > payload.expires_at {
                    retries.delay = Some(delay);
                    return PartResult::Settled(DeliveryResult::Discarded {
                        reason: DiscardReason::Expired,
                        message: None,
                    });
                }
                if !self.wait(&delay).await {
                    return PartResult::GiveUp;
                }
            }
            if is_retry {
                self.queue.count_retry();
            }
            is_retry = true;
            let control_at_attempt = *self.control.borrow();
            let outcome = self.sender.attempt(payload, self.clock.as_ref()).await;
            self.queue.count_removed(self.sender.removed_files());
            if !matches!(outcome, AttemptOutcome::Retry { .. }) {
                retries.backoff.reset();
            }
            let (reason, message) = match outcome {
                AttemptOutcome::Accepted { warning } => return PartResult::Settled(DeliveryResult::Sent { warning }),
                AttemptOutcome::Partial { rejected, message } => {
                    return PartResult::Settled(DeliveryResult::Partial { rejected_profiles: rejected, message });
                }
                AttemptOutcome::Rejected { message } | AttemptOutcome::NoService { message } => {
                    return PartResult::Settled(DeliveryResult::Discarded {
                        reason: DiscardReason::Permanent,
                        message: Some(message),
                    });
                }
                AttemptOutcome::TooLarge { message } => return PartResult::TooLarge(message),
                AttemptOutcome::Retry { reason, message } => (reason, message),
            };
            self.queue.record_failure(message);
            if reason == RetryReason::NotConnected && control_at_attempt.stop_at.is_some() {
                // A program that exits does not wait for an unreachable receiver.
                return PartResult::GiveUp;
            }
            let RetryDelay { requested, jittered } = retries.backoff.next_delay(reason);
            let requested_until = self.clock.monotonic() + requested;
            let until = requested_until + jittered;
            retries.delay = Some(PendingDelay { requested_until, until, control_at_attempt });
        }
    }

    /// Waits. `flush` and `stop` end the jittered part of a delay, never the part that the receiver requested. Returns
    /// `false` at once when the delay would outlast the deadline of `stop`.
    async fn wait(&mut self, delay: &PendingDelay) -> bool {
        loop {
            let control = *self.control.borrow_and_update();
            let before = &delay.control_at_attempt;
            let skips_jitter =
                control.flushes != before.flushes || control.stop_at.is_some() != before.stop_at.is_some();
            let until = if skips_jitter { delay.requested_until } else { delay.until };
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return true;
            }
            if control.stop_at.is_some_and(|stop_at| Instant::now() + left > stop_at) {
                return false;
            }
            let over = self.clock.pause(left);
            tokio::select! {
                () = over => {}
                changed = self.control.changed() => if changed.is_err() { return false },
            }
        }
    }
}

/// Resolves at the deadline of `stop`, or when the exporter was dropped.
pub(crate) async fn stop_reached(control: &mut watch::Receiver<DeliveryControl>) {
    loop {
        let stop_at = control.borrow_and_update().stop_at;
        let changed = match stop_at {
            Some(stop_at) => tokio::select! {
                () = tokio::time::sleep_until(stop_at) => return,
                changed = control.changed() => changed,
            },
            None => control.changed().await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The parts of a dequeued payload that are not counted yet. The drop counts the rest, however the delivery ends.
struct InFlightParts {
    queue: Arc<DestinationQueue>,
    parts: VecDeque<QueuedPayload>,
    may_split: bool,
    /// Whether the disk buffer has the whole payload.
    is_stored: bool,
}

impl InFlightParts {
    /// Counts the remaining parts as left in the disk buffer.
    fn leave_all(&mut self) {
        for part in self.parts.drain(..) {
            self.queue.count_left(&part);
        }
    }

    fn settle_front(&mut self, result: DeliveryResult) {
        if let Some(part) = self.parts.pop_front() {
            self.queue.count_result(&part, result);
        }
    }

    /// Splits a payload that is too large, once: a receiver that rejects its parts has a limit below any profile.
    fn split_front(&mut self, message: String) {
        let Some(whole) = self.parts.front() else { return };
        let bodies = whole.split.filter(|_| self.may_split).and_then(|split| split(&whole.body));
        let parts = bodies.filter(|bodies| bodies.len() > 1).map(|bodies| whole.parts(bodies));
        let Some(parts) = parts else {
            self.settle_front(DeliveryResult::Discarded { reason: DiscardReason::TooLarge, message: Some(message) });
            return;
        };
        self.may_split = false;
        self.queue.record_failure(message);
        self.queue.count_split(parts.len(), parts.iter().map(|part| part.body.len()).sum());
        self.parts = parts;
    }
}

impl Drop for InFlightParts {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { DiscardReason::Disabled } else { DiscardReason::Deadline };
        if self.is_stored && !std::thread::panicking() {
            self.leave_all();
        }
        while !self.parts.is_empty() {
            self.settle_front(DeliveryResult::Discarded { reason, message: None });
        }
        self.queue.settle();
    }
}

impl QueuedPayload {
    /// The same payload in several bodies. Its samples are distributed in proportion to size; their sum stays the same.
    fn parts(&self, bodies: Vec<Vec<u8>>) -> VecDeque<Self> {
        let total = bodies.iter().map(|body| body.len() as u128).sum::<u128>().max(1);
        let (mut bytes_before, mut samples_before) = (0, 0);
        bodies
            .into_iter()
            .map(|body| {
                bytes_before += body.len() as u128;
                let samples_until = (u128::from(self.samples) * bytes_before / total) as u64;
                let samples = samples_until - samples_before;
                samples_before = samples_until;
                Self { body: body.into(), samples, ..self.clone() }
            })
            .collect()
    }
}
