//! The configuration of `spanprof scrape`: targets, the endpoints pulled from each, and destinations. Every invalid value is
//! an error before the first request.

use std::path::Path;
use std::time::Duration;

use hyper::header::HeaderName;
use hyper::Uri;
use serde_norway::Value;
use spanprof_export::TlsFiles;
use spanprof_profile::{Attribute, AttributeValue};

use super::credentials::{bearer_token, headers, tls_files, SecretSource};
use super::destination::{self, ScrapeDestination};
use super::section::{self, invalid, ConfigSection};
use spanprof_answers::failure::Failure;

/// Largest configuration file.
const MAX_FILE_BYTES: u64 = 4 << 20;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_MAX_BODY_BYTES: u64 = 32 << 20;
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// `goroutine` is not among them: a program with millions of goroutines pauses for it.
const DEFAULT_PROFILES: [&str; 4] = ["cpu", "heap", "block", "mutex"];
/// Names, the last segment of their path, and whether the request states a number of seconds.
const ENDPOINTS: [(&str, &str, bool); 9] = [
    ("cpu", "profile", true),
    ("wall", "wall", true),
    ("heap", "heap", false),
    ("allocs", "allocs", false),
    ("block", "block", false),
    ("mutex", "mutex", false),
    ("goroutine", "goroutine", false),
    ("threads", "threads", false),
    ("threadcreate", "threadcreate", false),
];
/// Endpoints with the state at one moment: with `seconds`, Go returns differences of states.
const STATES: [&str; 4] = ["heap", "goroutine", "threads", "threadcreate"];

/// The parsed and checked configuration file.
#[derive(Debug)]
pub(crate) struct ScrapeConfig {
    pub targets: Vec<ScrapeTarget>,
    pub destinations: Vec<ScrapeDestination>,
}

/// A process with pprof endpoints.
#[derive(Clone, Debug)]
pub(crate) struct ScrapeTarget {
    /// URL without secrets, for messages.
    pub shown: String,
    pub is_secure: bool,
    /// Name or address, without brackets.
    pub host: String,
    pub port: u16,
    /// Value of the header `Host`, and the default of `service.instance.id`.
    pub authority: String,
    pub headers: Vec<(HeaderName, SecretSource)>,
    pub bearer_token: Option<SecretSource>,
    pub tls: TlsFiles,
    /// Resource attributes, which replace those that the profile states.
    pub attributes: Vec<Attribute>,
    pub max_body_bytes: usize,
    pub endpoints: Vec<ScrapedEndpoint>,
}

/// One profile of a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScrapedEndpoint {
    /// `cpu`, `heap`…; for another name the path is stated.
    pub name: String,
    pub path: String,
    /// Length of the measurement by the target, in seconds.
    pub seconds: Option<u64>,
    pub interval: Duration,
    /// Time of a request beyond `seconds`.
    pub timeout: Duration,
    /// Whether the configuration names it; a target may lack a default one.
    pub is_named: bool,
}

/// Values of the document that apply to each target without its own.
struct TargetDefaults {
    interval: Duration,
    timeout: Duration,
    max_body_bytes: u64,
    profiles: Option<Vec<Value>>,
    attributes: Vec<Attribute>,
}

