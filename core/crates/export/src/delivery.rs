//! The life of a payload on the export thread: one task per destination, one payload at a time and in order. Decides when
//! to try again, when to cut, when to give up; the senders know how, the queue keeps the accounts.

use crate::backoff::{Backoff, Pause};
use crate::clock::Clock;
use crate::file::FileSender;
use crate::otlp_grpc::OtlpGrpcSender;
use crate::otlp_http::OtlpHttpSender;
use crate::outcome::{Outcome, RetryReason};
use crate::queue::{Fate, Parcel, Queue};
use crate::stats::DropReason;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the facade asks of the export thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    /// Counts calls of `flush`: each ends the pauses in progress.
    pub flushes: u64,
    /// From `stop` on: when everything must be over.
    pub stop_at: Option<Instant>,
}

/// How a payload leaves.
pub(crate) enum Sender {
    File(FileSender),
    OtlpGrpc(Box<OtlpGrpcSender>),
    OtlpHttp(Box<OtlpHttpSender>),
}

impl Sender {
    async fn attempt(&mut self, parcel: &Parcel, clock: &dyn Clock) -> Outcome {
        match self {
            Self::File(sender) => sender.attempt(parcel).await,
            Self::OtlpGrpc(sender) => sender.attempt(parcel).await,
            Self::OtlpHttp(sender) => sender.attempt(parcel, clock.unix()).await,
        }
    }

    fn forget_payload(&mut self) {
        match self {
            Self::File(_) => {}
            Self::OtlpGrpc(sender) => sender.forget_payload(),
            Self::OtlpHttp(sender) => sender.forget_payload(),
        }
    }
}

/// One destination's task.
pub(crate) struct Delivery {
    pub queue: Arc<Queue>,
    pub sender: Sender,
    pub clock: Arc<dyn Clock>,
    pub max_request_bytes: usize,
    pub retry_max_age: Duration,
    pub control: watch::Receiver<Control>,
}

/// A pause that the last failure asks for, in readings of the monotonic clock. It holds for the destination, not for the
/// payload that failed: the next payload waits for it as well.
struct Owed {
    demanded_until: Duration,
    until: Duration,
    /// What had been asked of us when the failed attempt began: a later `flush` or `stop` ends our own part of the pause.
    seen: Control,
}

/// How a destination's failures bear on its next attempt.
struct Patience {
    backoff: Backoff,
    owed: Option<Owed>,
}

/// What came of a payload.
enum Verdict {
    Settled(Fate),
    TooLarge(String),
    /// Nothing will be delivered before the end any more.
    GiveUp,
}

impl Delivery {
    /// Runs until `stop`; sleeps without a timer while the queue is empty.
    pub async fn run(mut self) {
        let mut stopping = self.control.clone();
        let mut patience = Patience { backoff: Backoff::new(), owed: None };
        tokio::select! {
            () = stop_reached(&mut stopping) => {}
            () = self.deliver_all(&mut patience) => {}
        }
        // What was in flight when the time ran out was accounted by its own guard.
        self.queue.close(DropReason::Deadline);
    }

