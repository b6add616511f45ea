//! `spanprof completions` and `spanprof man`: generated from the definition of the command line.

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof completions SHELL",
    before_help = "SHELL is bash, elvish, fish, powershell or zsh.",
    after_help = "\
Examples:
  spanprof completions bash"
)]
pub(crate) struct CompletionsArguments {
    #[arg(value_name = "SHELL", hide = true)]
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof man [VERB]",
    before_help = "Prints roff: `spanprof man > spanprof.1`, or `spanprof man top | man -l -`.",
    after_help = "\
Examples:
  spanprof man
  spanprof man top"
)]
pub(crate) struct ManArguments {
    #[arg(value_name = "VERB", hide = true)]
    pub verb: Option<String>,
}

pub(crate) fn run(given: &CompletionsArguments, mut command: Command) -> Result<i32, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(given.shell, &mut command, "spanprof", &mut text);
    output::print(&text)?;
    Ok(0)
}

pub(crate) fn run_man(given: &ManArguments, mut command: Command) -> Result<i32, Failure> {
    command.build();
    let page = match &given.verb {
        None => command,
        Some(name) => command
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Failure::usage(format!("unknown verb `{name}`")).hint("see `spanprof --help`"))?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(|error| Failure::new(error.to_string()))?;
    output::print(&text)?;
    Ok(0)
}
