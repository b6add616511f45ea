//! GET requests to a running `serve`, for the verbs that accept a URL. HTTP/1.1 and TLS, without redirects.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use spanprof_export::{TlsClient, TlsFiles};
use tokio::net::TcpStream;

use crate::http_stream::secured;
use crate::output;
use spanprof_answers::failure::Failure;
use spanprof_answers::LEFT_OUT_HEADER;

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Longer than the deadline of a query in `serve`, and the merge and encoding of a million stacks on a busy machine.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(120);
/// Larger than a file: the samples of many requests, uncompressed. `serve` bounds their number (1.5 million in `store`), each of
/// which may have a stack of its own.
pub(crate) const MAX_RESPONSE_BYTES: usize = 1 << 30;

static CA_CERTIFICATES: OnceLock<PathBuf> = OnceLock::new();

/// Sets the flag `--ca-cert`, which is one for all verbs.
pub(crate) fn set_ca_certificates(file: PathBuf) {
    let _ = CA_CERTIFICATES.set(file);
}

/// The file of the flag `--ca-cert`.
pub(crate) fn ca_certificates() -> Option<&'static Path> {
    CA_CERTIFICATES.get().map(PathBuf::as_path)
}

/// Address of a running server, and the query of a link to its page.
#[derive(Debug)]
pub(crate) struct ServerUrl {
    is_secure: bool,
    authority: String,
    host: String,
    port: u16,
    /// Query string of the URL, e.g. of a link copied from the browser.
    pub query: String,
    /// Path and query of a profile, if the URL is that of a program's own endpoint and not of `serve`.
    pub profile: Option<String>,
}

/// Where programs serve their own profiles, as Go programs do.
const PPROF_PATH: &str = "/debug/pprof";
/// The profile of a URL without one: one second of CPU time.
const DEFAULT_PROFILE: &str = "profile?seconds=1";

/// Path and query of the profile that a URL of an endpoint names; `None` without such an endpoint.
fn profile_of(uri: &Uri) -> Option<String> {
    let (_, after) = uri.path().split_once(PPROF_PATH)?;
    match after {
        "" | "/" => Some(format!("{}/{DEFAULT_PROFILE}", uri.path().trim_end_matches('/'))),
        after if after.starts_with('/') => Some(uri.path_and_query()?.as_str().to_owned()),
        _ => None,
    }
}

