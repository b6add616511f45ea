//! The sender of encoded requests to one receiver: OTLP over HTTP or gRPC, or Pyroscope's push protocol. Used by the delivery
//! of profiles and by that of metrics, each with connections of its own.

use crate::clock::Clock;
use crate::error::ExportError;
use crate::outcome::{AttemptOutcome, OtlpSignal};
use crate::send::http_response::HttpProtocol;
use crate::send::http_sender::HttpSender;
use crate::send::otlp_grpc::OtlpGrpcSender;
use crate::settings::{ExporterSettings, OtlpEndpoint};
use bytes::Bytes;

pub(crate) enum RequestSender {
    Grpc(Box<OtlpGrpcSender>),
    Http(Box<HttpSender>),
}

impl RequestSender {
    pub fn grpc(endpoint: &OtlpEndpoint, signal: OtlpSignal, common: &ExporterSettings) -> Result<Self, ExportError> {
        Ok(Self::Grpc(Box::new(OtlpGrpcSender::start(endpoint, signal, common)?)))
    }

    pub fn http(
        endpoint: &OtlpEndpoint,
        protocol: HttpProtocol,
        common: &ExporterSettings,
    ) -> Result<Self, ExportError> {
        Ok(Self::Http(Box::new(HttpSender::start(endpoint, protocol, common)?)))
    }

    /// Address without user and query.
    pub fn shown(&self) -> String {
        match self {
            Self::Grpc(sender) => sender.shown(),
            Self::Http(sender) => sender.shown(),
        }
    }

    /// One attempt with a body that is not compressed.
    pub async fn attempt(&mut self, plain: &Bytes, clock: &dyn Clock) -> AttemptOutcome {
        match self {
            Self::Grpc(sender) => sender.attempt(plain).await,
            Self::Http(sender) => sender.attempt(plain, clock.unix()).await,
        }
    }

    /// Frees the encoded body of a settled request.
    pub fn forget_payload(&mut self) {
        match self {
            Self::Grpc(sender) => sender.forget_payload(),
            Self::Http(sender) => sender.forget_payload(),
        }
    }
}
