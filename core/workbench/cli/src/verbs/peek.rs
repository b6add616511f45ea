//! `spanprof peek`: the callers and callees of functions, as text or as JSON.

use regex_lite::Regex;
use serde_json::{json, Value};
use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::{format_quantity, format_share};
use spanprof_answers::selection::EndArguments;
use spanprof_answers::{neighbors, FittingTable, TerminalLayout};
use spanprof_profile::transform::{self, StackTree};
use spanprof_read::query::{self, Detail, FunctionLine, Neighbors};

use super::table::row_limit;
use super::{matches, no_function, one_type, pattern, selected, BuiltinArguments, ReadArguments, SOURCE_ABOUT};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof peek REGEX FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof peek price cpu.pb.gz
  spanprof peek '^shop[.]' http://127.0.0.1:4318 --service checkout --from -15m --json"
)]
pub(crate) struct PeekArguments {
    #[arg(value_name = "REGEX", value_parser = pattern, hide = true)]
    pub pattern: Regex,
    /// functions to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "10", value_parser = row_limit)]
    pub limit: usize,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub builtins: BuiltinArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(arguments: &PeekArguments) -> Result<i32, Failure> {
    let (tree, found) = found(arguments)?;
    let shown = arguments.limit.min(found.len());
    let text = if arguments.json {
        members(&tree, &found, shown).to_string() + "\n"
    } else {
        let left_out = found.len() - shown;
        let more =
            if left_out > 0 { format!("… and {left_out} more (--limit 0 prints all)\n") } else { String::new() };
        found[..shown].iter().map(|found| paragraph(&tree, found)).collect::<Vec<_>>().join("\n") + &more
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(arguments: &PeekArguments) -> Result<Value, Failure> {
    found(arguments).map(|(tree, found)| members(&tree, &found, arguments.limit.min(found.len())))
}

fn found(arguments: &PeekArguments) -> Result<(StackTree, Vec<Neighbors>), Failure> {
    let (mut data, filter) = selected(&arguments.read, arguments.end.to.as_deref(), Detail::Stacks)?;
    arguments.builtins.apply(&mut data);
    let tree = transform::tree(&data, &one_type(&data, &filter));
    let found = query::neighbors(&tree, |at| matches(&arguments.pattern, at));
    if found.is_empty() {
        return Err(no_function(&arguments.pattern, &tree.type_name));
    }
    Ok((tree, found))
}

fn paragraph(tree: &StackTree, found: &Neighbors) -> String {
    let total = tree.nodes.first().map_or(0, |root| root.total_weight);
    let of_total = |value| format!("{} {}", format_quantity(value, &tree.unit), format_share(value, total));
    let (flat, cum) = (found.weight.flat, found.weight.cum);
    let of_type = format!("  flat {}, cum {} of {}", of_total(flat), of_total(cum), format_quantity(total, &tree.unit));
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    lines.function("", 0, &found.location, "");
    lines.heading("", of_type);
    let mut list = |title: &str, rows: &[(FunctionLine, i64)]| {
        lines.heading("", format!("  {title}"));
        for (at, weight) in rows {
            let (quantity, share) = (format_quantity(*weight, &tree.unit), format_share(*weight, cum));
            lines.function(format!("  {quantity:>12} {share:>6}  "), 0, at, "");
        }
    };
    list("callers", &found.callers);
    if !found.callees.is_empty() {
        list("callees", &found.callees);
    }
    lines.text()
}

fn members(tree: &StackTree, found: &[Neighbors], shown: usize) -> Value {
    let functions = found.iter().take(shown).map(|found| Value::Object(neighbors::members(found, usize::MAX)));
    json!({
        "type": tree.type_name,
        "unit": tree.unit,
        "total": tree.nodes.first().map_or(0, |root| root.total_weight),
        "matched": found.len(),
        "functions": functions.collect::<Value>(),
    })
}
