//! `spanprof top`: the functions that cost most, as text or as JSON.

use std::cmp::Reverse;

use serde_json::{Map, Value};
use spanprof_read::query::{self, TopRow, TopTable, Weight};

use super::table::{function_members, function_text, SortColumn, TableArguments};
use super::{one_type, selected, BuiltinArguments, ReadArguments, SOURCE_ABOUT};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::output;
use crate::quantity::{format_quantity, format_share};
use crate::selection::EndArguments;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof top FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof top cpu.pb.gz
  spanprof top worker-1.pb.gz worker-2.pb.gz
  spanprof top ./profiles --service checkout --from -15m --label endpoint=/cart
  spanprof top ./profiles --type inuse_space --label age=old
  spanprof top http://127.0.0.1:4318 --trace-id 0af7651916cd43dd8448eb211c80319c --json"
)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    pub table: TableArguments,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub builtins: BuiltinArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(given: &TopArguments) -> Result<i32, Failure> {
    let table = table(given)?;
    let limit = given.table.limit;
    let text = match given.table.json {
        true => Value::Object(members(&table, limit)).to_string() + "\n",
        false => table_text(&table, limit),
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(given: &TopArguments) -> Result<Value, Failure> {
    Ok(Value::Object(members(&table(given)?, given.table.limit)))
}

fn table(given: &TopArguments) -> Result<TopTable, Failure> {
    let (mut data, filter) = selected(&given.read, given.end.to.as_deref(), Detail::Stacks)?;
    given.builtins.apply(&mut data);
    let mut table = query::top(&data, &one_type(&data, &filter), given.table.by.into());
    if given.table.sort == SortColumn::Cum {
        let by_cum = |row: &TopRow| Reverse((row.weight.cum, row.weight.flat));
        table.rows.sort_by(|left, right| by_cum(left).cmp(&by_cum(right)).then_with(|| left.at.cmp(&right.at)));
    }
    Ok(table)
}

/// The members of a top table's JSON object; the same for `--json` and `/api/top`.
pub(crate) fn members(table: &TopTable, limit: usize) -> Map<String, Value> {
    let rows = table.rows.iter().take(limit).map(|row| {
        let mut members = function_members(&row.at);
        members.extend([("flat".to_owned(), row.weight.flat.into()), ("cum".to_owned(), row.weight.cum.into())]);
        Value::Object(members)
    });
    Map::from_iter([
        ("type".to_owned(), table.type_name.as_str().into()),
        ("unit".to_owned(), table.unit.as_str().into()),
        ("total".to_owned(), table.total.into()),
        ("stacks".to_owned(), table.samples.into()),
        ("functions".to_owned(), table.rows.len().into()),
        ("rows".to_owned(), rows.collect()),
    ])
}

/// A top table as text.
pub(super) fn table_text(table: &TopTable, limit: usize) -> String {
    let quantity = |value: i64| format_quantity(value, &table.unit);
    let mut text = format!(
        "{}: {} in {} stacks, {} functions\n",
        table.type_name,
        quantity(table.total),
        table.samples,
        table.rows.len()
    );
    text += &format!("{:>10} {:>6} {:>10} {:>6}  {}\n", "flat", "flat%", "cum", "cum%", "function");
    for TopRow { at, weight: Weight { flat, cum } } in table.rows.iter().take(limit) {
        let (flat_share, cum_share) = (format_share(*flat, table.total), format_share(*cum, table.total));
        let (flat, cum) = (quantity(*flat), quantity(*cum));
        text += &format!("{flat:>10} {flat_share:>6} {cum:>10} {cum_share:>6}  {}\n", function_text(at));
    }
    if table.rows.len() > limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", table.rows.len() - limit);
    }
    text
}
