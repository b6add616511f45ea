//! What an attempt came to: the retry table of OTLP, and nothing else. Pure; the senders ask, the delivery obeys.

use std::time::Duration;

/// The end of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver took everything; it may have made a remark.
    Accepted { warning: Option<String> },
    /// The receiver took the request and refused profiles in it. Never sent again.
    Partial { rejected_profiles: u64, message: String },
    /// Worth another attempt.
    Retry { reason: RetryReason, message: String },
    /// Too large for the receiver.
    TooLarge { message: String },
    /// No retry would heal it.
    Refused { message: String },
}

/// Why another attempt is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// No connection came about: at the end of a program it is not worth waiting for one.
    NotConnected,
    /// A connection without an answer.
    NoAnswer,
    /// The receiver asks for patience, for so long if it says so.
    Asked(Option<Duration>),
}

/// What a 404 and UNIMPLEMENTED mean to nearly everyone who sees them.
pub(crate) const PROFILES_NOT_ENABLED: &str =
    "profiles are not enabled at the receiver: check the path and port, and for \
     an OpenTelemetry Collector the feature gate service.profilesSupport and a profiles pipeline";

/// Appended when the bytes of an answer are no HTTP/1: a gRPC server sends HTTP/2 frames, a TLS server an alert.
pub(crate) const MAYBE_GRPC_OR_TLS: &str =
    "if it is a gRPC port (4317 of an OpenTelemetry Collector), set protocol=grpc; if it expects TLS, write https://";

/// Appended when the bytes of an answer are no HTTP/2: an HTTP/1 server answers `HTTP/1.1 400`.
pub(crate) const MAYBE_HTTP: &str =
    "if it is an HTTP port (4318 of an OpenTelemetry Collector), set protocol=http/protobuf";

/// The longest text of a receiver that is kept: its first and its last characters. Pyroscope lists every label of the series
/// before it names the reason.
const REMARK_HEAD_CHARS: usize = 200;
const REMARK_TAIL_CHARS: usize = 400;

/// A receiver's own words as they may be shown: one line, short, and without what we told it in confidence.
pub(crate) struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// Values shorter than four characters protect nothing and occur everywhere; they are let through.
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

    pub fn shown(&self, remark: &str) -> String {
        let mut remark = remark.to_owned();
        for secret in &self.secrets {
            remark = remark.replace(secret.as_str(), "***");
        }
        let line: String =
            remark.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        let line = line.trim();
        let chars = line.chars().count();
        if chars <= REMARK_HEAD_CHARS + REMARK_TAIL_CHARS {
            return line.to_owned();
        }
        let head: String = line.chars().take(REMARK_HEAD_CHARS).collect();
        let tail: String = line.chars().skip(chars - REMARK_TAIL_CHARS).collect();
        format!("{head} … {tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::Redactor;

    #[test]
    fn a_receiver_that_quotes_our_secrets_is_shown_without_them() {
        let redactor = Redactor::new(["Bearer marker-token", "marker", "", "abc"].into_iter());

        assert_eq!(redactor.shown("bad token marker-token (sent: Bearer marker-token)"), "bad token *** (sent: ***)");
        assert_eq!(redactor.shown("tenant marker, abc"), "tenant ***, abc");
    }

    #[test]
    fn the_reason_behind_a_long_list_of_labels_is_kept() {
        let labels: Vec<String> = (0..30).map(|number| format!("label_{number}=\"{}\"", "v".repeat(40))).collect();
        let remark = format!("invalid labels '{{{}}}' with error: invalid label name 'user-tier'", labels.join(", "));
        let shown = Redactor::new(std::iter::empty()).shown(&remark);
        assert!(shown.starts_with("invalid labels '{label_0=") && shown.ends_with("invalid label name 'user-tier'"));
    }

    #[test]
    fn a_remark_is_one_short_line() {
        let redactor = Redactor::new(std::iter::empty());

        assert_eq!(redactor.shown("  a\r\nb\u{1b}[31mc "), "a  b [31mc");
        assert_eq!(redactor.shown(&"é".repeat(1000)).chars().count(), 603);
    }
}
