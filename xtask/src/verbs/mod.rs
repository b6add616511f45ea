//! The verbs, one file each; those that build a package are in `languages`. Called by `main`; verbs may call each other's functions.

mod bench;
mod check;
mod conformance;
pub mod demo;
pub mod docs;
mod fuzz;
pub mod live;
mod release;
mod test;
mod tidy;

use clap::{Parser, Subcommand};

use crate::arguments::LiveArguments;
use crate::languages::{java, node, python};
use crate::step::StepResult;
use crate::target::TargetArguments;

// Not a doc comment: clap would print it.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "builds, tests and demonstrates spanprof", disable_help_subcommand = true)]
pub struct XtaskCommand {
    #[command(subcommand)]
    pub verb: Verb,
}

/// A verb with its arguments, in the order of the help.
#[derive(Subcommand)]
pub enum Verb {
    Demo(demo::DemoArguments),
    Test(test::TestArguments),
    Check(check::DeepCheckArguments),
    Live(LiveArguments),
    Conformance(conformance::ConformanceArguments),
    Bench(bench::BenchArguments),
    /// checks the rules that a machine can check
    ///
    /// `unsafe` only in its places; files of at most 500 lines with a header; no empty names, no
    /// unfinished work, no disabled test; dependencies among the crates, and none from the agent to the workbench; a reason
    /// beside each dependency; paths in pages and modules in headers that exist; no language named in the core; no path of a machine; no type name twice and no
    /// cycle of imports in a crate; commits as `area: summary` of 72 characters with a body.
    #[command(verbatim_doc_comment)]
    Tidy,
    /// builds the release wheel into target/dist, audits it and runs it once
    ///
    /// One abi3 wheel for CPython 3.9 and later. Linked by zig against glibc 2.17, audited symbol by symbol, then
    /// installed and run in a clean environment of the oldest and the newest installed Python. In addition a
    /// py3-none-any wheel without native code, for platforms without a native wheel. For musl: musllinux_1_2. Wheels of other platforms
    /// than this machine's are not run.
    #[command(verbatim_doc_comment)]
    Wheel(TargetArguments),
    /// builds the npm package into target/dist, audits it and runs it once
    ///
    /// A package without native code, and one for each platform with its native module for every Node.js from 18 on, which npm installs
    /// by its members `os`, `cpu` and `libc`. Linked by zig against glibc 2.28 and audited symbol by symbol; then packed, installed into
    /// a clean directory without scripts, and run on the Node.js on PATH, an older and a newer one.
    #[command(verbatim_doc_comment)]
    Addon(TargetArguments),
    /// builds the JAR into target/dist, audits it and runs it once
    ///
    /// One JAR for Java 11 and later with a library per platform and the small one that unpacks it, linked by zig against glibc 2.17
    /// and audited symbol by symbol, and beside it its sources, its documentation and its POM, as a Maven repository requires;
    /// then run from a clean directory on Java 11 and every installed JDK, as a library and as an agent, and as an agent of a program on
    /// Java 8, which must run on without a profile. The libraries for musl are in a JAR of their own, `-musl.jar`.
    #[command(verbatim_doc_comment)]
    Jar(java::package::JarArguments),
    /// builds and audits the packages of all platforms in target/dist
    ///
    /// The wheels, the sdist, the npm packages and the JAR for Linux on x86-64 and arm64, with glibc and musl; those of this machine are
    /// run once. Needs Rust's standard library for each platform (`rustup target add`).
    #[command(verbatim_doc_comment)]
    Dist,
    Release(release::ReleaseArguments),
    Docs(docs::DocsArguments),
    Fuzz(fuzz::FuzzArguments),
}

impl Verb {
    pub fn run(&self) -> StepResult {
        match self {
            Self::Demo(arguments) => demo::run(arguments),
            Self::Test(arguments) => test::run(arguments),
            Self::Check(arguments) => check::run(arguments),
            Self::Live(arguments) => live::run(arguments),
            Self::Conformance(arguments) => conformance::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Tidy => tidy::run(),
            Self::Wheel(arguments) => python::package::run(arguments),
            Self::Addon(arguments) => node::package::run(arguments),
            Self::Jar(arguments) => java::package::run(arguments),
            Self::Dist => release::packages::build(),
            Self::Release(arguments) => release::run(arguments),
            Self::Docs(arguments) => docs::run(arguments),
            Self::Fuzz(arguments) => fuzz::run(arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::languages;

    #[test]
    fn every_verb_has_a_summary_of_one_line() {
        let command = XtaskCommand::command();
        command.clone().debug_assert();
        for verb in command.get_subcommands() {
            let about = verb.get_about().unwrap_or_default().to_string();
            assert!((10..=100).contains(&about.len()) && !about.contains('\n'), "{}: {about}", verb.get_name());
        }
    }

    #[test]
    fn the_help_and_the_options_name_every_language() {
        let mut command = XtaskCommand::command();
        let mut help = |verb: &str| command.find_subcommand_mut(verb).unwrap().render_long_help().to_string();
        for language in languages::ALL {
            for verb in ["bench", "live"] {
                assert!(help(verb).contains(&format!("--{} ", language.name())), "{verb}: {}", language.name());
            }
            assert!(help("conformance").contains(language.name()), "{}", language.name());
            assert!(help("test").contains(language.title()), "{}", language.title());
        }
    }
}
