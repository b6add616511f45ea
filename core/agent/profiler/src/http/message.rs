//! HTTP/1.1 messages of the listener: requests with limits, responses that end their connection. Pure. Not here: sockets
//! (`listener`).

use std::fmt::Write;

/// Maximum size of a request's first line and headers.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Maximum number of a request's headers.
const MAX_HEADERS: usize = 32;
/// Maximum size of a request's body, bytes.
pub const MAX_BODY_BYTES: usize = 64 << 10;

/// Maximum number of bytes of one read.
pub(crate) const READ_BYTES: usize = 4096;
/// Reads for one request. A client that sends single bytes costs no more than this.
const MAX_READS: u32 = 64;

/// A request that a server received: this listener, or the program's web framework.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpRequest {
    /// In upper case where a web framework received the request; at the listener as the client wrote it, which matches only in
    /// upper case.
    pub method: String,
    /// Path, not decoded.
    pub path: String,
    /// Query without `?`, not decoded.
    pub query: String,
    /// Names in lower case, and values. Values may be secrets.
    pub headers: Vec<(String, String)>,
    /// Body; of the listener at most [`MAX_BODY_BYTES`].
    pub body: Vec<u8>,
    /// Last part of the path of the index page, in the URL of the client.
    pub index_name: String,
    /// Address and port of the client, for the log; empty if it has left, or where the program's web framework has the
    /// connection.
    pub client: String,
}

impl HttpRequest {
    /// Divides a request target into path and query.
    pub fn new(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let index_name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let (path, query) = (path.to_owned(), query.to_owned());
        Self { method: method.to_owned(), path, query, index_name, ..Self::default() }
    }

