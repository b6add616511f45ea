//! `spanprof diff`: compares two profiles by function or line. As a gate of CI it also decides whether a function regressed.

use serde_json::Value;
use spanprof_answers::cost_unit::CostUnit;
use spanprof_answers::diff::{self as diff_report, DiffReport};
use spanprof_answers::failure::{Failure, EXIT_FAILED, EXIT_USAGE};
use spanprof_answers::quantity::percent;
use spanprof_answers::selection::moment;
use spanprof_answers::selection::moment::unix_ns;
use spanprof_answers::selection::{self, EndArguments, FilterArguments};
use spanprof_profile::{is_gauge_type, HeapAge, ProfilesData};
use spanprof_read::query::{
    self, Compared, Detail, DiffTable, Filter, Granularity, TypeSummary, WindowSums, MIN_WINDOWS,
};
use spanprof_view::page;

use super::empty_selection::nothing_passes;
use super::table::{Rows, SortColumn, TableArguments};
use super::{merged, missing, one_type, refuse_repeated_stdin, sources};
use crate::output::{self, Printed};
use crate::source::Source;

/// Where `spanprof serve` listens by default.
const DEFAULT_SERVER: &str = "http://127.0.0.1:4318";
/// Rows of a page, as of the page of `serve`.
const PAGE_ROWS: usize = 500;
/// Windows whose durations differ by more than this share are not of equal length.
const EQUAL_DURATION_SHARE: f64 = 0.1;
/// Smallest number of samples of each side from which the gate concludes.
const MIN_GATE_SAMPLES: f64 = 1_000.0;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof diff BASELINE COMPARISON [FLAGS]
       spanprof diff [SOURCE…] --baseline SELECTOR --comparison SELECTOR [FLAGS]",
    before_help = "\
Each source is a file, a directory, stdin for `-`, or the address of a running `spanprof serve`, in every format of
`spanprof top`. A selector is a service, attributes, or both: 'checkout{service.version=1.2}'. The source of selectors is
http://127.0.0.1:4318 by default.

Lists the significant changes: about one in a hundred comparisons of equal programs has any. With five windows or more on each
side, their variation decides; with fewer, the number of samples.

--per run compares the cost of runs: processes that do the same work, five or more on each side.

With --fail-over the exit code is 0 without a regression, 1 with one, and 2 if nothing can be concluded.",
    after_help = "\
Examples:
  spanprof diff before.pb.gz after.pb.gz
  spanprof diff before.pb.gz after.pb.gz --type inuse_space --by line --all
  spanprof diff before.pb.gz after.pb.gz --by type
  spanprof diff ./profiles-1.2 ./profiles-1.3 --type cpu --fail-over 5% --markdown
  spanprof diff ./runs-1.2 ./runs-1.3 --per run --fail-over 2%
  spanprof diff ./profiles-1.2 ./profiles-1.3 --normalize -o diff.html
  spanprof diff http://127.0.0.1:4318 --baseline 'checkout{service.version=1.2}' --comparison 'checkout{service.version=1.3}' --time-range 1h --normalize"
)]
pub(crate) struct DiffArguments {
    #[arg(value_name = "SOURCE", hide = true)]
    pub sources: Vec<String>,
    /// selection of the sources to compare with
    #[arg(long, value_name = "SELECTOR", requires = "comparison")]
    pub baseline: Option<String>,
    /// selection of the sources to compare
    #[arg(long, value_name = "SELECTOR", requires = "baseline")]
    pub comparison: Option<String>,
    /// only the last 1h, 30m, …
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["from", "to"])]
    pub time_range: Option<String>,
    /// compare shares: scales the comparison to the total of the baseline
    #[arg(long)]
    pub normalize: bool,
    /// list every difference, also those that may be chance
    #[arg(long)]
    pub all: bool,
    /// compare costs per run, per request (with --requests), or per value of a label
    #[arg(long, value_name = "run|request|LABEL", conflicts_with = "normalize")]
    pub per: Option<String>,
    /// requests in all runs of each side, for --per request
    #[arg(long, value_name = "BASELINE,COMPARISON", value_parser = request_counts)]
    pub requests: Option<[f64; 2]>,
    /// fail if a function's own share grew by more than this, with 95 % confidence; with --per its cost, or the total
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_over: Option<f64>,
    /// also write a flame graph of the comparison as one HTML file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// as Markdown, for a comment on a pull request
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// flat: the function itself, cum: with its callees
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = SortColumn::Flat)]
    pub sort: SortColumn,
    #[command(flatten)]
    pub table: TableArguments,
    #[command(flatten)]
    pub filter: FilterArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

