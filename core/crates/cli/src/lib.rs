//! The `spanprof` command: `serve`, the embedded back end, and the verbs that read profiles. A client of the profile model;
//! the binary and the console script of the wheel call [`run`].
//!
//! Invariants: nothing here runs in a profiled program; no input causes a panic.
#![forbid(unsafe_code)]

mod arguments;
mod detail;
mod failure;
mod fetch;
mod moment;
mod output;
mod quantity;
mod query_string;
mod selection;
pub mod serve;
mod source;
#[cfg(test)]
mod temp_directory;
mod verbs;

use arguments::{CliVerb, ParsedCommand};
pub use failure::Failure;

/// Runs the command line; `arguments` without the program's name. Returns the exit code: 0 success, 1 failure or an
/// error in the input, 2 invalid command line.
pub fn run(arguments: &[String]) -> i32 {
    match dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => {
            output::note(&failure.to_string());
            failure.exit_code
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<i32, Failure> {
    let verb = match arguments::parse(arguments)? {
        ParsedCommand::Text(text) => return output::print(text.as_bytes()).map(|()| 0),
        ParsedCommand::Verb(verb) => verb,
    };
    match *verb {
        CliVerb::Serve(given) => verbs::serve::run(given),
        CliVerb::Top(given) => verbs::top::run(&given),
        CliVerb::Diff(given) => verbs::diff::run(&given),
        CliVerb::Heap(given) => verbs::heap::run(&given),
        CliVerb::Flamegraph(given) => verbs::flamegraph::run(&given),
        CliVerb::Convert(given) => verbs::convert::run(&given),
        CliVerb::Check(given) => verbs::check::run(&given),
        CliVerb::Version => Ok(0),
    }
}
