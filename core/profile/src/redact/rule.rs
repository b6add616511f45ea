//! A redaction rule of the user: where it applies, what it matches, and what it does.

use regex_lite::{Regex, RegexBuilder};

use super::REDACTED;

/// Longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1000;
/// Largest compiled pattern, in bytes: bounds the time per byte of a text.
const MAX_COMPILED_BYTES: usize = 1 << 16;

macro_rules! names {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal,)+ })+) => {
        $($(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $variant_doc])+ $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name in a rule.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value of a name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == name.trim())
            }

            fn names() -> String {
                Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ")
            }
        })+
    };
}

names! {
    /// The texts that a rule applies to.
    RedactionTarget {
        /// Names of functions.
        Function = "function",
        /// Paths of source files and of mapped files.
        File = "file",
        /// Names of labels.
        LabelKey = "label_key",
        /// Values of labels.
        LabelValue = "label_value",
        /// Arguments of the command line.
        CommandLine = "command_line",
        /// Values of resource attributes.
        Resource = "resource",
    }
    /// The effect of a rule on a text that it matches.
    RedactionAction {
        /// Removes the frame, path, label, argument or attribute.
        Drop = "drop",
        /// Replaces each match.
        Replace = "replace",
        /// Replaces each match by its keyed hash.
        Hash = "hash",
        /// Removes a match at the start of the text.
        StripPrefix = "strip_prefix",
        /// Removes the directory from the start of a path.
        Relativize = "relativize",
    }
}

/// One entry of the key `redaction_rules`, compiled.
#[derive(Clone, Debug)]
pub struct RedactionRule {
    pub(super) targets: Vec<RedactionTarget>,
    pub(super) action: RedactionAction,
    /// `None`: the whole text.
    pub(super) pattern: Option<Regex>,
    /// The label or resource attribute must have a key that matches.
    pub(super) key: Option<Regex>,
    /// The replacement, or the directory of `relativize`.
    pub(super) with: String,
    /// Replaces an invalid rule: attributes that identify the process stay.
    pub(super) is_fallback: bool,
}

impl PartialEq for RedactionRule {
    fn eq(&self, other: &Self) -> bool {
        let text = |regex: &Option<Regex>| regex.as_ref().map(|regex| regex.as_str().to_owned());
        (&self.targets, self.action, &self.with, self.is_fallback)
            == (&other.targets, other.action, &other.with, other.is_fallback)
            && text(&self.pattern) == text(&other.pattern)
            && text(&self.key) == text(&other.key)
    }
}

