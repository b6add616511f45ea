//! TLS over a connection that the caller opened, with the settings of a destination. For `spanprof scrape`, which requests
//! profiles instead of sending them.

use crate::connect::connection::root_cause;
use crate::connect::tls::Tls;
use crate::error::ExportError;
use crate::settings::TlsFiles;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

/// The client side of TLS for HTTP/1.1. Certificates are always verified; rotated files are read again after 30 s.
pub struct TlsClient(Tls);

impl TlsClient {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// When a file is unreadable or no PEM file, or a client certificate has no key.
    pub fn start(files: TlsFiles) -> Result<Self, ExportError> {
        Tls::start(files, b"http/1.1").map(Self)
    }

    /// Performs the handshake with `host` over `stream`.
    ///
    /// # Errors
    /// When the handshake fails; the text is the last cause.
    pub async fn connect<S>(
        &mut self,
        host: &str,
        stream: S,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        self.0.refresh();
        let config = self.0.config().map_err(|error| error.message)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| "the host is not a valid name for a certificate".to_owned())?;
        let connected = TlsConnector::from(config).connect(name, stream).await;
        connected.map_err(|error| format!("TLS failed: {}", root_cause(&error)))
    }
}
