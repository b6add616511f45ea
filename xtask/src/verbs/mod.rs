//! The verbs, one file each. Called by `main`; verbs may call each other's functions.

mod bench;
mod check;
mod conformance;
pub mod demo;
mod docs;
mod fuzz;
mod live;
mod test;
mod tidy;

use crate::arguments::{Arguments, OptionSpec};
use crate::languages::{java, node, python};
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

/// Every verb, in the order of the help.
pub const ALL: &[Verb] = &[
    demo::VERB,
    test::VERB,
    check::VERB,
    live::VERB,
    conformance::VERB,
    bench::VERB,
    tidy::VERB,
    python::package::VERB,
    node::package::VERB,
    java::package::VERB,
    docs::VERB,
    fuzz::VERB,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_summary_of_one_line() {
        for verb in ALL {
            assert!(verb.usage.starts_with(verb.name), "{}", verb.name);
            let first = verb.about.lines().next().unwrap_or_default();
            assert!((10..=100).contains(&first.len()), "{}: {first}", verb.name);
        }
    }
}
