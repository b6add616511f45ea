//! The values of `redaction_rules` and `redaction_hash_key`: reads the rules, and replaces invalid ones of a variable or a
//! file by rules that remove more. Not here: the effect of a rule (`spanprof_profile::redact`).

use std::fmt;

use super::shape::Shape;
use super::value::{ConfigType, ConfigValue};
use super::yaml::list_of;
use crate::error::{Error, ErrorKind};
use spanprof_profile::redact::RedactionRule;

/// Pairs of a rule: key and texts.
type RulePairs = Vec<(String, Vec<String>)>;

/// Rules of redaction, applied in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedactionRules(Vec<RedactionRule>);

impl RedactionRules {
    /// The rules of a list in YAML or JSON.
    ///
    /// # Errors
    /// When a rule is invalid.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value = ConfigValue::from(text);
        Self::from_value(&value).ok_or_else(|| {
            let problem = Self::problem(&value).unwrap_or_else(|| format!("expected {}", Self::SHAPE.expected()));
            Error::new(ErrorKind::InvalidConfig, format!("the redaction rules cannot be used: {problem}"), HINT)
        })
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[RedactionRule] {
        &self.0
    }

    /// These rules, then `others`.
    pub(crate) fn and(mut self, others: Self) -> Self {
        for rule in others.0 {
            if !self.0.contains(&rule) {
                self.0.push(rule);
            }
        }
        self
    }

    /// The rules of an invalid value: the valid ones, and for each invalid one a rule that replaces every text of its `where`.
    /// Without a readable list, every text is replaced.
    pub(crate) fn without_invalid(value: &ConfigValue) -> Self {
        let Some(list) = list_of(value) else { return Self::everything() };
        let rule = |value: &ConfigValue| match pairs(value) {
            Ok(pairs) => RedactionRule::from_pairs(&pairs).unwrap_or_else(|_| RedactionRule::fallback(&pairs)),
            Err(_) => RedactionRule::fallback(&[]),
        };
        Self(list.iter().map(rule).collect())
    }

    /// The rules when it is unknown which were configured: every text is replaced.
    pub(crate) fn everything() -> Self {
        Self(vec![RedactionRule::fallback(&[])])
    }

    /// The end of a warning about an invalid value: the texts that are replaced instead.
    pub(crate) fn fallback_text(&self) -> String {
        let replaced = self.0.iter().filter(|rule| rule.is_fallback()).map(RedactionRule::where_names);
        let mut replaced: Vec<_> = replaced.collect();
        replaced.dedup();
        format!("until it is corrected, every text of these places is replaced: {}", replaced.join(", "))
    }
}

const HINT: &str = "each rule is a map such as {where: function, match: 'user_[0-9]+', action: hash}";

impl From<Vec<RedactionRule>> for RedactionRules {
    fn from(rules: Vec<RedactionRule>) -> Self {
        Self(rules)
    }
}

impl ConfigType for RedactionRules {
    const SHAPE: Shape = Shape::RedactionRules;
    /// A pattern may contain the text that it removes.
    const SECRET: bool = true;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        parsed(&list_of(value)?).ok()
    }

    fn problem(value: &ConfigValue) -> Option<String> {
        parsed(&list_of(value)?).err()
    }

    fn to_text(&self) -> String {
        match self.0.len() {
            0 => String::new(),
            1 => "1 rule".to_owned(),
            count => format!("{count} rules"),
        }
    }
}

fn parsed(list: &[ConfigValue]) -> Result<RedactionRules, String> {
    let rule = |(index, value): (usize, &ConfigValue)| {
        let rule = pairs(value).and_then(|pairs| RedactionRule::from_pairs(&pairs));
        rule.map_err(|problem| format!("rule {}: {problem}", index + 1))
    };
    list.iter().enumerate().map(rule).collect::<Result<Vec<_>, _>>().map(RedactionRules)
}

fn pairs(value: &ConfigValue) -> Result<RulePairs, String> {
    let ConfigValue::Map(pairs) = value else { return Err("it must be a map".to_owned()) };
    let given = pairs.iter().filter(|(_, value)| *value != ConfigValue::Null);
    given
        .map(|(key, value)| {
            let texts = match value {
                ConfigValue::List(list) => list.iter().map(String::from_value).collect::<Option<Vec<_>>>(),
                single => String::from_value(single).map(|text| vec![text]),
            };
            texts.map(|texts| (key.clone(), texts)).ok_or_else(|| format!("`{key}` must be text"))
        })
        .collect()
}