impl RedactionRule {
    /// The keys of a rule in a configuration.
    pub const KEYS: [&'static str; 5] = ["where", "match", "action", "with", "key"];

    /// The rule of the pairs `where`, `match`, `action`, `with` and `key`. `where` is a list, or text with commas.
    ///
    /// # Errors
    /// The problem, as the end of a sentence about the rule.
    pub fn from_pairs(pairs: &[(String, Vec<String>)]) -> Result<Self, String> {
        if let Some((unknown, _)) = pairs.iter().find(|(key, _)| !Self::KEYS.contains(&key.as_str())) {
            return Err(format!("unknown key `{unknown}`; expected {}", Self::KEYS.join(", ")));
        }
        let text = |name: &str| pairs.iter().find(|(key, _)| key == name).and_then(|(_, values)| values.first());
        let targets = Self::targets(pairs)?;
        let action = match text("action") {
            None => RedactionAction::Replace,
            Some(name) => RedactionAction::from_name(name)
                .ok_or_else(|| format!("unknown action `{name}`; expected {}", RedactionAction::names()))?,
        };
        let with = text("with").cloned();
        let pattern = text("match").map(|pattern| compiled("match", pattern)).transpose()?;
        let key = text("key").map(|pattern| compiled("key", pattern)).transpose()?;
        let has_keys =
            |target: &RedactionTarget| matches!(target, RedactionTarget::LabelValue | RedactionTarget::Resource);
        if key.is_some() && !targets.iter().all(has_keys) {
            return Err("`key` is for label_value and resource".to_owned());
        }
        if pattern.is_none() && matches!(action, RedactionAction::StripPrefix) {
            return Err("strip_prefix requires `match`".to_owned());
        }
        if action == RedactionAction::Relativize {
            if targets != [RedactionTarget::File] {
                return Err("relativize is for `where: file`".to_owned());
            }
            if with.as_ref().is_none_or(|directory| !directory.starts_with('/')) {
                return Err("relativize requires an absolute directory in `with`".to_owned());
            }
        } else if with.is_some() && action != RedactionAction::Replace {
            return Err(format!("`with` is not for {}", action.name()));
        }
        let with = with.unwrap_or_else(|| REDACTED.to_owned());
        Ok(Self { targets, action, pattern, key, with, is_fallback: false })
    }

    /// The rule that replaces an invalid one: all texts of its `where`, or of every `where` if that is invalid too.
    pub fn fallback(pairs: &[(String, Vec<String>)]) -> Self {
        Self {
            targets: Self::targets(pairs).unwrap_or_else(|_| RedactionTarget::ALL.to_vec()),
            action: RedactionAction::Replace,
            pattern: None,
            key: None,
            with: REDACTED.to_owned(),
            is_fallback: true,
        }
    }

    /// The texts that the rule applies to.
    pub fn where_names(&self) -> String {
        self.targets.iter().map(|target| target.name()).collect::<Vec<_>>().join(", ")
    }

    /// Whether the rule stands for an invalid one.
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    fn targets(pairs: &[(String, Vec<String>)]) -> Result<Vec<RedactionTarget>, String> {
        let names = pairs.iter().filter(|(key, _)| key == "where").flat_map(|(_, names)| names);
        let mut targets = names
            .flat_map(|names| names.split(','))
            .map(|name| {
                RedactionTarget::from_name(name)
                    .ok_or_else(|| format!("unknown `where: {}`; expected {}", name.trim(), RedactionTarget::names()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        targets.sort_unstable();
        targets.dedup();
        if targets.is_empty() {
            return Err(format!("`where` is missing; expected {}", RedactionTarget::names()));
        }
        Ok(targets)
    }
}

fn compiled(name: &str, pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("`{name}` has {} bytes, expected at most {MAX_PATTERN_BYTES}", pattern.len()));
    }
    if pattern.is_empty() {
        return Err(format!("`{name}` is empty"));
    }
    let regex = RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).build();
    regex.map_err(|error| format!("`{name}` is not a pattern: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pairs: &[(&str, &str)]) -> Result<RedactionRule, String> {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
        RedactionRule::from_pairs(&pairs)
    }

    #[test]
    fn an_invalid_rule_names_its_problem() {
        for (pairs, problem) in [
            (&[("match", "x")][..], "`where` is missing"),
            (&[("where", "stack")], "unknown `where: stack`; expected function, file,"),
            (&[("where", "function"), ("action", "mask")], "unknown action `mask`"),
            (&[("where", "function"), ("match", "(")], "`match` is not a pattern"),
            (&[("where", "function"), ("match", "")], "`match` is empty"),
            (&[("where", "function"), ("match", "(a{1000}){1000}")], "`match` is not a pattern"),
            (&[("where", "function"), ("key", "x")], "`key` is for label_value and resource"),
            (&[("where", "function"), ("action", "relativize"), ("with", "/a")], "relativize is for"),
            (&[("where", "file"), ("action", "relativize"), ("with", "a")], "absolute directory"),
            (&[("where", "file"), ("action", "strip_prefix")], "strip_prefix requires `match`"),
            (&[("where", "file"), ("action", "drop"), ("with", "x")], "`with` is not for drop"),
            (&[("where", "file"), ("pattern", "x")], "unknown key `pattern`"),
        ] {
            let error = rule(pairs).expect_err(problem);
            assert!(error.contains(problem), "{error}");
        }
        assert!(rule(&[("where", "function"), ("match", &"x".repeat(1001))]).unwrap_err().contains("1001 bytes"));
    }

    #[test]
    fn several_places_are_a_list_or_separated_by_commas() {
        let rule = rule(&[("where", "label_value, resource"), ("action", "hash")]).unwrap();
        assert_eq!(rule.targets, [RedactionTarget::LabelValue, RedactionTarget::Resource]);
        let pairs = [("where".to_owned(), vec!["function".to_owned(), "file".to_owned()])];
        assert_eq!(RedactionRule::from_pairs(&pairs).unwrap().targets.len(), 2);
    }

    #[test]
    fn an_invalid_rule_is_replaced_by_one_for_all_texts_of_its_place() {
        let pairs = [("where".to_owned(), vec!["file".to_owned()]), ("match".to_owned(), vec!["(".to_owned()])];
        assert_eq!(RedactionRule::fallback(&pairs).targets, [RedactionTarget::File]);
        assert_eq!(RedactionRule::fallback(&[]).targets, RedactionTarget::ALL);
    }
}
