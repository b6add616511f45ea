//! `spanprof spans`: traces, spans and endpoints by CPU time, allocation and wait; one span against the others of its endpoint.

use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::format_quantity;
use spanprof_answers::selection::moment::unix_ns;
use spanprof_answers::selection::EndArguments;
use spanprof_answers::span_time as span_time_report;
use spanprof_answers::spans::{self as spans_report, SpanOrder};
use spanprof_profile::kinds::REQUESTS;
use spanprof_read::query::{
    fold_runtime_code, span_baseline, span_time, Detail, Filter, NoSpanBaseline, SpanGrouping, SpanSubject, SpanTime,
    SpanTotals, WaitSource, COMPARED_TYPES,
};

use super::table::{row_limit, Rows, SortColumn};
use super::{missing, nothing_passes, read_all, sources, ReadArguments};
use crate::output::{self, Printed};
use crate::source::Source;

const UNKNOWN_WAITS: &str = "waits are unknown: SPANPROF_PROFILES=all records them (profiles=all)";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof spans FILE|DIR|URL… [FLAGS]",
    before_help = "\
Reads every source of `spanprof top`. Samples have a span if an OpenTelemetry SDK or a middleware links them.

The endpoint of a span is its label http.route, endpoint or span_name, in this order. Wait is the type off_cpu; without it wall
minus cpu, or the delay at locks. Spans without a sample are listed if they failed or were slow, and their end was reported.

With --against-endpoint, --span-id or --trace-id names a span or trace. It is compared with the mean of the others of its endpoint: by
where its time went (CPU by part of the program, waiting by reason), and by function.",
    after_help = "\
Examples:
  spanprof spans ./profiles
  spanprof spans http://127.0.0.1:4318 --by endpoint --sort wait --from -15m
  spanprof spans ./profiles --by trace --label http.route=/cart --sort alloc --json
  spanprof spans ./profiles --span-id b7ad6b7169203331 --against-endpoint"
)]
pub(crate) struct SpansArguments {
    /// rows to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "30", value_parser = row_limit)]
    pub limit: usize,
    /// rows: spans, traces or endpoints
    #[arg(long, value_name = "ROWS", value_enum, default_value_t = SpanRows::Span)]
    pub by: SpanRows,
    /// order of the rows
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = SpanOrder::Cpu)]
    pub sort: SpanOrder,
    /// label that names the endpoint
    #[arg(long, value_name = "KEY")]
    pub endpoint_label: Option<String>,
    /// compare the span or trace with the others of its endpoint: where its time went, and by function
    #[arg(long, conflicts_with_all = ["by", "sort"])]
    pub against_endpoint: bool,
    /// compared weight: of the function itself (flat), or with its callees (cum); by default cum of own code, flat of other code
    #[arg(long, value_name = "WEIGHT", value_enum, requires = "against_endpoint")]
    pub compare: Option<SortColumn>,
    /// list every difference, also those that may be chance
    #[arg(long, requires = "against_endpoint")]
    pub all: bool,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

/// The flag `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SpanRows {
    Span,
    Trace,
    Endpoint,
}

pub(crate) fn run(arguments: &SpansArguments) -> Result<i32, Failure> {
    report(arguments)?.print()?;
    Ok(0)
}

/// The result as JSON, for `--json`.
pub(crate) fn answer(arguments: &SpansArguments) -> Result<serde_json::Value, Failure> {
    Ok(report(arguments)?.into_json())
}

fn report(arguments: &SpansArguments) -> Result<Printed, Failure> {
    let filter = arguments.read.filter.filter(arguments.end.to.as_deref(), unix_ns())?;
    let sources = sources(&arguments.read.sources)?;
    if arguments.against_endpoint {
        against_endpoint(arguments, &sources, filter)
    } else {
        table(arguments, &sources, &filter)
    }
}

fn add_all(totals: &mut SpanTotals, sources: &[Source], filter: &Filter) -> Result<(), Failure> {
    sources.iter().try_for_each(|source| source.for_each_window(filter, &mut |window| totals.add(&window)))
}

fn table(arguments: &SpansArguments, sources: &[Source], filter: &Filter) -> Result<Printed, Failure> {
    let mut totals = SpanTotals::new(arguments.endpoint_label.clone());
    add_all(&mut totals, sources, filter)?;
    let wait = WaitSource::of(&totals.type_names());
    let grouping = match arguments.by {
        SpanRows::Span => SpanGrouping::Span,
        SpanRows::Trace => SpanGrouping::Trace,
        SpanRows::Endpoint => SpanGrouping::Endpoint,
    };
    let names = totals.type_names();
    let counts_requests = names.iter().any(|name| name == REQUESTS.default_type());
    let table = totals.table(grouping, |row| match arguments.sort {
        SpanOrder::Duration if !counts_requests => row.weight("cpu") + wait.map_or(0, |wait| wait.weight(row)),
        sort => sort.weight(row, wait),
    });
    if table.totals.is_empty() {
        return Err(nothing_passes(&arguments.read.sources.join(", "), sources, filter));
    }
    if table.rows.iter().all(|row| row.spans == 0 && row.endpoint.is_empty()) {
        return Err(Failure::new(format!("no sample in {} belongs to a span", arguments.read.sources.join(", ")))
            .hint("an OpenTelemetry SDK or a middleware in the program links them"));
    }
    if arguments.sort == SpanOrder::Duration && !counts_requests {
        output::note(
            "durations are unknown: a middleware or span processor of spanprof reports them; sorted by CPU time and waits",
        );
    }
    if arguments.sort == SpanOrder::Wait && wait.is_none() && !table.awaits {
        output::note(UNKNOWN_WAITS);
    }
    if table.left_out > 0 {
        output::note(&format!(
            "{} samples of further spans are left out: narrow the selection with --from or --service",
            table.left_out
        ));
    }
    let report =
        spans_report::SpansReport { table: &table, grouping, sort: arguments.sort, wait, limit: arguments.limit };
    Ok(if arguments.json { Printed::Json(report.json()) } else { Printed::Text(report.text()) })
}

