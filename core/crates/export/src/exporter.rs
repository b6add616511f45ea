//! The exporter: its thread, its life, and the calls of the facade.

use crate::blocking::THREAD_NAME;
use crate::delivery::{Control, Delivery, Sender};
use crate::error::ExportError;
use crate::file::FileSender;
use crate::otlp_grpc::OtlpGrpcSender;
use crate::otlp_http::OtlpHttpSender;
use crate::payload::Payload;
use crate::queue::{Mark, Queue};
use crate::settings::{Destination, ExporterSettings};
use crate::stats::{DestinationStats, DropReason};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// What `stop` allows the thread on top of the deadline to account for what it drops.
const GRACE: Duration = Duration::from_millis(50);

/// Delivers payloads on a thread of its own, named `spanprof-export`. Every method may be called from any thread.
///
/// Dropping it stops it without waiting: what is not delivered yet is lost. In a forked child neither drop it nor call
/// it, since its thread stayed in the parent: [`Exporter::forget_after_fork`], then start another.
pub struct Exporter {
    queues: Vec<Arc<Queue>>,
    control: watch::Sender<Control>,
    ended: Arc<Ended>,
}

/// A moment in the life of an exporter.
#[derive(Clone, Debug)]
pub struct Moment(Vec<Mark>);

impl Exporter {
    /// Checks the destinations and starts the thread. No connection is made before the first payload.
    ///
    /// # Errors
    /// When a destination cannot work as described (a URL, header, certificate file or directory), or when the process
    /// may start no thread.
    pub fn start(destinations: Vec<Destination>, settings: ExporterSettings) -> Result<Self, ExportError> {
        let (control, controlled) = watch::channel(Control::default());
        let mut queues = Vec::with_capacity(destinations.len());
        let mut deliveries = Vec::with_capacity(destinations.len());
        for destination in &destinations {
            let (kind, shown, sender) = sender_for(destination, &settings)?;
            let queue = Arc::new(Queue::new(kind, shown, &settings));
            queues.push(queue.clone());
            deliveries.push(Delivery {
                queue,
                sender,
                clock: settings.clock.clone(),
                max_request_bytes: settings.max_request_bytes,
                retry_max_age: settings.retry_max_age,
                control: controlled.clone(),
            });
        }
        let cannot_start = |what: &str, error: std::io::Error| {
            ExportError::new(
                format!("{what} for the export cannot be made: {error}"),
                "raise the limits of threads and files (pids.max, ulimit -u, ulimit -n)",
            )
        };
        // Without tokio's event loop, so that nothing is kept open (see `socket`).
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| cannot_start("an event loop", error))?;
        let ended = Arc::new(Ended::default());
        let thread_ended = ended.clone();
        let body = move || {
            let queues: Vec<_> = deliveries.iter().map(|delivery| delivery.queue.clone()).collect();
            // Nothing that panics leaves the thread, and whatever happens every payload is accounted.
            let result = catch_unwind(AssertUnwindSafe(|| deliver_until_stopped(runtime, deliveries)));
            if result.is_err() {
                for queue in &queues {
                    queue.disable("the export is off after an internal error (panic); please report it".to_owned());
                }
            }
            thread_ended.tell();
        };
        (settings.start_thread)(THREAD_NAME, Box::new(body)).map_err(|error| cannot_start("a thread", error))?;
        Ok(Self { queues, control, ended })
    }

    /// Hands a payload to the destination at `destination_index` of those given to `start`. Never waits; an index out of
    /// range is ignored. What happens to the payload is seen in [`Exporter::stats`].
    pub fn enqueue(&self, destination_index: usize, payload: Payload) {
        if let Some(queue) = self.queues.get(destination_index) {
            queue.enqueue(payload);
        }
    }

    /// Remembers what was lost so far, for [`Exporter::flush_since`] and [`Exporter::stop_since`].
    pub fn moment(&self) -> Moment {
        Moment(self.queues.iter().map(|queue| queue.mark()).collect())
    }

    /// As [`Exporter::flush`]; `true` only when nothing was lost since `earlier` either. What is enqueued and refused at once
    /// may be lost before a flush begins: who flushes what they enqueue takes the moment first.
    pub fn flush_since(&self, earlier: &Moment, deadline: Duration) -> bool {
        let until = after(deadline);
        let marks = self.marks_since(earlier);
        self.control.send_modify(|control| control.flushes += 1);
        self.queues.iter().zip(marks).fold(true, |all, (queue, mark)| queue.wait_until_settled(mark, until) && all)
    }

    /// Sends now: pauses between attempts end (except those a receiver asked for), and the call returns when all that was
    /// enqueued before it has left, at the latest after `deadline`. `true` when all of it was delivered. What is left
    /// stays queued.
    pub fn flush(&self, deadline: Duration) -> bool {
        self.flush_since(&self.moment(), deadline)
    }

    /// As [`Exporter::stop`]; `true` only when nothing was lost since `earlier` either, as in [`Exporter::flush_since`].
    pub fn stop_since(&self, earlier: &Moment, deadline: Duration) -> bool {
        let until = after(deadline);
        let marks = self.marks_since(earlier);
        self.stop_until(until);
        self.ended.wait(until + GRACE);
        // Also when the thread is late: then it accounts only for what it has in flight.
        for queue in &self.queues {
            queue.close(DropReason::Deadline);
        }
        let now = Instant::now();
        self.queues.iter().zip(marks).all(|(queue, mark)| queue.wait_until_settled(mark, now))
    }

    /// Sends what is there within `deadline`, then drops and counts the rest and ends the thread. `true` when all of it was
    /// delivered. A receiver that cannot be reached is not waited for. Further payloads are dropped and counted. A second
    /// call waits for the first.
    pub fn stop(&self, deadline: Duration) -> bool {
        self.stop_since(&self.moment(), deadline)
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

    /// What is enqueued by now, with the losses counted from `earlier` on.
    fn marks_since(&self, earlier: &Moment) -> Vec<Mark> {
        self.queues.iter().zip(&earlier.0).map(|(queue, &then)| queue.mark().since(then)).collect()
    }

    fn stop_until(&self, until: Instant) {
        let until = tokio::time::Instant::from_std(until);
        self.control.send_modify(|control| {
            control.stop_at = Some(control.stop_at.map_or(until, |earlier| earlier.min(until)));
        });
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop_until(Instant::now());
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exporter").field("destinations", &self.queues.len()).finish_non_exhaustive()
    }
}

