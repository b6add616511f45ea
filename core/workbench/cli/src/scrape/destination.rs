//! Destinations of `spanprof scrape`: an OTLP receiver, a directory or a prefix of object storage. The keys are those of the
//! profiler's `destinations`.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use hyper::Uri;
use serde_norway::Value;
use spanprof_export::{Compression, Destination, FileDirectory, OtlpEndpoint, Secret};

use super::credentials::{bearer_token, headers, tls_files};
use super::section::{invalid, ConfigSection};
use crate::object_storage::{path_of_file_url, ObjectUrl, ObjectWriter};
use crate::proxy;
use spanprof_answers::failure::Failure;

/// Path of profiles at OTLP/HTTP receivers; appended to an endpoint without a path.
const PROFILES_PATH: &str = "/v1development/profiles";

#[derive(Clone, Debug)]
pub(crate) struct ScrapeDestination {
    pub export: Destination,
    pub is_file: bool,
}

pub(super) fn parse(value: Value, path: &str) -> Result<ScrapeDestination, Failure> {
    let mut section = ConfigSection::of(value, path)?;
    let kind = section.text("type")?;
    let (endpoint, directory, url) = (section.text("endpoint")?, section.text("directory")?, section.text("url")?);
    let parsed = match (endpoint, directory, url, kind.as_deref()) {
        (Some(endpoint), None, None, None | Some("otlp")) => otlp(&mut section, &endpoint)?,
        (None, Some(directory), None, None | Some("file")) => {
            let directory = match path_of_file_url(&directory) {
                Some(path) => path.map_err(|failure| at(&section.path_of("directory"), failure))?,
                None if directory.contains("://") => {
                    return Err(invalid(&section.path_of("directory"), "a URL; `url` names a prefix of object storage"))
                }
                None => directory.into(),
            };
            let mut files = FileDirectory::new(directory);
            files.keep = section.count("keep")?.unwrap_or(files.keep);
            files.max_age = section.duration("max_age", Duration::from_secs(60))?;
            files.max_bytes = section.count("max_bytes")?.map(|bytes| bytes as u64);
            ScrapeDestination { export: Destination::File(files), is_file: true }
        }
        (None, None, Some(url), None | Some("object_storage")) => object_storage(&section, &url)?,
        _ => {
            let expected = "expected `endpoint` (type: otlp), `directory` (type: file) or `url` (type: object_storage)";
            return Err(invalid(path, expected));
        }
    };
    section.finish()?;
    Ok(parsed)
}

/// Objects are written like files, but removed by the storage's own rules only.
fn object_storage(section: &ConfigSection, url: &str) -> Result<ScrapeDestination, Failure> {
    let path = section.path_of("url");
    let Some(parsed) = ObjectUrl::parse(url) else {
        return Err(invalid(
            &path,
            "expected s3://BUCKET/PREFIX, gs://… or az://…; `directory` names a local directory",
        ));
    };
    let writer = parsed.and_then(|prefix| ObjectWriter::open(&prefix)).map_err(|failure| at(&path, failure))?;
    Ok(ScrapeDestination { export: Destination::Writer(Arc::new(writer)), is_file: true })
}

/// A failure with the path of its key.
fn at(path: &str, failure: Failure) -> Failure {
    Failure { message: format!("`{path}`: {}", failure.message), ..failure }
}

fn otlp(section: &mut ConfigSection, endpoint: &str) -> Result<ScrapeDestination, Failure> {
    let path = section.path_of("endpoint");
    spanprof_export::check_url(endpoint).map_err(|problem| {
        invalid(&path, &format!("the URL {problem}; expected http://HOST:4318 or https://HOST:4318"))
    })?;
    let protocol_path = section.path_of("protocol");
    let is_grpc = match section.text("protocol")?.as_deref() {
        None | Some("http/protobuf") => false,
        Some("grpc") => true,
        Some(_) => return Err(invalid(&protocol_path, "expected http/protobuf or grpc")),
    };
    let has_path = endpoint.parse::<Uri>().is_ok_and(|uri| !uri.path().trim_matches('/').is_empty());
    let url = if is_grpc || has_path {
        endpoint.to_owned()
    } else {
        format!("{}{PROFILES_PATH}", endpoint.trim_end_matches('/'))
    };
    let mut settings = OtlpEndpoint::new(url);
    let headers_path = section.path_of("headers");
    let sources = headers(section)?;
    for (name, source) in &sources {
        let value = source.read().map_err(|problem| invalid(&format!("{headers_path}.{name}"), &problem))?;
        settings.headers.push((name.to_string(), value));
    }
    let token_path = section.path_of("bearer_token");
    if let Some(token) = bearer_token(section, &sources)? {
        let token = token.read().map_err(|problem| invalid(&token_path, &problem))?;
        settings.headers.push((AUTHORIZATION.to_string(), Secret::new(format!("Bearer {}", token.reveal()))));
    }
    let compression_path = section.path_of("compression");
    settings.compression = match section.text("compression")?.as_deref() {
        None | Some("gzip") => Compression::Gzip,
        Some("none") => Compression::None,
        Some(_) => return Err(invalid(&compression_path, "expected gzip or none")),
    };
    settings.timeout = section.duration("timeout", Duration::from_millis(100))?.unwrap_or(settings.timeout);
    settings.tls = tls_files(section)?;
    settings.proxy = proxy::of_environment(&settings.url);
    let export = if is_grpc { Destination::OtlpGrpc(settings) } else { Destination::OtlpHttp(settings) };
    Ok(ScrapeDestination { export, is_file: false })
}
