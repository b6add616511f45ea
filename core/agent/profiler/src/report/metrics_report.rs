//! Sends the profiler's own metrics at their interval, on the drain thread. Not here: names and values (`metrics`), delivery.

use super::health;
use crate::deliver::windows::WindowDelivery;
use crate::host_log::{log, LogLevel};
use crate::report::metrics::MetricsEncoder;
use crate::session::Session;
use spanprof_config::Config;
use spanprof_profile::Attribute;

/// Schedules the metrics requests of a run.
#[derive(Default)]
pub(crate) struct MetricsReport {
    /// `None` when no receiver accepts metrics.
    report: Option<ActiveReport>,
}

struct ActiveReport {
    encoder: MetricsEncoder,
    /// Monotonic time of the next request.
    due_ns: u64,
}

impl MetricsReport {
    pub fn new(session: &Session, config: &Config) -> Self {
        let unknown_paths = config.metrics_receivers().unknown_paths;
        let has_receiver =
            session.outputs.delivery.as_ref().is_some_and(|delivery| !delivery.metrics_stats().is_empty());
        if config.metrics && !has_receiver && unknown_paths.is_empty() {
            log(LogLevel::Warning, "spanprof: metrics is on, but there is no OTLP destination; set metrics_endpoint");
        }
        for address in unknown_paths {
            let message = format!(
                "spanprof: no metrics are sent to {address}, since its path is not `/v1development/profiles` or \
                 `/v1/profiles`; set metrics_endpoint to the URL of metrics"
            );
            log(LogLevel::Warning, &message);
        }
        let first = config.upload_interval.min(config.metrics_interval);
        let report = has_receiver.then(|| ActiveReport {
            encoder: MetricsEncoder::new(spanprof_os::unix_ns()),
            due_ns: spanprof_os::monotonic_ns() + first.as_nanos() as u64,
        });
        Self { report }
    }

    /// Monotonic time of the next request; `None` when there is none.
    pub fn due_ns(&self) -> Option<u64> {
        self.report.as_ref().map(|report| report.due_ns)
    }

    /// Sends a request if it is due.
    pub fn poll(&mut self, session: &Session) {
        let (Some(report), Some(delivery)) = (&mut self.report, &session.outputs.delivery) else { return };
        delivery.log_metrics_failures(false);
        let now_ns = spanprof_os::monotonic_ns();
        if now_ns < report.due_ns {
            return;
        }
        report.due_ns = now_ns + session.config.active.load().metrics_interval.as_nanos() as u64;
        if delivery.metrics_stats().iter().all(|receiver| receiver.stopped) {
            self.report = None;
            return;
        }
        report.send(session, delivery);
    }

    /// Sends the last request.
    pub fn send_last(&mut self, session: &Session) {
        if let (Some(report), Some(delivery)) = (&mut self.report, &session.outputs.delivery) {
            report.send(session, delivery);
        }
    }
}

impl ActiveReport {
    fn send(&mut self, session: &Session, delivery: &WindowDelivery) {
        let stats = health::stats(Some(session), &session.config.active.load());
        let resource: Vec<_> = session.outputs.resource.load().attributes.iter().map(Attribute::from).collect();
        delivery.send_metrics(self.encoder.encode(&stats, &resource, spanprof_os::unix_ns()));
    }
}
