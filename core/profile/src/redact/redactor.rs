//! The redactor: the verdict of rules and default patterns about one text, cached across windows.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::rule::{RedactionAction, RedactionRule, RedactionTarget};
use super::secret_patterns::{of_name, without_secrets};
use super::sensitive_key::is_secret;
use super::REDACTED;
use crate::{Attribute, AttributeValue, PROCESS_IDENTITY};

/// Texts known to need no change; 9 bytes each. Cleared when full.
const MAX_KNOWN: usize = 1 << 17;
/// Changed texts that are kept with their replacement. Cleared when full.
const MAX_CHANGED: usize = 1 << 12;
/// Bytes of the hash that are shown, as hex digits: two of 10^5 values are equal with a probability of 3e-10.
const HASH_BYTES: usize = 8;
/// Attributes that spanprof sets itself. An invalid rule does not replace them: receivers add up windows by them.
const OWN_PREFIX: &str = "telemetry.sdk.";

/// Arguments of [`ProfileRedactor::new`].
#[derive(Clone, Debug)]
pub struct RedactionSettings {
    /// Whether the default patterns apply.
    pub default_patterns: bool,
    /// Rules of the user, applied in order.
    pub rules: Vec<RedactionRule>,
    /// Key of the hashes: random, or the user's.
    pub hash_key: Vec<u8>,
}

/// A text that was changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RedactedText {
    /// Its place.
    pub target: RedactionTarget,
    /// Key of the label or resource attribute; else empty.
    pub key: String,
    /// The text.
    pub before: String,
    /// Its replacement; `None` when it was removed.
    pub after: Option<String>,
}

/// Redacts the texts of profiles by rules and default patterns.
pub struct ProfileRedactor {
    default_patterns: bool,
    rules: Vec<RedactionRule>,
    mac: Hmac<Sha256>,
    /// Hashes of (place, key, text) that need no change. Two texts of 10^5 share one with a probability of 3e-10.
    unchanged: HashTable<u64>,
    /// Verdicts about other texts by the same hash.
    changed: HashMap<u64, Verdict>,
    hasher: DefaultHashBuilder,
    /// Every changed text, for `spanprof check`; `None`: not collected.
    pub(super) found: Option<Vec<RedactedText>>,
}

/// The verdict about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Unchanged,
    Replaced(String),
    Dropped,
}

