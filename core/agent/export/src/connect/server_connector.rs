//! Connections to one HTTP server, with the settings of a destination. For object storage, whose requests the caller builds.

use crate::connect::connection::{Connector, Transport};
use crate::error::ExportError;
use crate::settings::{ExporterSettings, OtlpEndpoint};
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens connections for HTTP/1.1: name resolution, the proxy's tunnel and TLS.
pub struct ServerConnector(Connector);

impl ServerConnector {
    /// Checks the URL, the proxy and the certificates. Of `settings`, headers and compression are unused.
    ///
    /// # Errors
    /// When one of them is unusable.
    pub fn start(settings: &OtlpEndpoint, common: &ExporterSettings) -> Result<Self, ExportError> {
        Connector::start(settings, b"http/1.1", common).map(Self)
    }

    /// Opens a connection, within the timeout of the settings per address.
    ///
    /// # Errors
    /// When there is none; the text names the server without secrets.
    pub async fn connect(&mut self) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send, String> {
        self.0.refresh_generation();
        let transport: Box<dyn Transport> = self.0.connect().await?;
        Ok(transport)
    }
}
