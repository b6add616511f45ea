//! Protobuf messages of responses. Request bodies are encoded by the profile crate.

use prost::Message;
use std::time::Duration;

/// The response of each signal: opentelemetry.proto.collector.profiles.v1development.ExportProfilesServiceResponse and
/// opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceResponse have the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct ExportServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportPartialSuccess>,
}

/// The partial success of each signal.
#[derive(Clone, PartialEq, Message)]
pub struct ExportPartialSuccess {
    /// Rejected profiles or data points.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// google.rpc.Status
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// google.protobuf.Any
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// google.rpc.RetryInfo
#[derive(Clone, PartialEq, Message)]
pub struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<ProtobufDuration>,
}

/// google.protobuf.Duration
#[derive(Clone, PartialEq, Message)]
pub struct ProtobufDuration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl RpcStatus {
    /// The delay of its RetryInfo; zero when the RetryInfo has none; `None` without RetryInfo.
    pub fn retry_delay(&self) -> Option<Duration> {
        let any = self.details.iter().find(|any| any.type_url.rsplit('/').next() == Some("google.rpc.RetryInfo"))?;
        let info = RetryInfo::decode(any.value.as_slice()).ok()?;
        let delay = info.retry_delay.unwrap_or_default();
        let (seconds, nanos) = (u64::try_from(delay.seconds).unwrap_or(0), u32::try_from(delay.nanos).unwrap_or(0));
        Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::{Any, ProtobufDuration, RetryInfo, RpcStatus};
    use prost::Message;
    use std::time::Duration;

    fn status_with(value: Vec<u8>) -> RpcStatus {
        let retry_info = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(), value };
        let other = Any { type_url: "type.googleapis.com/google.rpc.ErrorInfo".to_owned(), value: vec![1, 2, 3] };
        RpcStatus { code: 8, message: String::new(), details: vec![other, retry_info] }
    }

    #[test]
    fn the_delay_is_found_among_other_details() {
        let delay = ProtobufDuration { seconds: 2, nanos: 500_000_000 };
        let status = status_with(RetryInfo { retry_delay: Some(delay) }.encode_to_vec());

        assert_eq!(status.retry_delay(), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn a_retry_info_with_no_or_a_negative_delay_means_zero() {
        assert_eq!(status_with(Vec::new()).retry_delay(), Some(Duration::ZERO));
        let negative = RetryInfo { retry_delay: Some(ProtobufDuration { seconds: -1, nanos: -5 }) };
        assert_eq!(status_with(negative.encode_to_vec()).retry_delay(), Some(Duration::ZERO));
    }

    #[test]
    fn a_missing_or_malformed_retry_info_is_none() {
        assert_eq!(RpcStatus::default().retry_delay(), None);
        assert_eq!(status_with(vec![0xff, 0xff]).retry_delay(), None);
    }
}
