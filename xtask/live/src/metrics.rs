//! The refusal of the profiler's own metrics by a Collector. Called by `main`.

use std::time::Duration;

use spanprof_export::{Destination, Exporter, ExporterSettings, OtlpEndpoint};

/// Deadline for the receiver to respond.
const RECEIVER_DEADLINE: Duration = Duration::from_secs(20);

/// Sends to a receiver without a metrics pipeline, which gets one request; the error must name the way out.
pub fn refused(protocol: &str, url: &str) -> Result<(), String> {
    let receiver = match protocol {
        "grpc" => Destination::OtlpGrpc(OtlpEndpoint::new(url)),
        _ => Destination::OtlpHttp(OtlpEndpoint::new(format!("{url}/v1/metrics"))),
    };
    let settings = ExporterSettings { metrics: vec![receiver], ..ExporterSettings::default() };
    let exporter = Exporter::start(Vec::new(), settings).map_err(|error| error.to_string())?;
    exporter.send_metrics(Vec::new());
    exporter.stop(RECEIVER_DEADLINE);
    let stats = exporter.metrics_stats().swap_remove(0);
    let last_error = stats.last_error.clone().unwrap_or_default();
    if !stats.stopped || !last_error.contains("metrics pipeline") {
        return Err(format!("the refusal does not name the metrics pipeline: {stats:?}"));
    }
    println!("{protocol}: {last_error}");
    Ok(())
}