/// One side as the command line names it.
struct NamedSide {
    name: String,
    sources: Vec<String>,
    filter: Filter,
}

/// One side as read.
struct ReadSide {
    data: ProfilesData,
    windows: WindowSums,
}

/// The result of a comparison.
pub(super) struct Outcome {
    pub printed: Printed,
    pub code: i32,
    /// Whether more runs could change the outcome of the gate.
    pub is_undecided: bool,
}

pub(crate) fn run(arguments: &DiffArguments) -> Result<i32, Failure> {
    let outcome = compare(arguments, None).and_then(|outcome| outcome.printed.print().map(|()| outcome.code));
    match arguments.fail_over {
        // 1 means a regression, and nothing else.
        Some(_) => outcome.map_err(|failure| Failure { exit_code: EXIT_USAGE, ..failure }),
        None => outcome,
    }
}

/// The result as JSON, for `--json`.
pub(crate) fn answer(arguments: &DiffArguments) -> Result<Value, Failure> {
    Ok(compare(arguments, None)?.printed.into_json())
}

/// Compares the sides that the flags name, or the sources of `runs`.
pub(super) fn compare(arguments: &DiffArguments, runs: Option<[Vec<String>; 2]>) -> Result<Outcome, Failure> {
    if let Some(path) = &arguments.output {
        output::refuse_on_terminal(path, "HTML", "-o diff.html")?;
    }
    let mut named = sides(arguments)?;
    for (side, sources) in named.iter_mut().zip(runs.into_iter().flatten()) {
        side.sources = sources;
    }
    let by: Granularity = arguments.table.by.into();
    let compared = match arguments.sort {
        SortColumn::Cum if arguments.fail_over.is_some() => {
            return Err(Failure::usage("--fail-over compares functions without their callees: not with --sort cum"))
        }
        column => column.into(),
    };
    let per = CostUnit::of(arguments.per.as_deref(), arguments.requests)?;
    let windows = || match per {
        Some(CostUnit::Label(key)) => WindowSums::of_label(key),
        _ if arguments.output.is_some() => WindowSums::with_paths(by, compared).and_folded_paths(),
        _ => WindowSums::with_paths(by, compared),
    };
    let read = |side, role| read(side, role, arguments.table.by, windows());
    let [baseline, comparison] = [read(&named[0], "baseline")?, read(&named[1], "comparison")?];
    if baseline.data.sample_count() + comparison.data.sample_count() == 0 {
        return Err(no_samples(&named[0], "baseline"));
    }
    let type_name = one_type(&baseline.data, &named[0].filter);
    for (side, read) in named.iter().zip([&baseline, &comparison]) {
        let is_present = |summary: &TypeSummary| summary.samples > 0 || is_gauge_type(&type_name);
        if !query::types(&read.data).iter().any(|summary| summary.type_name == type_name && is_present(summary)) {
            return Err(missing(&side.name, &type_name, &read.data));
        }
    }
    if per.is_some() {
        refuse_too_few_runs([&baseline.windows, &comparison.windows], &type_name)?;
    }
    let normalize = arguments.normalize || arguments.fail_over.is_some() && per.is_none();
    if !normalize && per.is_none() && !is_gauge_type(&type_name) {
        let [baseline, comparison] = [&baseline, &comparison].map(|side| duration_s(&side.data, &type_name));
        if (baseline - comparison).abs() > EQUAL_DURATION_SHARE * baseline.max(comparison) {
            output::note(&format!(
                "the baseline covers {baseline:.0} s, the comparison {comparison:.0} s: --normalize compares shares"
            ));
        }
    }
    let sides = [&baseline.windows, &comparison.windows];
    let mut table = match per {
        None => query::diff(sides, &type_name, normalize),
        Some(per) => {
            let unit = query::types(&baseline.data).into_iter().find(|summary| summary.type_name == type_name);
            let requests = if let CostUnit::Request(requests) = per { Some(requests) } else { None };
            let unit = unit.map(|summary| summary.unit).unwrap_or_default();
            query::cost(sides, &type_name, &unit, requests)
        }
    };
    if compared == Compared::Cum && per.is_none() {
        // Stable: rows of equal `cum` stay in the order of `flat`.
        table.rows.sort_by_key(|row| std::cmp::Reverse(row.difference().cum.unsigned_abs()));
    }
    if arguments.fail_over.is_some() {
        refuse_too_few_samples(&table)?;
    }
    let tree = query::diff_tree(sides, &table, normalize);
    let report =
        DiffReport::new(&table, &tree, normalize, arguments.fail_over, arguments.all, arguments.table.limit).per(per);
    if let Some(path) = &arguments.output {
        let title = format!("{} · {} and {}", type_name, named[0].name, named[1].name);
        // The page itself hides what may be chance.
        let whole = DiffReport::new(&table, &tree, normalize, arguments.fail_over, true, PAGE_ROWS).per(per);
        let folded = query::folded_diff_tree(sides, &table, &tree, normalize);
        let response = diff_report::with_trees(&diff_report::members(&whole), &tree, &folded)
            .map_err(|error| Failure::new(error.to_string()))?;
        output::write(path, page::comparison_html(&response, &title).as_bytes())?;
    }
    let printed = if arguments.table.json {
        Printed::Json(Value::Object(diff_report::members(&report)))
    } else if arguments.markdown {
        Printed::Text(diff_report::markdown(&report))
    } else {
        Printed::Text(diff_report::text(&report))
    };
    let code = if report.has_regressed() { EXIT_FAILED } else { 0 };
    Ok(Outcome { printed, code, is_undecided: report.is_undecided() })
}

