//! Conditions on one label, with the operators of Prometheus and Pyroscope: `=`, `!=`, `=~`, `!~`.

use std::fmt;

use regex_lite::Regex;

/// How the value of a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchOperator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`: a regular expression matches the whole value.
    Matches,
    /// `!~`
    NotMatches,
}

/// A condition on one label. An absent label has the value "".
#[derive(Clone, Debug)]
pub struct LabelMatcher {
    /// Name of the label.
    pub key: String,
    /// How its value is compared.
    pub operator: MatchOperator,
    /// The value, or the regular expression.
    pub value: String,
    pattern: Option<Regex>,
}

impl MatchOperator {
    /// Longest first, so that a prefix is not taken for the operator.
    const ALL: [MatchOperator; 4] = [Self::NotEqual, Self::Matches, Self::NotMatches, Self::Equal];

    fn text(self) -> &'static str {
        match self {
            MatchOperator::Equal => "=",
            MatchOperator::NotEqual => "!=",
            MatchOperator::Matches => "=~",
            MatchOperator::NotMatches => "!~",
        }
    }
}

impl LabelMatcher {
    /// The label has this value.
    pub fn equal(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), operator: MatchOperator::Equal, value: value.into(), pattern: None }
    }

    /// Parses `endpoint=/cart`, `endpoint!=/cart`, `endpoint=~/cart/.*` or `endpoint!~/cart/.*`. White space around the key and
    /// the value, and quotes around the value, are ignored.
    ///
    /// # Errors
    /// The message names the expected form, or the error in the regular expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let start = text.char_indices().find_map(|(at, _)| {
            MatchOperator::ALL
                .into_iter()
                .find(|operator| text[at..].starts_with(operator.text()))
                .map(|found| (at, found))
        });
        let (at, operator) = start
            .filter(|(at, _)| !text[..*at].trim().is_empty())
            .ok_or_else(|| format!("expected KEY=VALUE, KEY!=VALUE, KEY=~REGEX or KEY!~REGEX, got `{text}`"))?;
        let value = text[at + operator.text().len()..].trim();
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let pattern = match operator {
            MatchOperator::Matches | MatchOperator::NotMatches => {
                let pattern = Regex::new(&format!("^(?:{value})$"));
                Some(pattern.map_err(|error| format!("`{value}` is not a regular expression: {error}"))?)
            }
            MatchOperator::Equal | MatchOperator::NotEqual => None,
        };
        Ok(Self { key: text[..at].trim().to_owned(), operator, value: value.to_owned(), pattern })
    }

    /// Whether a label with this value passes.
    pub fn accepts(&self, value: &str) -> bool {
        let is_match = self.pattern.as_ref().map_or_else(|| self.value == value, |pattern| pattern.is_match(value));
        is_match == matches!(self.operator, MatchOperator::Equal | MatchOperator::Matches)
    }
}

impl PartialEq for LabelMatcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, self.operator, &self.value) == (&other.key, other.operator, &other.value)
    }
}

impl Eq for LabelMatcher {}

impl fmt::Display for LabelMatcher {
    /// The form that [`LabelMatcher::parse`] reads.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A value that begins with `~`, or that has quotes or white space around it, reads back only in quotes.
        let is_plain = self.value == self.value.trim() && !self.value.starts_with(['~', '"']);
        let quote = if is_plain { "" } else { "\"" };
        write!(out, "{}{}{quote}{}{quote}", self.key, self.operator.text(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_accepts_the_values_of_its_operator() {
        for (condition, accepted, refused) in [
            ("route=/cart", "/cart", "/cart/1"),
            ("route!=/cart", "/pay", "/cart"),
            ("route=~/cart/.*|/pay", "/pay", "/pays"),
            ("route!~/cart.*", "/pay", "/cart/1"),
            ("route=", "", "/cart"),
            ("route!=", "/cart", ""),
            ("route=a=b!=c", "a=b!=c", "a"),
            ("route=\"~a\"", "~a", "a"),
            (" route =~ \"a b\" ", "a b", "ab"),
        ] {
            let matcher = LabelMatcher::parse(condition).unwrap();
            assert_eq!(matcher.key, "route");
            assert!(matcher.accepts(accepted) && !matcher.accepts(refused), "{condition}");
            assert_eq!(LabelMatcher::parse(&matcher.to_string()).as_ref(), Ok(&matcher), "{condition}");
        }
    }

    #[test]
    fn the_error_of_a_condition_names_what_is_wrong() {
        for text in ["route", "=/cart", " !~x", ""] {
            assert!(LabelMatcher::parse(text).unwrap_err().contains("KEY=VALUE, KEY!=VALUE"), "{text}");
        }
        assert!(LabelMatcher::parse("route=~/(cart").unwrap_err().contains("`/(cart` is not a regular expression"));
    }
}
