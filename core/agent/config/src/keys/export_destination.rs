//! A destination of the configuration, in the types of the exporter. Called by the profiler's delivery and by `spanprof doctor`.

use std::path::PathBuf;

use spanprof_export::{Destination, FileDirectory, OtlpEndpoint, ProxySettings, Secret, TlsFiles};

use crate::keys::table::Config;
use crate::types::choices::{Compression, DestinationConfig, DestinationType, Protocol};

/// A destination of `config` as the exporter takes it. Missing settings are those of `config`.
pub fn export_destination(destination: DestinationConfig, config: &Config) -> Destination {
    if destination.destination_type == DestinationType::File {
        let mut directory = FileDirectory::new(destination.directory.unwrap_or_else(|| ".".to_owned()));
        directory.keep = destination.keep.unwrap_or(config.file_keep) as usize;
        directory.max_age = destination.max_age;
        directory.max_bytes = destination.max_bytes;
        return Destination::File(directory);
    }
    let protocol = destination.protocol.unwrap_or(config.protocol);
    let mut endpoint = OtlpEndpoint::new(destination.endpoint.unwrap_or_default());
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
        _ if destination.destination_type == DestinationType::Pyroscope => {
            // The profiles inside are compressed.
            endpoint.compression = spanprof_export::Compression::None;
            Destination::Pyroscope(endpoint)
        }
        Protocol::HttpProtobuf => Destination::OtlpHttp(endpoint),
        Protocol::Grpc => Destination::OtlpGrpc(endpoint),
    }
}
