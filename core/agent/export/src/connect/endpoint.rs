//! The URL of a receiver or proxy, parsed once: address, request target, and a form without secrets.

use crate::error::{ExportError, ExportErrorKind};
use crate::secret::Secret;
use base64::prelude::{Engine, BASE64_STANDARD};
use percent_encoding::percent_decode_str;

/// A parsed URL. Only [`Endpoint::shown`] goes into messages: userinfo and query may be secrets.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub secure: bool,
    /// Name or address, without brackets.
    pub host: String,
    pub port: u16,
    /// `host` or `host:port`, as the `Host` header has it.
    pub authority: String,
    pub path_and_query: Secret,
    /// Value of an `Authorization` header, built from the userinfo.
    pub basic: Option<Secret>,
    /// The parts to redact when a receiver quotes them.
    pub secrets: Vec<Secret>,
    pub shown: String,
}

impl Endpoint {
    /// Parses `url`; `what` names it in errors (`OTLP endpoint`, `proxy`).
    pub fn parse(url: &str, what: &str) -> Result<Self, ExportError> {
        Self::parse_parts(url).map_err(|found| {
            ExportError::new(
                ExportErrorKind::Setting,
                format!("{what} `{}` {found}", shown(url)),
                "expected http://host:port/path or https://host:port/path".to_owned(),
            )
        })
    }

    fn parse_parts(url: &str) -> Result<Self, &'static str> {
        let shown = shown(url);
        let uri: http::Uri = url.parse().map_err(|_| "is not a URL")?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err("has a scheme that is neither http nor https"),
            None => return Err("has no scheme"),
        };
        let bracketed = uri.host().filter(|host| !host.is_empty()).ok_or("has no host")?;
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        // `Uri::port_u16` returns `None` for an invalid port, so the text is parsed here.
        let after_host = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
        let port_text = after_host.strip_prefix(bracketed).and_then(|rest| rest.strip_prefix(':'));
        let port = match port_text {
            Some(text) => text.parse::<u16>().ok().filter(|port| *port != 0).ok_or("has no valid port")?,
            None if secure => 443,
            None => 80,
        };
        let userinfo = authority.rsplit_once('@').map(|(userinfo, _)| userinfo);
        let mut secrets = Vec::new();
        let basic = userinfo.map(|userinfo| {
            let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
            let mut plain: Vec<u8> = percent_decode_str(user).collect();
            plain.push(b':');
            plain.extend(percent_decode_str(password));
            let token = BASE64_STANDARD.encode(&plain);
            secrets.push(Secret::new(userinfo));
            secrets.push(Secret::new(if password.is_empty() { user } else { password }));
            if let Ok(text) = percent_decode_str(password).decode_utf8() {
                secrets.push(Secret::new(text));
            }
            secrets.push(Secret::new(token.clone()));
            Secret::new(format!("Basic {token}"))
        });
        if let Some(query) = uri.query() {
            secrets.push(Secret::new(query));
            secrets
                .extend(query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| Secret::new(value)));
        }
        let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            secure,
            host: bracketed.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            authority: after_host.to_owned(),
            path_and_query: Secret::new(if path_and_query.is_empty() { "/" } else { path_and_query }),
            basic,
            secrets,
            shown,
        })
    }
}

/// Checks that `url` is a valid destination. The error names the fault and quotes no part of the URL.
///
/// # Errors
/// When it is not an `http` or `https` URL with a host and a valid port.
pub fn check_url(url: &str) -> Result<(), &'static str> {
    Endpoint::parse_parts(url).map(drop)
}

/// A URL without userinfo, query and fragment, for messages. Accepts text that is not a URL.
pub fn shown(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    // The last `@` anywhere: a password may contain an unescaped slash.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let shown: String = rest.chars().filter(|character| !character.is_control()).take(200).collect();
    if scheme.is_empty() || scheme.contains('@') {
        shown
    } else {
        format!("{scheme}://{shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::{shown, Endpoint};

    #[test]
    fn a_url_is_parsed_into_host_port_and_path() {
        let endpoint = Endpoint::parse("https://collector.example:4318/a/b?tenant=7", "OTLP endpoint").unwrap();

        assert!(endpoint.secure);
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("collector.example", 4318));
        assert_eq!(endpoint.authority, "collector.example:4318");
        assert_eq!(endpoint.path_and_query.reveal(), "/a/b?tenant=7");
        assert_eq!(endpoint.shown, "https://collector.example:4318/a/b");
    }

    #[test]
    fn the_default_port_is_that_of_the_scheme_and_an_address_has_no_brackets() {
        assert_eq!(Endpoint::parse("http://host", "x").unwrap().port, 80);
        assert_eq!(Endpoint::parse("https://host", "x").unwrap().port, 443);
        let endpoint = Endpoint::parse("http://[::1]:4317", "x").unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.authority.as_str(), endpoint.port), ("::1", "[::1]:4317", 4317));
        assert_eq!(endpoint.path_and_query.reveal(), "/");
    }

    #[test]
    fn userinfo_becomes_basic_authentication_and_is_never_printed() {
        let endpoint = Endpoint::parse("http://user:m%40rker@host:1/p?key=tokens", "x").unwrap();

        assert_eq!(endpoint.basic.as_ref().unwrap().reveal(), "Basic dXNlcjptQHJrZXI=");
        assert_eq!(endpoint.authority, "host:1");
        let printed = format!("{endpoint:?}");
        assert!(!printed.contains("rker") && !printed.contains("tokens") && !printed.contains("dXNl"), "{printed}");
    }

    #[test]
    fn the_error_of_an_invalid_url_omits_the_password() {
        for url in
            ["host:4318", "ftp://u:marker@h", "http://u:marker@h:99999/", "http://u:mar@marker@/x y", "", "http://:1/"]
        {
            let error = Endpoint::parse(url, "OTLP endpoint").unwrap_err();
            assert!(!error.to_string().contains("marker"), "{url} gave {error}");
            assert!(error.to_string().contains("hint: expected http://host:port"), "{url} gave {error}");
        }
    }

    #[test]
    fn a_url_is_shown_without_userinfo_query_and_fragment() {
        assert_eq!(shown("https://u:p@h:1/x?k=v#f"), "https://h:1/x");
        assert_eq!(shown("https://u:p/w@h:1/x"), "https://h:1/x");
        assert_eq!(shown("u:p@h"), "h");
    }
}