    async fn deliver_all(&mut self, patience: &mut Patience) {
        loop {
            if let Some(parcel) = self.queue.take() {
                let goes_on = self.deliver(parcel, patience).await;
                self.sender.forget_payload();
                if goes_on {
                    continue;
                }
                return;
            }
            if self.control.borrow_and_update().stop_at.is_some() {
                return;
            }
            tokio::select! {
                () = self.queue.arrival() => {}
                changed = self.control.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Delivers what was taken, in parts if it must be cut; `false` when it is time to give up.
    async fn deliver(&mut self, parcel: Parcel, patience: &mut Patience) -> bool {
        let mut flight = Flight { queue: self.queue.clone(), parts: VecDeque::from([parcel]), may_split: true };
        while let Some(part) = flight.parts.front().cloned() {
            let verdict = if part.body.len() > self.max_request_bytes {
                let (bytes, limit) = (part.body.len(), self.max_request_bytes);
                Verdict::TooLarge(format!(
                    "a request of {bytes} bytes is over the limit of {limit} bytes and was not sent"
                ))
            } else {
                self.try_until_settled(&part, patience).await
            };
            match verdict {
                Verdict::Settled(fate) => flight.settle_front(fate),
                Verdict::TooLarge(message) => flight.split_front(message),
                Verdict::GiveUp => return false,
            }
        }
        true
    }

    async fn try_until_settled(&mut self, parcel: &Parcel, patience: &mut Patience) -> Verdict {
        let mut is_retry = false;
        loop {
            if let Some(owed) = patience.owed.take() {
                if owed.until.saturating_sub(parcel.enqueued_at) > self.retry_max_age {
                    patience.owed = Some(owed);
                    return Verdict::Settled(Fate::Dropped { reason: DropReason::Expired, message: None });
                }
                if !self.pause(&owed).await {
                    return Verdict::GiveUp;
                }
            }
            if is_retry {
                self.queue.count_retry();
            }
            is_retry = true;
            let seen = *self.control.borrow();
            let outcome = self.sender.attempt(parcel, self.clock.as_ref()).await;
            if !matches!(outcome, Outcome::Retry { .. }) {
                patience.backoff.reset();
            }
            let (reason, message) = match outcome {
                Outcome::Accepted { warning } => return Verdict::Settled(Fate::Sent { warning }),
                Outcome::Partial { rejected_profiles, message } => {
                    return Verdict::Settled(Fate::Partial { rejected_profiles, message });
                }
                Outcome::Refused { message } => {
                    return Verdict::Settled(Fate::Dropped { reason: DropReason::Permanent, message: Some(message) });
                }
                Outcome::TooLarge { message } => return Verdict::TooLarge(message),
                Outcome::Retry { reason, message } => (reason, message),
            };
            self.queue.note_failure(message);
            if reason == RetryReason::NotConnected && seen.stop_at.is_some() {
                // A program that ends does not wait for a receiver that is not there.
                return Verdict::GiveUp;
            }
            let Pause { demanded, own } = patience.backoff.next_pause(reason);
            let demanded_until = self.clock.monotonic() + demanded;
            patience.owed = Some(Owed { demanded_until, until: demanded_until + own, seen });
        }
    }

    /// Pauses. `flush` and `stop` end our own part of a pause, never what the receiver asked for; a pause that would
    /// outlast `stop` is not waited for: `false`.
    async fn pause(&mut self, owed: &Owed) -> bool {
        loop {
            let control = *self.control.borrow_and_update();
            let is_hurried =
                control.flushes != owed.seen.flushes || control.stop_at.is_some() != owed.seen.stop_at.is_some();
            let until = if is_hurried { owed.demanded_until } else { owed.until };
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

/// Resolves when the time that `stop` gave is over, or the exporter is gone.
async fn stop_reached(control: &mut watch::Receiver<Control>) {
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

/// What was taken from the queue and is not accounted yet. Whatever ends the delivery, every part is accounted.
struct Flight {
    queue: Arc<Queue>,
    parts: VecDeque<Parcel>,
    may_split: bool,
}

impl Flight {
    fn settle_front(&mut self, fate: Fate) {
        if let Some(part) = self.parts.pop_front() {
            self.queue.account(&part, fate);
        }
    }

    /// Cuts a payload that is too large, once: a receiver that refuses its parts has a limit no profile meets.
    fn split_front(&mut self, message: String) {
        let Some(whole) = self.parts.front() else { return };
        let bodies = whole.split.filter(|_| self.may_split).and_then(|split| split(&whole.body));
        let parts = bodies.filter(|bodies| bodies.len() > 1).map(|bodies| whole.parts(bodies));
        let Some(parts) = parts else {
            self.settle_front(Fate::Dropped { reason: DropReason::TooLarge, message: Some(message) });
            return;
        };
        self.may_split = false;
        self.queue.note_failure(message);
        self.queue.count_split(parts.len(), parts.iter().map(|part| part.body.len()).sum());
        self.parts = parts;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { DropReason::Disabled } else { DropReason::Deadline };
        while !self.parts.is_empty() {
            self.settle_front(Fate::Dropped { reason, message: None });
        }
        self.queue.settle();
    }
}

impl Parcel {
    /// The same payload in several bodies; its samples are shared out by size, and their sum is kept.
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