impl ServerUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        let wrong = |reason: &str| {
            Failure::usage(format!("`{url}` is not the address of a running `spanprof serve`: {reason}"))
                .hint("expected http://HOST:PORT or https://HOST:PORT, for example http://127.0.0.1:4318")
        };
        let uri: Uri = url.split('#').next().unwrap_or("").parse().map_err(|_| wrong("not a URL"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("only http:// and https:// are supported")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a user name is not supported"));
        }
        let port = match authority.as_str()[authority.host().len()..].strip_prefix(':') {
            None if is_secure => 443,
            None => 80,
            Some(port) => port.parse().map_err(|_| wrong("the port is not a number from 0 to 65535"))?,
        };
        let profile = profile_of(&uri);
        let is_page = uri.path().trim_matches('/').is_empty() || uri.path() == "/index.html";
        if profile.is_none() && !is_page {
            return Err(wrong(&format!("expected the path / or {PPROF_PATH}/, got {}", uri.path())));
        }
        Ok(ServerUrl {
            is_secure,
            authority: authority.as_str().to_owned(),
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            query: uri.query().unwrap_or("").to_owned(),
            profile,
        })
    }

    /// The body of a 200 response to `path_and_query`.
    pub(crate) fn get(&self, path_and_query: &str) -> Result<Bytes, Failure> {
        let (status, body) = self.response(path_and_query)?;
        self.success(status, body)
    }

    /// As [`Self::get`]; `None` for a 404 response.
    pub(crate) fn get_if_present(&self, path_and_query: &str) -> Result<Option<Bytes>, Failure> {
        match self.response(path_and_query)? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, body) => self.success(status, body).map(Some),
        }
    }

    fn success(&self, status: StatusCode, body: Bytes) -> Result<Bytes, Failure> {
        if !status.is_success() {
            let start: String = String::from_utf8_lossy(&body).chars().take(300).collect();
            return Err(self.failed(format!("the server returned {status}: {}", start.trim())));
        }
        Ok(body)
    }

    fn failed(&self, reason: String) -> Failure {
        let scheme = if self.is_secure { "https" } else { "http" };
        let failure = Failure::new(format!("cannot query {scheme}://{}: {reason}", self.authority));
        if reason.contains("write http://") {
            return failure;
        }
        if self.is_secure && reason.starts_with("TLS failed") {
            return failure.hint("for a certificate of your own authority, name it with --ca-cert FILE (PEM)");
        }
        failure.hint(match self.profile {
            Some(_) => {
                "is the key `pull` set in the program? a program with `pull_token` is read by `spanprof scrape` only"
            }
            None => "is `spanprof serve` running there? its first line of output shows the address",
        })
    }

    fn response(&self, path_and_query: &str) -> Result<(StatusCode, Bytes), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Failure::new(format!("cannot start: {error}")))?;
        // The server answers after some seconds and reads on in the background: each answer has fewer windows left out, unless
        // the result is too large.
        let mut windows = u64::MAX;
        loop {
            let (status, body, left_out) = runtime.block_on(self.exchange(path_and_query))?;
            if left_out == 0 || left_out >= windows {
                if left_out > 0 {
                    output::note(&format!(
                        "{left_out} older windows are left out; narrow the query with --from or --service"
                    ));
                }
                return Ok((status, body));
            }
            windows = left_out;
        }
    }

    /// Status, body, and the number of windows that the server left out.
    async fn exchange(&self, path_and_query: &str) -> Result<(StatusCode, Bytes, u64), Failure> {
        let failed = |reason: String| self.failed(reason);
        let stream = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect((self.host.as_str(), self.port)))
            .await
            .map_err(|_| failed("no connection within 5 s".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let mut tls = if self.is_secure { Some(tls_client()?) } else { None };
        let stream = tokio::time::timeout(CONNECT_DEADLINE, secured(stream, &self.host, tls.as_mut()))
            .await
            .map_err(|_| failed("no TLS handshake within 5 s".to_owned()))?
            .map_err(failed)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let driver = tokio::spawn(connection);
        let request = Request::get(path_and_query)
            .header(HOST, &self.authority)
            .header(ACCEPT, "*/*")
            .header(USER_AGENT, concat!("spanprof/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
            let status = response.status();
            let left_out = response.headers().get(LEFT_OUT_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    failed("the response is too large; narrow the query with --from, --service or --label".to_owned())
                } else {
                    failed(error.to_string())
                }
            })?;
            Ok((status, body.to_bytes(), left_out.unwrap_or(0)))
        };
        let outcome = tokio::time::timeout(RESPONSE_DEADLINE, exchange)
            .await
            .unwrap_or_else(|_| Err(failed("no response within 120 s; narrow the query with --from".to_owned())));
        driver.abort();
        outcome
    }
}

fn tls_client() -> Result<TlsClient, Failure> {
    let files = TlsFiles { certificate: CA_CERTIFICATES.get().cloned(), ..TlsFiles::default() };
    TlsClient::start(files).map_err(|error| match CA_CERTIFICATES.get() {
        Some(file) => Failure::new(format!("--ca-cert {}: {}", file.display(), error.message))
            .hint("expected a PEM file that this process can read"),
        None => Failure::new(error.message).hint(error.hint),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_http_are_accepted() {
        let server = ServerUrl::parse("http://127.0.0.1:4318/?service=cart#top").unwrap();
        assert_eq!((server.host.as_str(), server.port, server.query.as_str()), ("127.0.0.1", 4318, "service=cart"));
        assert_eq!(ServerUrl::parse("http://[::1]:80").unwrap().host, "::1");
        assert_eq!(ServerUrl::parse("https://h").unwrap().port, 443);
        let profile = |url| ServerUrl::parse(url).unwrap().profile;
        assert_eq!(profile("http://h:6060/debug/pprof/").as_deref(), Some("/debug/pprof/profile?seconds=1"));
        assert_eq!(profile("http://h/a/debug/pprof").as_deref(), Some("/a/debug/pprof/profile?seconds=1"));
        assert_eq!(profile("http://h/debug/pprof/heap?x=1").as_deref(), Some("/debug/pprof/heap?x=1"));
        for page in ["http://h", "http://h/", "http://h//", "http://h/index.html", "http://h?service=cart"] {
            assert_eq!(profile(page), None, "{page}");
        }
        let absent = ["http://h/nosuch", "http://h/debug/pproof", "http://h/api/top"];
        for url in ["http://", "http://user:pass@h", "ftp://h", "http://h:99999", "http:// ", ""].iter().chain(&absent)
        {
            assert!(ServerUrl::parse(url).is_err(), "{url}");
        }
    }
}
