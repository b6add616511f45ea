//! `spanprof top`: the functions that cost most, as text or as JSON.

use spanprof_read::query::{self, TopRow, TopTable};

use super::{one_type, selected, SOURCES, SOURCE_ABOUT, SOURCE_USAGE};
use crate::arguments::{CliVerb, Flag, Parsed};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::json::Json;
use crate::quantity::{format_quantity, format_share};
use crate::{output, selection};

const DEFAULT_ROWS: usize = 30;

pub(crate) static VERB: CliVerb = CliVerb {
    name: "top",
    summary: "Print the functions that cost most",
    usage: SOURCE_USAGE,
    about: SOURCE_ABOUT,
    flags: &[
        &[
            Flag { long: "--limit", short: "-n", value: "N", help: "rows to print, 0 for all [30]", repeats: false },
            Flag::value("--sort", "COLUMN", "flat: the function itself, cum: with its callees [flat]"),
            Flag::switch("--json", "as JSON"),
        ],
        selection::FLAGS,
        selection::TO,
    ],
    examples: &[
        "spanprof top cpu.pb.gz",
        "spanprof top worker-1.pb.gz worker-2.pb.gz",
        "spanprof top ./profiles --service checkout --from -15m --label endpoint=/cart",
        "spanprof top http://127.0.0.1:4318 --trace-id 0af7651916cd43dd8448eb211c80319c --json",
    ],
    positionals: SOURCES,
    run,
};

fn run(parsed: &Parsed) -> Result<i32, Failure> {
    let limit = match parsed.value("--limit") {
        None => DEFAULT_ROWS,
        Some(text) => {
            text.parse().map_err(|_| Failure::usage(format!("--limit: expected a number of rows, got `{text}`")))?
        }
    };
    let by_cum = match parsed.value("--sort") {
        None | Some("flat") => false,
        Some("cum") => true,
        Some(other) => return Err(Failure::usage(format!("--sort: expected flat or cum, got `{other}`"))),
    };
    let (data, filter) = selected(parsed, Detail::Stacks)?;
    let mut table = query::top(&data, &one_type(&data, &filter));
    if by_cum {
        table.rows.sort_by(|left, right| {
            right.cum.cmp(&left.cum).then(right.flat.cmp(&left.flat)).then_with(|| left.function.cmp(&right.function))
        });
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    let text = if parsed.has("--json") {
        let mut json = Json::new();
        json.object(|json| fields(json, &table, limit));
        json.finish() + "\n"
    } else {
        text(&table, limit)
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The members of a top table's JSON object; the same for `--json` and `/api/top`.
pub(crate) fn fields(json: &mut Json, table: &TopTable, limit: usize) {
    json.key("type").string(&table.type_name).key("unit").string(&table.unit);
    json.key("total").number(table.total).key("stacks").number(table.samples as u64);
    json.key("functions").number(table.rows.len() as u64);
    json.key("rows").array(|json| {
        for row in table.rows.iter().take(limit) {
            json.object(|json| {
                json.key("function").string(&row.function).key("file").string(&row.file);
                json.key("frame_type").string(row.frame_type.as_str().unwrap_or(""));
                json.key("flat").number(row.flat).key("cum").number(row.cum);
            });
        }
    });
}

fn text(table: &TopTable, limit: usize) -> String {
    let quantity = |value: i64| format_quantity(value, &table.unit);
    let mut text = format!(
        "{}: {} in {} stacks, {} functions\n",
        table.type_name,
        quantity(table.total),
        table.samples,
        table.rows.len()
    );
    text += &format!("{:>10} {:>6} {:>10} {:>6}  {}\n", "flat", "flat%", "cum", "cum%", "function");
    for TopRow { function, file, flat, cum, .. } in table.rows.iter().take(limit) {
        let (flat_share, cum_share) = (format_share(*flat, table.total), format_share(*cum, table.total));
        let location = if file.is_empty() { String::new() } else { format!("  {}", printable(file)) };
        text += &format!(
            "{:>10} {flat_share:>6} {:>10} {cum_share:>6}  {}{location}\n",
            quantity(*flat),
            quantity(*cum),
            printable(function)
        );
    }
    if table.rows.len() > limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", table.rows.len() - limit);
    }
    text
}

/// A name without control characters, which a terminal would interpret.
fn printable(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
