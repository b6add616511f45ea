//! The comparison as text, as JSON and as Markdown.

use std::collections::BTreeMap;

use serde_json::value::{to_raw_value, RawValue};
use serde_json::{json, Map, Value};
use spanprof_read::query::{DiffRow, DiffTable, DiffTree, Growth, OneSidedPath, MIN_SAMPLES, MIN_SHARE, MIN_WINDOWS};

use crate::cost_unit::CostUnit;
use crate::diff_graph;
use crate::function::{escaped, function_members, function_text, printable};
use crate::layout::{FittingTable, TerminalLayout};
use crate::quantity::format_quantity;

/// Functions that the outcome of a gate names as not decided.
const MAX_UNDECIDED: usize = 3;
/// Functions of a call path in text output.
const PATH_FUNCTIONS: usize = 8;

/// The reported part of a comparison.
pub struct DiffReport<'t> {
    pub table: &'t DiffTable,
    tree: &'t DiffTree,
    /// The listed call paths on one side only.
    paths: Vec<OneSidedPath>,
    pub is_normalized: bool,
    /// Threshold of the gate.
    pub fail_over: Option<f64>,
    /// Rows above the threshold.
    pub regressions: Vec<&'t DiffRow>,
    /// The listed rows, before the limit.
    pub rows: Vec<&'t DiffRow>,
    pub limit: usize,
    per: Option<CostUnit<'t>>,
}

impl<'t> DiffReport<'t> {
    /// Lists the significant rows; every row with `--all`, or if none could be tested.
    pub fn new(
        table: &'t DiffTable,
        tree: &'t DiffTree,
        is_normalized: bool,
        fail_over: Option<f64>,
        all: bool,
        limit: usize,
    ) -> Self {
        let lists_all = all || table.tested == 0;
        let exceeds =
            |row: &DiffRow, threshold| row.has_grown && row.growth.is_some_and(|growth| growth.low > threshold);
        let is_listed = |path: &&OneSidedPath| all || tree.nodes[path.node as usize].is_significant;
        Self {
            table,
            tree,
            paths: tree.one_sided.iter().filter(is_listed).copied().collect(),
            is_normalized,
            fail_over,
            regressions: fail_over
                .map_or(Vec::new(), |threshold| table.rows.iter().filter(|row| exceeds(row, threshold)).collect()),
            rows: table
                .rows
                .iter()
                .filter(|row| row.is_significant || row.has_grown && fail_over.is_some() || lists_all)
                .collect(),
            limit,
            per: None,
        }
    }

    /// The comparison is one of costs.
    pub fn per(self, per: Option<CostUnit<'t>>) -> Self {
        Self { per, ..self }
    }

    /// Whether the total cost exceeds the threshold of the gate.
    fn total_exceeds(&self) -> bool {
        let (Some(threshold), Some(total)) = (self.fail_over, self.table.cost) else { return false };
        total.has_grown && total.growth.is_some_and(|growth| growth.low > threshold)
    }

    /// The outcome of the gate.
    pub fn has_regressed(&self) -> bool {
        self.total_exceeds() || !self.regressions.is_empty()
    }

    /// Whether anything may have grown by more than the threshold of the gate, but is not shown to have: more runs could decide.
    pub fn is_undecided(&self) -> bool {
        !self.has_regressed() && !self.undecided().is_empty()
    }

    /// Names and growth of what seems to have grown by more than the threshold.
    fn undecided(&self) -> Vec<(String, Growth)> {
        let Some(threshold) = self.fail_over else { return Vec::new() };
        let total = self.table.cost.and_then(|total| Some(("the total".to_owned(), total.growth?)));
        let rows = self.table.rows.iter().filter_map(|row| Some((printable(&row.location.function), row.growth?)));
        total.into_iter().chain(rows).filter(|(_, growth)| growth.estimate > threshold).collect()
    }

