//! A connection to a server, plain or secured, as one type: the client of HTTP/1.1 is compiled once. Called by `fetch` and `scrape`.

use spanprof_export::TlsClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub(crate) trait HttpTransport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> HttpTransport for S {}

/// The stream, after the handshake with `host` if there is a client of TLS; else the reason.
pub(crate) async fn secured(
    stream: TcpStream,
    host: &str,
    tls: Option<&mut TlsClient>,
) -> Result<Box<dyn HttpTransport>, String> {
    Ok(match tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.connect(host, stream).await?),
    })
}
