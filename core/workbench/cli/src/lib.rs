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
        CliVerb::Serve(verb) => verbs::serve::run(verb),
        CliVerb::View(verb) => verbs::view::run(&verb),
        CliVerb::Scrape(verb) => verbs::scrape::run(&verb),
        CliVerb::Top(verb) => verbs::top::run(&verb),
        CliVerb::Tree(verb) => verbs::tree::run(&verb),
        CliVerb::Peek(verb) => verbs::peek::run(&verb),
        CliVerb::List(verb) => verbs::list::run(&verb),
        CliVerb::Diff(verb) => verbs::diff::run(&verb),
        CliVerb::Gate(verb) => verbs::gate::run(&verb),
        CliVerb::Spans(verb) => verbs::spans::run(&verb),
        CliVerb::Explain(verb) => verbs::explain::run(&verb),
        CliVerb::Heap(verb) => verbs::heap::run(&verb),
        CliVerb::Flamegraph(verb) => verbs::flamegraph::run(&verb),
        CliVerb::Convert(verb) => verbs::convert::run(&verb),
        CliVerb::Merge(verb) => verbs::merge::run(&verb),
        CliVerb::Symbolize(verb) => verbs::symbolize::run(&verb),
        CliVerb::Upload(verb) => verbs::upload::run(&verb),
        CliVerb::Services(verb) => verbs::services::run(&verb),
        CliVerb::Mcp(verb) => verbs::mcp::run(verb, &arguments::command(), answer),
        CliVerb::Labels(verb) => verbs::labels::run(&verb),
        CliVerb::Check(verb) => verbs::check::run(&verb),
        CliVerb::Doctor(verb) => verbs::doctor::run(&verb),
        CliVerb::Completions(verb) => verbs::completions::run(&verb, arguments::command()),
        CliVerb::Run(_) | CliVerb::Demo(_) | CliVerb::Version => Ok(0),
    }
}

/// Runs a reading verb and returns its result as JSON.
fn answer(arguments: &[String]) -> Result<serde_json::Value, Failure> {
    let refused = || Failure::usage("expected a verb that reads profiles");
    let ParsedCommand::Verb(verb) = arguments::parse(arguments)? else { return Err(refused()) };
    match *verb {
        CliVerb::Services(verb) => verbs::services::answer(&verb),
        CliVerb::Labels(verb) => verbs::labels::answer(&verb),
        CliVerb::Top(verb) => verbs::top::answer(&verb),
        CliVerb::Tree(verb) => verbs::tree::answer(&verb),
        CliVerb::Peek(verb) => verbs::peek::answer(&verb),
        CliVerb::List(verb) => verbs::list::answer(&verb),
        CliVerb::Spans(verb) => verbs::spans::answer(&verb),
        CliVerb::Diff(verb) => verbs::diff::answer(&verb),
        CliVerb::Explain(verb) => verbs::explain::answer(&verb),
        _ => Err(refused()),
    }
}
