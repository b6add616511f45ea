//! The exporter: its thread, its life cycle, and the calls of the profiler.

use crate::connect::blocking::THREAD_NAME;
use crate::deliver::delivery_task::{DeliveryControl, DeliveryTask, Sender};
use crate::deliver::metrics_delivery::{MetricsSlot, MetricsTask};
use crate::error::{ExportError, ExportErrorKind};
use crate::files::disk_buffer::DiskBuffer;
use crate::files::file::FileSender;
use crate::files::spool::{BufferedFiles, Spool};
use crate::files::writer_sender::WriterSender;
use crate::outcome::OtlpSignal;
use crate::payload::ExportPayload;
use crate::queue::bounded_queue::{DestinationQueue, QueueMark};
use crate::send::http_response::HttpProtocol;
use crate::send::request_sender::RequestSender;
use crate::settings::{BufferSettings, Destination, ExporterSettings};
use crate::stats::{DestinationStats, DiscardReason, MetricsStats};
use bytes::Bytes;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Time beyond the deadline of `stop` in which the thread counts the payloads that it discards.
const GRACE: Duration = Duration::from_millis(50);

/// Delivers payloads on a thread of its own, named `spanprof-export`. Every method may be called from any thread.
///
/// Dropping it stops it without waiting: undelivered payloads are lost. In a forked child, neither drop nor use it, since
/// its thread stayed in the parent: call [`Exporter::forget_after_fork`] and start another.
pub struct Exporter {
    queues: Vec<Arc<DestinationQueue>>,
    /// Of the destinations that have one.
    buffers: Vec<Arc<DiskBuffer>>,
    metrics: Vec<Arc<MetricsSlot>>,
    control: watch::Sender<DeliveryControl>,
    completion: Arc<ThreadCompletion>,
}

/// The losses of each destination so far: later losses count from here.
#[derive(Clone, Debug)]
pub struct LossBaseline(Vec<QueueMark>);