/// A secret of the configuration. No `Debug`, message or statistic shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for SecretText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl ConfigType for SecretText {
    const SHAPE: Shape = Shape::Text;
    const SECRET: bool = true;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        String::from_value(value).filter(|text| !text.is_empty()).map(Self)
    }

    fn to_text(&self) -> String {
        "***".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::table::Config;
    use crate::layers::environment::Environment;

    fn load(code: Option<&str>, variables: &[(&str, &str)]) -> Result<Config, Error> {
        let code: Vec<_> = code.map(|rules| ("redaction_rules".to_owned(), rules.into())).into_iter().collect();
        let environment: Environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Config::load(&code, &environment)
    }

    #[test]
    fn an_invalid_rule_is_an_error_in_code_and_removes_more_in_a_variable() {
        let rules = "[{where: file, match: '('}, {where: function, match: x}]";
        let error = load(Some(rules), &[]).unwrap_err();
        assert!(error.message.contains("redaction_rules (code) cannot be used: rule 1: `match` is not"), "{error}");
        let config = load(None, &[("SPANPROF_REDACTION_RULES", rules)]).unwrap();
        assert_eq!(config.redaction_rules.rules().len(), 2);
        assert!(config.redaction_rules.rules()[0].is_fallback() && !config.redaction_rules.rules()[1].is_fallback());
        let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
        assert!(warning.ends_with("every text of these places is replaced: file"), "{warning}");
    }

    #[test]
    fn an_unreadable_list_in_a_variable_replaces_every_text() {
        for text in ["{", "where: function", "7"] {
            let config = load(None, &[("SPANPROF_REDACTION_RULES", text)]).unwrap();
            assert_eq!(config.redaction_rules, RedactionRules::everything(), "{text}");
            assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
        }
    }

    #[test]
    fn rules_of_all_sources_apply() {
        let variable = ("SPANPROF_REDACTION_RULES", "[{where: file, action: drop}]");
        let config = load(Some("[{where: function, match: x}]"), &[variable]).unwrap();
        let places: Vec<_> = config.redaction_rules.rules().iter().map(RedactionRule::where_names).collect();
        assert_eq!(places, ["file", "function"]);
        let environment = Environment::from([(variable.0.to_owned(), variable.1.to_owned())]);
        let rules = RedactionRules::parse("[{where: function, match: x}]").unwrap();
        let built = Config::builder().redaction_rules(rules).load_with(&environment).unwrap();
        assert_eq!(built.redaction_rules, config.redaction_rules);
    }

    #[test]
    fn an_unreadable_file_that_mentions_redaction_replaces_every_text() {
        let directory = std::env::temp_dir().join(format!("spanprof-redaction-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("config.yaml");
        std::fs::write(&path, "redaction_rules: [\n").unwrap();
        let config = load(None, &[("SPANPROF_CONFIG_FILE", path.to_str().unwrap())]).unwrap();
        assert_eq!(config.redaction_rules, RedactionRules::everything());
        std::fs::write(&path, "sample_rate: [\n").unwrap();
        let config = load(None, &[("SPANPROF_CONFIG_FILE", path.to_str().unwrap())]).unwrap();
        assert_eq!(config.redaction_rules, RedactionRules::default());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn neither_key_nor_patterns_are_shown() {
        let mut config = load(Some("[{where: function, match: marker}]"), &[]).unwrap();
        config.redaction_hash_key = Some("marker".into());
        let shown: Vec<_> = config.entries().into_iter().map(|(_, text, _)| text).collect();
        assert!(!shown.iter().any(|text| text.contains("marker")), "{shown:?}");
        assert!(!format!("{:?}", config.redaction_hash_key).contains("marker"));
    }

    #[test]
    fn values_of_labels_and_attributes_are_shown_without_secrets() {
        let tags =
            ConfigValue::Map(vec![("db_password".to_owned(), "marker-1".into()), ("zone".to_owned(), "a".into())]);
        let attributes = ConfigValue::Map(vec![("dsn".to_owned(), "postgres://u:marker-2@db/x".into())]);
        let code = [("tags".to_owned(), tags), ("resource_attributes".to_owned(), attributes)];
        let entries = Config::load(&code, &Environment::new()).unwrap().entries();
        let text = |name| entries.iter().find(|(key, _, _)| *key == name).map(|(_, text, _)| text.as_str());
        assert_eq!(text("tags"), Some("db_password=[REDACTED],zone=a"));
        assert_eq!(text("resource_attributes"), Some("dsn=postgres://[REDACTED]@db/x"));
        let wrong = Config::load(&[("tags".to_owned(), "token=marker=3,x".into())], &Environment::new()).unwrap_err();
        assert!(!wrong.message.contains("marker"), "{wrong}");
    }
}
