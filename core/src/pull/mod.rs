//! Requests for profiles over HTTP (`/debug/pprof/`), independent of the server that received them: the profiler's own listener, or the
//! program's web framework. Pure: parsing, access rules and pages. Not here: the collection of samples (`profiler`) and
//! sockets (`spanprof_export`).

mod access;
mod pages;
mod profile_request;

use spanprof_export::HttpResponse;

pub(crate) use access::{check_access, AccessRules};
pub(crate) use pages::{command_line, index};
pub(crate) use profile_request::{ProfileName, ProfileRequest};

/// First part of the path of every request.
pub const PULL_PREFIX: &str = "/debug/pprof";

/// A request as received by a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PullRequest {
    /// Method, in upper case.
    pub method: String,
    /// Path with the prefix [`PULL_PREFIX`], not decoded.
    pub path: String,
    /// Query without `?`, not decoded.
    pub query: String,
    /// Names in lower case, and values. Used: `authorization`, `host`, `origin`, `sec-fetch-site`.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl PullRequest {
    /// Divides a request target into path and query.
    pub fn new(method: &str, target: &str, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), headers, body }
    }

    /// A request that a handler in the program's web framework received. `path` is the whole path, or the part after the
    /// handler's mount point; the names of headers may have capital letters.
    pub fn mounted(method: &str, path: &str, query: &str, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        let is_whole_part = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let whole = path.match_indices(PULL_PREFIX).map(|(at, _)| &path[at..]);
        let mut whole = whole.filter(|path| is_whole_part(&path[PULL_PREFIX.len()..]));
        let path =
            whole.next().map_or_else(|| format!("{PULL_PREFIX}/{}", path.trim_start_matches('/')), str::to_owned);
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        Self { method: method.to_ascii_uppercase(), path, query: query.to_owned(), headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The path after [`PULL_PREFIX`] and a slash; `None` for another path.
    pub(crate) fn name(&self) -> Option<&str> {
        let rest = self.path.strip_prefix(PULL_PREFIX)?;
        if rest.is_empty() {
            return Some("");
        }
        rest.strip_prefix('/')
    }
}

/// Leaves out the values of the headers, which may be secrets.
impl std::fmt::Debug for PullRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}?{}", self.method, self.path, self.query)
    }
}

/// The response to a [`PullRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullResponse {
    /// Status code.
    pub status: u16,
    /// Headers except for those that depend on the connection.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl PullResponse {
    /// A page.
    pub(crate) fn page(content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![
            ("Content-Type", content_type.to_owned()),
            ("Cache-Control", "no-store".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
        ];
        Self { status: 200, headers, body }
    }

    /// A refusal. `go tool pprof` prints the text of a response with the header `X-Go-Pprof`.
    pub(crate) fn refusal(status: u16, text: &str) -> Self {
        let page = Self::page("text/plain; charset=utf-8", format!("{text}\n").into_bytes());
        Self { status, ..page }.with("X-Go-Pprof", "1")
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

impl From<PullResponse> for HttpResponse {
    fn from(response: PullResponse) -> Self {
        Self { status: response.status, headers: response.headers, body: response.body }
    }
}

/// The server that received a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullTransport {
    /// The profiler's own listener: the `Host` header is checked too.
    Listener,
    /// The program's web framework, which decides who may connect and under which names.
    Framework,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_can_be_mounted_under_any_path() {
        for (path, name) in [
            ("/debug/pprof/heap", "heap"),
            ("/api/debug/pprof/heap", "heap"),
            ("/heap", "heap"),
            ("heap", "heap"),
            ("", ""),
            ("/", ""),
            ("/debug/pprof", ""),
            ("/debug/pprof/", ""),
            ("/debug/pprofiles", "debug/pprofiles"),
        ] {
            let request = PullRequest::mounted("get", path, "", vec![("Host".to_owned(), "h".to_owned())], Vec::new());
            assert_eq!(
                (request.name(), &*request.method, request.header("host")),
                (Some(name), "GET", Some("h")),
                "{path}"
            );
        }
    }
}
