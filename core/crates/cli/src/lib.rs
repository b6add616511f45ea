//! The `spanprof` command: `serve`, the embedded back end, and the verbs that read profiles. A client of the profile model;
//! the binary and the console script of the wheel call [`run`].
//!
//! Invariants: nothing here runs in a profiled program; no input causes a panic.
#![forbid(unsafe_code)]

mod arguments;
mod detail;
mod failure;
mod fetch;
mod json;
mod moment;
mod otlp_json;
mod output;
mod quantity;
mod query_string;
mod selection;
pub mod serve;
mod source;
#[cfg(test)]
mod temp_directory;
mod verbs;

use arguments::{nearest, CliVerb};
pub use failure::Failure;

static VERBS: [&CliVerb; 5] =
    [&verbs::serve::VERB, &verbs::top::VERB, &verbs::flamegraph::VERB, &verbs::convert::VERB, &verbs::check::VERB];

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
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::usage("expected a verb").hint(overview()));
    };
    let (name, rest) = match (name.as_str(), rest.first()) {
        ("help", Some(verb)) => (verb.as_str(), &["--help".to_owned()][..]),
        (name, _) => (name, rest),
    };
    match name {
        "-h" | "--help" | "help" => {
            output::print(overview().as_bytes())?;
            return Ok(0);
        }
        "-V" | "--version" | "version" => {
            output::print(format!("spanprof {}\n", env!("CARGO_PKG_VERSION")).as_bytes())?;
            return Ok(0);
        }
        _ => (),
    }
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        let failure = Failure::usage(format!("unknown verb `{name}`"));
        return Err(match nearest(name, VERBS.iter().map(|verb| verb.name)) {
            Some(close) => failure.hint(format!("did you mean `spanprof {close}`?")),
            None => failure.hint("see `spanprof --help`"),
        });
    };
    let parsed = arguments::parse(verb, rest)?;
    if parsed.help {
        output::print(verb.help().as_bytes())?;
        return Ok(0);
    }
    (verb.run)(&parsed)
}

fn overview() -> String {
    let mut text = format!(
        "spanprof {}: profiles linked to traces and spans\n\nUsage: spanprof VERB [ARGUMENTS]\n\nVerbs:\n",
        env!("CARGO_PKG_VERSION")
    );
    for verb in VERBS {
        text += &format!("  {:<11} {}\n", verb.name, verb.summary);
    }
    text + "\n`spanprof VERB --help` shows the flags of a verb. Profiles are read from a file, a directory, stdin (-) or a running `serve` (http://…).\n"
}
