//! `spanprof labels`: labels and resource attributes with their number of values, as text or as JSON.

use serde_json::Value;
use spanprof_answers::failure::Failure;
use spanprof_answers::labels::members;
use spanprof_answers::quantity::{format_quantity, format_share};
use spanprof_answers::selection::EndArguments;
use spanprof_answers::{printable, FittingTable, TerminalLayout};
use spanprof_read::query::{self, Detail, LabelTable};

use super::table::row_limit;
use super::{one_type, selected, ReadArguments, SOURCE_ABOUT};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof labels FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof labels ./profiles
  spanprof labels http://127.0.0.1:4318 --service checkout --type cpu --limit 0 --json"
)]
pub(crate) struct LabelsArguments {
    /// values to print for each label, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "5", value_parser = row_limit)]
    pub limit: usize,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(arguments: &LabelsArguments) -> Result<i32, Failure> {
    let (table, type_name) = table(arguments)?;
    let text = if arguments.json {
        Value::Object(members(&table, &type_name, arguments.limit)).to_string() + "\n"
    } else {
        table_text(&table, &type_name, arguments.limit)
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(arguments: &LabelsArguments) -> Result<Value, Failure> {
    table(arguments).map(|(table, type_name)| Value::Object(members(&table, &type_name, arguments.limit)))
}

fn table(arguments: &LabelsArguments) -> Result<(LabelTable, String), Failure> {
    let (data, filter) = selected(&arguments.read, arguments.end.to.as_deref(), Detail::Everything)?;
    let type_name = one_type(&data, &filter);
    Ok((query::labels(&data, &type_name), type_name))
}

fn table_text(table: &LabelTable, type_name: &str, limit: usize) -> String {
    let quantity = |weight| format_quantity(weight, &table.unit);
    let text =
        format!("{type_name}: {} in {} samples, {} series\n", quantity(table.total), table.samples, table.series);
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    lines.heading(format!("{:>8} {:>8}  ", "values", "samples"), "label");
    for key in &table.keys {
        let kind = if key.is_resource { "  (resource)" } else { "" };
        let share = format_share(key.samples as i64, table.samples as i64);
        lines.row(format!("{:>8} {share:>8}  ", key.values.len()), "", printable(&key.key) + kind);
        for (value, weight) in key.values.iter().take(limit) {
            let share = format_share(*weight, table.total);
            lines.row(format!("{:>21} {share:>6}  ", quantity(*weight)), "", printable(value));
        }
        if key.values.len() > limit {
            lines.row(format!("{:>28}  ", ""), "", format!("… and {} more", key.values.len() - limit));
        }
    }
    text + &lines.text()
}