    /// The value of a header; `name` is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// Leaves out the values of the headers, which may be secrets.
impl std::fmt::Debug for HttpRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}?{} ({} headers)", self.method, self.path, self.query, self.headers.len())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    /// Headers except for `Content-Length`, `Connection` and `Date`.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A response with a line of plain text.
    pub fn text(status: u16, text: &str) -> Self {
        let headers = vec![("Content-Type", "text/plain; charset=utf-8".to_owned())];
        Self { status, headers, body: format!("{text}\n").into_bytes() }
    }

    /// A page that no browser stores.
    pub(crate) fn page(content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![
            ("Content-Type", content_type.to_owned()),
            ("Cache-Control", "no-store".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
        ];
        Self { status: 200, headers, body }
    }

    /// A refusal. `go tool pprof` prints the text of a response with the header `X-Go-Pprof`.
    pub fn refusal(status: u16, text: &str) -> Self {
        let page = Self::page("text/plain; charset=utf-8", format!("{text}\n").into_bytes());
        Self { status, ..page }.with("X-Go-Pprof", "1")
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The bytes to send. A response to `HEAD` has no body.
    pub(crate) fn encode(&self, is_head: bool) -> Vec<u8> {
        let reason = http::StatusCode::from_u16(self.status).ok().and_then(|status| status.canonical_reason());
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason.unwrap_or("Unknown"));
        for (name, value) in &self.headers {
            // A value never contains line breaks that would begin another header. Writing to a String cannot fail.
            let _ = write!(head, "{name}: {}\r\n", value.replace(['\r', '\n'], " "));
        }
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let _ = write!(head, "Date: {date}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", self.body.len());
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// Result of parsing the bytes received so far.
#[derive(Debug, PartialEq)]
pub(crate) enum ParsedRequest {
    /// More bytes are needed.
    Partial,
    /// A whole request.
    Complete(HttpRequest),
    /// The request is refused with this response.
    Refused(HttpResponse),
    /// Not complete after the maximum number of reads.
    Abandoned,
}

/// The bytes of a request that have been received: at most the maximum sizes of head and body and one read.
#[derive(Default)]
pub(crate) struct PartialRequest {
    bytes: Vec<u8>,
    reads: u32,
}

impl PartialRequest {
    /// Adds the bytes of a read, at most [`READ_BYTES`]. Not to be called after another result than
    /// [`ParsedRequest::Partial`].
    pub(crate) fn add(&mut self, read: &[u8]) -> ParsedRequest {
        self.bytes.extend_from_slice(read);
        self.reads += 1;
        match parse(&self.bytes) {
            ParsedRequest::Partial if self.reads >= MAX_READS => ParsedRequest::Abandoned,
            parsed => parsed,
        }
    }
}

pub(crate) fn parse(bytes: &[u8]) -> ParsedRequest {
    let refused = |status, text| ParsedRequest::Refused(HttpResponse::text(status, text));
    // Only a complete head is parsed: a client that sends single bytes costs no CPU time.
    let Some(head_end) = bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4) else {
        return if bytes.len() > MAX_HEAD_BYTES {
            refused(431, "the headers are too large")
        } else {
            ParsedRequest::Partial
        };
    };
    if head_end > MAX_HEAD_BYTES {
        return refused(431, "the headers are too large");
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(&bytes[..head_end]) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return refused(400, "the request is malformed"),
        Err(httparse::Error::TooManyHeaders) => return refused(431, "there are too many headers"),
        Err(_) => return refused(400, "the request is malformed"),
    }
    let mut request = HttpRequest::new(head.method.unwrap_or_default(), head.path.unwrap_or_default());
    for header in head.headers.iter() {
        let Ok(value) = std::str::from_utf8(header.value) else { return refused(400, "a header is not UTF-8") };
        request.headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let values = |name: &str| -> Vec<&str> {
        request.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    };
    if !values("transfer-encoding").is_empty() {
        return refused(411, "send the body with Content-Length");
    }
    let length = match values("content-length")[..] {
        [] => 0,
        // Two lengths, or one with a sign, are a known way to smuggle a second request.
        [text] if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse::<usize>() {
            Ok(length) => length,
            Err(_) => return refused(400, "Content-Length is not a number"),
        },
        _ => return refused(400, "Content-Length is not a number"),
    };
    if length > MAX_BODY_BYTES {
        return refused(413, "the body is too large");
    }
    match bytes.get(head_end..head_end + length) {
        Some(body) => {
            request.body = body.to_vec();
            ParsedRequest::Complete(request)
        }
        None => ParsedRequest::Partial,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> u16 {
        match parse(request.as_bytes()) {
            ParsedRequest::Partial | ParsedRequest::Abandoned => 0,
            ParsedRequest::Complete(_) => 200,
            ParsedRequest::Refused(response) => response.status,
        }
    }

    #[test]
    fn a_request_is_complete_with_its_body() {
        let text = "POST /a?b=1 HTTP/1.1\r\nHost: h\r\nX-A:  v \r\nContent-Length: 3\r\n\r\nabc";
        for length in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..length]), ParsedRequest::Partial, "{length}");
        }
        let ParsedRequest::Complete(request) = parse(text.as_bytes()) else { panic!("not complete") };
        assert_eq!(
            (&*request.method, &*request.path, &*request.query, &*request.body),
            ("POST", "/a", "b=1", &b"abc"[..])
        );
        assert_eq!(request.headers[1], ("x-a".to_owned(), "v".to_owned()));
        assert_eq!(format!("{request:?}"), "POST /a?b=1 (3 headers)");
    }

    #[test]
    fn malformed_and_oversized_requests_are_refused() {
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(status("nonsense\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
        assert_eq!(status("GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"), 413);
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(MAX_HEAD_BYTES))), 431);
        assert_eq!(status(&"a".repeat(MAX_HEAD_BYTES + 1)), 431);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1))), 431);
    }

    /// Result of reads of these sizes, which are repeated; the largest number of bytes kept.
    fn by_reads(bytes: &[u8], sizes: &[usize]) -> (ParsedRequest, usize) {
        let (mut request, mut rest, mut kept) = (PartialRequest::default(), bytes, 0);
        for size in sizes.iter().cycle() {
            let (read, later) = rest.split_at(rest.len().min(*size));
            let parsed = request.add(read);
            kept = kept.max(request.bytes.capacity());
            if parsed != ParsedRequest::Partial || later.is_empty() {
                return (parsed, kept);
            }
            rest = later;
        }
        unreachable!("there are sizes")
    }

    /// A request of random parts, each of which may be wrong.
    fn random_request(random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut add = |random: &mut fastrand::Rng, texts: &[&str]| {
            bytes.extend_from_slice(random.choice(texts.iter()).map_or("", |text| *text).as_bytes());
        };
        add(random, &["GET / HTTP/1.1", "POST /a?b=1 HTTP/1.1", "PATCH /\u{e9} HTTP/1.0", "GET /", "\r\n", "\0"]);
        for _ in 0..random.usize(0..6) {
            add(random, &["\r\n", "\r\n", "\n", "\r\n\r\n"]);
            let long = "x".repeat(random.usize(0..3000));
            let length = format!("content-length: {}", random.usize(0..MAX_BODY_BYTES + 9));
            let texts = ["Host: h", "Content-Length: 7", &length, "Content-Length: +1", "a b: c", "X:\u{e9}", &long];
            add(random, &texts);
        }
        add(random, &["\r\n\r\n", "\r\n\r\n", "\r\n\r\n", "\n\n"]);
        bytes.resize(bytes.len() + random.usize(0..MAX_BODY_BYTES + 99), b'a');
        for _ in 0..random.usize(0..3) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(0..bytes.len() + 1).max(random.usize(0..bytes.len() + 1)));
        bytes
    }

    #[test]
    fn the_result_does_not_depend_on_the_sizes_of_the_reads() {
        let mut random = fastrand::Rng::with_seed(18);
        let mut results = [0usize; 4];
        for _ in 0..2000 {
            let bytes = random_request(&mut random);
            let whole = parse(&bytes);
            let sizes: Vec<usize> = (0..4).map(|_| random.usize(1..=READ_BYTES)).collect();
            let (parsed, kept) = by_reads(&bytes, &sizes);
            assert!(kept <= 2 * (MAX_HEAD_BYTES + MAX_BODY_BYTES + READ_BYTES), "{kept} bytes");
            results[match &parsed {
                ParsedRequest::Partial => 0,
                ParsedRequest::Complete(_) => 1,
                ParsedRequest::Refused(_) => 2,
                ParsedRequest::Abandoned => 3,
            }] += 1;
            if parsed != ParsedRequest::Abandoned {
                assert_eq!(parsed, whole, "{:?} in reads of {sizes:?}", String::from_utf8_lossy(&bytes));
            }
        }
        assert!(results[..3].iter().all(|count| *count > 100), "{results:?}");
    }

    #[test]
    fn a_request_in_too_many_reads_is_abandoned() {
        let text = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100));
        assert_eq!(by_reads(text.as_bytes(), &[1]).0, ParsedRequest::Abandoned);
        assert_eq!(by_reads(text.as_bytes(), &[2]).0, parse(text.as_bytes()));
    }

    #[test]
    fn a_header_value_cannot_begin_another_header() {
        let headers = vec![("X-A", "a\r\nSet-Cookie: b".to_owned())];
        let response = HttpResponse { status: 200, headers, body: b"body".to_vec() };
        let text = String::from_utf8(response.encode(false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nX-A: a  Set-Cookie: b\r\nDate: "), "{text}");
        assert!(text.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\nbody"), "{text}");
        assert!(String::from_utf8(response.encode(true))
            .unwrap()
            .ends_with("Content-Length: 4\r\nConnection: close\r\n\r\n"));
    }
}
