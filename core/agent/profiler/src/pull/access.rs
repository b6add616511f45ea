//! Who may pull: the token, and the checks against requests that a browser sends for a foreign page.

use std::net::IpAddr;

use subtle::ConstantTimeEq;

use super::{HttpRequest, HttpResponse, PullTransport};
use spanprof_export::Secret;

/// The rules of a configuration.
pub(crate) struct AccessRules<'a> {
    pub token: Option<&'a Secret>,
    /// Host of the configured address, if any.
    pub host: Option<&'a str>,
    pub transport: PullTransport,
}

/// The refusal of a request that may not pull.
pub(crate) fn check_access(request: &HttpRequest, rules: &AccessRules<'_>) -> Result<(), HttpResponse> {
    let refused = |text: &str| Err(HttpResponse::refusal(403, text));
    if request.header("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return refused("requests from other web sites are refused");
    }
    let host = request.header("host");
    if let Some(origin) = request.header("origin") {
        let of_origin = origin.split_once("://").map(|(_, host)| host);
        if of_origin.is_none() || of_origin != host {
            return refused("requests from other web sites are refused");
        }
    }
    if let Some(token) = rules.token {
        // A page that reaches this address under another name (DNS rebinding) does not have the token.
        return if presents(request, token) {
            Ok(())
        } else {
            let text = "a token is required: send it as `Authorization: Bearer TOKEN`, or as the password of the URL";
            Err(HttpResponse::refusal(401, text).with("WWW-Authenticate", "Basic realm=\"spanprof\""))
        };
    }
    if rules.transport == PullTransport::Listener && !host.is_some_and(|host| is_own_host(host, rules.host)) {
        return refused("the Host header is neither localhost, an IP address nor the configured host");
    }
    Ok(())
}

/// Whether the `Host` header is a name under which no foreign page can be loaded.
fn is_own_host(header: &str, configured: Option<&str>) -> bool {
    let host = match header.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => header,
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok()
        || configured.is_some_and(|configured| configured.eq_ignore_ascii_case(host))
}

/// Whether the request has the token. The comparison takes the same time for every token of this length.
fn presents(request: &HttpRequest, token: &Secret) -> bool {
    let Some((scheme, value)) = request.header("authorization").and_then(|header| header.split_once(' ')) else {
        return false;
    };
    let value = value.trim();
    let token = token.reveal().as_bytes();
    if scheme.eq_ignore_ascii_case("bearer") {
        return value.as_bytes().ct_eq(token).into();
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return false;
    }
    // `go tool pprof http://:TOKEN@host:port/…` sends the password of the URL this way; the user is ignored.
    let Some(credentials) = base64_decoded(value) else { return false };
    let Some(colon) = credentials.iter().position(|byte| *byte == b':') else { return false };
    credentials[colon + 1..].ct_eq(token).into()
}

fn base64_decoded(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> HttpRequest {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        HttpRequest { headers, ..HttpRequest::new("GET", "/debug/pprof/profile") }
    }

    fn status(headers: &[(&str, &str)], rules: &AccessRules<'_>) -> u16 {
        check_access(&request(headers), rules).map_or_else(|refusal| refusal.status, |()| 200)
    }

    const OPEN: AccessRules<'_> =
        AccessRules { token: None, host: Some("shop.internal"), transport: PullTransport::Listener };

    #[test]
    fn without_a_token_only_names_of_this_host_are_served() {
        for host in ["localhost:6060", "LOCALHOST", "127.0.0.1:6060", "[::1]:6060", "10.1.2.3:6060", "Shop.internal:1"]
        {
            assert_eq!(status(&[("host", host)], &OPEN), 200, "{host}");
        }
        for host in ["evil.example", "evil.example:6060", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert_eq!(status(&[("host", host)], &OPEN), 403, "{host}");
        }
        assert_eq!(status(&[], &OPEN), 403);
        let framework = AccessRules { transport: PullTransport::Framework, ..OPEN };
        assert_eq!(status(&[("host", "any.example")], &framework), 200);
    }

    #[test]
    fn requests_of_foreign_pages_are_refused() {
        let of_page = |name, value| status(&[("host", "localhost:6060"), (name, value)], &OPEN);
        assert_eq!(of_page("origin", "http://localhost:6060"), 200);
        assert_eq!(of_page("origin", "http://evil.example"), 403);
        assert_eq!(of_page("origin", "null"), 403);
        assert_eq!(of_page("sec-fetch-site", "cross-site"), 403);
        assert_eq!(of_page("sec-fetch-site", "none"), 200);
    }

    #[test]
    fn a_token_is_accepted_as_bearer_token_or_as_password() {
        let token = Secret::from("se:cret");
        let rules = AccessRules { token: Some(&token), ..OPEN };
        let with = |authorization: &str| status(&[("host", "any"), ("authorization", authorization)], &rules);
        assert_eq!(status(&[("host", "localhost")], &rules), 401);
        assert_eq!(with("Bearer se:cret"), 200);
        assert_eq!(with("bearer se:cret"), 200);
        // user:se:cret
        assert_eq!(with("Basic dXNlcjpzZTpjcmV0"), 200);
        for wrong in ["Bearer se:cre", "Bearer se:cret2", "Bearer", "Basic se:cret", "Basic dXNlcg==", "Digest se:cret"]
        {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
    }
}
