//! Payloads, exporters with one destination, and waiting for a state, for all tests of this binary.

use crate::clocks::InstantClock;
use spanprof_export::{Clock, Destination, DestinationStats, ExportPayload, Exporter, ExporterSettings, OtlpEndpoint};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout of a failing test, long enough for a loaded machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub fn payload(body: impl Into<Vec<u8>>, samples: u64) -> ExportPayload {
    ExportPayload { body: body.into(), samples, ..ExportPayload::default() }
}

pub fn settings_on(clock: Arc<dyn Clock>) -> ExporterSettings {
    ExporterSettings { clock, ..ExporterSettings::default() }
}

pub fn exporter_to(destination: Destination) -> (Exporter, Arc<InstantClock>) {
    let clock = InstantClock::new();
    (Exporter::start(vec![destination], settings_on(clock.clone())).unwrap(), clock)
}

pub fn http_endpoint(port: u16) -> OtlpEndpoint {
    OtlpEndpoint::new(format!("http://127.0.0.1:{port}/v1development/profiles"))
}

pub fn grpc_endpoint(port: u16) -> OtlpEndpoint {
    OtlpEndpoint::new(format!("http://127.0.0.1:{port}"))
}

pub fn stats_of(exporter: &Exporter) -> DestinationStats {
    exporter.stats().remove(0)
}

/// Polls the statistics until the condition is true; panics with them after the timeout.
pub fn wait_for(exporter: &Exporter, what: &str, condition: impl Fn(&DestinationStats) -> bool) -> DestinationStats {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let stats = stats_of(exporter);
        if condition(&stats) {
            return stats;
        }
        assert!(Instant::now() < until, "timed out waiting until {what}: {stats:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asserts that each enqueued payload is counted once: sent, discarded or waiting. Parts of a split count as payloads.
pub fn assert_counters_balance(stats: &DestinationStats, extra_parts: u64) {
    let counted = stats.sent + stats.dropped_total().payloads + stats.queue_payloads as u64;
    assert_eq!(counted, stats.enqueued + extra_parts, "{stats:#?}");
}
