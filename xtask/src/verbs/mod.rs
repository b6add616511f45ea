//! The verbs, one file each; those that build a package are in `languages`. Called by `main`; verbs may call each other's functions.

mod bench;
mod check;
mod conformance;
pub mod demo;
pub mod docs;
mod fuzz;
pub mod live;
mod test;
mod tidy;

use crate::arguments::{Arguments, OptionSpec};
use crate::languages;
use crate::step::StepResult;

/// One verb.
pub struct Verb {
    /// Name on the command line.
    pub name: &'static str,
    /// Usage line.
    pub usage: &'static str,
    /// Help: the first line is its entry in the list.
    pub about: &'static str,
    /// Accepted options.
    pub options: &'static [OptionSpec],
    /// Runs it.
    pub run: fn(&Arguments) -> StepResult,
}

/// Verbs before and after those that build a package, in the order of the help.
const BEFORE_PACKAGES: &[Verb] =
    &[demo::VERB, test::VERB, check::VERB, live::VERB, conformance::VERB, bench::VERB, tidy::VERB];
const AFTER_PACKAGES: &[Verb] = &[docs::VERB, fuzz::VERB];

/// Every verb, in the order of the help.
pub fn all() -> impl Iterator<Item = &'static Verb> {
    let packages = languages::ALL.iter().map(|language| language.package_verb());
    BEFORE_PACKAGES.iter().chain(packages).chain(AFTER_PACKAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_summary_of_one_line() {
        for verb in all() {
            assert!(verb.usage.starts_with(verb.name), "{}", verb.name);
            let first = verb.about.lines().next().unwrap_or_default();
            assert!((10..=100).contains(&first.len()), "{}: {first}", verb.name);
        }
    }

    #[test]
    fn the_help_and_the_options_name_every_language() {
        for language in languages::ALL {
            for verb in [bench::VERB, live::VERB] {
                assert!(verb.about.contains(&format!("--{}", language.name())), "{}: {}", verb.name, language.name());
                assert!(
                    verb.options.iter().any(|option| option.name() == language.name()),
                    "{}: {}",
                    verb.name,
                    language.name()
                );
            }
            assert!(conformance::VERB.usage.contains(language.name()), "{}", language.name());
            assert!(test::VERB.about.contains(language.title()), "{}", language.title());
        }
    }
}
