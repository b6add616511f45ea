//! `spanprof diff`: compares two profiles by function or line, as text or as JSON.

use serde_json::{json, Map, Value};
use spanprof_profile::{is_gauge_type, ProfilesData};
use spanprof_read::query::{self, DiffRow, DiffTable, Filter, TypeSummary};

use super::table::{function_members, function_text, SortColumn, TableArguments};
use super::{missing, nothing_passes, one_type, read_all, refuse_repeated_stdin, sources};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::output;
use crate::quantity::format_quantity;
use crate::selection::{EndArguments, FilterArguments};
use crate::serve::unix_ns;
use crate::source::Source;

/// Windows whose durations differ by more than this share are not of equal length.
const EQUAL_DURATION_SHARE: f64 = 0.1;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof diff BASELINE COMPARISON [FLAGS]",
    before_help = "\
Each of the two is a file, a directory, stdin for `-`, or the address of a running `spanprof serve`, in every format of
`spanprof top`.",
    after_help = "\
Examples:
  spanprof diff before.pb.gz after.pb.gz
  spanprof diff before.pb.gz after.pb.gz --type inuse_space --by line
  spanprof diff ./profiles-1.2 ./profiles-1.3 --normalize --service checkout --type cpu"
)]
pub(crate) struct DiffArguments {
    #[arg(value_name = "BASELINE", hide = true)]
    pub baseline: String,
    #[arg(value_name = "COMPARISON", hide = true)]
    pub comparison: String,
    /// compare shares: scales the comparison to the total of the baseline
    #[arg(long)]
    pub normalize: bool,
    #[command(flatten)]
    pub table: TableArguments,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(given: &DiffArguments) -> Result<i32, Failure> {
    refuse_repeated_stdin(&[&given.baseline, &given.comparison])?;
    let filter = given.filter.filter(given.end.to.as_deref(), unix_ns())?;
    let read = |name: &String| read_side(name, &filter);
    let (baseline, comparison) = (read(&given.baseline)?, read(&given.comparison)?);
    if baseline.sample_count() + comparison.sample_count() == 0 {
        return Err(nothing_passes(&given.baseline, &[Source::parse(&given.baseline)?], &filter));
    }
    let type_name = one_type(&baseline, &filter);
    for (name, data) in [(&given.baseline, &baseline), (&given.comparison, &comparison)] {
        let is_present = |summary: &TypeSummary| summary.samples > 0 || is_gauge_type(&type_name);
        if !query::types(data).iter().any(|summary| summary.type_name == type_name && is_present(summary)) {
            return Err(missing(name, &type_name, data));
        }
    }
    if !given.normalize && !is_gauge_type(&type_name) {
        let [baseline, comparison] = [&baseline, &comparison].map(|data| duration_s(data, &type_name));
        if (baseline - comparison).abs() > EQUAL_DURATION_SHARE * baseline.max(comparison) {
            output::note(&format!(
                "the baseline covers {baseline:.0} s, the comparison {comparison:.0} s: --normalize compares shares"
            ));
        }
    }
    let mut table = query::diff(&baseline, &comparison, &type_name, given.table.by.into(), given.normalize);
    if given.table.sort == SortColumn::Cum {
        // Stable: rows of equal `cum` stay in the order of `flat`.
        table.rows.sort_by_key(|row| std::cmp::Reverse(row.difference().cum.unsigned_abs()));
    }
    let limit = given.table.limit();
    let text = if given.table.json {
        json(&table, given.normalize, limit).to_string() + "\n"
    } else {
        text(&table, given.normalize, limit)
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// One of the two profiles. It may have no sample that passes if it describes a state: nothing was in that state, such as in
/// use and old.
fn read_side(name: &String, filter: &Filter) -> Result<ProfilesData, Failure> {
    let sources = sources(std::slice::from_ref(name))?;
    let data = read_all(&sources, filter, Detail::Stacks)?;
    let is_state = data.profiles().next().is_some() && data.profiles().all(|(_, profile)| profile.is_gauge());
    match data.sample_count() > 0 || is_state {
        true => Ok(data),
        false => Err(nothing_passes(name, &sources, filter)),
    }
}

/// From the start of the first window of a type to the end of the last.
fn duration_s(data: &ProfilesData, type_name: &str) -> f64 {
    let of_type = query::types(data).into_iter().filter(|summary| summary.type_name == type_name);
    let (from, to) = of_type
        .fold((u64::MAX, 0), |(from, to), summary| (from.min(summary.from_unix_nano), to.max(summary.to_unix_nano)));
    to.saturating_sub(from) as f64 / 1e9
}

fn json(table: &DiffTable, is_normalized: bool, limit: usize) -> Value {
    let rows = table.rows.iter().take(limit).map(|row| {
        let mut members = function_members(&row.at);
        for (name, weight) in [("baseline", row.baseline), ("comparison", row.comparison)] {
            members.insert(name.to_owned(), json!({"flat": weight.flat, "cum": weight.cum}));
        }
        members
    });
    Value::Object(Map::from_iter([
        ("type".to_owned(), table.type_name.as_str().into()),
        ("unit".to_owned(), table.unit.as_str().into()),
        ("normalized".to_owned(), is_normalized.into()),
        ("baseline_total".to_owned(), table.baseline_total.into()),
        ("comparison_total".to_owned(), table.comparison_total.into()),
        ("changed".to_owned(), table.rows.len().into()),
        ("equal".to_owned(), table.equal.into()),
        ("rows".to_owned(), rows.collect()),
    ]))
}

fn text(table: &DiffTable, is_normalized: bool, limit: usize) -> String {
    let quantity = |value: i64| format_quantity(value, &table.unit);
    let signed = |value: i64| if value > 0 { format!("+{}", quantity(value)) } else { quantity(value) };
    let (baseline, comparison) = (table.baseline_total, table.comparison_total);
    let mut text = format!(
        "{}: {} → {}, {} ({})\n",
        table.type_name,
        quantity(baseline),
        quantity(comparison),
        signed(comparison.saturating_sub(baseline)),
        relative(baseline, comparison),
    );
    if is_normalized {
        text += "values of the comparison are scaled to the total of the baseline\n";
    }
    text += &format!(
        "{:>10} {:>10} {:>10} {:>7} {:>10}  function\n",
        "baseline", "comparison", "diff", "diff%", "cum diff"
    );
    for row in table.rows.iter().take(limit) {
        let DiffRow { at, baseline, comparison } = row;
        let difference = row.difference();
        text += &format!(
            "{:>10} {:>10} {:>10} {:>7} {:>10}  {}\n",
            quantity(baseline.flat),
            quantity(comparison.flat),
            signed(difference.flat),
            relative(baseline.flat, comparison.flat),
            signed(difference.cum),
            function_text(at),
        );
    }
    if table.rows.len() > limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", table.rows.len() - limit);
    }
    if table.equal > 0 {
        text += &format!("{} without a difference\n", table.equal);
    }
    text
}

/// The relative change, or `new`, or `gone`.
fn relative(baseline: i64, comparison: i64) -> String {
    match (baseline, comparison) {
        (0, 0) => "-".to_owned(),
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        _ => format!("{:+.1}%", (comparison as f64 - baseline as f64) * 100.0 / baseline as f64),
    }
}
