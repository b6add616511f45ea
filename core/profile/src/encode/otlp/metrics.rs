//! Encodes an `ExportMetricsServiceRequest` (opentelemetry/proto/metrics/v1/metrics.proto 1.10): integers only, since every number
//! of the profiler's own statistics is one. The signal is stable, so that it has no revision. Called by the profiler.

use super::request::attribute;
use crate::encode::message_writer::MessageWriter;
use crate::{Attribute, Scope};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// A metric with its data points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Unit in UCUM; "" when it has none.
    pub unit: String,
    /// Meaning of its values.
    pub metric_type: MetricType,
    /// One point per set of attributes.
    pub points: Vec<DataPoint>,
}

/// Meaning of the values of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// A current value: `Gauge`.
    Gauge,
    /// A total that only grows: a cumulative, monotonic `Sum`.
    Counter,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPoint {
    /// Distinguish the points of a metric.
    pub attributes: Vec<Attribute>,
    /// Time at which a total was 0, in nanoseconds since 1970; 0 for gauges.
    pub start_time_unix_nano: u64,
    /// Value; above the range of OTLP's integers it saturates.
    pub value: u64,
}

/// The request, uncompressed: all values of one time, in nanoseconds since 1970.
pub fn encode(resource: &[Attribute], metrics: &[Metric], time_unix_nano: u64) -> Vec<u8> {
    let Scope { name, version } = Scope::spanprof();
    let mut out = MessageWriter::default();
    out.message(1, |out| {
        out.message(1, |out| resource.iter().for_each(|of_resource| attribute(out, 1, of_resource)));
        out.message(2, |out| {
            out.message(1, |out| {
                out.bytes(1, name.as_bytes());
                out.bytes(2, version.as_bytes());
            });
            metrics.iter().for_each(|metric| out.message(2, |out| write_metric(out, metric, time_unix_nano)));
        });
    });
    out.into_bytes()
}

fn write_metric(out: &mut MessageWriter, metric: &Metric, time_unix_nano: u64) {
    out.bytes(1, metric.name.as_bytes());
    out.bytes(2, metric.description.as_bytes());
    out.bytes(3, metric.unit.as_bytes());
    let points = |out: &mut MessageWriter| {
        metric.points.iter().for_each(|point| out.message(1, |out| write_point(out, point, time_unix_nano)));
    };
    match metric.metric_type {
        MetricType::Gauge => out.message(5, points),
        MetricType::Counter => out.message(7, |out| {
            points(out);
            out.uint(2, CUMULATIVE);
            out.uint(3, 1);
        }),
    }
}

fn write_point(out: &mut MessageWriter, point: &DataPoint, time_unix_nano: u64) {
    out.fixed64(2, point.start_time_unix_nano);
    out.fixed64(3, time_unix_nano);
    out.present_fixed64(6, point.value.min(i64::MAX as u64));
    point.attributes.iter().for_each(|of_point| attribute(out, 7, of_point));
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
