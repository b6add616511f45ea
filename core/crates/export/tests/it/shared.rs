//! What nearly every test of this binary needs: payloads, one-destination exporters, and waiting for a state.

use crate::clocks::InstantClock;
use spanprof_export::{Clock, Destination, DestinationStats, Exporter, ExporterSettings, OtlpEndpoint, Payload};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn payload(body: impl Into<Vec<u8>>, samples: u64) -> Payload {
    Payload { body: body.into(), samples, ..Payload::default() }
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

/// Polls the statistics until they say what is expected; panics with them when they never do.
pub fn wait_for(exporter: &Exporter, what: &str, is_so: impl Fn(&DestinationStats) -> bool) -> DestinationStats {
    let until = Instant::now() + PATIENCE;
    loop {
        let stats = stats_of(exporter);
        if is_so(&stats) {
            return stats;
        }
        assert!(Instant::now() < until, "waited in vain until {what}: {stats:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Every payload that came in is accounted once: sent, lost, or waiting. Parts of a split payload count as payloads.
pub fn assert_accounts_balance(stats: &DestinationStats, extra_parts: u64) {
    let accounted = stats.sent + stats.dropped_total().payloads + stats.queue_payloads as u64;
    assert_eq!(accounted, stats.enqueued + extra_parts, "{stats:#?}");
}
