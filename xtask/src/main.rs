//! `cargo xtask <verb>`: builds, tests and demonstrates spanprof. One file per verb in `verbs/`, one directory per
//! language in `languages/`; shared parts (steps, tallies) are beside them. May refer to every crate of
//! the workspace; no crate depends on it.

mod arguments;
mod artifact;
mod deadline;
mod elf;
mod http;
mod languages;
mod progress;
mod scratch;
mod step;
mod tally;
mod tidy;
mod verbs;
mod workspace;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match words.split_first() {
        None => return help(ExitCode::FAILURE),
        Some((first, _)) if ["help", "--help", "-h"].contains(&first.as_str()) => return help(ExitCode::SUCCESS),
        Some((first, rest)) => (first.as_str(), rest),
    };
    let Some(verb) = verbs::all().find(|verb| verb.name == name) else {
        let names: Vec<_> = verbs::all().map(|verb| verb.name).collect();
        eprintln!("xtask: unknown verb `{name}`; the verbs are: {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    if rest.iter().any(|word| word == "--help" || word == "-h") {
        println!("cargo xtask {}\n\n{}", verb.usage, verb.about);
        return ExitCode::SUCCESS;
    }
    match arguments::Arguments::parse(rest, verb.options).and_then(|given| (verb.run)(&given)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask {name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn help(code: ExitCode) -> ExitCode {
    println!("cargo xtask <verb>\n");
    for verb in verbs::all() {
        println!("  {:<34} {}", verb.usage, verb.about.lines().next().unwrap_or_default());
    }
    println!("\n`cargo xtask <verb> --help` describes one verb.");
    code
}
