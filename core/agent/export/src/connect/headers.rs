//! Headers of every request, checked once at start. The same map serves HTTP and, as metadata, gRPC.

use crate::connect::endpoint::Endpoint;
use crate::error::{ExportError, ExportErrorKind};
use crate::settings::OtlpEndpoint;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Header with the development revision of the profiles schema that the body follows.
pub(crate) const DEVELOPMENT_VERSION: HeaderName = HeaderName::from_static("otlp-profiles-development-version");

/// Headers of the exporter; a user's value for one of them would break the request or desynchronize the connection.
const OWN: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
];

/// The user's headers, the schema revision, the user agent and, from the URL's userinfo, the authorization. Values are
/// marked sensitive, so that no library prints them.
pub(crate) fn request_headers(
    settings: &OtlpEndpoint,
    endpoint: &Endpoint,
    user_agent: &str,
) -> Result<HeaderMap, ExportError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let shown: String = name.chars().filter(|character| !character.is_control()).take(80).collect();
        let name: HeaderName = name.trim().parse().map_err(|_| {
            ExportError::new(
                ExportErrorKind::Setting,
                format!("`{shown}` is not the name of a header"),
                "headers are written key=value,key2=value2; names have letters, digits and dashes",
            )
        })?;
        let mut value = HeaderValue::from_str(value.reveal().trim()).or_else(|_| {
            HeaderValue::from_bytes(value.reveal().trim().as_bytes()).map_err(|_| {
                ExportError::new(
                    ExportErrorKind::Setting,
                    format!("the value of header `{shown}` contains a character that no header may contain"),
                    "remove line breaks and control characters from it",
                )
            })
        })?;
        value.set_sensitive(true);
        if !OWN.contains(&name) {
            headers.append(name, value);
        }
    }
    if let (Some(basic), false) = (&endpoint.basic, headers.contains_key(header::AUTHORIZATION)) {
        if let Ok(mut value) = HeaderValue::from_str(basic.reveal()) {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
    }
    if !headers.contains_key(header::USER_AGENT) {
        if let Ok(value) = HeaderValue::from_str(user_agent) {
            headers.insert(header::USER_AGENT, value);
        }
    }
    // Exactly one: receivers reject a repeated header.
    headers.insert(DEVELOPMENT_VERSION, HeaderValue::from(settings.profiles_development_version));
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::request_headers;
    use crate::connect::endpoint::Endpoint;
    use crate::secret::Secret;
    use crate::settings::OtlpEndpoint;

    fn headers_of(url: &str, given: &[(&str, &str)]) -> Result<http::HeaderMap, crate::error::ExportError> {
        let mut settings = OtlpEndpoint::new(url);
        settings.headers = given.iter().map(|(name, value)| ((*name).to_owned(), Secret::from(*value))).collect();
        request_headers(&settings, &Endpoint::parse(url, "OTLP endpoint").unwrap(), "spanprof/1")
    }

    #[test]
    fn every_request_has_one_schema_revision_and_a_user_agent() {
        let headers = headers_of("http://h", &[("OTLP-Profiles-Development-Version", "7")]).unwrap();

        assert_eq!(headers.get_all("otlp-profiles-development-version").iter().collect::<Vec<_>>(), ["1"]);
        assert_eq!(headers["user-agent"], "spanprof/1");
    }

    #[test]
    fn given_headers_override_userinfo_and_are_never_printed() {
        let headers = headers_of("http://u:p@h", &[("Authorization", "Bearer marker"), ("x-é", "v")]);
        assert!(headers.unwrap_err().message.contains("not the name of a header"));

        let headers = headers_of("http://u:p@h", &[("Authorization", "Bearer marker")]).unwrap();
        assert_eq!(headers["authorization"], "Bearer marker");
        assert!(!format!("{headers:?}").contains("marker"), "{headers:?}");

        let headers = headers_of("http://u:p@h", &[]).unwrap();
        assert_eq!(headers["authorization"], "Basic dTpw");
        assert!(!format!("{headers:?}").contains("dTpw"), "{headers:?}");
    }

    #[test]
    fn headers_that_control_the_connection_cannot_be_overridden() {
        let headers =
            headers_of("http://h", &[("Content-Length", "1"), ("Transfer-Encoding", "x"), ("a", "b")]).unwrap();

        assert!(!headers.contains_key("content-length") && !headers.contains_key("transfer-encoding"));
        assert_eq!(headers["a"], "b");
    }

    #[test]
    fn a_value_with_a_line_break_is_an_error_that_does_not_quote_it() {
        let error = headers_of("http://h", &[("x-token", "marker\r\nevil: 1")]).unwrap_err().to_string();

        assert!(error.contains("`x-token`") && !error.contains("marker"), "{error}");
    }
}