impl Exporter {
    /// Checks the destinations and starts the thread. No connection is made before the first payload.
    ///
    /// # Errors
    /// When a destination cannot work as described (a URL, header, certificate file or directory), or when the process
    /// may start no thread.
    pub fn start(destinations: Vec<Destination>, settings: ExporterSettings) -> Result<Self, ExportError> {
        let (control, controlled) = watch::channel(DeliveryControl::default());
        let mut queues = Vec::with_capacity(destinations.len());
        let mut deliveries = Vec::with_capacity(destinations.len());
        let mut buffers = Vec::new();
        for destination in &destinations {
            let (kind, shown, sender) = sender_for(destination, &settings)?;
            let is_request = !matches!(destination, Destination::File(_) | Destination::Writer(_));
            let buffer = settings.buffer.as_ref().filter(|_| is_request);
            let identity = format!("{shown}\0{}", same_target_before(&queues, kind, &shown));
            let queue = Arc::new(DestinationQueue::new(kind, shown, &settings).with_buffer(buffer));
            queues.push(queue.clone());
            let mut spool = None;
            if let Some(buffer) = buffer {
                let disk_buffer = DiskBuffer::start(buffer, kind, &identity)?;
                buffers.push(disk_buffer.clone());
                spool = Some(Spool {
                    queue: queue.clone(),
                    files: BufferedFiles::new(disk_buffer, settings.start_thread),
                    clock: settings.clock.clone(),
                    // Requests of Pyroscope are never split: their encoder bounds each profile.
                    settings: BufferSettings {
                        split: buffer.split.filter(|_| !matches!(destination, Destination::Pyroscope(_))),
                        ..buffer.clone()
                    },
                    stuck: None,
                });
            }
            deliveries.push(DeliveryTask {
                queue,
                sender,
                clock: settings.clock.clone(),
                max_request_bytes: settings.max_request_bytes,
                buffer: spool.as_ref().map(|spool| spool.files.clone()),
                spool,
                control: controlled.clone(),
            });
        }
        let reports = metrics_tasks(&settings, &controlled)?;
        let metrics: Vec<_> = reports.iter().map(|task| task.slot.clone()).collect();
        let cannot_start = |what: &str, error: std::io::Error| {
            ExportError::new(
                ExportErrorKind::System,
                format!("{what} for the export cannot be made: {error}"),
                "raise the limits of threads and files (pids.max, ulimit -u, ulimit -n)",
            )
        };
        // Without tokio's I/O driver, which would keep descriptors open (see `socket`).
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| cannot_start("an event loop", error))?;
        let completion = Arc::new(ThreadCompletion::default());
        let thread_completion = completion.clone();
        let slots = metrics.clone();
        let body = move || {
            let queues: Vec<_> = deliveries.iter().map(|delivery| delivery.queue.clone()).collect();
            // No panic leaves the thread, and every payload is counted.
            let result = catch_unwind(AssertUnwindSafe(|| deliver_until_stopped(runtime, deliveries, reports)));
            if result.is_err() {
                for queue in &queues {
                    queue.disable("the export is off after an internal error (panic); please report it".to_owned());
                }
                slots.iter().for_each(|slot| slot.disable());
            }
            thread_completion.complete();
        };
        (settings.start_thread)(THREAD_NAME, Box::new(body)).map_err(|error| cannot_start("a thread", error))?;
        Ok(Self { queues, buffers, metrics, control, completion })
    }

    /// Enqueues a payload for the destination at `destination_index` of those given to `start`. Never waits. An index out
    /// of range is ignored. [`Exporter::stats`] reports the result.
    pub fn enqueue(&self, destination_index: usize, payload: ExportPayload) {
        if let Some(queue) = self.queues.get(destination_index) {
            queue.enqueue(payload);
        }
    }

    /// The losses so far, for [`Exporter::flush_since`] and [`Exporter::stop_since`].
    pub fn loss_baseline(&self) -> LossBaseline {
        LossBaseline(self.queues.iter().map(|queue| queue.mark()).collect())
    }

    /// As [`Exporter::flush`]; `true` only when nothing was lost since `earlier` either. A payload can be lost between
    /// `enqueue` and `flush`, so take the baseline before the `enqueue`.
    pub fn flush_since(&self, earlier: &LossBaseline, timeout: Duration) -> bool {
        let until = after(timeout);
        let marks = self.marks_since(earlier);
        self.control.send_modify(|control| control.flushes += 1);
        self.queues.iter().zip(marks).fold(true, |all, (queue, mark)| queue.wait_until_settled(mark, until) && all)
    }

    /// Ends the delays between attempts, except those that a receiver requested. Returns when all payloads enqueued
    /// before the call have left the queue, at the latest after `timeout`; `true` when all were delivered. The rest
    /// stays queued.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.flush_since(&self.loss_baseline(), timeout)
    }

    /// As [`Exporter::stop`]; `true` only when nothing was lost since `earlier` either, as in [`Exporter::flush_since`].
    pub fn stop_since(&self, earlier: &LossBaseline, timeout: Duration) -> bool {
        let until = after(timeout);
        let marks = self.marks_since(earlier);
        self.stop_until(until);
        self.completion.wait(until + GRACE);
        // Also when the thread is late: it then counts only the payload in flight.
        for queue in &self.queues {
            queue.close(DiscardReason::Deadline);
        }
        let now = Instant::now();
        self.queues.iter().zip(marks).all(|(queue, mark)| queue.wait_until_settled(mark, now))
    }

    /// Sends the queued payloads within `timeout`, discards and counts the rest, and ends the thread; `true` when all
    /// were delivered. Does not wait for an unreachable receiver. Later payloads are discarded and counted. A second
    /// call waits for the first.
    pub fn stop(&self, timeout: Duration) -> bool {
        self.stop_since(&self.loss_baseline(), timeout)
    }

    /// One entry per destination, in the order given to `start`.
    pub fn stats(&self) -> Vec<DestinationStats> {
        self.queues.iter().map(|queue| queue.stats()).collect()
    }

    /// Sends a request with metrics to each of [`ExporterSettings::metrics`], once. It replaces one that still waits. Never
    /// waits, and has no effect on payloads, `flush` and the result of `stop`.
    pub fn send_metrics(&self, body: Vec<u8>) {
        let body = Bytes::from(body);
        self.metrics.iter().for_each(|slot| slot.put(body.clone()));
    }

    /// One entry per receiver of metrics, in the order of the settings.
    pub fn metrics_stats(&self) -> Vec<MetricsStats> {
        self.metrics.iter().map(|slot| slot.stats()).collect()
    }

    /// For a forked child: closes its copies of the descriptors that lock the parent's directories in the disk buffer.
    /// Otherwise the child would hold the locks after the parent's end.
    pub fn release_locks_in_child(&self) {
        self.buffers.iter().for_each(|buffer| buffer.release_lock_in_child());
    }

    /// For a forked child: leaks the exporter. Its locks may be held by a thread that does not exist in the child, and its
    /// connections belong to the parent.
    pub fn forget_after_fork(self) {
        std::mem::forget(self);
    }

    /// Marks of the payloads enqueued so far, with the losses counted from `earlier` on.
    fn marks_since(&self, earlier: &LossBaseline) -> Vec<QueueMark> {
        self.queues.iter().zip(&earlier.0).map(|(queue, &then)| queue.mark().with_losses_since(then)).collect()
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
            let sender = RequestSender::grpc(endpoint, OtlpSignal::Profiles, settings)?;
            ("otlp_grpc", sender.shown(), Sender::Request(sender))
        }
        Destination::OtlpHttp(endpoint) => {
            let sender = RequestSender::http(endpoint, HttpProtocol::Otlp(OtlpSignal::Profiles), settings)?;
            ("otlp_http", sender.shown(), Sender::Request(sender))
        }
        Destination::Pyroscope(endpoint) => {
            let sender = RequestSender::http(endpoint, HttpProtocol::PyroscopePush, settings)?;
            ("pyroscope", sender.shown(), Sender::Request(sender))
        }
        Destination::Writer(writer) => {
            let sender = WriterSender::new(writer.clone(), settings.start_thread);
            (writer.kind(), writer.shown(), Sender::Writer(sender))
        }
    })
}

