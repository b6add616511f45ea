//! Where the time of a span went, beside the others of its endpoint: of `spanprof spans --against-endpoint` and of the page.

use serde_json::{json, Value};
use spanprof_read::query::{ComparedTotal, SpanTime};

use crate::layout::{FittingTable, TerminalLayout};
use crate::quantity::format_quantity;
use crate::spans::duration_of;

/// Lines with the profile types, each with its parts below it.
pub fn text(time: &SpanTime) -> String {
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    lines.heading(format!("{:>10} {:>10} {:>7} {:>8}  ", "this", "mean", "ratio", "samples"), "where its time went");
    for row in &time.rows {
        let numbers = |total: &ComparedTotal| {
            let is_alone = time.others == 0;
            let mean = if is_alone { "-".to_owned() } else { format_quantity(total.mean.round() as i64, &row.unit) };
            let ratio = if is_alone || total.mean == 0.0 {
                "-".to_owned()
            } else {
                format!("{:.1} ×", total.weight as f64 / total.mean)
            };
            let weight = format_quantity(total.weight, &row.unit);
            format!("{weight:>10} {mean:>10} {ratio:>7} {:>8}  ", total.samples.round())
        };
        lines.row(numbers(&row.total), "", row.title().to_owned());
        for (category, part) in &row.parts {
            lines.row(numbers(part), "  ", category.title().to_owned());
        }
    }
    let took = duration_of(&time.subject).map(|ns| format!("it took {}\n", format_quantity(ns, "nanoseconds")));
    let failed = if time.is_failed { "it ended with an error\n" } else { "" };
    took.unwrap_or_default() + failed + &lines.text()
}

/// `type` is the profile type to show for a row, `frame` the function that its stacks have.
pub fn json(time: &SpanTime) -> Value {
    let rows = time.rows.iter().map(|row| {
        let members = |name: &str, title: &str, total: &ComparedTotal| {
            let samples = total.samples.round() as i64;
            json!({"name": name, "title": title, "weight": total.weight, "mean": total.mean, "samples": samples})
        };
        let parts = row.parts.iter().map(|(category, part)| {
            let mut part = members(category.name(), category.title(), part);
            part["frame"] = category.frame().filter(|_| row.type_name == "off_cpu").into();
            part
        });
        let parts: Value = parts.collect();
        let mut row_members = members(&row.name, row.title(), &row.total);
        (row_members["type"], row_members["unit"]) = (row.type_name.as_str().into(), row.unit.as_str().into());
        row_members["parts"] = parts;
        row_members
    });
    json!({"failed": time.is_failed, "others": time.others, "rows": rows.collect::<Value>()})
}
