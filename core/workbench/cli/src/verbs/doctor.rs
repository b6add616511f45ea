//! `spanprof doctor`: prints what this machine allows the profiler to do, and what to change.

use anstyle::{AnsiColor, Style};
use serde_json::{json, Value};

use crate::doctor::{self, CheckState, DoctorCheck};
use crate::output;
use spanprof_answers::failure::{Failure, EXIT_FAILED};
use spanprof_answers::{printable, terminal};

/// Columns of the state and of the name.
const STATE_COLUMNS: usize = 8;
const NAME_COLUMNS: usize = 22;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof doctor [FLAGS]",
    before_help = "\
Tries what the profiler needs, and prints a line for each check: its state and the found value; below it, unless the state is ok,
the effect on a profile and what to do. The receivers are those of the environment (SPANPROF_*, OTEL_*, configuration file); each
gets an export without profiles. Run it as the user of the program, in its container. The exit code is 1 if a check found a problem:
no profile, or no delivery. `limited` is a profile with less detail.",
    after_help = "\
Examples:
  spanprof doctor
  spanprof doctor --endpoint http://collector:4318 --json"
)]
pub(crate) struct DoctorArguments {
    /// check this receiver instead of the configured ones, with the other settings of the environment
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// as a JSON array
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(arguments: &DoctorArguments) -> Result<i32, Failure> {
    let checks = doctor::checks(arguments.endpoint.as_deref())?;
    let text = if arguments.json { members(&checks).to_string() + "\n" } else { text(&checks, terminal::is_colored()) };
    output::print(text.as_bytes())?;
    let has_problem = checks.iter().any(|check| check.state == CheckState::Problem);
    Ok(if has_problem { EXIT_FAILED } else { 0 })
}

fn members(checks: &[DoctorCheck]) -> Value {
    let member = |DoctorCheck { check, state, found, meaning, action }: &DoctorCheck| json!({"check": check, "state": state.name(), "found": found, "meaning": meaning, "action": action});
    checks.iter().map(member).collect()
}

fn text(checks: &[DoctorCheck], is_colored: bool) -> String {
    let mut text = String::new();
    for DoctorCheck { check, state, found, meaning, action } in checks {
        let word = state.name();
        let blanks = " ".repeat(STATE_COLUMNS.saturating_sub(word.len()));
        let style = style_of(*state);
        text += &if is_colored { format!("{style}{word}{style:#}{blanks}") } else { format!("{word}{blanks}") };
        text += &format!("{check:NAME_COLUMNS$}{}\n", printable(found));
        if *state != CheckState::Ok {
            let indent = " ".repeat(STATE_COLUMNS);
            text += &format!("{indent}  means: {}\n", printable(meaning));
            text += &format!("{indent}  do: {}\n", printable(action));
        }
    }
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    text += &format!(
        "{} ok, {} limited, {} with a problem\n",
        count(CheckState::Ok),
        count(CheckState::Limited),
        count(CheckState::Problem)
    );
    text
}

fn style_of(state: CheckState) -> Style {
    match state {
        CheckState::Ok => AnsiColor::Green.on_default(),
        CheckState::Limited => AnsiColor::Yellow.on_default(),
        CheckState::Problem => AnsiColor::Red.on_default().bold(),
    }
}
