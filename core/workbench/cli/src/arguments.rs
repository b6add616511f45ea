//! The command line: parsed by clap into one structure per verb, with errors as [`Failure`]s. The flags of a verb are in its
//! file; here are the list of verbs and the layout of the help.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::fetch;
use crate::verbs::check::CheckArguments;
use crate::verbs::completions::CompletionsArguments;
use crate::verbs::convert::ConvertArguments;
use crate::verbs::diff::DiffArguments;
use crate::verbs::doctor::DoctorArguments;
use crate::verbs::explain::ExplainArguments;
use crate::verbs::flamegraph::FlamegraphArguments;
use crate::verbs::gate::GateArguments;
use crate::verbs::heap::HeapArguments;
use crate::verbs::labels::LabelsArguments;
use crate::verbs::list::ListArguments;
use crate::verbs::mcp::McpArguments;
use crate::verbs::merge::MergeArguments;
use crate::verbs::peek::PeekArguments;
use crate::verbs::scrape::ScrapeArguments;
use crate::verbs::serve::ServeArguments;
use crate::verbs::services::ServicesArguments;
use crate::verbs::spans::SpansArguments;
use crate::verbs::symbolize::SymbolizeArguments;
use crate::verbs::top::TopArguments;
use crate::verbs::tree::TreeArguments;
use crate::verbs::upload::UploadArguments;
use crate::verbs::view::ViewArguments;
use spanprof_answers::failure::Failure;
use spanprof_answers::terminal::{self, ColorWhen};

/// The verbs by task, for the overview.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Profile a program", &["run", "demo"]),
    ("Look at profiles", &["view", "top", "tree", "peek", "list", "flamegraph", "services", "labels"]),
    ("Compare", &["diff", "gate"]),
    ("Requests and problems", &["spans", "explain", "heap"]),
    ("Convert and keep", &["convert", "merge", "symbolize", "upload"]),
    ("Operate", &["serve", "scrape", "check", "doctor", "mcp", "completions"]),
];
/// Column of the descriptions in the overview.
const ABOUT_COLUMN: usize = 14;
/// Flags of the filter, which follow those of the verb in its help.
const FILTER_FLAGS: [&str; 10] =
    ["service", "type_name", "label", "trace_id", "span_id", "from", "to", "time_range", "focus", "ignore"];
/// Display order of these, and of flags of all verbs. The flags of a verb are numbered from 0.
const FILTER_ORDER: usize = 500;
const COMMON_ORDER: usize = 900;
const HELP_OF_VERB: &str = "{about}\n\nUsage: {usage}\n\n{before-help}Flags:\n{options}{after-help}";

/// Wider help is hard to read.
const MAX_HELP_COLUMNS: usize = 110;

// Not a doc comment: clap would print it.
#[derive(Debug, Parser)]
#[command(
    name = "spanprof",
    version,
    about = "profiles linked to traces and spans",
    override_usage = "spanprof VERB [ARGUMENTS]",
    after_help = "`spanprof VERB --help` shows the flags of a verb. Profiles are read from a file, a directory, stdin (-), object storage (s3://…) or a running `serve` (http://…)."
)]
struct CommandLine {
    /// color own code and libraries on a terminal: auto, always, never
    #[arg(long, global = true, display_order = COMMON_ORDER, value_name = "WHEN", value_enum, hide_possible_values = true, default_value_t = ColorWhen::Auto)]
    color: ColorWhen,
    /// certificates of authorities (PEM) for https:// sources, instead of the public ones
    #[arg(long, global = true, display_order = COMMON_ORDER, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    #[command(subcommand)]
    verb: CliVerb,
}

/// The verb `run`, which the Python package implements before this command line is parsed.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof run [-o FILE] [--KEY=VALUE …] PROGRAM.py|-m MODULE [ARGUMENTS …]",
    before_help = RUN_COMMANDS,
    after_help = "Examples:\n  spanprof run --open -o flame.html app.py\n  spanprof run -m http.server"
)]
pub(crate) struct RunArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    program: Vec<String>,
}

