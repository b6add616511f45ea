//! The values that a type of the configuration accepts. Names in messages and in the reference page, and the JSON schema, follow
//! from it.

use std::borrow::Cow;

/// What values a key takes. Each has a form as text, for variables of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// true or false.
    Switch,
    /// A whole number, as text with a unit of bytes.
    WholeNumber,
    /// A number, as text with a unit of time.
    Number,
    /// A number or a percentage.
    Share,
    /// Text.
    Text,
    /// A duty cycle such as 15s/5m.
    DutyCycle,
    /// Texts.
    TextList,
    /// Names with texts.
    TextMap,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number, or one of these words.
    NumberOr(&'static [&'static str]),
    /// Destinations: a list of maps.
    Destinations,
    /// Redaction rules: a list of maps.
    RedactionRules,
}

impl Shape {
    /// Its name in the reference page.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Switch => "true or false",
            Self::WholeNumber => "whole number",
            Self::Number => "number",
            Self::Share => "number or percentage",
            Self::Text => "text",
            Self::DutyCycle => "text such as 15s/5m",
            Self::TextList => "list of text",
            Self::TextMap => "map of text",
            Self::Destinations | Self::RedactionRules => "list of maps",
            Self::Choice(words) => return Cow::Owned(alternatives(words)),
            Self::NumberOr(words) => {
                let all: Vec<&str> = ["number"].iter().chain(words).copied().collect();
                return Cow::Owned(alternatives(&all));
            }
        })
    }

    /// Its name after "must be".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::WholeNumber
            | Self::Number
            | Self::Share
            | Self::TextList
            | Self::TextMap
            | Self::Destinations
            | Self::RedactionRules => {
                format!("a {}", self.name())
            }
            Self::Switch | Self::Text | Self::DutyCycle | Self::Choice(_) | Self::NumberOr(_) => {
                self.name().into_owned()
            }
        }
    }
}

/// `auto, thread_timer or perf`.
fn alternatives(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_listed_as_alternatives() {
        assert_eq!(Shape::Choice(&["auto", "thread_timer", "perf"]).name(), "auto, thread_timer or perf");
        assert_eq!(Shape::Choice(&["all", "tail"]).expected(), "all or tail");
        assert_eq!(Shape::NumberOr(&["p99", "none"]).expected(), "number, p99 or none");
        assert_eq!(Shape::Number.expected(), "a number");
    }
}
