//! Redaction: removes or replaces texts of profiles before they are encoded. [`ProfileRedactor`] has the default patterns and the
//! rules of the user; [`UnredactedProfiles`] gives its content to a redactor only.
//!
//! Time is linear in the length of a text: the patterns are run by `regex-lite`, which does not backtrack. Called by the
//! profiler when a window closes, and by `spanprof check --redaction`. Not here: reading rules from YAML or code.
//!
//! # Decisions
//! 1. A new destination cannot skip it: encoders accept [`ProfilesData`](crate::ProfilesData) only, which comes from a redactor.
//! 2. Texts are searched once by their ids; a set of 2^17 hashes remembers those without a change across windows. 100,000
//!    functions take 11 ms in the first window and 1.9 ms later. Interning changed stacks again takes 65 instead of 7.7 ms.
//! 3. `regex-lite` instead of `regex`: 57 instead of 437 KB, and the set makes the slower engine sufficient.
//! 4. Hashes are HMAC-SHA-256, 64 bits shown, with a random key without `redaction_hash_key`.
//! 5. Defaults by key for values, by form for names: `token` in the name of a function is code.
//! 6. An invalid rule of a variable or file removes every text of its `where`: else texts would leave that were to stay.

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
