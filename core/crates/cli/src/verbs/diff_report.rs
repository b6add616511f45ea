//! The comparison as text, as JSON and as Markdown.

use serde_json::{json, Map, Value};
use spanprof_read::query::{DiffRow, DiffTable, Growth, MIN_SAMPLES, MIN_SHARE, MIN_WINDOWS};

use super::table::{function_members, function_text};
use crate::quantity::format_quantity;

/// The reported part of a comparison.
pub(super) struct DiffReport<'t> {
    pub table: &'t DiffTable,
    pub is_normalized: bool,
    /// Threshold of the gate.
    pub fail_over: Option<f64>,
    /// Rows above the threshold.
    pub regressions: Vec<&'t DiffRow>,
    /// The listed rows, before the limit.
    pub rows: Vec<&'t DiffRow>,
    pub limit: usize,
}

impl<'t> DiffReport<'t> {
    /// Lists the significant rows; every row with `--all`, or if none could be tested.
    pub fn new(table: &'t DiffTable, is_normalized: bool, fail_over: Option<f64>, all: bool, limit: usize) -> Self {
        let lists_all = all || table.tested == 0;
        let exceeds =
            |row: &DiffRow, threshold| row.is_significant && row.growth.is_some_and(|growth| growth.low > threshold);
        Self {
            table,
            is_normalized,
            fail_over,
            regressions: fail_over
                .map_or(Vec::new(), |threshold| table.rows.iter().filter(|row| exceeds(row, threshold)).collect()),
            rows: table.rows.iter().filter(|row| row.is_significant || lists_all).collect(),
            limit,
        }
    }

    fn listed(&self) -> impl Iterator<Item = &'t DiffRow> + '_ {
        self.rows.iter().take(self.limit).copied()
    }

    fn quantity(&self, value: i64) -> String {
        format_quantity(value, &self.table.unit)
    }

    fn signed(&self, value: i64) -> String {
        if value > 0 {
            format!("+{}", self.quantity(value))
        } else {
            self.quantity(value)
        }
    }

    fn totals(&self) -> String {
        let DiffTable { baseline_total: baseline, comparison_total: comparison, .. } = *self.table;
        format!(
            "{} → {}, {} ({})",
            self.quantity(baseline),
            self.quantity(comparison),
            self.signed(comparison.saturating_sub(baseline)),
            relative(baseline, comparison),
        )
    }

    /// How the differences were tested, or why not.
    fn basis(&self) -> String {
        let DiffTable { tested, windows, .. } = self.table;
        if *tested == 0 {
            return format!("nothing can be concluded: {}", why_not_tested(self.table));
        }
        let by = match windows.iter().all(|count| *count >= MIN_WINDOWS) {
            true => format!("variation of {} and {} windows", windows[0], windows[1]),
            false => "number of samples".to_owned(),
        };
        let compared = self.table.rows.len() + self.table.equal;
        format!("tested by the {by}: {tested} of {compared} functions, those of {:.0} % or more", MIN_SHARE * 100.0)
    }

    /// The outcome of the gate in one sentence.
    fn verdict(&self) -> Option<String> {
        let threshold = format!("{} %", (self.fail_over? * 1e6).round() / 1e4);
        Some(match self.regressions.len() {
            0 => format!("passed: no function's share grew by more than {threshold}"),
            1 => format!("failed: the share of 1 function grew by more than {threshold}"),
            count => format!("failed: the shares of {count} functions grew by more than {threshold}"),
        })
    }
}

pub(super) fn why_not_tested(table: &DiffTable) -> String {
    if table.baseline_total == 0 || table.comparison_total == 0 {
        "one side has no samples".to_owned()
    } else if table.samples.contains(&None) {
        format!(
            "the profiles do not state their sampling interval and have fewer than {MIN_WINDOWS} windows on one side"
        )
    } else {
        format!("no function has {:.0} % of the total and {MIN_SAMPLES:.0} samples", MIN_SHARE * 100.0)
    }
}

