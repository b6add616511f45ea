//! Checks of the environment variables that object_store reads: it panics for some values that are no URL or no header.

use super::url::StorageService;
use spanprof_answers::failure::Failure;

/// Variables with the URL of a server.
const ENDPOINTS: [&str; 7] = [
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
];
/// Variables that become part of a host name.
const HOST_PARTS: [&str; 3] = ["AWS_REGION", "AWS_DEFAULT_REGION", "AZURE_STORAGE_ACCOUNT_NAME"];

/// Checks the variables of a service. Values are not quoted, since they may be secrets.
pub(super) fn check(service: StorageService, variables: impl Iterator<Item = (String, String)>) -> Result<(), Failure> {
    let prefix = match service {
        StorageService::S3 => "AWS_",
        StorageService::GoogleCloud => "GOOGLE_",
        StorageService::Azure => "AZURE_",
    };
    for (name, value) in variables.filter(|(name, _)| name.starts_with(prefix)) {
        let is_host_part = |value: &str| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let problem = if value.trim() != value || value.chars().any(char::is_control) {
            Some("the value has white space at an end, or a control character".to_owned())
        } else if ENDPOINTS.contains(&name.as_str()) {
            spanprof_export::check_url(&value)
                .err()
                .map(|problem| format!("the URL {problem}; expected https://HOST:PORT"))
        } else if HOST_PARTS.contains(&name.as_str()) && (value.is_empty() || !is_host_part(&value)) {
            Some("expected letters, digits and `-`".to_owned())
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Failure::new(format!("the environment variable {name} cannot be used: {problem}"))
                .hint(format!("correct it, or remove it: unset {name}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(service: StorageService, name: &str, value: &str) -> Option<String> {
        check(service, std::iter::once((name.to_owned(), value.to_owned()))).err().map(|failure| failure.to_string())
    }

    #[test]
    fn a_variable_that_is_no_url_header_or_host_is_an_error_without_its_value() {
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "marker"),
            ("AWS_ENDPOINT_URL", ""),
            ("AWS_ENDPOINT_URL_S3", "ftp://marker"),
            ("AWS_REGION", "marker/x"),
            ("AWS_SECRET_ACCESS_KEY", "marker\n"),
            ("AWS_SESSION_TOKEN", "marker\rx"),
        ] {
            let text = found(StorageService::S3, name, value).expect(name);
            assert!(text.contains(name) && text.contains("unset") && !text.contains("marker"), "{text}");
        }
        assert!(found(StorageService::Azure, "AZURE_STORAGE_ACCOUNT_NAME", "a.b").is_some());
        assert_eq!(found(StorageService::GoogleCloud, "AWS_REGION", "/"), None);
        assert_eq!(found(StorageService::S3, "AWS_ENDPOINT_URL", "http://127.0.0.1:9000"), None);
        assert_eq!(found(StorageService::S3, "AWS_REGION", "eu-west-1"), None);
    }
}
