//! The words after a verb: names, and options as `--key value`, `--key=value` or a bare `--switch`. Called by `main`.

use std::collections::BTreeMap;

use crate::step::{Failure, Outcome};

/// An option that a verb knows.
#[derive(Clone, Copy, Debug)]
pub enum Known {
    /// `--name VALUE`
    Value(&'static str),
    /// `--name`
    Switch(&'static str),
}

/// What was given to a verb.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Words that are not options, in order.
    pub names: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Arguments {
    /// Sorts the words; an option that the verb does not know is an error that lists the known ones.
    pub fn parse(words: &[String], known: &[Known]) -> Outcome<Self> {
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
            let value = match known.iter().find(|known| known.name() == key) {
                Some(Known::Switch(_)) if inline.is_none() => String::new(),
                Some(Known::Switch(_)) => return Err(Failure::new("arguments", format!("--{key} takes no value"))),
                Some(Known::Value(_)) => inline
                    .or_else(|| rest.next().cloned())
                    .ok_or_else(|| Failure::new("arguments", format!("--{key} needs a value")))?,
                None => {
                    let names: Vec<_> = known.iter().map(|known| format!("--{}", known.name())).collect();
                    let known = if names.is_empty() { "it takes none".to_owned() } else { names.join(", ") };
                    return Err(Failure::new("arguments", format!("unknown option --{key}; known: {known}")));
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

    /// An option as a whole number.
    pub fn number(&self, key: &str) -> Outcome<Option<u64>> {
        self.text(key)
            .map(|text| {
                text.parse()
                    .map_err(|_| Failure::new("arguments", format!("--{key} wants a whole number, got `{text}`")))
            })
            .transpose()
    }
}

impl Known {
    fn name(self) -> &'static str {
        match self {
            Known::Value(name) | Known::Switch(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Outcome<Arguments> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Arguments::parse(&words, &[Known::Value("seconds"), Known::Switch("deep")])
    }

    #[test]
    fn options_and_names_may_stand_in_any_order() {
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
    fn an_unknown_option_is_answered_with_the_known_ones() {
        let said = parse(&["--secnods", "5"]).unwrap_err().to_string();
        assert!(said.contains("--secnods") && said.contains("--seconds, --deep"), "{said}");
    }

    #[test]
    fn a_value_that_is_no_number_is_named() {
        let said = parse(&["--seconds", "soon"]).unwrap().number("seconds").unwrap_err().to_string();
        assert!(said.contains("`soon`"), "{said}");
    }

    #[test]
    fn a_switch_takes_no_value_and_an_option_needs_one() {
        assert!(parse(&["--deep=yes"]).is_err());
        assert!(parse(&["--seconds"]).is_err());
    }
}
