//! Settings of one binding in addition to the keys of the core. The binding declares them; layers, bounds and messages are
//! the same as for keys. Not here: the effect of a setting (the binding).

use crate::types::value::{ConfigType, ConfigValue};

/// A setting of one binding.
#[derive(Debug, PartialEq)]
pub struct BindingOption {
    /// Name in files; in the environment with the prefix `SPANPROF_` and in upper case; in code in the language's case.
    pub name: &'static str,
    /// Possible values.
    pub values: OptionValues,
    /// Default value, as text.
    pub default: &'static str,
    /// Description, for hints.
    pub doc: &'static str,
}

/// The possible values of a [`BindingOption`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionValues {
    /// true or false.
    Flag,
    /// A number of this unit between two bounds.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// Unit.
        unit: &'static str,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
}

impl OptionValues {
    /// The value as text, or `None` when it is invalid.
    pub(crate) fn text_of(self, value: &ConfigValue) -> Option<String> {
        match self {
            Self::Flag => bool::from_value(value).map(|flag| flag.to_string()),
            Self::Number { min, max, .. } => {
                let number = match value {
                    ConfigValue::Int(number) => *number as f64,
                    ConfigValue::Float(number) => *number,
                    ConfigValue::Text(text) => text.trim().parse().ok()?,
                    _ => return None,
                };
                (min..=max).contains(&number).then(|| number.to_string())
            }
            Self::Choice(words) => {
                let text = String::from_value(value)?.trim().to_ascii_lowercase();
                words.contains(&text.as_str()).then_some(text)
            }
            Self::Text => String::from_value(value),
        }
    }

    /// The possible values, for "must be …".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Flag => bool::SHAPE.expected(),
            Self::Number { min, max, unit } => format!("a number between {min} and {max} {unit}"),
            Self::Choice(words) => words.join(" or "),
            Self::Text => String::SHAPE.expected(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::keys::table::Config;
    use crate::layers::environment::Environment;
    use crate::types::choices::ConfigSource;

    static OPTIONS: [BindingOption; 2] = [
        BindingOption {
            name: "event_loop_block",
            values: OptionValues::Number { min: 0.0, max: 1000.0, unit: "ms" },
            default: "50",
            doc: "minimum duration of reported blocks",
        },
        BindingOption {
            name: "stack_walk",
            values: OptionValues::Choice(&["auto", "own"]),
            default: "auto",
            doc: "method of the stack walk",
        },
    ];

    fn load(code: &[(&str, ConfigValue)], variables: &[(&str, &str)]) -> Result<Config, Error> {
        let code: Vec<_> = code.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let environment: Environment = variables.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Config::load_with_options(&code, &environment, &OPTIONS)
    }

    #[test]
    fn a_setting_of_a_binding_has_the_same_layers_as_keys() {
        let variables = [("SPANPROF_EVENT_LOOP_BLOCK", "20"), ("SPANPROF_STACK_WALK", "own")];
        let config = load(&[("event_loop_block", ConfigValue::Int(5))], &variables).unwrap();
        assert_eq!((config.option("event_loop_block"), config.option("stack_walk")), ("5", "own"));
        assert_eq!(config.warnings, [""; 0]);
        assert_eq!(load(&[], &[]).unwrap().option("event_loop_block"), "50");
    }

    #[test]
    fn an_invalid_value_is_a_warning_in_a_variable_and_an_error_in_code() {
        let config = load(&[], &[("SPANPROF_STACK_WALK", "magic"), ("SPANPROF_EVENT_LOOP_BLOK", "5")]).unwrap();
        assert_eq!(
            config.warnings,
            [
                "unknown variable `SPANPROF_EVENT_LOOP_BLOK` is ignored; did you mean `SPANPROF_EVENT_LOOP_BLOCK`?",
                "stack_walk (environment SPANPROF_STACK_WALK) must be auto or own, got `magic`; using auto (default)",
            ]
        );
        let error = load(&[("event_loop_block", ConfigValue::Int(-1))], &[]).unwrap_err();
        assert_eq!(error.message, "event_loop_block (code) must be a number between 0 and 1000 ms, got -1");
        let changes = [("stack_walk".to_owned(), ConfigValue::from("own"))];
        let error = load(&[], &[]).unwrap().patched(&changes, &ConfigSource::Update).unwrap_err();
        assert!(error.message.contains("cannot change"));
    }
}
