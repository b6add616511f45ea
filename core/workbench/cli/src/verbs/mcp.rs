//! `spanprof mcp`: profiles for coding agents, by the Model Context Protocol.

use std::path::PathBuf;

use clap::Command;

use crate::mcp::{self, RunVerb, Toolbox};
use spanprof_answers::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof mcp FILE|DIR|URL… [FLAGS]",
    before_help = "\
A server of the Model Context Protocol on standard input and output. Its tools are the reading verbs on these sources. It
writes nothing, and reads source files only below --source-path.",
    after_help = "\
Examples:
  spanprof mcp http://127.0.0.1:4318
  spanprof mcp ./profiles --source-path ./src"
)]
pub(crate) struct McpArguments {
    #[arg(value_name = "FILE|DIR|URL", required = true, hide = true)]
    pub sources: Vec<String>,
    /// directory of the sources for the tool `list`; repeat for more
    #[arg(long, value_name = "DIR")]
    pub source_path: Vec<PathBuf>,
}

pub(crate) fn run(arguments: McpArguments, command: &Command, verb: RunVerb) -> Result<i32, Failure> {
    if arguments.sources.iter().any(|source| source == "-") {
        return Err(Failure::usage("standard input carries the protocol").hint("name files, directories or URLs"));
    }
    // A mistyped name ends the server at once, not at each call.
    super::sources(&arguments.sources)?;
    let tools = Toolbox::new(command, verb, arguments.sources, arguments.source_path);
    mcp::serve(std::io::stdin().lock(), std::io::stdout().lock(), &tools)
        .map(|()| 0)
        .map_err(|error| Failure::new(format!("the connection to the client failed: {error}")))
}