    /// Why a gate passes although an interval alone excludes 0: "" without such a one.
    fn reservation(&self) -> String {
        let grown: Vec<_> = self.undecided().into_iter().filter(|(_, growth)| growth.low > 0.0).collect();
        if grown.is_empty() {
            return String::new();
        }
        let named = grown.iter().take(MAX_UNDECIDED);
        let named: Vec<_> = named
            .map(|(name, growth)| format!("{name} ({:+.1}%, {})", growth.estimate * 100.0, interval(*growth)))
            .collect();
        let more = grown.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "\nnot decided: {}{more}; a gate fails if the lower end exceeds the threshold, and the growth is significant among the {} rows that are \
             tested; more runs decide",
            named.join(", "),
            self.table.tested
        )
    }

    /// `cpu`, `cpu per run`
    fn subject(&self) -> String {
        let type_name = &self.table.type_name;
        self.per.map_or_else(|| type_name.clone(), |per| format!("{type_name} per {}", per.name()))
    }

    /// Heading of the rows.
    fn row_name(&self) -> &'t str {
        match self.per {
            Some(CostUnit::Label(key)) => key,
            _ => "function",
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
        let interval = self.table.cost.and_then(|total| total.growth).map(|growth| format!(", {}", interval(growth)));
        format!(
            "{} → {}, {} ({}{})",
            self.quantity(baseline),
            self.quantity(comparison),
            self.signed(comparison.saturating_sub(baseline)),
            relative(baseline, comparison),
            interval.unwrap_or_default(),
        )
    }

    /// The new paths, or the vanished ones.
    fn paths(&self, are_new: bool) -> impl Iterator<Item = &OneSidedPath> + '_ {
        self.paths.iter().filter(move |path| path.is_new == are_new)
    }

    fn path_weight(&self, path: &OneSidedPath) -> i64 {
        self.tree.nodes[path.node as usize].total_weights[usize::from(path.is_new)]
    }

    /// Names of a path, root first.
    fn path_names(&self, path: &OneSidedPath) -> Vec<&'t str> {
        let functions = self.tree.path(path.node).into_iter();
        functions.map(|function| self.tree.functions[function as usize].name.as_str()).collect()
    }

    /// `… > serve > cart > price`: the last functions of a path.
    fn path_text(&self, path: &OneSidedPath) -> String {
        let names = self.path_names(path);
        let shown = &names[names.len().saturating_sub(PATH_FUNCTIONS)..];
        let start = if shown.len() < names.len() { "… > " } else { "" };
        format!("{start}{}", shown.iter().map(|name| printable(name)).collect::<Vec<_>>().join(" > "))
    }

    /// How the differences were tested, or why not; and why native functions were not.
    fn basis(&self) -> String {
        let sides = match self.table.lacks_native {
            [false, false] => return self.tested_by(),
            [true, false] => "the baseline",
            [false, true] => "the comparison",
            [true, true] => "each side",
        };
        let charged = "native functions are not compared, and count for their callers";
        format!("{}; {charged}: {sides} has processes without any", self.tested_by())
    }

    fn tested_by(&self) -> String {
        let DiffTable { tested, windows, .. } = self.table;
        if *tested == 0 {
            return format!("nothing can be concluded: {}", why_not_tested(self.table));
        }
        let by = match self.table.processes {
            Some(processes) => format!("variation of {} and {} processes", processes[0], processes[1]),
            None if windows.iter().all(|count| *count >= MIN_WINDOWS) => {
                format!("variation of {} and {} windows", windows[0], windows[1])
            }
            None => "number of samples".to_owned(),
        };
        let compared = self.table.rows.len() + self.table.equal;
        let (tested, rows) = match self.per {
            None => (*tested, "functions".to_owned()),
            // The total is tested too.
            Some(_) => (tested - 1, format!("rows ({}) and the total", self.row_name())),
        };
        format!("tested by the {by}: {tested} of {compared} {rows}, those of {:.0} % or more", MIN_SHARE * 100.0)
    }

    /// The outcome of the gate in one sentence.
    fn verdict(&self) -> Option<String> {
        let threshold = format!("{} %", (self.fail_over? * 1e6).round() / 1e4);
        if self.per.is_some() {
            let names = self.regressions.iter().map(|row| printable(&row.location.function));
            let total = self.total_exceeds().then(|| "the total".to_owned());
            let grown: Vec<String> = total.into_iter().chain(names).collect();
            let rows = self.row_name();
            return Some(match grown.len() {
                0 => {
                    let reservation = self.reservation();
                    format!("passed: neither the total nor the cost of a {rows} is shown to have grown by more than {threshold}{reservation}")
                }
                _ => format!("failed: the cost grew by more than {threshold}: {}", grown.join(", ")),
            });
        }
        Some(match self.regressions.len() {
            0 => format!(
                "passed: no function's share is shown to have grown by more than {threshold}{}",
                self.reservation()
            ),
            1 => format!("failed: the share of 1 function grew by more than {threshold}"),
            count => format!("failed: the shares of {count} functions grew by more than {threshold}"),
        })
    }
}

pub fn why_not_tested(table: &DiffTable) -> String {
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

pub fn members(report: &DiffReport) -> Map<String, Value> {
    let table = report.table;
    let growth = |growth: Growth| {
        // A new function has no finite growth, and JSON no infinity.
        json!({"estimate": growth.estimate, "low": growth.low, "high": growth.high, "p_value": growth.p_value})
    };
    let row = |row: &DiffRow| {
        let mut members = function_members(&row.location);
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
        ("processes".to_owned(), json!(table.processes)),
        ("samples".to_owned(), json!(table.samples.map(|samples| samples.map(f64::round)))),
        ("tested".to_owned(), table.tested.into()),
        ("basis".to_owned(), report.basis().into()),
        ("changed".to_owned(), table.rows.len().into()),
        ("equal".to_owned(), table.equal.into()),
    ]);
    if let (Some(per), Some(total)) = (report.per, table.cost) {
        members.insert(
            "cost".to_owned(),
            json!({"per": per.name(), "growth": total.growth.map(growth), "regressed": report.total_exceeds()}),
        );
    }
    if let Some(threshold) = report.fail_over {
        members.insert("fail_over".to_owned(), threshold.into());
        members.insert("regressions".to_owned(), report.regressions.iter().map(|regression| row(regression)).collect());
    }
    members.insert("rows".to_owned(), report.listed().map(row).collect());
    for (name, are_new) in [("new_paths", true), ("vanished_paths", false)] {
        let path = |path: &OneSidedPath| {
            let node = &report.tree.nodes[path.node as usize];
            json!({
                "functions": report.path_names(path), "cum": report.path_weight(path),
                "samples": path.samples.map(f64::round), "significant": node.is_significant,
            })
        };
        members.insert(name.to_owned(), report.paths(are_new).take(report.limit).map(path).collect());
    }
    members
}

