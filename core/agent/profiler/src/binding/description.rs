//! The differences between the bindings as data, and the steps that depend on it: configuration of a start, texts of errors,
//! statistics. Not here: the conversion of values from and to the language (the binding).

use super::{dropped_log_lines, panics};
use crate::lifecycle::ProfilerHandle;
use crate::stats::Stats;
use spanprof_aggregate::StatValue;
use spanprof_config::{in_camel_case, BindingOption, Config, ConfigValue, Environment, Error};

/// How a language writes the configuration's keys in code and in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCase {
    /// `sample_rate`
    Snake,
    /// `sampleRate`
    Camel,
}

/// The description of one language's binding.
#[derive(Debug)]
pub struct Binding {
    /// Prefix of its own statistics.
    pub name: &'static str,
    /// Settings beyond the keys of the core.
    pub options: &'static [BindingOption],
    /// Spelling of keys.
    pub key_case: KeyCase,
}

impl Binding {
    /// Loads the configuration of a start from the keys set in code and the variables in `environment`. `program_name` is the
    /// service name if none is configured.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load(
        &self,
        code: &[(String, ConfigValue)],
        environment: &Environment,
        program_name: impl FnOnce() -> String,
    ) -> Result<Config, Error> {
        let mut config = Config::load_with_options(code, environment, self.options)?;
        if config.service_name.is_empty() && !config.resource_attributes.contains_key("service.name") {
            config.service_name = program_name();
        }
        Ok(config)
    }

    /// A message of the core with keys as the language writes them.
    pub fn message(&self, text: &str) -> String {
        match self.key_case {
            KeyCase::Snake => text.to_owned(),
            KeyCase::Camel => in_camel_case(text, self.options),
        }
    }

    /// Kind, message and hint of an error, for the language's exception.
    pub fn error_texts(&self, error: &Error) -> [String; 3] {
        [error.kind.name().to_owned(), self.message(&error.message), self.message(&error.hint)]
    }

    /// The statistics of the running profiler, then those of the binding; empty when none runs. `own`: further statistics
    /// of the binding, without the prefix.
    pub fn stats(&self, own: Vec<(&'static str, StatValue)>) -> Stats {
        let Some(profiler) = ProfilerHandle::running() else { return Stats::default() };
        let mut stats = profiler.stats();
        let shared = [("panics", panics()), ("log_lines_dropped", dropped_log_lines())];
        let shared = shared.map(|(name, count)| (name, StatValue::Count(count)));
        stats
            .entries
            .extend(shared.into_iter().chain(own).map(|(name, value)| (format!("{}.{name}", self.name), value)));
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_config::{ErrorKind, OptionValues};
    use spanprof_os::testing::in_child;

    static EXAMPLE: Binding = Binding {
        name: "example",
        options: &[BindingOption { name: "stack_walk", values: OptionValues::Text, default: "auto", doc: "the walk" }],
        key_case: KeyCase::Camel,
    };

    fn service_name(code: &[(&str, ConfigValue)]) -> String {
        let code: Vec<_> = code.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        EXAMPLE.load(&code, &Environment::new(), || "program".to_owned()).unwrap().service_name
    }

    #[test]
    fn the_program_names_the_service_unless_code_or_an_attribute_does() {
        assert_eq!(service_name(&[]), "program");
        assert_eq!(service_name(&[("service_name", "checkout".into())]), "checkout");
        let attributes = ConfigValue::Map(vec![("service.name".to_owned(), "cart".into())]);
        assert_eq!(service_name(&[("resource_attributes", attributes)]), "cart");
    }

    #[test]
    fn an_error_spells_keys_and_options_as_the_language_does() {
        let error = Error::new(ErrorKind::InvalidConfig, "sample_rate (code) must be a number", "see stack_walk");
        let texts = EXAMPLE.error_texts(&error);
        assert_eq!(texts, ["invalid_config", "sampleRate (code) must be a number", "see stackWalk"]);
        let snake = Binding { key_case: KeyCase::Snake, ..EXAMPLE };
        assert_eq!(snake.message(&error.message), error.message);
    }

    #[test]
    fn statistics_of_a_binding_are_absent_while_no_profiler_runs() {
        spanprof_os::install_fork_hook();
        // In a child: another test may run a profiler.
        in_child(|| assert_eq!(EXAMPLE.stats(vec![("own", StatValue::Count(1))]).entries, []));
    }
}
