//! Requests for profiles over HTTP (`/debug/pprof/`), independent of the server that received them: the profiler's own listener,
//! or the program's web framework. Pure: parsing, access rules and pages. Not here: the collection of samples (`drain_thread`) and
//! sockets (`http::listener`).
//!
//! A pull is a second window over the same resolved samples (`spanprof_aggregate`): closing the open window would change its ends
//! and the number of requests, and merging closed windows would be late. Addresses other than loopback require `pull_token`; on
//! loopback the check of `Host` stops DNS rebinding. `cmdline` has the first word only, since arguments contain secrets.

mod access;
pub mod answer;
pub mod control;
mod pages;
mod profile_request;

pub use crate::http::message::{HttpRequest, HttpResponse, MAX_BODY_BYTES};

use crate::pull::control::CONTROL_PATH;

pub(crate) use access::{check_access, AccessRules};
pub(crate) use pages::{command_line, index};
pub(crate) use profile_request::{ProfileName, ProfileRequest};

/// First part of the path of every request.
pub const PULL_PREFIX: &str = "/debug/pprof";

impl HttpRequest {
    /// A request that a handler in the program's web framework received. `mount` is the path of the handler, and `rest` the path
    /// after it: empty, or with a slash in front. Below `rest` = `/spanprof` are the control operations. The names of headers
    /// may have capital letters.
    pub fn mounted(
        method: &str,
        mount: &str,
        rest: &str,
        query: &str,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    ) -> Self {
        let (control_parent, control_name) = CONTROL_PATH.split_at(CONTROL_PATH.rfind('/').unwrap_or(0));
        let below = rest.strip_prefix(control_name);
        let is_control = below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
        let path = format!("{}{rest}", if is_control { control_parent } else { PULL_PREFIX });
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        let index_name = mount.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let (method, query) = (method.to_ascii_uppercase(), query.to_owned());
        Self { method, path, query, headers, body, index_name, client: String::new() }
    }

    /// The address to redirect to, relative to the request, if this is one of the index page without its final slash, which the
    /// links of the page need.
    pub(crate) fn with_slash(&self) -> Option<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
        let is_name = !self.index_name.is_empty() && self.index_name.bytes().all(is_plain);
        (self.path == PULL_PREFIX && is_name).then(|| format!("{}/", self.index_name))
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

    fn mounted(mount: &str, rest: &str) -> HttpRequest {
        HttpRequest::mounted("get", mount, rest, "", vec![("Host".to_owned(), "h".to_owned())], Vec::new())
    }

    #[test]
    fn a_handler_can_be_mounted_under_any_path() {
        for (rest, path, name) in [
            ("/heap", "/debug/pprof/heap", Some("heap")),
            ("", "/debug/pprof", Some("")),
            ("/", "/debug/pprof/", Some("")),
            ("/debug/pprofiles", "/debug/pprof/debug/pprofiles", Some("debug/pprofiles")),
            ("/spanprof", "/debug/spanprof", None),
            ("/spanprof/burst", "/debug/spanprof/burst", None),
            ("/spanproofs", "/debug/pprof/spanproofs", Some("spanproofs")),
        ] {
            let request = mounted("/internal/profiles", rest);
            let seen = (&*request.path, request.name(), &*request.method, request.header("host"));
            assert_eq!(seen, (path, name, "GET", Some("h")), "{rest}");
        }
    }

    #[test]
    fn the_index_page_without_its_slash_redirects_to_the_last_part_of_its_own_path() {
        for (mount, location) in [
            ("/internal/profiles", Some("profiles/")),
            ("/debug/pprof/", Some("pprof/")),
            ("", None),
            ("/java:script\r\n", None),
        ] {
            assert_eq!(mounted(mount, "").with_slash().as_deref(), location, "{mount}");
            assert_eq!(mounted(mount, "/").with_slash(), None);
        }
        let listener = |target| HttpRequest::new("GET", target).with_slash();
        assert_eq!([listener("/debug/pprof?a=b"), listener("/debug/pprof/")], [Some("pprof/".to_owned()), None]);
    }
}
