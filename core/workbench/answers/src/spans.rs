//! The output of `spanprof spans` as text and JSON.

use serde_json::{json, Map, Value};
use spanprof_profile::kinds::{REQUESTS, REQUEST_ERRORS};
use spanprof_read::query::{
    is_of_requests, SpanBaseline, SpanBaselineRow, SpanDifference, SpanGrouping, SpanRow, SpanTable, WaitSource,
    MIN_SPAN_SAMPLES, REQUEST_TIME,
};

use crate::function::{function_members, printable};
use crate::layout::{FittingTable, TerminalLayout};
use crate::quantity::{format_quantity, format_share};

/// Columns by which the rows can be ordered: the flag `--sort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SpanOrder {
    Cpu,
    Alloc,
    Wait,
    Errors,
    Duration,
}

impl SpanOrder {
    /// The weight by which rows are ordered.
    pub fn weight(self, row: &SpanRow, wait: Option<WaitSource>) -> i64 {
        match self {
            Self::Cpu => row.weight("cpu"),
            Self::Alloc => row.weight("alloc_space"),
            Self::Wait => wait.map_or(0, |wait| wait.weight(row)),
            Self::Errors => row.weight(REQUEST_ERRORS),
            Self::Duration => row.durations.map_or_else(|| row.weight(REQUEST_TIME), |[_, p99]| p99),
        }
    }
}

/// The listed part of a table.
pub struct SpansReport<'t> {
    pub table: &'t SpanTable,
    pub grouping: SpanGrouping,
    pub sort: SpanOrder,
    pub wait: Option<WaitSource>,
    pub limit: usize,
}

