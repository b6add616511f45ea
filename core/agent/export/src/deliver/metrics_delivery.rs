//! Delivery of the profiler's own metrics, on the export thread: one task per receiver, with its own connection, so that
//! a slow metrics endpoint never delays a profile (HTTP/1.1 has one request at a time). At most one request waits, the
//! newest. Values are cumulative, so a failed request is not retried: the next one contains its values. `metrics_endpoint`
//! gets `metrics_headers` only, since it may belong to another party than the receiver of profiles. Not here: the
//! contents of requests (the profiler).

use crate::clock::Clock;
use crate::deliver::delivery_task::{stop_reached, DeliveryControl};
use crate::outcome::{AttemptOutcome, RetryReason};
use crate::send::request_sender::RequestSender;
use crate::stats::MetricsStats;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{watch, Notify};

/// Maximum delay requested by a receiver that is honored.
const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(3600);

/// The waiting request of one receiver, and its counters.
pub(crate) struct MetricsSlot {
    state: Mutex<SlotState>,
    arrived: Notify,
}

#[derive(Default)]
struct SlotState {
    waiting: Option<Bytes>,
    in_flight: bool,
    /// Set when the export thread ends: later requests are failures.
    closed: bool,
    stats: MetricsStats,
}

impl MetricsSlot {
    pub fn new(target: String) -> Self {
        let stats = MetricsStats { target, ..MetricsStats::default() };
        Self { state: Mutex::new(SlotState { stats, ..SlotState::default() }), arrived: Notify::new() }
    }

    /// Replaces the waiting request, which counts as failed. Ignored when the receiver accepts no metrics.
    pub fn put(&self, body: Bytes) {
        let replaced = {
            let mut state = self.lock();
            if state.stats.stopped {
                return;
            }
            if state.closed {
                state.stats.failed += 1;
                return;
            }
            let replaced = state.waiting.replace(body);
            state.stats.failed += u64::from(replaced.is_some());
            replaced
        };
        drop(replaced);
        self.arrived.notify_one();
    }

    pub fn stats(&self) -> MetricsStats {
        self.lock().stats.clone()
    }

    /// Ends the delivery after a panic of its task.
    pub fn disable(&self) {
        let message = "its metrics are off after an internal error (panic); please report it".to_owned();
        self.close();
        let mut state = self.lock();
        state.stats.panics += 1;
        (state.stats.refused, state.stats.stopped) = (true, true);
        state.stats.last_error = Some(message);
    }

    fn take(&self) -> Option<Bytes> {
        let mut state = self.lock();
        let body = state.waiting.take();
        state.in_flight = body.is_some();
        body
    }

    fn count_sent(&self) {
        let mut state = self.lock();
        state.in_flight = false;
        state.stats.sent += 1;
        state.stats.failed_in_a_row = 0;
        state.stats.refused = false;
    }

    fn count_failed(&self, message: String, refused: bool, stops: bool) {
        let mut state = self.lock();
        state.in_flight = false;
        state.stats.failed += 1;
        state.stats.failed_in_a_row += 1;
        state.stats.last_error = Some(message);
        state.stats.refused = refused;
        state.stats.stopped |= stops;
    }

    /// Counts the requests that were not delivered before the end.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let undelivered = u64::from(state.waiting.take().is_some()) + u64::from(std::mem::take(&mut state.in_flight));
        state.stats.failed += undelivered;
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        // No code panics in the middle of an update under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One receiver's task.
pub(crate) struct MetricsTask {
    pub slot: Arc<MetricsSlot>,
    pub sender: RequestSender,
    pub clock: Arc<dyn Clock>,
    pub control: watch::Receiver<DeliveryControl>,
}

impl MetricsTask {
    /// Runs until `stop`, or until the receiver has no service for metrics.
    pub async fn run(mut self) {
        let mut stopping = self.control.clone();
        let slot = self.slot.clone();
        tokio::select! {
            () = stop_reached(&mut stopping) => {}
            () = self.deliver_all() => {}
        }
        slot.close();
    }

    async fn deliver_all(&mut self) {
        loop {
            if let Some(body) = self.slot.take() {
                let outcome = self.sender.attempt(&body, self.clock.as_ref()).await;
                self.sender.forget_payload();
                match self.settle(outcome) {
                    AfterAttempt::Continue => {}
                    AfterAttempt::Delay(delay) => {
                        if !self.wait(delay).await {
                            return;
                        }
                    }
                    AfterAttempt::End => return,
                }
                continue;
            }
            if self.control.borrow_and_update().stop_at.is_some() {
                return;
            }
            tokio::select! {
                () = self.slot.arrived.notified() => {}
                changed = self.control.changed() => if changed.is_err() { return },
            }
        }
    }

    fn settle(&self, outcome: AttemptOutcome) -> AfterAttempt {
        let is_refused = !matches!(outcome, AttemptOutcome::Retry { .. });
        let (message, next) = match outcome {
            AttemptOutcome::Accepted { .. } => {
                self.slot.count_sent();
                return AfterAttempt::Continue;
            }
            AttemptOutcome::NoService { message } => (message, AfterAttempt::End),
            AttemptOutcome::Retry { reason: RetryReason::Throttled(Some(delay)), message } => {
                (message, AfterAttempt::Delay(delay.min(MAX_REQUESTED_DELAY)))
            }
            AttemptOutcome::Retry { message, .. }
            | AttemptOutcome::Partial { message, .. }
            | AttemptOutcome::TooLarge { message }
            | AttemptOutcome::Rejected { message } => (message, AfterAttempt::Continue),
        };
        self.slot.count_failed(message, is_refused, matches!(next, AfterAttempt::End));
        next
    }

    /// Waits as the receiver requested; `false` at once when `stop` is called, which must not send earlier than requested.
    async fn wait(&self, delay: Duration) -> bool {
        let pause = self.clock.pause(delay);
        let mut control = self.control.clone();
        let stop = control.wait_for(|control| control.stop_at.is_some());
        tokio::select! {
            () = pause => true,
            // An error means that the exporter was dropped.
            _ = stop => false,
        }
    }
}

/// Action after an attempt.
enum AfterAttempt {
    Continue,
    /// Requested by the receiver.
    Delay(Duration),
    /// The receiver has no service for metrics.
    End,
}
