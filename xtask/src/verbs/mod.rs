//! The verbs, one file each. Called by `main`; verbs may call each other's parts, never `main`.

mod addon;
mod bench;
mod check;
mod conformance;
pub mod demo;
mod docs;
mod fuzz;
mod jar;
mod java_bench;
mod live;
mod node_bench;
mod node_tests;
mod test;
mod tidy;
pub mod wheel;

use crate::arguments::{Arguments, Known};
use crate::step::Outcome;

/// One verb.
pub struct Verb {
    /// Its word.
    pub name: &'static str,
    /// How it is typed.
    pub usage: &'static str,
    /// The first line is its entry in the list; the rest is shown by `--help`.
    pub about: &'static str,
    /// Options it knows.
    pub options: &'static [Known],
    /// Does it.
    pub run: fn(&Arguments) -> Outcome,
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
    wheel::VERB,
    addon::VERB,
    jar::VERB,
    docs::VERB,
    fuzz::VERB,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_says_what_it_does_in_one_line() {
        for verb in ALL {
            assert!(verb.usage.starts_with(verb.name), "{}", verb.name);
            let first = verb.about.lines().next().unwrap_or_default();
            assert!((10..=100).contains(&first.len()), "{}: {first}", verb.name);
        }
    }
}