impl SpansReport<'_> {
    fn weight(&self, row: &SpanRow, column: SpanOrder) -> Option<i64> {
        let of_type = |name: &str| self.table.totals.contains_key(name).then(|| row.weight(name));
        match column {
            SpanOrder::Cpu => of_type("cpu"),
            SpanOrder::Alloc => of_type("alloc_space"),
            SpanOrder::Wait => self.wait.map(|wait| wait.weight(row)),
            // A window without a failed request has no profile of them.
            SpanOrder::Errors => self.counts_requests().then(|| row.weight(REQUEST_ERRORS)),
            SpanOrder::Duration => duration_of(row),
        }
    }

    /// Whether the ends of requests were reported.
    fn counts_requests(&self) -> bool {
        self.table.totals.contains_key(REQUESTS.default_type())
    }

    /// Ended requests of an endpoint.
    fn requests(&self, row: &SpanRow) -> Option<i64> {
        let is_counted = self.counts_requests() && self.grouping == SpanGrouping::Endpoint;
        is_counted.then(|| row.weight(REQUESTS.default_type()))
    }

    /// Samples of the column by which the rows are sorted, or of CPU time.
    fn samples(&self, row: &SpanRow) -> f64 {
        let name = match (self.sort, self.wait) {
            (SpanOrder::Cpu | SpanOrder::Duration, _) => "cpu",
            (SpanOrder::Alloc, _) => "alloc_space",
            (SpanOrder::Errors, _) => REQUEST_ERRORS,
            (SpanOrder::Wait, wait) => wait.map_or("delay", WaitSource::type_name),
        };
        row.types.get(name).map_or(0.0, |total| total.samples).round()
    }

    /// `cpu 3.46 s, 82.1% in spans; requests 40, 2 failed`
    fn totals(&self) -> String {
        let share = |name: &String, weight| format_share(self.table.linked.get(name).copied().unwrap_or(0), weight);
        let weight = |name: &str| self.table.totals.get(name).map_or(0, |total| total.weight);
        let sampled = self.table.totals.iter().filter(|(name, _)| !is_of_requests(name));
        let parts = sampled.map(|(name, total)| {
            let unit = self.table.units.get(name).map_or("", String::as_str);
            format!("{name} {}, {} in spans", format_quantity(total.weight, unit), share(name, total.weight))
        });
        let requests = self
            .counts_requests()
            .then(|| format!("requests {}, {} failed", weight(REQUESTS.default_type()), weight(REQUEST_ERRORS)));
        parts.chain(requests).collect::<Vec<_>>().join("; ")
    }

    pub fn text(&self) -> String {
        let SpanTable { rows, spans, .. } = self.table;
        let counted = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let mut text = match self.grouping {
            SpanGrouping::Span => counted(*spans, "span"),
            SpanGrouping::Trace => format!("{} of {}", counted(*spans, "span"), counted(rows.len(), "trace")),
            SpanGrouping::Endpoint => format!("{} of {}", counted(*spans, "span"), counted(rows.len(), "endpoint")),
        };
        text += &format!(": {}\n", self.totals());
        if *spans == 0 {
            text += "no sample belongs to a span: link them with an OpenTelemetry SDK or a middleware\n";
        }
        let wait = self.wait.map_or(String::new(), |wait| format!(" ({})", wait.name()));
        let mut lines = FittingTable::new(TerminalLayout::of_stdout());
        let mut numbers = format!("{:>10} {:>6} {:>10} {:>10} {:>8}  ", "cpu", "cpu%", "alloc", "wait", "samples");
        if self.counts_requests() {
            numbers = match self.grouping {
                SpanGrouping::Endpoint => {
                    format!("{:>8} {:>7} {:>8} {:>8} {:>8} ", "requests", "errors", "p50", "p99", "max")
                }
                SpanGrouping::Span | SpanGrouping::Trace => format!("{:>7} {:>10} ", "errors", "duration"),
            } + &numbers;
        }
        match self.grouping {
            SpanGrouping::Span => {
                lines.heading(numbers, "trace                             span              endpoint");
            }
            SpanGrouping::Trace => {
                lines.heading(numbers + "  spans  ", "trace                             endpoint");
            }
            SpanGrouping::Endpoint => lines.heading(numbers + "  spans  ", "endpoint"),
        }
        let cpu_total = self.table.totals.get("cpu").map_or(0, |total| total.weight);
        for row in rows.iter().take(self.limit) {
            let quantity =
                |column, unit| self.weight(row, column).map_or("-".to_owned(), |weight| format_quantity(weight, unit));
            let time = |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| format_quantity(ns, "nanoseconds"));
            let counts = match (self.weight(row, SpanOrder::Errors), self.requests(row)) {
                (None, _) => String::new(),
                (Some(errors), None) => format!("{errors:>7} {:>10} ", time(duration_of(row))),
                (Some(errors), Some(requests)) => {
                    let [p50, p99] = [0, 1].map(|nth| time(row.durations.map(|both| both[nth])));
                    let max = time(row.slowest.map(|(ns, _)| ns));
                    format!("{requests:>8} {errors:>7} {p50:>8} {p99:>8} {max:>8} ")
                }
            };
            let numbers = format!(
                "{counts}{:>10} {:>6} {:>10} {:>10} {:>8}  ",
                quantity(SpanOrder::Cpu, "nanoseconds"),
                format_share(row.weight("cpu"), cpu_total),
                quantity(SpanOrder::Alloc, "bytes"),
                quantity(SpanOrder::Wait, "nanoseconds"),
                self.samples(row),
            );
            let [trace, span] = [hex::encode(row.link.trace_id), hex::encode(row.link.span_id)];
            let endpoint = endpoint_text(&row.service, &row.endpoint);
            let spans = format!("{:>7}  ", row.spans);
            match self.grouping {
                SpanGrouping::Span => lines.row(numbers, format!("{trace}  {span}  "), endpoint),
                SpanGrouping::Trace => lines.row(numbers + &spans, format!("{trace}  "), endpoint),
                SpanGrouping::Endpoint => lines.row(numbers + &spans, "", endpoint),
            }
        }
        text += &lines.text();
        if rows.len() > self.limit {
            text += &format!("… and {} more (--limit 0 prints all)\n", rows.len() - self.limit);
        }
        if !wait.is_empty() {
            text += &format!("wait is{}\n", wait.replace(['(', ')'], ""));
        }
        text
    }

    pub fn json(&self) -> Value {
        let row = |row: &SpanRow| {
            let mut members = Map::new();
            let mut insert = |name: &str, value: Value| members.insert(name.to_owned(), value);
            if self.grouping != SpanGrouping::Endpoint {
                insert("trace_id", hex::encode(row.link.trace_id).into());
            }
            if self.grouping == SpanGrouping::Span {
                insert("span_id", hex::encode(row.link.span_id).into());
            }
            insert("service", row.service.as_str().into());
            insert("endpoint", row.endpoint.as_str().into());
            insert("spans", row.spans.into());
            insert("samples", (self.samples(row) as i64).into());
            let columns = [
                ("cpu_ns", SpanOrder::Cpu),
                ("alloc_bytes", SpanOrder::Alloc),
                ("wait_ns", SpanOrder::Wait),
                ("errors", SpanOrder::Errors),
            ];
            for (name, column) in columns {
                insert(name, self.weight(row, column).into());
            }
            insert("requests", self.requests(row).into());
            if self.grouping == SpanGrouping::Endpoint {
                insert("p50_ns", row.durations.map(|[p50, _]| p50).into());
                insert("p99_ns", row.durations.map(|[_, p99]| p99).into());
                let slowest = row.slowest.map(|(ns, link)| {
                    json!({"duration_ns": ns, "trace_id": hex::encode(link.trace_id), "span_id": hex::encode(link.span_id), "type": row.main_type(self.wait).unwrap_or("cpu")})
                });
                insert("slowest", slowest.unwrap_or_default());
            } else {
                insert("duration_ns", duration_of(row).into());
                insert("type", row.main_type(self.wait).into());
            }
            // Milliseconds, which JavaScript numbers represent exactly.
            insert("first_ms", (row.first_unix_nano / 1_000_000).into());
            let types = row.types.iter().map(|(name, total)| {
                let mut of_type = json!({"weight": total.weight, "samples": total.samples.round() as i64});
                if let Some([median, p99]) = row.quantiles.get(name) {
                    (of_type["p50"], of_type["p99"]) = ((*median).into(), (*p99).into());
                }
                (name.clone(), of_type)
            });
            insert("types", types.collect::<Map<String, Value>>().into());
            Value::Object(members)
        };
        let table = self.table;
        let totals = table.totals.iter().map(|(name, total)| {
            let members = json!({
                "unit": table.units.get(name), "total": total.weight, "samples": total.samples.round() as i64,
                "linked_total": table.linked.get(name).copied().unwrap_or(0),
            });
            (name.clone(), members)
        });
        json!({
            "by": match self.grouping {
                SpanGrouping::Span => "span",
                SpanGrouping::Trace => "trace",
                SpanGrouping::Endpoint => "endpoint",
            },
            "spans": table.spans,
            "samples_left_out": table.left_out,
            "wait": self.wait.map(WaitSource::name),
            "awaits": table.awaits,
            "types": totals.collect::<Map<String, Value>>(),
            "count": table.rows.len(),
            "rows": table.rows.iter().take(self.limit).map(row).collect::<Value>(),
        })
    }
}

