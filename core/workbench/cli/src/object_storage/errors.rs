//! Messages of failed storage operations: the cause in one line, without secrets and without the storage's XML.

use object_store::client::{HttpError, HttpErrorKind};
use object_store::Error;
use spanprof_export::WriteErrorKind;

use super::url::StorageService;
use super::StorageError;

const MAX_CHARS: usize = 400;
const NO_BUCKET: &str = "check the names of the bucket and the key, and that the bucket is on this server";
/// Shorter values are too weak to be secrets, and occur in ordinary text.
const MIN_SECRET_CHARS: usize = 8;
const SECRET_WORDS: [&str; 5] = ["KEY", "SECRET", "TOKEN", "SAS", "PASSWORD"];

/// Entities of XML in texts. The last one makes no new entities.
const ENTITIES: [(&str, &str); 7] =
    [("&#34;", "\""), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];

/// The error of `operation` (`read s3://b/k`).
pub(super) fn storage_error(operation: &str, service: StorageService, error: &Error) -> StorageError {
    let cause = cause(error);
    let kind = match (http_error(error), status(&cause)) {
        (Some(HttpErrorKind::Connect), _) => WriteErrorKind::NotConnected,
        (Some(_), _) | (None, Some(408 | 429 | 500..)) => WriteErrorKind::Temporary,
        _ => WriteErrorKind::Permanent,
    };
    let hint = match kind {
        WriteErrorKind::Temporary => None,
        _ if matches!(error, Error::NotFound { .. })
            || ["NoSuchBucket", "ContainerNotFound"].iter().any(|code| cause.contains(code)) =>
        {
            Some(NO_BUCKET)
        }
        _ => Some(hint(service)),
    };
    // The connector names the key of a destination.
    let cause = readable(&cause).replace("`certificate`", &format!("`{}`", certificate_variables(service)[0]));
    StorageError { message: format!("cannot {operation}: {cause}"), hint, kind }
}

/// Ways to state credentials and the server.
pub(super) fn hint(service: StorageService) -> &'static str {
    match service {
        StorageService::S3 => {
            "credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or those of the instance; \
             another server than Amazon S3: AWS_ENDPOINT_URL=https://HOST"
        }
        StorageService::GoogleCloud => {
            "credentials: GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT with the path of a key file, or those of the instance"
        }
        StorageService::Azure => {
            "credentials: AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or those of the instance"
        }
    }
}

/// Variables with the path of the trust anchors, the first that is set.
pub(super) fn certificate_variables(service: StorageService) -> &'static [&'static str] {
    match service {
        StorageService::S3 => &["AWS_CA_BUNDLE", "SSL_CERT_FILE"],
        StorageService::GoogleCloud | StorageService::Azure => &["SSL_CERT_FILE"],
    }
}

/// Kind of a request that had no response.
fn http_error(error: &Error) -> Option<HttpErrorKind> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// The HTTP status in an error message. object_store 0.14 keeps the error type with the status private.
fn status(cause: &str) -> Option<u16> {
    cause.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok())
}

/// The last cause of a chain, which is the most specific.
fn cause(error: &Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// One line: of XML the code and message.
fn readable(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(content, _)| content.trim())
    };
    let text = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text.to_owned(),
    };
    let text = ENTITIES.iter().fold(text, |text, (entity, character)| text.replace(entity, character));
    let mut text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let is_of_storage = ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix));
        if is_of_storage
            && SECRET_WORDS.iter().any(|word| name.contains(word))
            && value.chars().count() >= MIN_SECRET_CHARS
        {
            text = text.replace(value, "***");
        }
    }
    text.trim().trim_end_matches([':', ' ']).chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_message_has_the_code_of_the_storage_in_one_line() {
        let error = generic(
            "Server returned non-2xx status code: 400 Bad Request: <?xml?><Error><Code>Wrong</Code><Message>a\n&#34;b&amp;lt;&#34;</Message></Error>",
        );
        let found = storage_error("read s3://b/k", StorageService::S3, &error);
        assert_eq!(
            (found.message.as_str(), found.kind),
            ("cannot read s3://b/k: Wrong: a \"b&lt;\"", WriteErrorKind::Permanent)
        );
        assert!(found.hint.is_some_and(|hint| hint.contains("AWS_ACCESS_KEY_ID")));
    }

    #[test]
    fn only_failures_that_can_pass_are_retried() {
        let kind = |text: &str| storage_error("x", StorageService::S3, &generic(text)).kind;
        assert_eq!(kind("Server returned non-2xx status code: 503 Service Unavailable: "), WriteErrorKind::Temporary);
        assert_eq!(kind("Server returned non-2xx status code: 429 Too Many Requests: "), WriteErrorKind::Temporary);
        let http = |kind, text: &str| Error::Generic {
            store: "S3",
            source: Box::new(HttpError::new_boxed(kind, text.to_owned().into())),
        };
        let kind_of = |error: Error| storage_error("x", StorageService::S3, &error).kind;
        assert_eq!(kind_of(http(HttpErrorKind::Timeout, "no response within 30 s")), WriteErrorKind::Temporary);
        assert_eq!(kind_of(http(HttpErrorKind::Connect, "refused")), WriteErrorKind::NotConnected);
        assert_eq!(kind("Missing AccessKeyId"), WriteErrorKind::Permanent);
        let denied = Error::PermissionDenied { path: "k".to_owned(), source: "x".into() };
        assert_eq!(storage_error("x", StorageService::S3, &denied).kind, WriteErrorKind::Permanent);
    }
}
