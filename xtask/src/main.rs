//! `cargo xtask <verb>`: builds, tests and demonstrates spanprof. One file per verb in `verbs/`, one directory per
//! language in `languages/`; shared parts (steps, tallies) are beside them. May refer to every crate of
//! the workspace; no crate depends on it.

mod arguments;
mod artifact;
mod book;
mod browser;
mod code_blocks;
mod command_lines;
mod deadline;
mod debian_root;
mod documents;
mod elf;
mod first_results;
mod git;
mod guides;
mod http;
mod interpreters;
mod languages;
mod linked;
mod parallel;
mod progress;
mod scratch;
mod second_attempt;
mod step;
mod tally;
mod target;
mod third_party;
mod tidy;
mod venv;
mod verbs;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use verbs::XtaskCommand;

fn main() -> ExitCode {
    let XtaskCommand { verb } = XtaskCommand::parse();
    match verb.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