/// The verb `demo`, of the Python package as `run` is.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof demo [--no-open] [--once]",
    after_help = "Examples:\n  spanprof demo\n  spanprof demo --no-open --once"
)]
pub(crate) struct PythonDemoArguments {
    /// do not open the page in a browser
    #[arg(long)]
    no_open: bool,
    /// end after the result instead of at Ctrl-C
    #[arg(long)]
    once: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliVerb {
    /// Run a Python program and profile it, with the command of the Python package
    Run(RunArguments),
    /// Show a shop under load and its slowest request, with the command of the Python package
    Demo(PythonDemoArguments),
    /// Receive OTLP profiles on this machine, keep them in a directory, show them in a browser
    Serve(ServeArguments),
    /// Show files on the page of `serve`, in a browser
    View(ViewArguments),
    /// Pull pprof profiles from endpoints at intervals, forward them to receivers and directories
    Scrape(ScrapeArguments),
    /// Print the functions that cost most
    Top(TopArguments),
    /// Print the call tree
    Tree(TreeArguments),
    /// Print the callers and callees of functions
    Peek(PeekArguments),
    /// Print the source lines of functions with their cost
    List(ListArguments),
    /// Compare two profiles by function or line
    Diff(DiffArguments),
    /// Run a baseline and a candidate in turns until their comparison decides
    Gate(GateArguments),
    /// List traces, spans and endpoints by CPU, allocation and wait; compare a span with its endpoint
    Spans(SpansArguments),
    /// Find known problems by rules: hot code, locks, collections, blocks, leaks, regressions
    Explain(ExplainArguments),
    /// Show the objects in use that a killed process left behind
    Heap(HeapArguments),
    /// Write a flame graph as one HTML file
    Flamegraph(FlamegraphArguments),
    /// Write profiles in another format
    Convert(ConvertArguments),
    /// Write several profiles into one file
    Merge(MergeArguments),
    /// Name native code in a profile by the symbols of other files
    Symbolize(SymbolizeArguments),
    /// Copy the profiles of a directory to object storage
    Upload(UploadArguments),
    /// List services and their profile types
    Services(ServicesArguments),
    /// Print the labels with their number of values
    Labels(LabelsArguments),
    /// Check OTLP profiles against the signal's rules
    Check(CheckArguments),
    /// Check what this machine allows the profiler to do, and the receivers
    Doctor(DoctorArguments),
    /// Serve profiles to coding agents by the Model Context Protocol
    Mcp(McpArguments),
    /// Print the completions of a shell
    Completions(CompletionsArguments),
    /// Print the version
    #[command(hide = true)]
    Version,
}

/// A verb to run, or a text to print instead.
#[derive(Debug)]
pub(crate) enum ParsedCommand {
    Verb(Box<CliVerb>),
    Text(String),
}

/// How unmodified programs are profiled.
const RUN_COMMANDS: &str = concat!(
    "Python: `pip install spanprof`, then `spanprof run app.py`\n  ",
    "Node.js: `npm install spanprof`, then `node --import spanprof/register app.mjs`\n  ",
    "Java: `java -javaagent:spanprof-",
    env!("CARGO_PKG_VERSION"),
    ".jar -jar app.jar`"
);

/// Parses the arguments after the program's name.
pub(crate) fn parse(arguments: &[String]) -> Result<ParsedCommand, Failure> {
    let words = std::iter::once("spanprof").chain(arguments.iter().map(String::as_str));
    let matches = command().try_get_matches_from(words);
    match matches.and_then(|mut matches| CommandLine::from_arg_matches_mut(&mut matches)) {
        Ok(CommandLine { verb: CliVerb::Version, .. }) => Ok(ParsedCommand::Text(command().render_version())),
        Ok(CommandLine { verb: CliVerb::Run(_), .. }) => {
            Err(Failure::usage("`run` is a command of the Python package, not of this program").hint(RUN_COMMANDS))
        }
        Ok(CommandLine { verb: CliVerb::Demo(PythonDemoArguments { no_open, once }), .. }) => {
            let command_line = format!(
                "spanprof demo{}{}",
                if no_open { " --no-open" } else { "" },
                if once { " --once" } else { "" }
            );
            Err(Failure::usage("`demo` is a command of the Python package, not of this program").hint(command_line))
        }
        Ok(CommandLine { verb, color, ca_cert }) => {
            if let Some(file) = ca_cert {
                fetch::set_ca_certificates(file);
            }
            terminal::set_color(color);
            Ok(ParsedCommand::Verb(Box::new(verb)))
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(ParsedCommand::Text(error.to_string())),
            _ => Err(failure_of(&error, arguments)),
        },
    }
}

pub(crate) fn command() -> Command {
    // A width of 0 turns wrapping off: in a pipe each flag is one line.
    let columns = terminal::columns().map_or(0, |columns| columns.min(MAX_HELP_COLUMNS));
    let command = CommandLine::command();
    let overview = format!(
        "{{name}} {{version}}: {{about}}\n\nUsage: {{usage}}\n\nVerbs:\n{}{{after-help}}",
        grouped(&command, columns)
    );
    command.help_template(overview).term_width(columns).mut_subcommands(|verb| {
        let about = verb.get_before_help().map(ToString::to_string).filter(|_| columns > 0);
        let verb = match about {
            Some(about) => verb.before_help(unwrapped(&about)),
            None => verb,
        };
        // Of this verb, `--to` is the format.
        let is_convert = verb.get_name() == "convert";
        verb.help_template(HELP_OF_VERB)
            .term_width(columns)
            .disable_help_flag(true)
            .arg(
                Arg::new("help")
                    .short('h')
                    .long("help")
                    .action(ArgAction::Help)
                    .display_order(COMMON_ORDER)
                    .help("this text"),
            )
            // `--from -5m`
            .mut_args(|arg| {
                let of_filter =
                    FILTER_FLAGS.iter().position(|name| arg.get_id() == *name && !(is_convert && *name == "to"));
                let arg = match of_filter {
                    Some(nth) => arg.display_order(FILTER_ORDER + nth),
                    None => arg,
                };
                let takes_value = arg.get_long().is_some() && arg.get_action().takes_values();
                if takes_value {
                    arg.allow_hyphen_values(true)
                } else {
                    arg
                }
            })
    })
}

/// The verbs under the headings of their groups; `columns` is 0 without wrapping.
fn grouped(command: &Command, columns: usize) -> String {
    let mut text = String::new();
    for (heading, verbs) in GROUPS {
        text += &format!("{heading}:\n");
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let mut line = format!("  {:<1$}", verb.get_name(), ABOUT_COLUMN - 2);
            for word in about.split(' ') {
                if columns > 0 && line.chars().count() + word.chars().count() >= columns {
                    text += &format!("{}\n", line.trim_end());
                    line = " ".repeat(ABOUT_COLUMN);
                }
                line += word;
                line += " ";
            }
            text += &format!("{}\n", line.trim_end());
        }
    }
    text.trim_end().to_owned()
}