/// Nanoseconds from the start to the end of a failed or slow request; of a trace with several, their sum.
pub fn duration_of(row: &SpanRow) -> Option<i64> {
    row.types.get(REQUEST_TIME).map(|total| total.weight)
}

fn endpoint_text(service: &str, endpoint: &str) -> String {
    let endpoint = if endpoint.is_empty() { "(no endpoint)" } else { endpoint };
    if service.is_empty() {
        printable(endpoint)
    } else {
        format!("{}  {}", printable(endpoint), printable(service))
    }
}

/// The listed rows: the significant ones, or all.
fn listed(baseline: &SpanBaseline, all: bool) -> Vec<&SpanBaselineRow> {
    baseline.rows.iter().filter(|row| all || row.is_significant).collect()
}

/// Why no function is tested; "" if any is.
fn why_not_tested(baseline: &SpanBaseline) -> String {
    if baseline.tested > 0 {
        String::new()
    } else if baseline.others == 0 {
        "it is the only one of its endpoint".to_owned()
    } else if baseline.samples.is_none() {
        "the profiles do not state their sampling interval".to_owned()
    } else {
        format!("no function has {MIN_SPAN_SAMPLES:.0} samples in it and in the mean of the others together")
    }
}

/// `time`: the lines of [`super::span_time::text`].
pub fn baseline_text(baseline: &SpanBaseline, subject: &str, time: &str, all: bool, limit: usize) -> String {
    let quantity = |value: f64| format_quantity(value.round() as i64, &baseline.unit);
    let signed = |value: f64| if value > 0.0 { format!("+{}", quantity(value)) } else { quantity(value) };
    let interval = |difference: &SpanDifference| {
        difference.interval.map_or("-".to_owned(), |(low, high)| format!("{} … {}", signed(low), signed(high)))
    };
    let others = |count: usize| format!("{count} other{}", if count == 1 { "" } else { "s" });
    let total = &baseline.total;
    let mut text = format!(
        "{subject} of {}\n{time}\n{}: {}, mean of the {}: {}, difference {}",
        endpoint_text(&baseline.service, &baseline.endpoint),
        baseline.type_name,
        quantity(total.weight as f64),
        others(baseline.others),
        quantity(total.mean),
        signed(total.weight as f64 - total.mean),
    );
    if total.interval.is_some() {
        text += &format!(" (95 % interval {})", interval(total));
    }
    text += &format!("; {} of {} have as much\n", total.as_much, baseline.others);
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    let numbers = format!("{:>10} {:>10} {:>10} {:>23} {:>12}  ", "this", "mean", "diff", "95% interval", "as much");
    lines.heading(numbers, "function");
    let rows = listed(baseline, all || baseline.tested == 0);
    for row in rows.iter().take(limit) {
        let difference = &row.difference;
        let numbers = format!(
            "{:>10} {:>10} {:>10} {:>23} {:>12}  ",
            quantity(difference.weight as f64),
            quantity(difference.mean),
            signed(difference.weight as f64 - difference.mean),
            interval(difference),
            format!("{} of {}", difference.as_much, baseline.others),
        );
        lines.function(numbers, 0, &row.location, "");
    }
    text += &lines.text();
    if rows.len() > limit {
        text += &format!("… and {} more (--limit 0 prints all)\n", rows.len() - limit);
    }
    match why_not_tested(baseline).as_str() {
        "" => {
            let samples = baseline.samples.unwrap_or_default();
            let [own, other] = samples.map(|samples| format!("{samples:.0} samples"));
            text +=
                &format!("tested by the number of samples: {own} against {other} of the {}\n", others(baseline.others));
        }
        reason => text += &format!("nothing can be concluded: {reason}\n"),
    }
    let hidden = baseline.rows.len() - rows.len();
    if hidden > 0 {
        text += &format!("{hidden} differences may be chance (--all lists them)\n");
    }
    text
}

