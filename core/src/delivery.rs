//! Closed windows → bytes → the exporter. Encodes on the drain thread, never on a thread of the host. Not here: network
//! and files (`spanprof_export`), when a window closes (`profiler`).

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{Compression, Config, DestinationConfig, DestinationType, Protocol};
use crate::own_thread;
use crate::window::ClosedWindow;
use crate::{Error, ErrorKind};
use spanprof_export::{
    Destination, DestinationStats, Exporter, ExporterSettings, FileDirectory, Moment, OtlpEndpoint, Payload,
    ProxySettings, Secret, TlsFiles,
};
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::encode::pprof;
use spanprof_profile::{ProfilesData, ResourceProfiles};

/// Of each thread of the exporter, which runs the system's resolver and TLS.
const STACK_BYTES: usize = 2 << 20;

/// See the head of the module.
pub(crate) struct Delivery {
    exporter: Exporter,
    types: Vec<DestinationType>,
}

impl Delivery {
    /// Starts the exporter; `None` when there is no destination.
    pub fn start(config: &Config) -> Result<Option<Self>, Error> {
        let configured = config.effective_destinations();
        if configured.is_empty() {
            return Ok(None);
        }
        let types = configured.iter().map(|destination| destination.destination_type).collect();
        let destinations = configured.into_iter().map(|destination| export_destination(destination, config)).collect();
        let settings = ExporterSettings {
            queue_max_bytes: config.queue_max_bytes as usize,
            start_thread: |name, body| own_thread::start(name, STACK_BYTES, body).map(drop),
            ..ExporterSettings::default()
        };
        let exporter = Exporter::start(destinations, settings)
            .map_err(|error| Error::new(ErrorKind::InvalidDestination, error.message, error.hint))?;
        Ok(Some(Self { exporter, types }))
    }

    /// Encodes a window for every destination and queues it. Never waits.
    pub fn send(&self, window: ClosedWindow, max_profile_size: usize) {
        let time_unix_ms = window.start_unix_ns / 1_000_000;
        let of_type = |wanted| self.types.iter().enumerate().filter(move |(_, known)| **known == wanted);
        for (index, _) in of_type(DestinationType::File) {
            for file in files(&window.data, time_unix_ms) {
                self.exporter.enqueue(index, file);
            }
        }
        if of_type(DestinationType::Otlp).next().is_none() {
            return;
        }
        for part in otlp::split(window.data, max_profile_size) {
            let body = otlp::encode(&part, Revision::One);
            for (index, _) in of_type(DestinationType::Otlp) {
                let payload = Payload {
                    body: body.clone(),
                    profile_type: None,
                    time_unix_ms,
                    samples: part.sample_count() as u64,
                    split: Some(otlp::split_encoded),
                };
                self.exporter.enqueue(index, payload);
            }
        }
    }

    /// The moment from which [`Delivery::flush`] and [`Delivery::stop`] count losses.
    pub fn moment(&self) -> Moment {
        self.exporter.moment()
    }

    /// Sends now; true when all was delivered in time, and nothing was lost since `before`.
    pub fn flush(&self, before: &Moment, timeout: Duration) -> bool {
        self.exporter.flush_since(before, timeout)
    }

    /// Sends what is there, then ends the thread; true when nothing of what was queued was left behind, and nothing was lost
    /// since `before`. Does not wait for a receiver that cannot be reached.
    pub fn stop(&self, before: &Moment, timeout: Duration) -> bool {
        self.exporter.stop_since(before, timeout)
    }

    pub fn stats(&self) -> Vec<DestinationStats> {
        self.exporter.stats()
    }

    /// See [`Exporter::forget_after_fork`].
    pub fn forget_after_fork(self) {
        self.exporter.forget_after_fork();
    }
}

/// One file for each profile type; types measured together (objects and bytes) share one.
fn files(data: &ProfilesData, time_unix_ms: u64) -> Vec<Payload> {
    let mut names: Vec<&str> = Vec::new();
    for (_, profile) in data.profiles() {
        let name = file_type(profile.type_name());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let payload = |name: &str| {
        let resources = data.resources.iter().map(|resource| ResourceProfiles {
            profiles: resource
                .profiles
                .iter()
                .filter(|profile| file_type(profile.type_name()) == name)
                .cloned()
                .collect(),
            resource: resource.resource.clone(),
            scope: resource.scope.clone(),
        });
        let part = ProfilesData { dictionary: data.dictionary.clone(), resources: resources.collect() };
        Payload {
            body: pprof::encode(&part),
            profile_type: Some(name.to_owned()),
            time_unix_ms,
            samples: part.sample_count() as u64,
            split: None,
        }
    };
    names.into_iter().map(payload).collect()
}

fn file_type(type_name: &str) -> &str {
    match type_name {
        "alloc_space" | "alloc_objects" => "alloc",
        "contentions" | "delay" => "lock",
        other => other,
    }
}

fn export_destination(destination: DestinationConfig, config: &Config) -> Destination {
    if destination.destination_type == DestinationType::File {
        let mut directory = FileDirectory::new(destination.directory.unwrap_or_else(|| ".".to_owned()));
        directory.keep = destination.keep.unwrap_or(config.file_keep) as usize;
        return Destination::File(directory);
    }
    let protocol = destination.protocol.unwrap_or(config.protocol);
    let url = with_scheme(destination.endpoint.unwrap_or_default(), destination.insecure.unwrap_or(false));
    let mut endpoint = OtlpEndpoint::new(url);
    let headers = destination.headers.unwrap_or_default();
    endpoint.headers = headers.reveal().map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
    endpoint.compression = match destination.compression.unwrap_or(config.compression) {
        Compression::Gzip => spanprof_export::Compression::Gzip,
        Compression::Uncompressed => spanprof_export::Compression::None,
    };
    endpoint.timeout = destination.timeout.unwrap_or(config.timeout);
    endpoint.tls = TlsFiles {
        certificate: destination.certificate.map(PathBuf::from),
        client_certificate: destination.client_certificate.map(PathBuf::from),
        client_key: destination.client_key.map(PathBuf::from),
    };
    endpoint.proxy = config
        .proxy
        .for_url(&endpoint.url)
        .map(|url| ProxySettings { url: url.to_owned(), no_proxy: config.proxy.no_proxy.clone() });
    match protocol {
        Protocol::HttpProtobuf => Destination::OtlpHttp(endpoint),
        Protocol::Grpc => Destination::OtlpGrpc(endpoint),
    }
}

/// A gRPC endpoint may come without a scheme; OpenTelemetry then asks `insecure`.
fn with_scheme(endpoint: String, insecure: bool) -> String {
    match (endpoint.contains("://"), insecure) {
        (true, _) => endpoint,
        (false, true) => format!("http://{endpoint}"),
        (false, false) => format!("https://{endpoint}"),
    }
}