/// The two sides: two sources, or two selections of the same sources.
fn sides(arguments: &DiffArguments) -> Result<[NamedSide; 2], Failure> {
    let mut filter = arguments.filter.filter(arguments.end.to.as_deref(), unix_ns())?;
    filter.type_name = filter.type_name.or(arguments.table.by.default_type());
    if let Some(range) = &arguments.time_range {
        let range_ns = moment::parse_duration_ns(range)
            .ok_or_else(|| Failure::usage(format!("--time-range: expected a duration such as 1h, got `{range}`")))?;
        filter.from_unix_nano = Some(unix_ns().saturating_sub(range_ns));
    }
    if let (Some(baseline), Some(comparison)) = (&arguments.baseline, &arguments.comparison) {
        let sources = match &arguments.sources[..] {
            [] => vec![DEFAULT_SERVER.to_owned()],
            named => named.to_vec(),
        };
        let side = |flag: &str, selector: &String| {
            let mut filter = filter.clone();
            selection::narrow(&mut filter, selector)
                .map_err(|message| Failure::usage(format!("--{flag}: {message}")))?;
            Ok::<_, Failure>(NamedSide { name: selector.clone(), sources: sources.clone(), filter })
        };
        // It would be read twice.
        if arguments.sources.iter().any(|name| name == "-") {
            return Err(Failure::usage("stdin cannot be read for both sides").hint("name a file"));
        }
        return Ok([side("baseline", baseline)?, side("comparison", comparison)?]);
    }
    let [baseline, comparison] = &arguments.sources[..] else {
        return Err(Failure::usage(format!(
            "expected BASELINE and COMPARISON, got {} sources",
            arguments.sources.len()
        ))
        .hint("other numbers of sources need --baseline SELECTOR and --comparison SELECTOR"));
    };
    refuse_repeated_stdin(&arguments.sources)?;
    let side = |name: &String| NamedSide { name: name.clone(), sources: vec![name.clone()], filter: filter.clone() };
    Ok([side(baseline), side(comparison)])
}