/// The JSON object of a comparison with its tree, also with folded libraries, for the page.
pub fn with_trees<'m>(
    members: &'m Map<String, Value>,
    tree: &DiffTree,
    folded: &DiffTree,
) -> serde_json::Result<String> {
    let raw = |(name, value): (&'m String, &Value)| Ok((name.as_str(), to_raw_value(value)?));
    let mut whole = members.iter().map(raw).collect::<serde_json::Result<BTreeMap<&str, Box<RawValue>>>>()?;
    // Large, and JSON already.
    whole.insert("tree", RawValue::from_string(diff_graph::json(tree))?);
    whole.insert("folded", RawValue::from_string(diff_graph::json(folded))?);
    serde_json::to_string(&whole)
}

pub fn text(report: &DiffReport) -> String {
    let table = report.table;
    let mut text = format!("{}: {}\n", report.subject(), report.totals());
    if report.is_normalized {
        text += "values of the comparison are scaled to the total of the baseline\n";
    }
    let layout = TerminalLayout::of_stdout();
    let mut lines = FittingTable::new(layout);
    lines.heading(
        format!(
            "{:>10} {:>10} {:>10} {:>7} {:>19} {:>10}  ",
            "baseline", "comparison", "diff", "diff%", "95% interval", "cum diff"
        ),
        report.row_name(),
    );
    for row in report.listed() {
        let difference = row.difference();
        let numbers = format!(
            "{:>10} {:>10} {:>10} {:>7} {:>19} {:>10}  ",
            report.quantity(row.baseline.flat),
            report.quantity(row.comparison.flat),
            report.signed(difference.flat),
            relative(row.baseline.flat, row.comparison.flat),
            row.growth.map_or("-".to_owned(), interval),
            if report.per.is_some() { "-".to_owned() } else { report.signed(difference.cum) },
        );
        lines.function(numbers, 0, &row.location, "");
    }
    text += &lines.text();
    if report.rows.len() > report.limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", report.rows.len() - report.limit);
    }
    for (heading, are_new) in [("new call paths", true), ("vanished call paths", false)] {
        let paths: Vec<_> = report.paths(are_new).collect();
        if paths.is_empty() {
            continue;
        }
        text += &format!("{heading}, with their callees:\n");
        let mut lines = FittingTable::new(layout);
        lines.heading(format!("{:>10} {:>10}", "weight", "samples"), "");
        for path in paths.iter().take(report.limit) {
            let samples = path.samples.map_or("-".to_owned(), |samples| format!("{samples:.0}"));
            let numbers = format!("{:>10} {samples:>10}  ", report.quantity(report.path_weight(path)));
            lines.row(numbers, "", report.path_text(path));
        }
        text += &lines.text();
        if paths.len() > report.limit {
            text += &format!("… and {} more (--limit 0 prints all)\n", paths.len() - report.limit);
        }
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

pub fn markdown(report: &DiffReport) -> String {
    let mut text = format!("### Profile comparison: {}\n\n", report.subject());
    if let Some(verdict) = report.verdict() {
        text += &format!("**{}**\n\n", verdict);
    }
    text += &format!("{}; {}.\n\n", report.totals(), report.basis());
    if report.rows.is_empty() && report.paths.is_empty() {
        return text + "No significant change.\n";
    }
    text += &markdown_rows(report);
    for (heading, are_new) in [("New call paths", true), ("Vanished call paths", false)] {
        let paths: Vec<_> = report.paths(are_new).take(report.limit).collect();
        if !paths.is_empty() {
            text += &format!("\n{heading}, with their callees:\n\n| weight | call path |\n|---:|---|\n");
        }
        for path in paths {
            let weight = report.quantity(report.path_weight(path));
            text += &format!("| {weight} | {} |\n", escaped(&report.path_text(path)));
        }
    }
    if report.is_normalized {
        text += "\nValues of the comparison are scaled to the total of the baseline.\n";
    }
    text
}

fn markdown_rows(report: &DiffReport) -> String {
    if report.rows.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    text += &format!(
        "| {} | baseline | comparison | change | 95 % interval |\n|---|---:|---:|---:|---:|\n",
        escaped(report.row_name())
    );
    for row in report.listed() {
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            escaped(&function_text(&row.location)),
            report.quantity(row.baseline.flat),
            report.quantity(row.comparison.flat),
            relative(row.baseline.flat, row.comparison.flat),
            row.growth.map_or("-".to_owned(), interval),
        );
    }
    if report.rows.len() > report.limit {
        text += &format!("\n… and {} more.\n", report.rows.len() - report.limit);
    }
    text
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
