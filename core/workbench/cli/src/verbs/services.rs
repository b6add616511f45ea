//! `spanprof services`: services and their profile types, with times and totals, as text or as JSON.

use serde_json::{json, Value};
use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::format_quantity;
use spanprof_answers::selection::moment;
use spanprof_answers::selection::EndArguments;
use spanprof_answers::{printable, FittingTable, TerminalLayout};
use spanprof_read::query::{self, Detail, TypeSummary};

use super::{selected, ReadArguments, SOURCE_ABOUT};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof services FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof services http://127.0.0.1:4318
  spanprof services ./profiles --from -1h --json"
)]
pub(crate) struct ServicesArguments {
    /// as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(arguments: &ServicesArguments) -> Result<i32, Failure> {
    let types = types(arguments)?;
    let text = if arguments.json { members(&types).to_string() + "\n" } else { table_text(&types) };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(arguments: &ServicesArguments) -> Result<Value, Failure> {
    types(arguments).map(|types| members(&types))
}

/// The types with their numbers of stacks.
fn types(arguments: &ServicesArguments) -> Result<Vec<(TypeSummary, usize)>, Failure> {
    let (data, _) = selected(&arguments.read, arguments.end.to.as_deref(), Detail::Stacks)?;
    let with_stacks = |summary: TypeSummary| {
        let profiles = data.profiles().filter(|(resource, profile)| {
            resource.service_name() == summary.service && profile.type_name() == summary.type_name
        });
        let stacks = profiles.map(|(_, profile)| profile.samples.len()).sum();
        (summary, stacks)
    };
    Ok(query::types(&data).into_iter().map(with_stacks).collect())
}

fn table_text(types: &[(TypeSummary, usize)]) -> String {
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    lines.heading(format!("{:>10} {:>8}  {:24}  {:24}  ", "total", "stacks", "from", "to"), "service, type");
    for (summary, stacks) in types {
        let total = format_quantity(summary.total, &summary.unit);
        let [from, to] = [summary.from_unix_nano, summary.to_unix_nano].map(moment::format_rfc3339);
        let (service, type_name) = (printable(&summary.service), printable(&summary.type_name));
        let numbers = format!("{total:>10} {stacks:>8}  {from:24}  {to:24}  ");
        lines.row(numbers, "", format!("{service}, {type_name}"));
    }
    lines.text()
}

fn members(types: &[(TypeSummary, usize)]) -> Value {
    let rows = types.iter().map(|(summary, stacks)| {
        json!({
            "service": summary.service,
            "type": summary.type_name,
            "unit": summary.unit,
            "total": summary.total,
            "stacks": stacks,
            "from": moment::format_rfc3339(summary.from_unix_nano),
            "to": moment::format_rfc3339(summary.to_unix_nano),
        })
    });
    json!({"rows": rows.collect::<Value>()})
}
