//! `spanprof tree`: the call tree, as text or as JSON.

use serde_json::{json, Map, Value};
use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::{format_quantity, format_share, percent};
use spanprof_answers::selection::EndArguments;
use spanprof_answers::{function_members, FittingTable, TerminalLayout};
use spanprof_profile::transform::{self, StackTree};
use spanprof_read::query::{self, CallRow, Detail, FunctionLine};

use super::{one_type, selected, BuiltinArguments, ReadArguments, SOURCE_ABOUT};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof tree FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof tree cpu.pb.gz
  spanprof tree ./profiles --type wall --label endpoint=/cart --depth 12
  spanprof tree http://127.0.0.1:4318 --service checkout --focus price --json"
)]
pub(crate) struct TreeArguments {
    /// leave out calls below this share of the total
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    pub min_share: f64,
    /// maximum depth, 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub depth: u32,
    /// libraries and parts of the runtime as one frame each
    #[arg(long)]
    pub fold: bool,
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

pub(crate) fn run(arguments: &TreeArguments) -> Result<i32, Failure> {
    let (tree, rows) = calls(arguments)?;
    let text = if arguments.json { members(&tree, &rows).to_string() + "\n" } else { tree_text(&tree, &rows) };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(arguments: &TreeArguments) -> Result<Value, Failure> {
    calls(arguments).map(|(tree, rows)| members(&tree, &rows))
}

fn calls(arguments: &TreeArguments) -> Result<(StackTree, Vec<CallRow>), Failure> {
    let (mut data, filter) = selected(&arguments.read, arguments.end.to.as_deref(), Detail::Stacks)?;
    arguments.builtins.apply(&mut data);
    let mut tree = transform::tree(&data, &one_type(&data, &filter));
    if arguments.fold {
        tree = tree.folded(|_| false);
    }
    let depth = if arguments.depth == 0 { u32::MAX } else { arguments.depth };
    let total = tree.nodes.first().map_or(0, |root| root.total_weight);
    let rows = query::call_tree(&tree, min_weight(total, arguments.min_share), depth);
    Ok((tree, rows))
}

/// The weight of a share of the total, at least 1: calls without weight are never shown.
fn min_weight(total: i64, share: f64) -> i64 {
    ((total as f64 * share).ceil() as i64).max(1)
}

fn tree_text(tree: &StackTree, rows: &[CallRow]) -> String {
    let total = tree.nodes.first().map_or(0, |root| root.total_weight);
    let text = format!("{}: {}\n", tree.type_name, format_quantity(total, &tree.unit));
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    lines.heading(format!("{:>10} {:>6} {:>10}  ", "cum", "cum%", "flat"), "function");
    for row in rows {
        let (cum, share) = (format_quantity(row.cum, &tree.unit), format_share(row.cum, total));
        let flat = format_quantity(row.flat, &tree.unit);
        let omitted = match row.omitted {
            0 => String::new(),
            1 => "  (1 callee omitted)".to_owned(),
            count => format!("  ({count} callees omitted)"),
        };
        let numbers = format!("{cum:>10} {share:>6} {flat:>10}  ");
        lines.function(numbers, row.depth as usize - 1, &function(tree, row), &omitted);
    }
    text + &lines.text()
}

fn members(tree: &StackTree, rows: &[CallRow]) -> Value {
    let rows = rows.iter().map(|row| {
        let mut members = Map::from_iter([("depth".to_owned(), row.depth.into())]);
        members.extend(function_members(&function(tree, row)));
        members.extend([("flat".to_owned(), row.flat.into()), ("cum".to_owned(), row.cum.into())]);
        members.extend([("omitted".to_owned(), row.omitted.into())]);
        Value::Object(members)
    });
    json!({
        "type": tree.type_name,
        "unit": tree.unit,
        "total": tree.nodes.first().map_or(0, |root| root.total_weight),
        "rows": rows.collect::<Value>(),
    })
}

fn function(tree: &StackTree, row: &CallRow) -> FunctionLine {
    tree.functions[row.function as usize].clone().into()
}
