//! The numbers of `stats()` as OpenTelemetry metrics, by the table of `stats`. Remembers the previous values, since a
//! total that falls begins anew. The values are totals, since differences would be lost with a request. Not here: the time of
//! a request (`profiler`), its encoding (`spanprof_profile`), its delivery (`spanprof_export`).

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::stats::{documented, DocumentedName, Stats};
use spanprof_aggregate::{StatDoc, StatKind, StatValue};
use spanprof_profile::encode::otlp::metrics::{encode, DataPoint, Metric, MetricType};
use spanprof_profile::Attribute;

/// Prefix of each name.
const PREFIX: &str = "spanprof.";
/// The row whose reasons are one attribute of one metric, those with rows of their own included.
const DROPPED: &str = "dropped.<reason>";

/// Time at which counters of the process were 0, at the latest: the first start of the profiler.
static FIRST_START_UNIX_NS: OnceLock<u64> = OnceLock::new();

/// Encodes `stats()` as metrics, with the previous values. One per run.
pub(crate) struct MetricsEncoder {
    started_unix_ns: u64,
    first_start_unix_ns: u64,
    /// Time of the previous request.
    previous_unix_ns: u64,
    /// Value and start time of each total in the previous request, by its name in `stats()`.
    previous: HashMap<String, (u64, u64)>,
}

impl MetricsEncoder {
    /// Begins at the start of a run.
    pub fn new(started_unix_ns: u64) -> Self {
        let first_start_unix_ns = *FIRST_START_UNIX_NS.get_or_init(|| started_unix_ns);
        Self { started_unix_ns, first_start_unix_ns, previous_unix_ns: started_unix_ns, previous: HashMap::new() }
    }

    /// The request with all numbers at a time. Text is omitted.
    pub fn encode(&mut self, stats: &Stats, resource: &[Attribute], now_unix_ns: u64) -> Vec<u8> {
        encode(resource, &self.metrics(stats, now_unix_ns), now_unix_ns)
    }

    fn metrics(&mut self, stats: &Stats, now_unix_ns: u64) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = Vec::new();
        for (name, value) in &stats.entries {
            let StatValue::Count(value) = value else { continue };
            let Some(known) = documented(name).filter(|known| known.row.kind != StatKind::Property) else { continue };
            let start_time_unix_nano = self.start_of(name, *value, known.row.kind, now_unix_ns);
            let point = DataPoint { attributes: attributes(&known, stats), start_time_unix_nano, value: *value };
            let metric = metric_of(&known);
            match metrics.iter_mut().find(|other| other.name == metric.name) {
                Some(other) => other.points.push(point),
                None => metrics.push(Metric { points: vec![point], ..metric }),
            }
        }
        self.previous_unix_ns = now_unix_ns;
        metrics
    }

    /// The time at which a total was 0; 0 for gauges. Counters of the clocks begin anew when `enabled` or `cpu` change: then it is
    /// the time of the previous request.
    fn start_of(&mut self, name: &str, value: u64, kind: StatKind, now_unix_ns: u64) -> u64 {
        let begun = match kind {
            StatKind::Counter => self.started_unix_ns,
            StatKind::ProcessCounter => self.first_start_unix_ns,
            StatKind::Gauge | StatKind::Property => return 0,
        };
        let start = match self.previous.get(name) {
            Some((previous, _)) if value < *previous => self.previous_unix_ns,
            Some((_, start)) => *start,
            None => begun,
        };
        // The system's time may have been set back.
        let start = start.min(now_unix_ns);
        self.previous.insert(name.to_owned(), (value, start));
        start
    }
}

/// The metric of a value, without points.
fn metric_of(known: &DocumentedName) -> Metric {
    let row = row_of_metric(known);
    let name = match known.placeholder("name") {
        Some(name) => row.name.replace("<name>", name),
        None => row.name.replace(".<n>", "").replace("_<reason>", "").replace(".<reason>", ""),
    };
    Metric {
        name: format!("{PREFIX}{name}"),
        description: row.doc.trim().to_owned(),
        unit: ucum(row.unit),
        metric_type: match row.kind {
            StatKind::Counter | StatKind::ProcessCounter => MetricType::Counter,
            StatKind::Gauge | StatKind::Property => MetricType::Gauge,
        },
        points: Vec::new(),
    }
}

/// The row that names the metric: losses of samples with a row of their own are points of [`DROPPED`].
fn row_of_metric(known: &DocumentedName) -> &'static StatDoc {
    match documented_drop_reason(known) {
        Some((row, _)) => row,
        None => known.row,
    }
}

/// Row and reason of a loss of samples. Losses in another unit are metrics of their own.
fn documented_drop_reason(known: &DocumentedName) -> Option<(&'static StatDoc, &'static str)> {
    let reason = known.row.name.strip_prefix("dropped.")?;
    let row = documented("dropped.any").filter(|any| any.row.name == DROPPED)?.row;
    (known.placeholders.is_empty() && known.row.unit == row.unit).then_some((row, reason))
}

fn attributes(known: &DocumentedName, stats: &Stats) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    if let Some(number) = known.placeholder("n") {
        let group = known.row.name.split('.').next().unwrap_or_default();
        // The receivers of metrics have numbers of their own.
        let key = if group == "export" { "destination" } else { "receiver" };
        attributes.push(Attribute::string(key, number));
        if let Some(StatValue::Text(kind)) = stats.get(&format!("{group}.{number}.kind")) {
            attributes.push(Attribute::string("kind", kind.as_str()));
        }
    }
    let reason = known.placeholder("reason").or_else(|| documented_drop_reason(known).map(|(_, reason)| reason));
    attributes.extend(reason.map(|reason| Attribute::string("reason", reason)));
    attributes
}

/// A unit of the table in UCUM: the name of counted things is an annotation in the singular, such as `{sample}`.
fn ucum(unit: &str) -> String {
    match unit {
        "" | "ns" | "s" | "Hz" => unit.to_owned(),
        "bytes" => "By".to_owned(),
        "ppm" => "[ppm]".to_owned(),
        _ => {
            let singular = unit.strip_suffix("sses").map(|stem| format!("{stem}ss"));
            let singular = singular.unwrap_or_else(|| unit.strip_suffix('s').unwrap_or(unit).to_owned());
            format!("{{{}}}", singular.replace(' ', "_"))
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
