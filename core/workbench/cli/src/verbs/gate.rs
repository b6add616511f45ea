//! `spanprof gate`: runs a baseline and a candidate in turns, until their comparison decides or a limit ends it.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args as _, FromArgMatches as _};

use super::diff::{self, DiffArguments};
use crate::output;
use spanprof_answers::failure::{Failure, EXIT_USAGE};
use spanprof_answers::quantity::percent;

/// Runs of each side before the first comparison. It is repeated each time that their number has doubled: few comparisons leave few
/// chances of a wrong one.
const FIRST_RUNS: usize = 5;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof gate --baseline SHELL --candidate SHELL [FLAGS] -- COMMAND",
    before_help = "\
Runs COMMAND, which profiles itself, for the baseline and for the candidate in turns. Before each run, a shell command installs its side at
the same path: functions are compared by name and file. Profiles are written by the key file_directory, which the
environment of COMMAND sets.

The exit code is 0 without a regression, 1 with one, and 2 if a run failed or nothing can be concluded. Both sides are compared after 5 runs,
10, 20, …, as `spanprof diff --fail-over` does, until a function is shown to have grown, or none can have.",
    after_help = "\
Examples:
  spanprof gate --baseline ./install-main.sh --candidate ./install-topic.sh -- spanprof run --sample-rate=1000 work.py
  spanprof gate --baseline ./old.sh --candidate ./new.sh --per run --fail-over 2% -- java -javaagent:spanprof.jar -jar app.jar"
)]
pub(crate) struct GateArguments {
    /// shell command that installs the baseline
    #[arg(long, value_name = "SHELL")]
    pub baseline: String,
    /// shell command that installs the candidate
    #[arg(long, value_name = "SHELL")]
    pub candidate: String,
    /// fail if a function's own share grew by more than this, with 95 % confidence; with --per its cost, or the total
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub fail_over: String,
    /// compare costs per run, or per value of a label, instead of shares
    #[arg(long, value_name = "run|LABEL")]
    pub per: Option<String>,
    /// profile type
    #[arg(long = "type", value_name = "TYPE", default_value = "cpu")]
    pub type_name: String,
    /// largest number of runs of each side
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(5..))]
    pub runs: u16,
    /// keep the profiles in this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// as Markdown, for a comment on a pull request
    #[arg(long)]
    pub markdown: bool,
    #[arg(value_name = "COMMAND", required = true, last = true, hide = true)]
    pub command: Vec<String>,
}

pub(crate) fn run(arguments: &GateArguments) -> Result<i32, Failure> {
    // 1 means a regression, and nothing else.
    let outcome = decided(arguments).map_err(|failure| Failure { exit_code: EXIT_USAGE, ..failure })?;
    outcome.printed.print()?;
    Ok(outcome.code)
}

fn decided(arguments: &GateArguments) -> Result<diff::Outcome, Failure> {
    percent(&arguments.fail_over).map_err(|reason| Failure::usage(format!("--fail-over: {reason}")))?;
    let temporary = std::env::temp_dir().join(format!("spanprof-gate-{}", std::process::id()));
    let directory = arguments.dir.as_ref().unwrap_or(&temporary);
    let outcome = compared_runs(arguments, directory);
    if arguments.dir.is_none() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    outcome
}

fn compared_runs(arguments: &GateArguments, directory: &Path) -> Result<diff::Outcome, Failure> {
    let sides = [("baseline", &arguments.baseline), ("candidate", &arguments.candidate)];
    let limit = usize::from(arguments.runs);
    let mut next = FIRST_RUNS;
    for nth in 1..=limit {
        // The other side first in every second pair, so that a machine that becomes slower favors none.
        for at in if nth % 2 == 0 { [1, 0] } else { [0, 1] } {
            let (name, install) = sides[at];
            output::note(&format!("{name}, run {nth} of at most {limit}"));
            finished(Command::new("sh").args(["-c", install]), name)?;
            run_once(&arguments.command, &directory.join(name).join(nth.to_string()), name)?;
        }
        if nth < next.min(limit) {
            continue;
        }
        next *= 2;
        match compare(arguments, directory) {
            Ok(outcome) if nth == limit || !outcome.is_undecided => return Ok(outcome),
            Err(failure) if nth == limit => return Err(failure),
            // Too few samples so far.
            Ok(_) | Err(_) => (),
        }
    }
    Err(Failure::usage("--runs: expected 5 or more"))
}

fn run_once(command: &[String], directory: &Path, side: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot use {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::usage("no command was given"))?;
    let mut run = Command::new(program);
    run.args(arguments).env("SPANPROF_FILE_DIRECTORY", directory);
    finished(&mut run, side)?;
    match std::fs::read_dir(directory).map_err(failed)?.next() {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!("the run of the {side} wrote no profile")).hint(
            "the command must profile itself, such as `spanprof run app.py`, and not set `file_directory` in code",
        )),
    }
}

/// Runs a command to its end. Its output goes to standard error: that of this program is the result.
fn finished(command: &mut Command, side: &str) -> Result<(), Failure> {
    let words = || {
        let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
        arguments.fold(command.get_program().to_string_lossy().into_owned(), |words, argument| words + " " + &argument)
    };
    let (words, stdout) = (words(), std::io::stderr());
    let status =
        command.stdout(stdout).status().map_err(|error| Failure::new(format!("cannot run `{words}`: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{words}` of the {side} ended with {status}")))
    }
}

/// The comparison of the runs so far.
fn compare(arguments: &GateArguments, directory: &Path) -> Result<diff::Outcome, Failure> {
    let of_side = |name: &str| -> Result<Vec<String>, Failure> {
        let failed = |error| Failure::new(format!("cannot list {}: {error}", directory.display()));
        let runs = std::fs::read_dir(directory.join(name)).map_err(failed)?;
        let runs: Result<Vec<_>, _> =
            runs.map(|run| run.map(|run| run.path().to_string_lossy().into_owned())).collect();
        runs.map_err(failed)
    };
    let mut command_line =
        vec!["diff", "baseline", "comparison", "--type", &arguments.type_name, "--fail-over", &arguments.fail_over];
    if let Some(per) = &arguments.per {
        command_line.extend(["--per", per]);
    }
    if arguments.markdown {
        command_line.push("--markdown");
    }
    let matches = DiffArguments::augment_args(clap::Command::new("diff")).try_get_matches_from(command_line);
    let compared = matches.and_then(|matches| DiffArguments::from_arg_matches(&matches));
    let compared = compared.map_err(|error| Failure::usage(error.to_string()))?;
    diff::compare(&compared, Some([of_side("baseline")?, of_side("candidate")?]))
}
