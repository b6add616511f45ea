//! HTTP basic authentication.

use base64::prelude::{Engine, BASE64_STANDARD};

/// The value of the header `Authorization` (RFC 7617).
pub fn basic_authorization(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}
