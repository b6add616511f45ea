//! Names, units, attributes and start times of the metrics.

use super::*;
use crate::stats::OTHER_STATS;
use spanprof_aggregate::COUNTERS;

const STARTED: u64 = 1_000;

fn encoder() -> MetricsEncoder {
    MetricsEncoder { first_start_unix_ns: 500, ..MetricsEncoder::new(STARTED) }
}

fn stats(counts: &[(&str, u64)]) -> Stats {
    let mut stats = Stats::default();
    counts.iter().for_each(|(name, count)| stats.count(*name, *count));
    stats
}

fn metric(metrics: &[Metric], name: &str) -> Metric {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}: {metrics:#?}")).clone()
}

fn texts(point: &DataPoint) -> Vec<(String, String)> {
    point.attributes.iter().map(|attribute| (attribute.key.clone(), attribute.value.as_ref().to_string())).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_counter_is_a_total_since_the_start_and_a_gauge_has_no_start() {
    let stats = stats(&[("samples.cpu", 7), ("clock.handler_ns", 80), ("heap.interval", 9), ("internal.panics", 0)]);
    let metrics = encoder().metrics(&stats, 2_000);
    let cpu = metric(&metrics, "spanprof.samples.cpu");
    assert_eq!((cpu.metric_type, cpu.unit.as_str()), (MetricType::Counter, "{sample}"));
    assert_eq!(cpu.description, "CPU samples in windows.");
    assert_eq!((cpu.points[0].value, cpu.points[0].start_time_unix_nano), (7, STARTED));
    assert_eq!(cpu.points[0].attributes, []);
    let handler = metric(&metrics, "spanprof.clock.handler_ns");
    assert_eq!((handler.unit.as_str(), handler.points[0].start_time_unix_nano), ("ns", 500));
    let interval = metric(&metrics, "spanprof.heap.interval");
    assert_eq!((interval.metric_type, interval.unit.as_str()), (MetricType::Gauge, "By"));
    assert_eq!((interval.points[0].value, interval.points[0].start_time_unix_nano), (9, 0));
    assert_eq!(metric(&metrics, "spanprof.internal.panics").points[0].value, 0, "zeroes are sent too");
}

#[test]
fn lost_samples_are_one_metric_by_reason() {
    let counts = [("dropped.ring_full", 1), ("dropped.heap_busy", 2), ("dropped.code_ended", 3)];
    let metrics = encoder().metrics(&stats(&counts), 2_000);
    let dropped = metric(&metrics, "spanprof.dropped");
    assert_eq!(dropped.unit, "{sample}");
    let points: Vec<_> = dropped.points.iter().map(|point| (texts(point), point.value)).collect();
    assert_eq!(points, [(pairs(&[("reason", "ring_full")]), 1), (pairs(&[("reason", "heap_busy")]), 2)]);
    let frames = metric(&metrics, "spanprof.dropped.code_ended");
    assert_eq!((frames.unit.as_str(), frames.points[0].value), ("{frame}", 3));
}

#[test]
fn values_of_destinations_have_their_number_and_kind() {
    let mut stats = stats(&[("export.0.sent", 1), ("export.1.sent", 2), ("export.1.dropped_expired", 3)]);
    stats.count("export.1.dropped_samples", 4);
    stats.count("metrics.0.sent", 5);
    stats.text("export.0.kind", "otlp_http");
    stats.text("export.1.kind", "file");
    let metrics = encoder().metrics(&stats, 2_000);
    let attributes = |name: &str| metric(&metrics, name).points.iter().map(texts).collect::<Vec<_>>();
    let first = pairs(&[("destination", "0"), ("kind", "otlp_http")]);
    let second = pairs(&[("destination", "1"), ("kind", "file")]);
    assert_eq!(attributes("spanprof.export.sent"), [first, second.clone()]);
    assert_eq!(attributes("spanprof.export.dropped_samples"), std::slice::from_ref(&second));
    let expired = [second, pairs(&[("reason", "expired")])].concat();
    assert_eq!(attributes("spanprof.export.dropped"), [expired]);
    assert_eq!(attributes("spanprof.metrics.sent"), [pairs(&[("receiver", "0")])]);
}

#[test]
fn numbers_of_a_runtime_are_gauges_under_their_own_names_and_properties_are_omitted() {
    let mut stats = stats(&[("runtime.node.code_entries", 5), ("clock.signal", 23)]);
    stats.text("runtime.node.stack_walk", "own");
    stats.text("state", "running");
    stats.text("config.sample_rate", "100");
    let metrics = encoder().metrics(&stats, 2_000);
    let names: Vec<_> = metrics.iter().map(|metric| (metric.name.as_str(), metric.metric_type)).collect();
    assert_eq!(names, [("spanprof.runtime.node.code_entries", MetricType::Gauge)]);
}

#[test]
fn a_total_that_falls_begins_anew_at_the_previous_request() {
    let mut encoder = encoder();
    let mut start_at = |scans: u64, now: u64| {
        let metrics = encoder.metrics(&stats(&[("clock.scans", scans)]), now);
        metric(&metrics, "spanprof.clock.scans").points[0].start_time_unix_nano
    };
    assert_eq!(start_at(5, 2_000), STARTED);
    assert_eq!(start_at(9, 3_000), STARTED);
    assert_eq!(start_at(2, 4_000), 3_000);
    assert_eq!(start_at(8, 5_000), 3_000);
    assert_eq!(start_at(8, 2_500), 2_500, "no start after the time of the value");
}

#[test]
fn every_number_of_the_table_has_a_valid_name_and_unit_and_one_meaning_per_name() {
    let mut seen: HashMap<String, (String, MetricType)> = HashMap::new();
    for row in COUNTERS.iter().chain(OTHER_STATS).filter(|row| row.kind != StatKind::Property) {
        let name = row.name.replace("<n>", "0").replace("<reason>", "any").replace("<name>", "any");
        let known = documented(&name).unwrap();
        assert_eq!(known.row.name, row.name);
        let metric = metric_of(&known);
        let is_name_letter =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "._".contains(letter);
        assert!(metric.name.chars().all(is_name_letter), "{}", metric.name);
        let counted = metric.unit.strip_prefix('{').and_then(|unit| unit.strip_suffix('}'));
        let is_singular = counted.is_some_and(|unit| unit.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        let is_unit = ["ns", "s", "Hz", "By", "[ppm]"].contains(&metric.unit.as_str());
        assert!(is_unit || is_singular || row.name == "runtime.<name>", "{}: `{}`", row.name, metric.unit);
        let meaning = (metric.unit, metric.metric_type);
        assert_eq!(seen.entry(metric.name.clone()).or_insert_with(|| meaning.clone()), &meaning, "{}", metric.name);
    }
    assert_eq!(ucum("processes"), "{process}");
    assert_eq!(ucum("label sets"), "{label_set}");
}
