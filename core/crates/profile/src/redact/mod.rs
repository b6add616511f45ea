//! Redaction: removes or replaces texts of profiles before they are encoded. [`ProfileRedactor`] has the default patterns and the
//! rules of the user; [`UnredactedProfiles`] gives its content to a redactor only.
//!
//! Time is linear in the length of a text: the patterns are run by `regex-lite`, which does not backtrack. Called by the
//! profiler when a window closes, and by `spanprof check --redaction`. Not here: reading rules from YAML or code.

mod profiles;
mod redactor;
mod rule;
mod secret_patterns;
mod sensitive_key;
#[cfg(test)]
mod tests;

pub use profiles::UnredactedProfiles;
pub use redactor::{ProfileRedactor, RedactedText, RedactionSettings};
pub use rule::{RedactionAction, RedactionRule, RedactionTarget};
pub use secret_patterns::without_secrets;

/// Replaces a removed text.
pub const REDACTED: &str = "[REDACTED]";
