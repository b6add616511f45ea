//! `spanprof explain`: a diagnosis of profiles by rules, as text, as JSON or as Markdown.

use serde_json::Value;
use spanprof_answers::explain as explain_report;
use spanprof_answers::failure::Failure;
use spanprof_answers::selection::moment::unix_ns;
use spanprof_answers::selection::EndArguments;
use spanprof_read::diagnosis::Diagnosis;
use spanprof_read::query::StackFilter;

use super::{nothing_passes, sources, ReadArguments};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof explain FILE|DIR|URL… [FLAGS]",
    before_help = "\
Reads every source of `spanprof top`. Rules find hot code of the program, garbage collection, contended locks, blocked event loops,
requests that wait, a slow request that waits, objects that accumulate, and functions that a new service.version made slower. A rule
reports only what the number of samples supports. Limitations of the profile, such as too few samples, come first, then problems of the program by their
cost, then observations: the own code that uses most CPU time is named in healthy programs too.",
    after_help = "\
Examples:
  spanprof explain ./profiles
  spanprof explain http://127.0.0.1:4318 --service checkout --from -1h
  spanprof explain cpu.pb.gz heap.pb.gz --json
  spanprof explain ./profiles --markdown"
)]
pub(crate) struct ExplainArguments {
    /// as JSON
    #[arg(long)]
    pub json: bool,
    /// as Markdown, for a comment on a pull request
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(arguments: &ExplainArguments) -> Result<i32, Failure> {
    let diagnosis = diagnosis(arguments)?;
    let findings = diagnosis.findings();
    let text = match (arguments.json, arguments.markdown) {
        (true, _) => explain_report::json(&diagnosis, &findings, &arguments.read.sources).to_string() + "\n",
        (_, true) => explain_report::markdown(&diagnosis, &findings, &arguments.read.sources),
        _ => explain_report::text(&diagnosis, &findings, &arguments.read.sources),
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(arguments: &ExplainArguments) -> Result<Value, Failure> {
    let diagnosis = diagnosis(arguments)?;
    let findings = diagnosis.findings();
    Ok(explain_report::json(&diagnosis, &findings, &arguments.read.sources))
}

fn diagnosis(arguments: &ExplainArguments) -> Result<Diagnosis, Failure> {
    let filter = arguments.read.filter.filter(arguments.end.to.as_deref(), unix_ns())?;
    let sources = sources(&arguments.read.sources)?;
    let stacks = StackFilter { focus: arguments.read.focus.clone(), ignore: arguments.read.ignore.clone() };
    let mut diagnosis = Diagnosis::default();
    for source in &sources {
        source.for_each_window(&filter, &mut |mut window| {
            stacks.apply(&mut window);
            diagnosis.add(&window);
        })?;
    }
    match diagnosis.sample_count() {
        0 => Err(nothing_passes(&arguments.read.sources.join(", "), &sources, &filter)),
        _ => Ok(diagnosis),
    }
}
