//! Sends over every transport to a Collector and compares the output of its file exporters with the sent profiles: resource,
//! scope, profiles, stacks, labels, links, values, timestamps, in the model's text form. Called by `main`.

use std::time::{Duration, Instant};

use spanprof_export::{Compression, Destination, ExportPayload, Exporter, ExporterSettings, OtlpEndpoint};
use spanprof_profile::encode::otlp::{encode, split_encoded, Revision};
use spanprof_profile::encode::text;
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{otlp, DecodeLimits};

use crate::payload;

/// Deadline for the receiver to accept a request, and to write it.
const RECEIVER_DEADLINE: Duration = Duration::from_secs(20);

/// Sends one request per transport, then reads every written file back.
pub fn run(grpc: &str, http: &str, written: &[&str]) -> Result<(), String> {
    let http = format!("{http}/v1development/profiles");
    let transports = [
        ("live-grpc", Destination::OtlpGrpc(endpoint(grpc, Compression::None))),
        ("live-grpc-gzip", Destination::OtlpGrpc(endpoint(grpc, Compression::Gzip))),
        ("live-http", Destination::OtlpHttp(endpoint(&http, Compression::None))),
        ("live-http-gzip", Destination::OtlpHttp(endpoint(&http, Compression::Gzip))),
    ];
    let mut sent = Vec::new();
    for (service, destination) in transports {
        let data = payload::of_service(service);
        send(destination, &data).map_err(|message| format!("{service}: {message}"))?;
        println!("{service}: accepted");
        sent.push((service, data));
    }
    for file in written {
        for (service, data) in &sent {
            let back = wait_for(file, service)?;
            same(&text::encode(data), &text::encode(&back))
                .map_err(|message| format!("{file}, {service}: {message}"))?;
            println!("{service}: read back from {}, identical", file.rsplit('/').next().unwrap_or(file));
        }
    }
    Ok(())
}

/// Sends to a receiver without a profiles pipeline; the error must name the feature gate, and must not be retried.
pub fn refused(protocol: &str, url: &str) -> Result<(), String> {
    let destination = match protocol {
        "grpc" => Destination::OtlpGrpc(endpoint(url, Compression::Gzip)),
        _ => Destination::OtlpHttp(endpoint(&format!("{url}/v1development/profiles"), Compression::Gzip)),
    };
    let exporter = start(destination)?;
    exporter.enqueue(0, body(&payload::of_service("live-refused")));
    let delivered = exporter.flush(RECEIVER_DEADLINE);
    let stats = exporter.stats().swap_remove(0);
    exporter.stop(Duration::from_secs(1));
    let last_error = stats.last_error.clone().unwrap_or_default();
    if delivered
        || stats.retries != 0
        || stats.dropped_total() != stats.dropped(spanprof_export::DiscardReason::Permanent)
    {
        return Err(format!(
            "expected one permanent refusal; delivered {delivered}, {} retries, last error `{last_error}`",
            stats.retries
        ));
    }
    if !last_error.contains("service.profilesSupport") {
        return Err(format!("the refusal does not name the feature gate service.profilesSupport: `{last_error}`"));
    }
    println!("{protocol}: {last_error}");
    Ok(())
}

fn endpoint(url: &str, compression: Compression) -> OtlpEndpoint {
    OtlpEndpoint { compression, ..OtlpEndpoint::new(url) }
}

fn start(destination: Destination) -> Result<Exporter, String> {
    Exporter::start(vec![destination], ExporterSettings::default()).map_err(|error| error.to_string())
}

fn body(data: &ProfilesData) -> ExportPayload {
    ExportPayload {
        body: encode(data, Revision::One),
        samples: data.sample_count() as u64,
        split: Some(split_encoded),
        ..ExportPayload::default()
    }
}

fn send(destination: Destination, data: &ProfilesData) -> Result<(), String> {
    let exporter = start(destination)?;
    exporter.enqueue(0, body(data));
    let delivered = exporter.flush(RECEIVER_DEADLINE);
    let stats = exporter.stats().swap_remove(0);
    exporter.stop(Duration::from_secs(1));
    match (delivered, stats.sent) {
        (true, 1) => Ok(()),
        _ => Err(format!("not delivered: {:?}", stats)),
    }
}

/// Reads the file until it contains the service.
fn wait_for(file: &str, service: &str) -> Result<ProfilesData, String> {
    let deadline = Instant::now() + RECEIVER_DEADLINE;
    loop {
        let bytes = std::fs::read(file).unwrap_or_default();
        let read = otlp::decode(&bytes, &DecodeLimits::default());
        match read {
            Ok(mut data) => {
                data.resources.retain(|resource| resource.service_name() == service);
                if !data.resources.is_empty() {
                    return Ok(data);
                }
                if Instant::now() > deadline {
                    return Err(format!("{file} has no profiles of {service}"));
                }
            }
            // The last record may be incomplete.
            Err(error) if Instant::now() > deadline => return Err(format!("cannot read {file}: {error}")),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Compares texts; the error shows the first different line.
fn same(sent: &str, back: &str) -> Result<(), String> {
    if sent.is_empty() {
        return Err("nothing was sent".to_owned());
    }
    if sent == back {
        return Ok(());
    }
    let differs = sent.lines().zip(back.lines()).position(|(left, right)| left != right);
    let at = differs.unwrap_or_else(|| sent.lines().count().min(back.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(end)").to_owned();
    Err(format!("line {} differs\n  sent: {}\n  back: {}", at + 1, line(sent), line(back)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_line_is_shown_from_both_texts() {
        let message = same("a\nb\nc", "a\nB\nc").unwrap_err();
        assert!(message.contains("line 2") && message.contains("sent: b") && message.contains("back: B"), "{message}");
    }

    #[test]
    fn a_missing_end_and_an_empty_text_are_differences() {
        assert!(same("a\nb", "a").unwrap_err().contains("(end)"));
        assert!(same("", "").is_err());
    }
}