impl ScrapeConfig {
    /// Reads and checks the file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |cause: String| Failure::new(format!("cannot read the configuration {}: {cause}", path.display()));
        let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if metadata.len() > MAX_FILE_BYTES {
            return Err(failed(format!("it has {} bytes, expected at most {MAX_FILE_BYTES}", metadata.len())));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text)
            .map_err(|failure| Failure { message: format!("{}: {}", path.display(), failure.message), ..failure })
    }

    /// Checks the text of a file.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let document: Value =
            serde_norway::from_str(text).map_err(|error| Failure::new(format!("not YAML: {error}")))?;
        let mut section = ConfigSection::of(document, "")?;
        let profiles = section.list("profiles")?;
        let defaults = TargetDefaults {
            interval: section.duration("interval", MIN_INTERVAL)?.unwrap_or(DEFAULT_INTERVAL),
            timeout: section.duration("timeout", MIN_TIMEOUT)?.unwrap_or(DEFAULT_TIMEOUT),
            max_body_bytes: section.bytes("max_body_size")?.unwrap_or(DEFAULT_MAX_BODY_BYTES),
            profiles: profiles.map(|listed| listed.into_iter().map(|(_, value)| value).collect()),
            attributes: attributes(&mut section)?,
        };
        let targets = section.list("targets")?.unwrap_or_default();
        let destinations = section.list("destinations")?.unwrap_or_default();
        section.finish()?;
        if targets.is_empty() {
            return Err(invalid("targets", "expected at least one").hint("targets: [{url: \"http://127.0.0.1:6060\"}]"));
        }
        if destinations.is_empty() {
            return Err(invalid("destinations", "expected at least one")
                .hint("destinations: [{endpoint: \"http://127.0.0.1:4318\"}] or [{directory: ./profiles}]"));
        }
        Ok(Self {
            targets: targets
                .into_iter()
                .map(|(path, value)| target(value, &path, &defaults))
                .collect::<Result<_, _>>()?,
            destinations: destinations
                .into_iter()
                .map(|(path, value)| destination::parse(value, &path))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn target(value: Value, path: &str, defaults: &TargetDefaults) -> Result<ScrapeTarget, Failure> {
    let mut section = match value {
        Value::String(url) => {
            ConfigSection::of(Value::Mapping([("url".into(), Value::String(url))].into_iter().collect()), path)?
        }
        other => ConfigSection::of(other, path)?,
    };
    let url = section.text("url")?.ok_or_else(|| invalid(&section.path_of("url"), "expected http://HOST:PORT"))?;
    let address = TargetAddress::parse(&url).map_err(|problem| {
        invalid(
            &section.path_of("url"),
            &format!("{problem}; expected http://HOST:PORT, https://HOST:PORT or HOST:PORT"),
        )
    })?;
    let headers = headers(&mut section)?;
    let bearer_token = bearer_token(&mut section, &headers)?;
    let tls = tls_files(&mut section)?;
    let interval = section.duration("interval", MIN_INTERVAL)?.unwrap_or(defaults.interval);
    let timeout = section.duration("timeout", MIN_TIMEOUT)?.unwrap_or(defaults.timeout);
    let max_body_bytes = section.bytes("max_body_size")?.unwrap_or(defaults.max_body_bytes);
    let own_attributes = attributes(&mut section)?;
    let profiles_path = section.path_of("profiles");
    let named = section.list("profiles")?;
    let is_named = named.is_some() || defaults.profiles.is_some();
    let profiles = named.unwrap_or_else(|| {
        let names = || DEFAULT_PROFILES.map(|name| Value::String(name.to_owned())).to_vec();
        let inherited = defaults.profiles.clone().unwrap_or_else(names);
        inherited.into_iter().enumerate().map(|(nth, value)| (format!("profiles[{nth}]"), value)).collect()
    });
    section.finish()?;
    let endpoints: Vec<ScrapedEndpoint> = profiles
        .into_iter()
        .map(|(path, value)| endpoint(value, &path, &address.prefix, interval, timeout))
        .map(|parsed| parsed.map(|endpoint| ScrapedEndpoint { is_named, ..endpoint }))
        .collect::<Result<_, _>>()?;
    if endpoints.is_empty() {
        return Err(invalid(&profiles_path, "expected at least one profile"));
    }
    if let Some(twice) =
        (1..endpoints.len()).find(|nth| endpoints[..*nth].iter().any(|it| it.name == endpoints[*nth].name))
    {
        return Err(invalid(&profiles_path, &format!("`{}` is named twice", endpoints[twice].name)));
    }
    let has = |name: &str| endpoints.iter().any(|endpoint| endpoint.name == name);
    if has("heap") && has("allocs") {
        return Err(invalid(&profiles_path, "`heap` contains the profiles of `allocs`").hint("remove one of them"));
    }
    let mut attributes = own_attributes;
    let inherited: Vec<_> = defaults
        .attributes
        .iter()
        .filter(|inherited| attributes.iter().all(|own| own.key != inherited.key))
        .cloned()
        .collect();
    attributes.extend(inherited);
    Ok(ScrapeTarget {
        shown: format!("{}://{}", if address.is_secure { "https" } else { "http" }, address.authority),
        is_secure: address.is_secure,
        host: address.host,
        port: address.port,
        authority: address.authority,
        headers,
        bearer_token,
        tls,
        attributes,
        max_body_bytes: usize::try_from(max_body_bytes).unwrap_or(usize::MAX),
        endpoints,
    })
}

/// The URL of a target, parsed.
#[derive(Debug, PartialEq)]
struct TargetAddress {
    is_secure: bool,
    host: String,
    port: u16,
    authority: String,
    /// Path before the name of an endpoint, without a slash at its end.
    prefix: String,
}

impl TargetAddress {
    fn parse(url: &str) -> Result<Self, &'static str> {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = url.parse().map_err(|_| "not a URL")?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the scheme is neither http nor https"),
        };
        let authority = uri.authority().ok_or("the host is missing")?;
        if authority.as_str().contains('@') {
            return Err("a user name is not supported, use `headers` with `Authorization`");
        }
        if uri.query().is_some() {
            return Err("a query is not supported, use `path` of a profile");
        }
        let port = match authority.as_str()[authority.host().len()..].strip_prefix(':') {
            None if is_secure => 443,
            None => 80,
            Some(port) => {
                port.parse().ok().filter(|port| *port != 0).ok_or("the port is not a number from 1 to 65535")?
            }
        };
        let prefix = match uri.path().trim_end_matches('/') {
            "" => "/debug/pprof",
            path => path,
        };
        Ok(Self {
            is_secure,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

fn endpoint(
    value: Value,
    path: &str,
    prefix: &str,
    interval: Duration,
    timeout: Duration,
) -> Result<ScrapedEndpoint, Failure> {
    let mut section = match value {
        Value::String(name) => {
            ConfigSection::of(Value::Mapping([("name".into(), Value::String(name))].into_iter().collect()), path)?
        }
        other => ConfigSection::of(other, path)?,
    };
    let name =
        section.text("name")?.ok_or_else(|| invalid(&section.path_of("name"), "expected the name of a profile"))?;
    let own_path = section.text("path")?;
    let (path_key, seconds_key) = (section.path_of("path"), section.path_of("seconds"));
    let interval = section.duration("interval", MIN_INTERVAL)?.unwrap_or(interval);
    let timeout = section.duration("timeout", MIN_TIMEOUT)?.unwrap_or(timeout);
    let seconds = section.duration("seconds", MIN_INTERVAL)?;
    section.finish()?;
    let known = ENDPOINTS.iter().find(|(known, ..)| *known == name);
    let request = match (own_path, known) {
        (Some(own), _) if own.starts_with('/') && own.parse::<Uri>().is_ok() => own,
        (Some(_), _) => return Err(invalid(&path_key, "expected a path that begins with `/`")),
        (None, Some((_, segment, _))) => format!("{prefix}/{segment}"),
        (None, None) => {
            let names: Vec<_> = ENDPOINTS.iter().map(|(known, ..)| *known).collect();
            return Err(invalid(path, &format!("the profile `{name}` is not known and has no `path`"))
                .hint(format!("the known ones are: {}", names.join(", "))));
        }
    };
    if seconds.is_some() && STATES.contains(&name.as_str()) {
        return Err(invalid(&seconds_key, &format!("`{name}` is the state at one moment and has no length")));
    }
    // The second that remains is for the request itself, so that one measurement ends before the next begins.
    let rest_of_interval = interval.as_secs().saturating_sub(1).max(1);
    let is_measured = known.is_some_and(|(.., is_measured)| *is_measured);
    let seconds = seconds.map(|seconds| seconds.as_secs()).or(is_measured.then_some(rest_of_interval));
    if seconds.is_some_and(|seconds| Duration::from_secs(seconds) > interval) {
        return Err(invalid(&seconds_key, "a measurement longer than `interval`"));
    }
    Ok(ScrapedEndpoint { name, path: request, seconds, interval, timeout, is_named: true })
}

/// The key `attributes`: resource attributes.
fn attributes(section: &mut ConfigSection) -> Result<Vec<Attribute>, Failure> {
    let pairs = section.pairs("attributes")?;
    pairs
        .into_iter()
        .map(|(path, key, value)| {
            let value = match value {
                Value::Bool(flag) => AttributeValue::Bool(flag),
                Value::Number(number) => match number.as_i64() {
                    Some(whole) => AttributeValue::Int(whole),
                    None => AttributeValue::Double(number.as_f64().unwrap_or(f64::NAN).to_bits()),
                },
                other => AttributeValue::String(section::text(&path, other)?),
            };
            match key.as_str() {
                "" => Err(invalid(&path, "the name is empty")),
                _ => Ok(Attribute { key, value, unit: String::new() }),
            }
        })
        .collect()
}