fn against_endpoint(arguments: &SpansArguments, sources: &[Source], filter: Filter) -> Result<Printed, Failure> {
    let (subject, subject_text) = match (filter.span_id, filter.trace_id) {
        (Some(span_id), trace_id) => {
            let link = spanprof_profile::Link { trace_id: trace_id.unwrap_or_default(), span_id };
            (SpanSubject::Span(link), format!("span {}", hex::encode(span_id)))
        }
        (None, Some(trace_id)) => (SpanSubject::Trace(trace_id), format!("trace {}", hex::encode(trace_id))),
        (None, None) => {
            return Err(Failure::usage("--against-endpoint needs a span or trace")
                .hint("name it with --span-id or --trace-id; `spanprof spans` lists them"))
        }
    };
    let everything = Filter { span_id: None, trace_id: None, type_name: None, ..filter.clone() };
    let names = arguments.read.sources.join(", ");
    let mut categories = SpanTotals::with_categories(arguments.endpoint_label.clone());
    let types = filter.type_name.as_deref().map_or(COMPARED_TYPES.to_vec(), |name| vec![name]);
    let functions_of =
        |name: &&str| SpanTotals::with_functions(arguments.endpoint_label.clone(), name, Rows::Function.into());
    let mut functions: Vec<SpanTotals> = types.iter().map(functions_of).collect();
    for source in sources {
        source.for_each_window(&everything, &mut |mut window| {
            categories.add(&window);
            fold_runtime_code(&mut window);
            functions.iter_mut().for_each(|totals| totals.add(&window));
        })?;
    }
    if categories.type_names().is_empty() && read_all(sources, &everything, Detail::Stacks)?.sample_count() == 0 {
        return Err(nothing_passes(&names, sources, &filter));
    }
    let Some(time) = span_time(&categories, subject) else {
        return Err(not_found(arguments, &subject_text, filter.type_name.as_deref()));
    };
    let compared_type = match filter.type_name.as_deref().or_else(|| time.main_type()) {
        Some(compared_type) => compared_type,
        None => return Err(without_samples(&time, &subject_text)),
    };
    let Some(functions) = types.iter().position(|name| *name == compared_type).map(|index| &functions[index]) else {
        return Err(Failure::new(format!("the {subject_text} has samples of the type {compared_type} only"))
            .hint(format!("--type {compared_type} compares it by them")));
    };
    if functions.type_names().is_empty() {
        return Err(missing(&names, compared_type, &read_all(sources, &everything, Detail::Stacks)?));
    }
    let report = comparison(arguments, functions, &subject_text, &time)?;
    let report = report.ok_or_else(|| not_found(arguments, &subject_text, Some(compared_type)))?;
    if filter.type_name.is_none() && compared_type != "cpu" {
        output::note(&format!("compared by {compared_type}, which has most of its time (--type selects another)"));
    }
    if time.has_unknown_waits() {
        output::note(UNKNOWN_WAITS);
    }
    Ok(report)
}

/// A request of which nothing but the end is known.
fn without_samples(time: &SpanTime, subject: &str) -> Failure {
    let took = spans_report::duration_of(&time.subject).map(|ns| format_quantity(ns, "nanoseconds"));
    Failure::new(format!("the {subject} took {} and has no samples", took.as_deref().unwrap_or("an unknown time"))).hint(match time.wait {
        None if !time.awaits => UNKNOWN_WAITS,
        _ => "no thread was sampled in it; in Node.js it may have waited behind another request, which `spanprof spans --sort duration` lists at the same time",
    })
}

fn not_found(arguments: &SpansArguments, subject: &str, type_name: Option<&str>) -> Failure {
    let names = arguments.read.sources.join(", ");
    let of_type = type_name.map_or(String::new(), |name| format!(" and type {name}"));
    Failure::new(format!("{names} has no samples of the {subject}{of_type}"))
        .hint("`spanprof spans` lists the spans that have samples; --type selects another type, such as wall for a span that waits")
}

/// The comparison by the functions of one profile type; `None` if the span or trace has no samples of it.
fn comparison(
    arguments: &SpansArguments,
    totals: &SpanTotals,
    subject: &str,
    time: &SpanTime,
) -> Result<Option<Printed>, Failure> {
    let baseline = match span_baseline(totals, time, arguments.compare.map(Into::into)) {
        Ok(baseline) => baseline,
        Err(NoSpanBaseline::NotFound) => return Ok(None),
        Err(NoSpanBaseline::NoEndpoint) => {
            return Err(Failure::new(format!("the {subject} has no endpoint")).hint(
            "its samples have none of the labels http.route, endpoint and span_name; name another with --endpoint-label",
        ))
        }
    };
    Ok(Some(if arguments.json {
        let mut report = spans_report::baseline_json(&baseline, arguments.all, arguments.limit);
        report["time"] = span_time_report::json(time);
        Printed::Json(report)
    } else {
        let time = span_time_report::text(time);
        Printed::Text(spans_report::baseline_text(&baseline, subject, &time, arguments.all, arguments.limit))
    }))
}
