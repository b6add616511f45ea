//! Answers the command `spanprof`: the verbs that read profiles, and `serve`, the embedded receiver; never runs in a profiled
//! program, and never panics because of its input.
//!
//! The binary and the console script of the wheel call [`run`].
#![forbid(unsafe_code)]

mod arguments;
mod doctor;
mod fetch;
mod http_stream;
mod mcp;
mod nearest;
mod object_storage;
mod output;
mod proxy;
mod redaction_rules;
mod scrape;
mod source;
mod verbs;

use arguments::{CliVerb, ParsedCommand};
pub use spanprof_answers::failure::Failure;

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
        CliVerb::View(given) => verbs::view::run(&given),
        CliVerb::Scrape(given) => verbs::scrape::run(&given),
        CliVerb::Top(given) => verbs::top::run(&given),
        CliVerb::Tree(given) => verbs::tree::run(&given),
        CliVerb::Peek(given) => verbs::peek::run(&given),
        CliVerb::List(given) => verbs::list::run(&given),
        CliVerb::Diff(given) => verbs::diff::run(&given),
        CliVerb::Gate(given) => verbs::gate::run(&given),
        CliVerb::Spans(given) => verbs::spans::run(&given),
        CliVerb::Explain(given) => verbs::explain::run(&given),
        CliVerb::Heap(given) => verbs::heap::run(&given),
        CliVerb::Flamegraph(given) => verbs::flamegraph::run(&given),
        CliVerb::Convert(given) => verbs::convert::run(&given),
        CliVerb::Merge(given) => verbs::merge::run(&given),
        CliVerb::Upload(given) => verbs::upload::run(&given),
        CliVerb::Services(given) => verbs::services::run(&given),
        CliVerb::Mcp(given) => verbs::mcp::run(given, &arguments::command(), answer),
        CliVerb::Labels(given) => verbs::labels::run(&given),
        CliVerb::Check(given) => verbs::check::run(&given),
        CliVerb::Doctor(given) => verbs::doctor::run(&given),
        CliVerb::Completions(given) => verbs::completions::run(&given, arguments::command()),
        CliVerb::Run(_) | CliVerb::Demo(_) | CliVerb::Version => Ok(0),
    }
}

/// Runs a reading verb and returns its result as JSON.
fn answer(arguments: &[String]) -> Result<serde_json::Value, Failure> {
    let refused = || Failure::usage("expected a verb that reads profiles");
    let ParsedCommand::Verb(verb) = arguments::parse(arguments)? else { return Err(refused()) };
    match *verb {
        CliVerb::Services(given) => verbs::services::answer(&given),
        CliVerb::Labels(given) => verbs::labels::answer(&given),
        CliVerb::Top(given) => verbs::top::answer(&given),
        CliVerb::Tree(given) => verbs::tree::answer(&given),
        CliVerb::Peek(given) => verbs::peek::answer(&given),
        CliVerb::List(given) => verbs::list::answer(&given),
        CliVerb::Spans(given) => verbs::spans::answer(&given),
        CliVerb::Diff(given) => verbs::diff::answer(&given),
        CliVerb::Explain(given) => verbs::explain::answer(&given),
        _ => Err(refused()),
    }
}
