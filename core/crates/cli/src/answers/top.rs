//! The answer of `top`, as text and as JSON.

use serde_json::{Map, Value};
use spanprof_read::query::{TopRow, TopTable, Weight};

use super::function::{function_members, function_text};
use crate::quantity::{format_quantity, format_share};

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