/// Reads a side. It may have no sample that passes if it describes a state: nothing was in that state, such as in use and old.
fn read(side: &NamedSide, role: &str, by: Rows, mut windows: WindowSums) -> Result<ReadSide, Failure> {
    let sources = sources(&side.sources)?;
    let data = merged(&sources, |source| {
        source.read_windows(&side.filter, Detail::Stacks, &mut |window| {
            by.reduce(window);
            windows.add(window);
        })
    })?;
    let is_state = data.profiles().next().is_some() && data.profiles().all(|(_, profile)| profile.is_gauge());
    if data.sample_count() == 0 && !(is_state && has_labels(&sources, &side.filter)?) {
        return Err(no_samples(side, role));
    }
    windows.add_state(&data);
    Ok(ReadSide { data, windows })
}

/// Whether any sample meets the conditions on labels, except for the age of objects: possibly no object is old.
fn has_labels(sources: &[Source], filter: &Filter) -> Result<bool, Failure> {
    let labels: Vec<_> = filter.labels.iter().filter(|label| label.key != HeapAge::LABEL).cloned().collect();
    if labels.is_empty() {
        return Ok(true);
    }
    let all = merged(sources, |source| {
        source.read(&Filter { labels: labels.clone(), ..source.widest(filter) }, Detail::Stacks)
    })?;
    Ok(all.sample_count() > 0)
}

fn no_samples(side: &NamedSide, role: &str) -> Failure {
    match sources(&side.sources) {
        Ok(sources) => {
            let failure = nothing_passes(&side.sources.join(", "), &sources, &side.filter);
            Failure { message: format!("the {role}: {}", failure.message), ..failure }
        }
        Err(failure) => failure,
    }
}

/// Too few samples would always pass.
fn refuse_too_few_samples(table: &DiffTable) -> Result<(), Failure> {
    let failure = |why: String| Failure::new(format!("nothing can be concluded: {why}"));
    for (name, samples) in ["baseline", "comparison"].into_iter().zip(table.samples) {
        if let Some(samples) = samples.filter(|samples| *samples < MIN_GATE_SAMPLES) {
            return Err(failure(format!(
                "the {name} has {samples:.0} samples, at least {MIN_GATE_SAMPLES} are needed"
            ))
            .hint("profile for longer, or at a higher rate"));
        }
    }
    match table.tested {
        0 => Err(failure(diff_report::why_not_tested(table))),
        _ => Ok(()),
    }
}

/// Windows of one run do not show how much runs differ.
fn refuse_too_few_runs(sides: [&WindowSums; 2], type_name: &str) -> Result<(), Failure> {
    if is_gauge_type(type_name) {
        return Err(Failure::usage(format!("{type_name} is a state, not a cost")).hint("compare it without --per"));
    }
    let processes = sides.map(|side| side.processes(type_name));
    match processes.iter().all(|count| *count >= MIN_WINDOWS) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "nothing can be concluded: --per compares runs, and {MIN_WINDOWS} processes are needed on each side, got {} and {}",
            processes[0], processes[1]
        ))
        .hint("a directory with the files of five runs is one side")),
    }
}

/// Two numbers above 0, with a comma.
fn request_counts(text: &str) -> Result<[f64; 2], String> {
    let count = |text: &str| text.trim().parse().ok().filter(|count: &f64| count.is_finite() && *count > 0.0);
    let counts = text.split_once(',').and_then(|(baseline, comparison)| Some([count(baseline)?, count(comparison)?]));
    counts.ok_or_else(|| "expected two numbers such as 50000,48000".to_owned())
}

/// From the start of the first window of a type to the end of the last.
fn duration_s(data: &ProfilesData, type_name: &str) -> f64 {
    let of_type = query::types(data).into_iter().filter(|summary| summary.type_name == type_name);
    let (from, to) = of_type
        .fold((u64::MAX, 0), |(from, to), summary| (from.min(summary.from_unix_nano), to.max(summary.to_unix_nano)));
    to.saturating_sub(from) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_percentage() {
        assert_eq!([percent("5%"), percent("5"), percent("0.5%")], [Ok(0.05), Ok(0.05), Ok(0.005)]);
        assert!(percent("-1%").is_err() && percent("many").is_err() && percent("nan").is_err());
    }
}
