//! Destinations of `spanprof scrape`: an OTLP receiver or a directory. The keys are those of the profiler's `destinations`.

use std::time::Duration;

use hyper::header::AUTHORIZATION;
use hyper::Uri;
use serde_norway::Value;
use spanprof_export::{Compression, Destination, FileDirectory, OtlpEndpoint, ProxySettings, Secret};

use super::credentials::{bearer_token, headers, tls_files};
use super::section::{invalid, ConfigSection};
use crate::failure::Failure;

/// Path of profiles at OTLP/HTTP receivers; appended to an endpoint without a path.
const PROFILES_PATH: &str = "/v1development/profiles";

/// A destination of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct ScrapeDestination {
    pub export: Destination,
    pub is_file: bool,
}

pub(super) fn parse(value: Value, path: &str) -> Result<ScrapeDestination, Failure> {
    let mut section = ConfigSection::of(value, path)?;
    let kind = section.text("type")?;
    let (endpoint, directory) = (section.text("endpoint")?, section.text("directory")?);
    let parsed = match (endpoint, directory, kind.as_deref()) {
        (Some(endpoint), None, None | Some("otlp")) => otlp(&mut section, &endpoint)?,
        (None, Some(directory), None | Some("file")) => {
            let mut files = FileDirectory::new(directory);
            files.keep = section.count("keep")?.unwrap_or(files.keep);
            files.max_age = section.duration("max_age", Duration::from_secs(60))?;
            files.max_bytes = section.count("max_bytes")?.map(|bytes| bytes as u64);
            ScrapeDestination { export: Destination::File(files), is_file: true }
        }
        _ => return Err(invalid(path, "expected `endpoint` (type: otlp) or `directory` (type: file)")),
    };
    section.finish()?;
    Ok(parsed)
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
    let url = match is_grpc || has_path {
        true => endpoint.to_owned(),
        false => format!("{}{PROFILES_PATH}", endpoint.trim_end_matches('/')),
    };
    let mut settings = OtlpEndpoint::new(url);
    let headers_path = section.path_of("headers");
    let given = headers(section)?;
    for (name, source) in &given {
        let value = source.read().map_err(|problem| invalid(&format!("{headers_path}.{name}"), &problem))?;
        settings.headers.push((name.to_string(), value));
    }
    let token_path = section.path_of("bearer_token");
    if let Some(token) = bearer_token(section, &given)? {
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
    settings.proxy = proxy(&settings.url);
    let export = if is_grpc { Destination::OtlpGrpc(settings) } else { Destination::OtlpHttp(settings) };
    Ok(ScrapeDestination { export, is_file: false })
}

/// The proxy of the environment, by the rules of the profiler: upper-case `HTTP_PROXY` is ignored.
fn proxy(url: &str) -> Option<ProxySettings> {
    let text = |names: &[&str]| {
        let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
        values.find(|value| !value.trim().is_empty())
    };
    let is_secure = url.starts_with("https://");
    let names: &[&str] = if is_secure {
        &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    } else {
        &["http_proxy", "all_proxy"]
    };
    let url = text(names)?;
    Some(ProxySettings { url, no_proxy: text(&["no_proxy", "NO_PROXY"]).unwrap_or_default() })
}
