//! The answer of `top`, as text and as JSON.

use serde_json::{Map, Value};
use spanprof_read::query::{FunctionLine, TopRow, TopTable, Weight};

use super::function::{function_members, function_text};
use crate::quantity::{format_quantity, format_share};

/// The members of a top table's JSON object; the same for `--json` and `/api/top`.
pub(crate) fn members(table: &TopTable, limit: usize) -> Map<String, Value> {
    let rows = table.rows.iter().take(limit).map(|row| Value::Object(row_members(&row.at, row.weight)));
    table_members(table, table.rows.len(), rows.collect())
}

/// The members of one row.
pub(crate) fn row_members(at: &FunctionLine, weight: Weight) -> Map<String, Value> {
    let mut members = function_members(at);
    members.extend([("flat".to_owned(), weight.flat.into()), ("cum".to_owned(), weight.cum.into())]);
    members
}

/// The members of a table with `functions` rows of which `rows` are shown.
pub(crate) fn table_members(table: &TopTable, functions: usize, rows: Value) -> Map<String, Value> {
    Map::from_iter([
        ("type".to_owned(), table.type_name.as_str().into()),
        ("unit".to_owned(), table.unit.as_str().into()),
        ("total".to_owned(), table.total.into()),
        ("stacks".to_owned(), table.samples.into()),
        ("functions".to_owned(), functions.into()),
        ("rows".to_owned(), rows),
    ])
}

/// A top table as text.
pub(crate) fn table_text(table: &TopTable, limit: usize) -> String {
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
