//! Outcome of one attempt, by the retry table of OTLP. The senders create it, the delivery acts on it.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// The receiver accepted everything, perhaps with a warning.
    Accepted { warning: Option<String> },
    /// The receiver accepted the request and rejected profiles or data points in it. Never sent again.
    Partial { rejected: u64, message: String },
    /// A retryable failure.
    Retry { reason: RetryReason, message: String },
    /// Too large for the receiver.
    TooLarge { message: String },
    /// A permanent failure.
    Rejected { message: String },
    /// The receiver has no such service: 404 or UNIMPLEMENTED.
    NoService { message: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtlpSignal {
    Profiles,
    Metrics,
}

impl OtlpSignal {
    /// The elements that a receiver rejects by partial success.
    pub const fn elements(self) -> &'static str {
        match self {
            Self::Profiles => "profiles",
            Self::Metrics => "data points",
        }
    }

    /// Path of the method of gRPC.
    pub const fn grpc_method(self) -> &'static str {
        match self {
            Self::Profiles => "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }

    /// Most frequent cause of a 404 and of UNIMPLEMENTED.
    pub const fn no_service(self) -> &'static str {
        match self {
            Self::Profiles => {
                "profiles are not enabled at the receiver: check the path (/v1development/profiles, /v1/profiles at few receivers) and \
                 port, and for an OpenTelemetry Collector the feature gate service.profilesSupport and a profiles pipeline"
            }
            Self::Metrics => {
                "the receiver accepts no metrics: an OpenTelemetry Collector requires a metrics pipeline; for another \
                 receiver set metrics_endpoint, or turn metrics off"
            }
        }
    }
}

/// Cause of a retryable failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// No connection was established. `stop` does not retry it.
    NotConnected,
    /// A connection without a response.
    NoResponse,
    /// The receiver sent a retryable status, perhaps with a delay.
    Throttled(Option<Duration>),
}

/// Most frequent cause of a 404 from Pyroscope's push protocol.
pub(crate) const NO_PUSH_SERVICE: &str =
    "the receiver has no push.v1.PusherService: give the base URL of Pyroscope, Grafana Cloud Profiles or Alloy as endpoint";

/// Appended when the bytes of a response are not HTTP/1: a gRPC server sends HTTP/2 frames, a TLS server an alert.
pub(crate) const HINT_GRPC_OR_TLS: &str =
    "if it is a gRPC port (4317 of an OpenTelemetry Collector), set protocol=grpc; if it expects TLS, write https://";

/// Appended when the bytes of a response are not HTTP/2: an HTTP/1 server sends `HTTP/1.1 400`.
pub(crate) const HINT_HTTP: &str =
    "if it is an HTTP port (4318 of an OpenTelemetry Collector), set protocol=http/protobuf";

/// Appended to status 407, which only a proxy sends (RFC 9110, section 15.5.8).
pub(crate) const HINT_PROXY_USER: &str =
    "; give the proxy's user and password in its URL: http://user:password@host:port";

/// Limits of a receiver's text: its first and last characters. Pyroscope lists every label of the series before the reason.
const TEXT_HEAD_CHARS: usize = 200;
const TEXT_TAIL_CHARS: usize = 400;

/// Formats a receiver's text for messages: one line, shortened, without the request's secrets.
pub(crate) struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// Values shorter than four characters are not redacted: they are too weak to be secrets and occur in ordinary text.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<String> = secrets
            .flat_map(|secret| {
                // `Bearer x` and `Basic x` may be quoted without their scheme.
                let token = secret.split_once(' ').map(|(_, token)| token.trim().to_owned());
                [Some(secret.to_owned()), token]
            })
            .flatten()
            .filter(|secret| secret.chars().count() >= 4)
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        let line: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        let line = line.trim();
        let chars = line.chars().count();
        if chars <= TEXT_HEAD_CHARS + TEXT_TAIL_CHARS {
            return line.to_owned();
        }
        let head: String = line.chars().take(TEXT_HEAD_CHARS).collect();
        let tail: String = line.chars().skip(chars - TEXT_TAIL_CHARS).collect();
        format!("{head} … {tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::Redactor;

    #[test]
    fn secrets_that_a_receiver_quotes_are_redacted() {
        let redactor = Redactor::new(["Bearer marker-token", "marker", "", "abc"].into_iter());

        assert_eq!(redactor.redact("bad token marker-token (sent: Bearer marker-token)"), "bad token *** (sent: ***)");
        assert_eq!(redactor.redact("tenant marker, abc"), "tenant ***, abc");
    }

    #[test]
    fn the_reason_after_a_long_list_of_labels_is_kept() {
        let labels: Vec<String> = (0..30).map(|number| format!("label_{number}=\"{}\"", "v".repeat(40))).collect();
        let text = format!("invalid labels '{{{}}}' with error: invalid label name 'user-tier'", labels.join(", "));
        let shown = Redactor::new(std::iter::empty()).redact(&text);
        assert!(shown.starts_with("invalid labels '{label_0=") && shown.ends_with("invalid label name 'user-tier'"));
    }

    #[test]
    fn a_text_is_reduced_to_one_short_line() {
        let redactor = Redactor::new(std::iter::empty());

        assert_eq!(redactor.redact("  a\r\nb\u{1b}[31mc "), "a  b [31mc");
        assert_eq!(redactor.redact(&"é".repeat(1000)).chars().count(), 603);
    }
}