impl ProfileRedactor {
    /// A redactor with an empty cache.
    pub fn new(settings: RedactionSettings) -> Self {
        let RedactionSettings { default_patterns, rules, hash_key } = settings;
        // HMAC accepts keys of any length (RFC 2104, 2), so the empty key is never used.
        let mac = Hmac::new_from_slice(&hash_key).unwrap_or_else(|_| Hmac::new(&Default::default()));
        let (unchanged, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        Self { default_patterns, rules, mac, unchanged, changed: HashMap::new(), hasher, found: None }
    }

    /// Collects every changed text from now on; see [`ProfileRedactor::into_found`].
    #[must_use]
    pub fn collecting(mut self) -> Self {
        self.found = Some(Vec::new());
        self
    }

    /// The texts that were changed, sorted, each once.
    pub fn into_found(self) -> Vec<RedactedText> {
        let mut found = self.found.unwrap_or_default();
        found.sort();
        found.dedup();
        found
    }

    /// Whether nothing is ever changed.
    pub fn is_off(&self) -> bool {
        !self.default_patterns && self.rules.is_empty()
    }

    /// The resource attributes of a process. A removed `service.name` becomes `unknown_service`, which receivers require.
    pub fn resource(&mut self, attributes: Vec<Attribute>) -> Vec<Attribute> {
        let mut redacted = Vec::with_capacity(attributes.len());
        for mut attribute in attributes {
            let text = attribute.value.as_ref().to_string();
            match self.resource_value(&attribute.key, &text) {
                Verdict::Unchanged => {}
                Verdict::Replaced(value) => attribute.value = AttributeValue::String(value),
                Verdict::Dropped if attribute.key == "service.name" => {
                    attribute.value = AttributeValue::String("unknown_service".to_owned());
                }
                Verdict::Dropped => continue,
            }
            redacted.push(attribute);
        }
        redacted
    }

    /// A label or a resource attribute; `None` when it is removed.
    pub fn pair(&mut self, target: RedactionTarget, key: &str, value: &str) -> Option<(String, String)> {
        let verdict = match target {
            RedactionTarget::Resource => self.resource_value(key, value),
            _ => self.verdict(target, key, value),
        };
        let value = match verdict {
            Verdict::Unchanged => value.to_owned(),
            Verdict::Replaced(value) => value,
            Verdict::Dropped => return None,
        };
        if target != RedactionTarget::LabelValue {
            return Some((key.to_owned(), value));
        }
        match self.verdict(RedactionTarget::LabelKey, "", key) {
            Verdict::Unchanged => Some((key.to_owned(), value)),
            Verdict::Replaced(key) => Some((key, value)),
            Verdict::Dropped => None,
        }
    }

    fn resource_value(&mut self, key: &str, value: &str) -> Verdict {
        let verdict = self.verdict(RedactionTarget::Resource, key, value);
        // `process.command`, `process.command_args`, `process.command_line` (OpenTelemetry semantic conventions 1.42).
        if !key.starts_with("process.command") || verdict == Verdict::Dropped {
            return verdict;
        }
        let current = match &verdict {
            Verdict::Replaced(replaced) => replaced,
            _ => value,
        };
        let arguments: Vec<String> = current.split(' ').map(str::to_owned).collect();
        let line = self.command_line(&arguments).join(" ");
        if line == current {
            return verdict;
        }
        Verdict::Replaced(line)
    }

    /// The arguments of a command line. The value of an option such as `--password` may be the next argument.
    pub fn command_line(&mut self, arguments: &[String]) -> Vec<String> {
        let mut redacted = Vec::with_capacity(arguments.len());
        let mut option = "";
        for argument in arguments {
            let is_option = argument.starts_with('-') && !argument.contains(['=', ':']);
            let before = std::mem::replace(&mut option, if is_option { argument } else { "" });
            if self.default_patterns && !is_option && is_secret(before, argument) {
                self.collect(RedactionTarget::CommandLine, "", argument, Some(REDACTED));
                redacted.push(REDACTED.to_owned());
                continue;
            }
            match self.verdict(RedactionTarget::CommandLine, "", argument) {
                Verdict::Unchanged => redacted.push(argument.clone()),
                Verdict::Replaced(replaced) => redacted.push(replaced),
                Verdict::Dropped => {}
            }
        }
        redacted
    }

    /// The texts that the cache does not hold as unchanged. In blocks: the look-ups of a block overlap, since each is a miss of
    /// the processor's cache in a large program.
    pub(super) fn unknown<'t, T: Copy>(
        &self,
        target: RedactionTarget,
        ids: &'t [T],
        text: impl Fn(&'t T) -> &'t str,
    ) -> Vec<T> {
        const BLOCK: usize = 64;
        let mut unknown = Vec::new();
        for block in ids.chunks(BLOCK) {
            let mut hashes = [0; BLOCK];
            for (hash, id) in hashes.iter_mut().zip(block) {
                *hash = self.hasher.hash_one((target, "", text(id)));
            }
            let misses = hashes.iter().zip(block).filter(|(hash, _)| !self.is_unchanged(**hash));
            unknown.extend(misses.map(|(_, id)| *id));
        }
        unknown
    }

    /// The verdict about a text of `target`. `key` is that of the label or attribute, else empty.
    pub(super) fn verdict(&mut self, target: RedactionTarget, key: &str, text: &str) -> Verdict {
        if text.is_empty() || self.is_off() {
            return Verdict::Unchanged;
        }
        let hash = self.hasher.hash_one((target, key, text));
        if self.is_unchanged(hash) {
            return Verdict::Unchanged;
        }
        if let Some(known) = self.changed.get(&hash).filter(|_| self.found.is_none()) {
            return known.clone();
        }
        let verdict = self.uncached(target, key, text);
        if verdict != Verdict::Unchanged {
            if self.changed.len() >= MAX_CHANGED {
                self.changed.clear();
            }
            self.changed.insert(hash, verdict.clone());
        }
        match &verdict {
            Verdict::Unchanged => {
                if self.unchanged.len() >= MAX_KNOWN {
                    self.unchanged.clear();
                }
                self.unchanged.insert_unique(hash, hash, |hash| *hash);
            }
            Verdict::Replaced(after) => self.collect(target, key, text, Some(after)),
            Verdict::Dropped => self.collect(target, key, text, None),
        }
        verdict
    }

    fn is_unchanged(&self, hash: u64) -> bool {
        self.unchanged.find(hash, |known| *known == hash).is_some()
    }

    fn collect(&mut self, target: RedactionTarget, key: &str, before: &str, after: Option<&str>) {
        if let Some(found) = &mut self.found {
            let (key, before, after) = (key.to_owned(), before.to_owned(), after.map(str::to_owned));
            found.push(RedactedText { target, key, before, after });
        }
    }

    /// Rules first, so that a rule for a key of the default patterns replaces them.
    fn uncached(&self, target: RedactionTarget, key: &str, text: &str) -> Verdict {
        let mut current = Cow::Borrowed(text);
        let mut by_key = false;
        for rule in self.rules.iter().filter(|rule| rule.targets.contains(&target)) {
            if rule.key.as_ref().is_some_and(|pattern| !pattern.is_match(key)) {
                continue;
            }
            let is_own = || PROCESS_IDENTITY.contains(&key) || key.starts_with(OWN_PREFIX);
            if rule.is_fallback && target == RedactionTarget::Resource && is_own() {
                continue;
            }
            let Some(changed) = self.applied(rule, &current) else { continue };
            let Some(changed) = changed else { return Verdict::Dropped };
            current = Cow::Owned(changed);
            by_key |= rule.key.is_some();
        }
        if self.default_patterns {
            let has_key = matches!(target, RedactionTarget::LabelValue | RedactionTarget::Resource);
            let replaced = match target {
                _ if has_key && !by_key && is_secret(key, &current) => Cow::Borrowed(REDACTED),
                RedactionTarget::Function | RedactionTarget::File | RedactionTarget::LabelKey => of_name(&current),
                _ => without_secrets(&current),
            };
            if let Cow::Owned(_) | Cow::Borrowed(REDACTED) = replaced {
                current = Cow::Owned(replaced.into_owned());
            }
        }
        match current {
            Cow::Owned(changed) if changed != text => Verdict::Replaced(changed),
            _ => Verdict::Unchanged,
        }
    }

    /// The text after one rule; `Some(None)` when it is dropped, `None` when the rule does not match.
    fn applied(&self, rule: &RedactionRule, text: &str) -> Option<Option<String>> {
        let replaced = |with: &dyn Fn(&str) -> String| match &rule.pattern {
            None => Some(with(text)),
            Some(pattern) => match pattern.replace_all(text, |found: &regex_lite::Captures<'_>| with(&found[0])) {
                Cow::Owned(changed) => Some(changed),
                Cow::Borrowed(_) => None,
            },
        };
        match rule.action {
            RedactionAction::Drop => match &rule.pattern {
                Some(pattern) if !pattern.is_match(text) => None,
                _ => Some(None),
            },
            RedactionAction::Replace => match &rule.pattern {
                None => Some(Some(rule.with.clone())),
                Some(pattern) => match pattern.replace_all(text, rule.with.as_str()) {
                    Cow::Owned(changed) => Some(Some(changed)),
                    Cow::Borrowed(_) => None,
                },
            },
            RedactionAction::Hash => replaced(&|found| self.keyed_hash(found)).map(Some),
            RedactionAction::StripPrefix => {
                let found = rule.pattern.as_ref()?.find(text).filter(|found| found.start() == 0 && found.end() > 0)?;
                Some(Some(text[found.end()..].to_owned()))
            }
            RedactionAction::Relativize => relative(text, &rule.with).map(|path| Some(path.to_owned())),
        }
    }

    /// The first 64 bits of HMAC-SHA-256 (RFC 2104), as hex digits.
    fn keyed_hash(&self, text: &str) -> String {
        let mut mac = self.mac.clone();
        mac.update(text.as_bytes());
        hex::encode(&mac.finalize().into_bytes()[..HASH_BYTES])
    }
}

/// A path below `directory` relative to it. Node.js names some files by URLs.
fn relative<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?.strip_prefix('/')?;
    (!rest.is_empty()).then_some(rest)
}
