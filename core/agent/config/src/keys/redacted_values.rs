//! The redaction of a run by its configuration, and the values of `stats()` that it applies to.

use std::collections::BTreeMap;

use crate::keys::table::Config;
use spanprof_profile::redact::{ProfileRedactor, RedactionSettings, RedactionTarget};

impl Config {
    /// The redaction of one run. `random_key` takes the place of a missing `redaction_hash_key`: equal texts have equal hashes in
    /// this run only.
    #[doc(hidden)]
    pub fn redaction_settings(&self, random_key: &[u8]) -> RedactionSettings {
        RedactionSettings {
            default_patterns: self.redaction,
            rules: self.redaction_rules.rules().to_vec(),
            hash_key: self.redaction_hash_key.as_ref().map_or(random_key, |key| key.reveal().as_bytes()).to_vec(),
        }
    }

    /// Labels or attributes for `stats()`.
    pub(crate) fn shown_pairs(&self, pairs: &BTreeMap<String, String>, target: RedactionTarget) -> String {
        let mut redactor = ProfileRedactor::new(self.redaction_settings(&[]));
        let mut shown = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let pair = redactor.pair(target, key, value);
            shown.extend(pair.map(|(key, value)| format!("{key}={value}")));
        }
        shown.join(",")
    }

    /// The name of the service for `stats()`.
    pub(crate) fn shown_service_name(&self) -> String {
        let mut redactor = ProfileRedactor::new(self.redaction_settings(&[]));
        let pair = redactor.pair(RedactionTarget::Resource, "service.name", &self.service_name);
        pair.map(|(_, name)| name).unwrap_or_default()
    }
}
