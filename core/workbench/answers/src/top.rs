//! The answer of `top`, as text and as JSON.

use serde_json::{Map, Value};
use spanprof_read::query::{TopRow, TopTable, Weight};

use crate::function::{function_members, printable};
use crate::layout::{FittingTable, TerminalLayout};
use crate::quantity::{format_quantity, format_share};

/// The members of a top table's JSON object; the same for `--json` and `/api/top`.
pub fn members(table: &TopTable, limit: usize) -> Map<String, Value> {
    let rows = table.rows.iter().take(limit).map(|row| Value::Object(row_members(row)));
    table_members(table, table.rows.len(), rows.collect())
}

/// The members of one row.
pub fn row_members(row: &TopRow) -> Map<String, Value> {
    let mut members = function_members(&row.location);
    let TopRow { weight: Weight { flat, cum }, own, with_native, .. } = *row;
    let weights = [("flat", flat), ("own", own), ("cum", cum)].into_iter();
    let with_native = (with_native != flat).then_some(("with_native", with_native));
    members.extend(weights.chain(with_native).map(|(name, weight)| (name.to_owned(), weight.into())));
    members
}

/// The members of a table with `functions` rows of which `rows` are shown.
pub fn table_members(table: &TopTable, functions: usize, rows: Value) -> Map<String, Value> {
    Map::from_iter([
        ("type".to_owned(), table.type_name.as_str().into()),
        ("unit".to_owned(), table.unit.as_str().into()),
        ("total".to_owned(), table.total.into()),
        ("own".to_owned(), table.own.into()),
        ("stacks".to_owned(), table.samples.into()),
        ("functions".to_owned(), functions.into()),
        ("rows".to_owned(), rows),
    ])
}

/// A top table as text, of functions or of types of objects.
pub fn table_text(table: &TopTable, are_types: bool, limit: usize, layout: TerminalLayout) -> String {
    let quantity = |value: i64| format_quantity(value, &table.unit);
    let name = if are_types { "type" } else { "function" };
    let without_own = match table.total - table.own {
        0 => String::new(),
        _ if are_types => String::new(),
        weight => format!(", {} without own code", format_share(weight, table.total)),
    };
    let mut text = format!(
        "{}: {} in {} stacks, {} {name}s{without_own}\n",
        table.type_name,
        quantity(table.total),
        table.samples,
        table.rows.len()
    );
    let columns = |cells: [&str; 6]| {
        let [flat, flat_share, own, own_share, cum, cum_share] = cells;
        if are_types {
            return format!("{flat:>8} {flat_share:>6}  ");
        }
        format!("{flat:>8} {flat_share:>6} {own:>8} {own_share:>6} {cum:>8} {cum_share:>6}  ")
    };
    let mut lines = FittingTable::new(layout);
    lines.heading(columns(["flat", "flat%", "own", "own%", "cum", "cum%"]), name);
    for TopRow { location, weight: Weight { flat, cum }, own, with_native } in table.rows.iter().take(limit) {
        let native = match with_native - flat {
            0 => String::new(),
            native => format!("  + {} in native code", format_share(native, table.total)),
        };
        let [flat, own, cum] = [flat, own, cum].map(|weight| (quantity(*weight), format_share(*weight, table.total)));
        let numbers = columns([&flat.0, &flat.1, &own.0, &own.1, &cum.0, &cum.1]);
        if are_types {
            lines.row(numbers, "", printable(&location.function));
        } else {
            lines.function(numbers, 0, location, &native);
        }
    }
    text += &lines.text();
    if table.rows.len() > limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", table.rows.len() - limit);
    }
    text
}
