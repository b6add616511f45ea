//! The receivers of the configuration: each gets an export without profiles, by the exporter of the profiler.

use std::time::Duration;

use spanprof_config::{export_destination, Config, DestinationConfig, DestinationType};
use spanprof_export::{Destination, DestinationStats, ExportPayload, Exporter, ExporterSettings, OtlpEndpoint};

use super::DoctorCheck;

const CHECK: &str = "receiver";
/// Most time for one receiver; the timeout of a request applies before it.
const DEADLINE: Duration = Duration::from_secs(15);

pub(super) fn checks(config: &Config) -> Vec<DoctorCheck> {
    let destinations = config.effective_destinations();
    let is_default = config.destinations.is_none() && config.endpoint.is_none();
    let receivers: Vec<DestinationConfig> =
        destinations.into_iter().filter(|it| it.destination_type != DestinationType::File).collect();
    if receivers.is_empty() {
        let found = "none is configured; profiles are written to files or pulled";
        return vec![DoctorCheck::ok(CHECK, found, "see output, file_directory and pull")];
    }
    receivers.into_iter().map(|receiver| check(receiver, config, is_default)).collect()
}

fn check(receiver: DestinationConfig, config: &Config, is_default: bool) -> DoctorCheck {
    let destination = export_destination(receiver, config);
    let stats = match exchanged(destination.clone()) {
        Ok(stats) => stats,
        Err(error) => {
            let meaning = "the profiler does not start with this destination";
            return DoctorCheck::problem(CHECK, error.message, meaning, error.hint);
        }
    };
    let target = if is_default {
        format!("no receiver configured: {}, the default,", stats.target)
    } else {
        stats.target.clone()
    };
    if stats.sent > 0 {
        let found = match stats.last_warning {
            Some(warning) => format!("{target} accepted an export without profiles, with the warning: {warning}"),
            None => format!("{target} accepted an export without profiles ({})", transport(&destination)),
        };
        return DoctorCheck::ok(CHECK, found, "profiles can be delivered");
    }
    let reason = stats.last_error.unwrap_or_else(|| "no answer within the timeout".to_owned());
    let action = action(&reason);
    if is_default && reason.starts_with("cannot connect") {
        return DoctorCheck::limited(
            CHECK,
            format!("no receiver configured: the default, {reason}"),
            "profiles are lost, unless the program sets a destination in code",
            format!("{action}; or write files instead: SPANPROF_OUTPUT=flame.html, SPANPROF_FILE_DIRECTORY=profiles"),
        );
    }
    let meaning = "profiles are retried for 15 minutes or rejected, then lost and counted";
    // Most reasons name the address.
    let found = if reason.contains(&stats.target) { reason } else { format!("{target}: {reason}") };
    DoctorCheck::problem(CHECK, found, meaning, action)
}

/// The counters of the exporter after one request without profiles.
fn exchanged(destination: Destination) -> Result<DestinationStats, spanprof_export::ExportError> {
    let exporter = Exporter::start(vec![destination], ExporterSettings::default())?;
    exporter.enqueue(0, ExportPayload::default());
    exporter.stop(DEADLINE);
    Ok(exporter.stats().remove(0))
}

fn transport(destination: &Destination) -> String {
    let secured =
        |endpoint: &OtlpEndpoint| if endpoint.url.starts_with("https://") { "with TLS" } else { "without TLS" };
    match destination {
        Destination::OtlpGrpc(endpoint) => format!("OTLP/gRPC {}", secured(endpoint)),
        Destination::OtlpHttp(endpoint) => format!("OTLP/HTTP {}", secured(endpoint)),
        Destination::Pyroscope(endpoint) => format!("Pyroscope's push protocol {}", secured(endpoint)),
        Destination::File(_) | Destination::Writer(_) => "files".to_owned(),
    }
}

/// The remedy for a failure of the exporter; its text already names the cause.
fn action(reason: &str) -> String {
    if reason.contains("service.profilesSupport") {
        "start the Collector with --feature-gates=service.profilesSupport and a pipeline of profiles \
         (examples/collector); for another receiver check the path of endpoint"
    } else if reason.contains("TLS with") {
        "set certificate (SPANPROF_CERTIFICATE, or --ca-cert here) to the certificate of the authority (PEM), or use http:// \
         for a receiver without TLS"
    } else if reason.contains("check the headers") {
        "set headers (OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN), or the tenant and user of the destination"
    } else if reason.contains("cannot connect") {
        "start a receiver there (`spanprof serve` is one), or set endpoint (OTEL_EXPORTER_OTLP_ENDPOINT, SPANPROF_ENDPOINT); in \
         a container, localhost is the container"
    } else {
        "check endpoint and protocol (http/protobuf on 4318, grpc on 4317) and the log of the receiver"
    }
    .to_owned()
}
