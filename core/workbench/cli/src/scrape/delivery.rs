//! Encodes scraped windows and queues them at the exporter; reports when delivery stops and resumes.

use std::time::Duration;

use serde_json::{json, Value};
use spanprof_export::{Destination, DestinationStats, ExportPayload, Exporter, ExporterSettings};
use spanprof_profile::encode::otlp::{self, EncodedRequest, Revision};
use spanprof_profile::encode::pprof;
use spanprof_profile::transform::separate_exact_values;
use spanprof_profile::ProfilesData;

use super::destination::ScrapeDestination;
use spanprof_answers::failure::Failure;

/// Largest request before compression, the default of the profiler.
const MAX_REQUEST_BYTES: usize = 2 << 20;

/// The exporter of all targets, and the destinations by format.
pub(super) struct ScrapeDelivery {
    exporter: Exporter,
    files: Vec<usize>,
    otlp: Vec<usize>,
}

impl ScrapeDelivery {
    /// Starts the exporter, which creates directories and reads certificates.
    pub fn start(destinations: &[ScrapeDestination]) -> Result<Self, Failure> {
        let indexes = |is_file: bool| {
            let of_kind =
                destinations.iter().enumerate().filter(move |(_, destination)| destination.is_file == is_file);
            of_kind.map(|(index, _)| index).collect()
        };
        let (files, otlp) = (indexes(true), indexes(false));
        let destinations: Vec<Destination> = destinations.iter().map(|it| it.export.clone()).collect();
        let exporter = Exporter::start(destinations, ExporterSettings::default())
            .map_err(|error| Failure::new(error.message).hint(error.hint))?;
        Ok(Self { exporter, files, otlp })
    }

    /// Encodes and queues a window; never waits for a destination.
    pub fn send(&self, name: &str, data: ProfilesData, time_unix_ms: u64) {
        for index in &self.files {
            let payload = ExportPayload {
                body: pprof::encode(&data),
                profile_type: Some(name.to_owned()),
                time_unix_ms,
                samples: data.sample_count() as u64,
                split: None,
                sidecar: None,
            };
            self.exporter.enqueue(*index, payload);
        }
        if self.otlp.is_empty() {
            return;
        }
        let data = separate_exact_values(data);
        for EncodedRequest { body, samples } in otlp::encode_split(data, Revision::One, MAX_REQUEST_BYTES) {
            for index in &self.otlp {
                let payload = ExportPayload {
                    body: body.clone(),
                    profile_type: None,
                    time_unix_ms,
                    samples: samples as u64,
                    split: Some(otlp::split_encoded),
                    sidecar: None,
                };
                self.exporter.enqueue(*index, payload);
            }
        }
    }

    /// Sends the queue; true when everything since the start was delivered.
    pub fn stop(&self, timeout: Duration) -> bool {
        self.exporter.stop(timeout) && self.exporter.stats().iter().all(|it| it.dropped_total().payloads == 0)
    }

    /// A line for each destination that stopped or resumed since the last call.
    pub fn changes(&self, failing: &mut Vec<bool>) -> Vec<String> {
        let stats = self.exporter.stats();
        failing.resize(stats.len(), false);
        let mut lines = Vec::new();
        for (destination, was_failing) in stats.iter().zip(failing) {
            let is_failing = destination.disabled || destination.last_error_unix_ms > destination.last_success_unix_ms;
            if is_failing != *was_failing {
                lines.push(match is_failing {
                    true => {
                        let error = destination.last_error.as_deref().unwrap_or("disabled");
                        format!("delivery to {} fails: {error}", destination.target)
                    }
                    false => format!("delivery to {} has resumed", destination.target),
                });
            }
            *was_failing = is_failing;
        }
        lines
    }

    /// The counters of each destination.
    pub fn status(&self) -> Vec<Value> {
        self.exporter.stats().iter().map(status).collect()
    }
}

fn status(stats: &DestinationStats) -> Value {
    let dropped = stats.dropped_total();
    json!({
        "type": stats.kind, "target": stats.target, "sent": stats.sent, "sent_samples": stats.sent_samples,
        "sent_bytes": stats.sent_bytes, "retries": stats.retries, "queued": stats.queue_payloads,
        "dropped": dropped.payloads, "dropped_samples": dropped.samples, "last_error": stats.last_error,
    })
}