pub fn baseline_json(baseline: &SpanBaseline, all: bool, limit: usize) -> Value {
    let of_difference = |difference: &SpanDifference| {
        json!({
            "weight": difference.weight, "mean": difference.mean, "low": difference.interval.map(|(low, _)| low),
            "high": difference.interval.map(|(_, high)| high), "p_value": difference.p_value,
            "others_with_as_much": difference.as_much,
        })
    };
    let row = |row: &&SpanBaselineRow| {
        let mut members = function_members(&row.location);
        if let Value::Object(difference) = of_difference(&row.difference) {
            members.extend(difference);
        }
        members.insert("significant".to_owned(), row.is_significant.into());
        Value::Object(members)
    };
    let rows = listed(baseline, all || baseline.tested == 0);
    let reason = why_not_tested(baseline);
    json!({
        "type": baseline.type_name, "unit": baseline.unit, "service": baseline.service, "endpoint": baseline.endpoint,
        "others": baseline.others, "samples": baseline.samples.map(|samples| samples.map(f64::round)),
        "tested": baseline.tested, "not_concluded": if reason.is_empty() { Value::Null } else { reason.into() },
        "total": of_difference(&baseline.total), "differing": baseline.rows.len(),
        "rows": rows.iter().take(limit).map(row).collect::<Value>(),
    })
}