/// Paragraphs as lines, which clap wraps to the terminal.
fn unwrapped(text: &str) -> String {
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}

fn failure_of(error: &clap::Error, arguments: &[String]) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("expected a verb").hint(command().render_help().to_string());
    }
    // clap appends its suggestion, the usage and a pointer to the help.
    let text = error.to_string();
    let sentence = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").trim_end();
    let sentence = sentence.replace("subcommand", "verb");
    let failure = Failure::usage(sentence);
    let suggestion = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand].map(|kind| error.get(kind));
    match suggestion {
        [Some(ContextValue::String(flag)), _] => failure.hint(format!("did you mean `{flag}`?")),
        [_, Some(ContextValue::Strings(verbs))] if !verbs.is_empty() => {
            failure.hint(format!("did you mean `spanprof {}`?", verbs[verbs.len() - 1]))
        }
        _ => match arguments.first().filter(|verb| command().find_subcommand(verb).is_some()) {
            Some(verb) => failure.hint(format!("see `spanprof {verb} --help`")),
            None => failure.hint("see `spanprof --help`"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<ParsedCommand, Failure> {
        parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_verb_documents_its_flags_and_every_example_parses() {
        for mut verb in command().get_subcommands().filter(|verb| !verb.is_hide_set()).cloned() {
            let help = verb.render_help().to_string();
            assert!(help.contains(&format!("Usage: spanprof {}", verb.get_name())), "{help}");
            for arg in verb.get_arguments().filter(|arg| !arg.is_positional()) {
                let long = format!("--{}", arg.get_long().unwrap());
                assert!(arg.get_help().is_some() && help.contains(&long), "{long}: {help}");
            }
            let examples = help.split_once("Examples:\n").expect("examples").1;
            for example in examples.lines().map(str::trim) {
                let words = example.strip_prefix("spanprof ").expect(example);
                let of_python = [RUN_COMMANDS, example];
                let is_run = |failure: &Failure| failure.hint.as_deref().is_some_and(|hint| of_python.contains(&hint));
                assert!(
                    parsed(words)
                        .map_or_else(|failure| is_run(&failure), |command| matches!(command, ParsedCommand::Verb(_))),
                    "{example}"
                );
            }
        }
    }

    #[test]
    fn every_verb_is_in_one_group_and_flags_of_the_filter_follow_its_own() {
        let verbs = command();
        let mut visible: Vec<&str> =
            verbs.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        assert_eq!(named[0], "run");
        visible.sort_unstable();
        named.sort_unstable();
        assert_eq!(visible, named);
        let help = verbs.clone().find_subcommand_mut("top").unwrap().render_help().to_string();
        let at = |flag: &str| help.find(flag).unwrap_or_else(|| panic!("{flag}: {help}"));
        assert!(
            at("--sort") < at("--service") && at("--service") < at("--from") && at("--from") < at("--help"),
            "{help}"
        );
    }

    #[test]
    fn flags_take_their_value_after_a_space_or_an_equals_sign() {
        let words = "top f --service cart --label=a=b --label c=-5 -n 3 --from -5m --json -- -g";
        let Ok(ParsedCommand::Verb(verb)) = parsed(words) else { panic!("not parsed") };
        let CliVerb::Top(top) = *verb else { panic!("{verb:?}") };
        assert_eq!(top.read.filter.service.as_deref(), Some("cart"));
        assert_eq!(top.read.filter.label, ["a=b", "c=-5"]);
        assert_eq!((top.table.limit, top.read.filter.from.as_deref(), top.table.json), (3, Some("-5m"), true));
        assert_eq!(top.read.sources, ["f", "-g"]);
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let hint = |words: &str| {
            let failure = parsed(words).unwrap_err();
            assert_eq!(failure.exit_code, 2);
            failure.hint.unwrap()
        };
        assert_eq!(hint("top f --servce cart"), "did you mean `--service`?");
        assert_eq!(hint("top f --zzzzzz"), "see `spanprof top --help`");
        assert_eq!(hint("sevre"), "did you mean `spanprof serve`?");
        assert_eq!(hint("flame"), "did you mean `spanprof flamegraph`?");
        assert_eq!(hint("dance"), "see `spanprof --help`");
        for command in ["spanprof run app.py", "node --import spanprof/register app.mjs", "java -javaagent:spanprof-"] {
            assert!(hint("--color never run app.py").contains(command), "{command}");
        }
        assert!(parsed(&format!("top f --{}", "x".repeat(100_000))).is_err());
    }

    #[test]
    fn missing_repeated_and_surplus_values_are_errors() {
        for words in ["top f --service", "top f --service a --service b", "top f --json=yes", "top", "serve g"] {
            assert_eq!(parsed(words).unwrap_err().exit_code, 2, "{words}");
        }
    }
}