fn metrics_tasks(
    settings: &ExporterSettings,
    control: &watch::Receiver<DeliveryControl>,
) -> Result<Vec<MetricsTask>, ExportError> {
    let senders = settings.metrics.iter().filter_map(|receiver| match receiver {
        Destination::OtlpGrpc(endpoint) => Some(RequestSender::grpc(endpoint, OtlpSignal::Metrics, settings)),
        Destination::OtlpHttp(endpoint) => {
            Some(RequestSender::http(endpoint, HttpProtocol::Otlp(OtlpSignal::Metrics), settings))
        }
        Destination::File(_) | Destination::Pyroscope(_) | Destination::Writer(_) => None,
    });
    let task = |sender: RequestSender| MetricsTask {
        slot: Arc::new(MetricsSlot::new(sender.shown())),
        sender,
        clock: settings.clock.clone(),
        control: control.clone(),
    };
    senders.map(|sender| sender.map(task)).collect()
}

/// Number of earlier destinations with the same address, which differ in headers only.
fn same_target_before(queues: &[Arc<DestinationQueue>], kind: &str, shown: &str) -> usize {
    let is_same = |queue: &&Arc<DestinationQueue>| {
        let stats = queue.stats();
        (stats.kind, stats.target.as_str()) == (kind, shown)
    };
    queues.iter().filter(is_same).count()
}

/// The instant at which a timeout that starts now ends; the timeout is clamped to one year.
fn after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(365 * 86_400))
}

/// Runs the tasks of all destinations until `stop`. A look-up or a disk that hangs does not block them: it runs on a
/// thread of its own.
fn deliver_until_stopped(runtime: Runtime, deliveries: Vec<DeliveryTask>, reports: Vec<MetricsTask>) {
    runtime.block_on(async {
        let start = |delivery: DeliveryTask| (delivery.queue.clone(), tokio::spawn(delivery.run()));
        let tasks: Vec<_> = deliveries.into_iter().map(start).collect();
        let report = |report: MetricsTask| (report.slot.clone(), tokio::spawn(report.run()));
        let reports: Vec<_> = reports.into_iter().map(report).collect();
        for (queue, task) in tasks {
            // A task can only fail by a panic: it is never canceled.
            if task.await.is_err() {
                queue.disable("this destination is off after an internal error (panic); please report it".to_owned());
            }
        }
        for (slot, task) in reports {
            if task.await.is_err() {
                slot.disable();
            }
        }
    });
}

/// End of the export thread.
#[derive(Default)]
struct ThreadCompletion {
    done: Mutex<bool>,
    changed: Condvar,
}

impl ThreadCompletion {
    fn complete(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self, until: Instant) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            done = self.changed.wait_timeout(done, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