pub(super) fn json(report: &DiffReport) -> Value {
    let table = report.table;
    let growth = |growth: Growth| {
        // A new function has no finite growth, and JSON no infinity.
        json!({"estimate": growth.estimate, "low": growth.low, "high": growth.high, "p_value": growth.p_value})
    };
    let row = |row: &DiffRow| {
        let mut members = function_members(&row.at);
        for (name, weight) in [("baseline", row.baseline), ("comparison", row.comparison)] {
            members.insert(name.to_owned(), json!({"flat": weight.flat, "cum": weight.cum}));
        }
        members.insert("significant".to_owned(), row.is_significant.into());
        members.insert("growth".to_owned(), row.growth.map_or(Value::Null, growth));
        Value::Object(members)
    };
    let mut members = Map::from_iter([
        ("type".to_owned(), table.type_name.as_str().into()),
        ("unit".to_owned(), table.unit.as_str().into()),
        ("normalized".to_owned(), report.is_normalized.into()),
        ("baseline_total".to_owned(), table.baseline_total.into()),
        ("comparison_total".to_owned(), table.comparison_total.into()),
        ("windows".to_owned(), json!(table.windows)),
        ("samples".to_owned(), json!(table.samples.map(|samples| samples.map(f64::round)))),
        ("tested".to_owned(), table.tested.into()),
        ("changed".to_owned(), table.rows.len().into()),
        ("equal".to_owned(), table.equal.into()),
    ]);
    if let Some(threshold) = report.fail_over {
        members.insert("fail_over".to_owned(), threshold.into());
        members.insert("regressions".to_owned(), report.regressions.iter().map(|found| row(found)).collect());
    }
    members.insert("rows".to_owned(), report.listed().map(row).collect());
    Value::Object(members)
}

pub(super) fn text(report: &DiffReport) -> String {
    let table = report.table;
    let mut text = format!("{}: {}\n", table.type_name, report.totals());
    if report.is_normalized {
        text += "values of the comparison are scaled to the total of the baseline\n";
    }
    text += &format!(
        "{:>10} {:>10} {:>10} {:>7} {:>19} {:>10}  function\n",
        "baseline", "comparison", "diff", "diff%", "95% interval", "cum diff"
    );
    for row in report.listed() {
        let difference = row.difference();
        text += &format!(
            "{:>10} {:>10} {:>10} {:>7} {:>19} {:>10}  {}\n",
            report.quantity(row.baseline.flat),
            report.quantity(row.comparison.flat),
            report.signed(difference.flat),
            relative(row.baseline.flat, row.comparison.flat),
            row.growth.map_or("-".to_owned(), interval),
            report.signed(difference.cum),
            function_text(&row.at),
        );
    }
    if report.rows.len() > report.limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", report.rows.len() - report.limit);
    }
    text += &format!("{}\n", report.basis());
    let hidden = table.rows.len() - report.rows.len();
    if hidden > 0 {
        text += &format!("{hidden} differences may be chance, or are of smaller functions (--all lists them)\n");
    }
    if table.equal > 0 {
        text += &format!("{} without a difference\n", table.equal);
    }
    if let Some(verdict) = report.verdict() {
        text += &format!("{verdict}\n");
    }
    text
}

pub(super) fn markdown(report: &DiffReport) -> String {
    let table = report.table;
    let mut text = format!("### Profile comparison: {}\n\n", table.type_name);
    if let Some(verdict) = report.verdict() {
        text += &format!("**{}**\n\n", verdict);
    }
    text += &format!("{}; {}.\n\n", report.totals(), report.basis());
    if report.rows.is_empty() {
        return text + "No significant change.\n";
    }
    text += "| function | baseline | comparison | change | 95 % interval |\n|---|---:|---:|---:|---:|\n";
    for row in report.listed() {
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            escaped(&function_text(&row.at)),
            report.quantity(row.baseline.flat),
            report.quantity(row.comparison.flat),
            relative(row.baseline.flat, row.comparison.flat),
            row.growth.map_or("-".to_owned(), interval),
        );
    }
    if report.rows.len() > report.limit {
        text += &format!("\n… and {} more.\n", report.rows.len() - report.limit);
    }
    if report.is_normalized {
        text += "\nValues of the comparison are scaled to the total of the baseline.\n";
    }
    text
}

/// A name as text of a table: without Markdown, HTML and links.
fn escaped(name: &str) -> String {
    let special = |letter: char| r"\`*_{}[]<>()#+-!|~&$@".contains(letter);
    name.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter])).collect()
}

/// `+3.1 … +6.9%`
fn interval(growth: Growth) -> String {
    let bound = |end: f64| match end * 100.0 {
        percent if percent.abs() < 1_000.0 => format!("{percent:+.1}"),
        percent => format!("{percent:+.0}"),
    };
    format!("{} … {}%", bound(growth.low), bound(growth.high))
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
