//! Parses the arguments of a verb: names, and options as `--key value`, `--key=value` or `--switch`. Called by `main`.

use std::collections::BTreeMap;

use crate::step::{StepFailure, StepResult};

/// An option that a verb accepts.
#[derive(Clone, Copy, Debug)]
pub enum OptionSpec {
    /// `--name VALUE`
    Value(&'static str),
    /// `--name`
    Switch(&'static str),
}

/// Parsed arguments of a verb.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Arguments that are not options, in order.
    pub names: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Arguments {
    /// Parses `words`; the error for an unknown option lists the accepted ones.
    pub fn parse(words: &[String], accepted: &[OptionSpec]) -> StepResult<Self> {
        let mut given = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let Some(option) = word.strip_prefix("--") else {
                given.names.push(word.clone());
                continue;
            };
            let (key, inline) = match option.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (option, None),
            };
            let value = match accepted.iter().find(|option| option.name() == key) {
                Some(OptionSpec::Switch(_)) if inline.is_none() => String::new(),
                Some(OptionSpec::Switch(_)) => {
                    return Err(StepFailure::new("arguments", format!("--{key} takes no value")))
                }
                Some(OptionSpec::Value(_)) => inline
                    .or_else(|| rest.next().cloned())
                    .ok_or_else(|| StepFailure::new("arguments", format!("--{key} needs a value")))?,
                None => {
                    let names: Vec<_> = accepted.iter().map(|option| format!("--{}", option.name())).collect();
                    let accepted = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                    return Err(StepFailure::new("arguments", format!("unknown option --{key}; accepted: {accepted}")));
                }
            };
            given.values.insert(key.to_owned(), value);
        }
        Ok(given)
    }

    /// Whether a switch was given.
    pub fn has(&self, switch: &str) -> bool {
        self.values.contains_key(switch)
    }

    /// The text of an option.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// An option as an integer.
    pub fn number(&self, key: &str) -> StepResult<Option<u64>> {
        self.text(key)
            .map(|text| {
                text.parse()
                    .map_err(|_| StepFailure::new("arguments", format!("--{key}: expected an integer, got `{text}`")))
            })
            .transpose()
    }
}

impl OptionSpec {
    /// Its name without the dashes.
    pub fn name(self) -> &'static str {
        match self {
            OptionSpec::Value(name) | OptionSpec::Switch(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> StepResult<Arguments> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Arguments::parse(&words, &[OptionSpec::Value("seconds"), OptionSpec::Switch("deep")])
    }

    #[test]
    fn options_and_names_are_accepted_in_any_order() {
        let given = parse(&["a", "--seconds", "5", "--deep", "b"]).unwrap();
        assert_eq!(given.names, ["a", "b"]);
        assert_eq!(given.number("seconds").unwrap(), Some(5));
        assert!(given.has("deep"));
    }

    #[test]
    fn a_value_may_follow_an_equals_sign() {
        assert_eq!(parse(&["--seconds=7"]).unwrap().number("seconds").unwrap(), Some(7));
    }

    #[test]
    fn an_unknown_option_lists_the_accepted_ones() {
        let message = parse(&["--secnods", "5"]).unwrap_err().to_string();
        assert!(message.contains("--secnods") && message.contains("--seconds, --deep"), "{message}");
    }

    #[test]
    fn a_value_that_is_no_number_is_named() {
        let message = parse(&["--seconds", "soon"]).unwrap().number("seconds").unwrap_err().to_string();
        assert!(message.contains("`soon`"), "{message}");
    }

    #[test]
    fn a_switch_takes_no_value_and_an_option_needs_one() {
        assert!(parse(&["--deep=yes"]).is_err());
        assert!(parse(&["--seconds"]).is_err());
    }
}
