//! `spanprof completions`: generated from the definition of the command line.

use clap::Command;
use clap_complete::Shell;

use crate::output;
use spanprof_answers::failure::Failure;

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

pub(crate) fn run(arguments: &CompletionsArguments, mut command: Command) -> Result<i32, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "spanprof", &mut text);
    output::print(&text)?;
    Ok(0)
}
