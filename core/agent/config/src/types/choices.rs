//! The types of configuration values other than numbers and text. Not here: parsing (`value`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

macro_rules! choices {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal,)+ })+) => {
        $($(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[doc = $variant_doc])+ $variant,)+ }

        impl $name {
            /// The text of the choice in a configuration.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The texts of all choices.
            pub const TEXTS: &'static [&'static str] = &[$($text,)+];

            /// The choice of a text.
            pub fn from_text(text: &str) -> Option<Self> {
                match text.trim().to_ascii_lowercase().as_str() { $($text => Some(Self::$variant),)+ _ => None }
            }
        })+
    };
}

choices! {
    /// Clock of the CPU samples.
    Clock {
        /// Perf events where the kernel allows them, else thread timers.
        Auto = "auto",
        /// `timer_create` on each thread's CPU clock.
        ThreadTimer = "thread_timer",
        /// The perf software task clock, one descriptor per thread.
        Perf = "perf",
    }
    /// Profiles to take.
    Profiles {
        /// Each according to its own key.
        Default = "default",
        /// All that the runtime supports.
        All = "all",
    }
    /// Native functions in stacks of a managed language.
    NativeFrames {
        /// None above the code of the language.
        Off = "off",
        /// Those of libraries, and the functions of the runtime that a line called.
        On = "on",
        /// All.
        All = "all",
    }
    /// Transport of an OTLP destination.
    Protocol {
        /// OTLP/HTTP with protobuf bodies.
        HttpProtobuf = "http/protobuf",
        /// OTLP/gRPC.
        Grpc = "grpc",
    }
    /// Compression of requests.
    Compression {
        /// gzip
        Gzip = "gzip",
        /// None.
        Uncompressed = "none",
    }
    /// Detail of the span link of a sample.
    LinkDetail {
        /// Trace id and span id.
        TraceAndSpan = "trace_and_span",
        /// Span id; the trace id is empty.
        Span = "span",
        /// No link.
        Omitted = "none",
    }
    /// Type of a destination.
    DestinationType {
        /// An OTLP receiver.
        Otlp = "otlp",
        /// Pyroscope's own protocol: Pyroscope, Grafana Cloud Profiles, Grafana Alloy.
        Pyroscope = "pyroscope",
        /// A directory of gzip-compressed pprof files.
        File = "file",
    }
}

/// HTTP headers or gRPC metadata. Values are secrets: no `Debug` or `Display` shows them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// Headers of `(name, value)` pairs. Names are case-insensitive; a later value replaces an earlier one.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.insert(&name, value);
        }
        headers
    }

    /// Sets one header.
    pub fn insert(&mut self, name: &str, value: String) {
        self.0.insert(name.trim().to_ascii_lowercase(), value);
    }

    /// Names and secret values.
    pub fn reveal(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Names only.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.0.keys().map(|name| (name, "***"))).finish()
    }
}

/// One entry of `destinations`: a receiver or a directory with its own settings. Missing settings are taken from the keys of
/// the same name at the top level.
#[derive(Clone, PartialEq)]
pub struct DestinationConfig {
    /// Receiver or directory.
    pub destination_type: DestinationType,
    /// URL of the receiver.
    pub endpoint: Option<String>,
    /// Transport.
    pub protocol: Option<Protocol>,
    /// Headers or metadata.
    pub headers: Option<Headers>,
    /// Compression.
    pub compression: Option<Compression>,
    /// Timeout of one request.
    pub timeout: Option<Duration>,
    /// Path of the PEM file with the certificate authority to trust.
    pub certificate: Option<String>,
    /// Path of the client's PEM private key.
    pub client_key: Option<String>,
    /// Path of the client's PEM certificate.
    pub client_certificate: Option<String>,
    /// Plain text for a gRPC endpoint without scheme.
    pub insecure: Option<bool>,
    /// Detail of span links.
    pub link: Option<LinkDetail>,
    /// Directory of the files.
    pub directory: Option<String>,
    /// Number of files kept.
    pub keep: Option<u32>,
    /// Time after which a file is removed.
    pub max_age: Option<Duration>,
    /// Maximum number of bytes of the files.
    pub max_bytes: Option<u64>,
}

/// Without user, password and query of the endpoint, headers and paths of keys.
impl fmt::Debug for DestinationConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = self.endpoint.as_deref().map(spanprof_export::shown_url);
        let mut shown = formatter.debug_struct("DestinationConfig");
        shown.field("type", &self.destination_type.text()).field("endpoint", &endpoint);
        shown.field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl DestinationConfig {
    /// A destination with all settings of the top level.
    pub fn new(destination_type: DestinationType) -> Self {
        Self {
            destination_type,
            endpoint: None,
            protocol: None,
            headers: None,
            compression: None,
            timeout: None,
            certificate: None,
            client_key: None,
            client_certificate: None,
            insecure: None,
            link: None,
            directory: None,
            keep: None,
            max_age: None,
            max_bytes: None,
        }
    }
}

/// Source of a configuration value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The default.
    Default,
    /// The configuration file of this path.
    File(String),
    /// The environment variable of this name.
    Environment(String),
    /// The call of `start`.
    Code,
    /// `update` while running.
    Update,
    /// The overhead governor, which limits the value of another source.
    Governor,
    /// The control endpoint.
    Endpoint,
    /// A burst, which ends by itself.
    Burst,
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path) => write!(formatter, "file {path}"),
            Self::Environment(name) => write!(formatter, "environment {name}"),
            Self::Code => formatter.write_str("code"),
            Self::Update => formatter.write_str("update"),
            Self::Governor => formatter.write_str("governor"),
            Self::Endpoint => formatter.write_str("endpoint"),
            Self::Burst => formatter.write_str("burst"),
        }
    }
}

/// The proxies of the environment, with the variables of other HTTP clients; they have no key. URLs may contain passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// `http_proxy`.
    pub http: Option<String>,
    /// `https_proxy` or `HTTPS_PROXY`.
    pub https: Option<String>,
    /// `no_proxy` or `NO_PROXY`.
    pub no_proxy: String,
}

impl Proxies {
    /// The proxy for requests to `url`.
    pub fn for_url(&self, url: &str) -> Option<&str> {
        let proxy = if url.starts_with("https://") { &self.https } else { &self.http };
        proxy.as_deref()
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proxies")
            .field("http", &self.http.is_some())
            .field("https", &self.https.is_some())
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}