fn sender_for(
    destination: &Destination,
    settings: &ExporterSettings,
) -> Result<(&'static str, String, Sender), ExportError> {
    Ok(match destination {
        Destination::File(directory) => {
            let sender = FileSender::start(directory, settings.start_thread)?;
            ("file", sender.shown(), Sender::File(sender))
        }
        Destination::OtlpGrpc(endpoint) => {
            let sender = OtlpGrpcSender::start(endpoint, settings)?;
            ("otlp_grpc", sender.shown(), Sender::OtlpGrpc(Box::new(sender)))
        }
        Destination::OtlpHttp(endpoint) => {
            let sender = OtlpHttpSender::start(endpoint, settings)?;
            ("otlp_http", sender.shown(), Sender::OtlpHttp(Box::new(sender)))
        }
    })
}

/// The end of a deadline; one that reaches beyond any process's life is cut.
fn after(deadline: Duration) -> Instant {
    Instant::now() + deadline.min(Duration::from_secs(365 * 86_400))
}

/// A look-up or a disk that hangs does not hold it: those have threads of their own.
fn deliver_until_stopped(runtime: Runtime, deliveries: Vec<Delivery>) {
    runtime.block_on(async {
        let start = |delivery: Delivery| (delivery.queue.clone(), tokio::spawn(delivery.run()));
        let tasks: Vec<_> = deliveries.into_iter().map(start).collect();
        for (queue, task) in tasks {
            // A task can only fail by a panic: nobody cancels it.
            if task.await.is_err() {
                queue.disable("this destination is off after an internal error (panic); please report it".to_owned());
            }
        }
    });
}

/// Whether the thread is done.
#[derive(Default)]
struct Ended {
    done: Mutex<bool>,
    told: Condvar,
}

impl Ended {
    fn tell(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    fn wait(&self, until: Instant) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            done = self.told.wait_timeout(done, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
