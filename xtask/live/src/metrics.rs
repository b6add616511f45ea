//! Sends the profiler's own metrics to a Collector and compares the output of its file exporter with `stats()`. Called by `main`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use spanprof::config::{Compression, Protocol};
use spanprof::{Config, Profiler, StatValue, Stats};
use spanprof_export::{Destination, Exporter, ExporterSettings, OtlpEndpoint};
use spanprof_os::current_thread_cpu_ns;

/// Deadline for the receiver to write a request.
const RECEIVER_DEADLINE: Duration = Duration::from_secs(20);

/// Runs a short program; every number of `stats()` must be in the last metrics that the receiver wrote.
pub fn run(endpoint: &str, protocol: &str, compression: &str, service: &str, written: &str) -> Result<(), String> {
    let protocol = Protocol::from_text(protocol).ok_or(format!("no protocol `{protocol}`"))?;
    let compression = Compression::from_text(compression).ok_or(format!("no compression `{compression}`"))?;
    let config = Config::builder()
        .service_name(service)
        .endpoint(endpoint.to_owned())
        .protocol(protocol)
        .compression(compression)
        .upload_interval(Duration::from_millis(300))
        .metrics(true)
        .metrics_interval(Duration::from_millis(200))
        .load();
    let profiler = Profiler::start(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    burn(Duration::from_millis(900));
    let before = numbers(&profiler.stats());
    let delivered = profiler.stop();
    let stats = profiler.stats();
    let after = numbers(&stats);
    let sent = stats.counter("metrics.0.sent");
    if !delivered || sent < 3 || stats.counter("metrics.0.failed") > 0 {
        return Err(format!("delivered {delivered}, {sent} metrics: {:?}", stats.get("metrics.0.last_error")));
    }
    let last = wait_for(written, service, sent)?;
    let equal = compare(&before, &last, &after)?;
    println!("{service}: {sent} requests, {} values in the last, {equal} equal to stats() after stop", last.len());
    Ok(())
}

/// Sends to a receiver without a metrics pipeline, which gets one request; the error must name the way out.
pub fn refused(protocol: &str, url: &str) -> Result<(), String> {
    let receiver = match protocol {
        "grpc" => Destination::OtlpGrpc(OtlpEndpoint::new(url)),
        _ => Destination::OtlpHttp(OtlpEndpoint::new(format!("{url}/v1/metrics"))),
    };
    let settings = ExporterSettings { metrics: vec![receiver], ..ExporterSettings::default() };
    let exporter = Exporter::start(Vec::new(), settings).map_err(|error| error.to_string())?;
    exporter.send_metrics(Vec::new());
    exporter.stop(RECEIVER_DEADLINE);
    let stats = exporter.metrics_stats().swap_remove(0);
    let last_error = stats.last_error.clone().unwrap_or_default();
    match stats.stopped && last_error.contains("metrics pipeline") {
        true => println!("{protocol}: {last_error}"),
        false => return Err(format!("the refusal does not name the metrics pipeline: {stats:?}")),
    }
    Ok(())
}

fn burn(cpu: Duration) {
    let until_ns = current_thread_cpu_ns() + cpu.as_nanos() as u64;
    while current_thread_cpu_ns() < until_ns {
        std::hint::black_box((0..10_000u64).fold(1, |total: u64, number| total.wrapping_mul(31) ^ number));
    }
}

/// Numbers of `stats()` by metric and attributes, except the kind of a destination.
fn numbers(stats: &Stats) -> BTreeMap<String, u64> {
    let number = |(name, value): &(String, StatValue)| match value {
        StatValue::Count(count) => Some((series_of(name)?, *count)),
        StatValue::Text(_) => None,
    };
    stats.entries.iter().filter_map(number).collect()
}

/// `None` for a property.
fn series_of(name: &str) -> Option<String> {
    Some(match name.split('.').collect::<Vec<_>>().as_slice() {
        ["clock", "signal"] => return None,
        ["dropped", "code_ended"] => "spanprof.dropped.code_ended".to_owned(),
        ["dropped", reason] => format!("spanprof.dropped reason={reason}"),
        ["export", number, field] => match field.strip_prefix("dropped_").filter(|reason| *reason != "samples") {
            Some(reason) => format!("spanprof.export.dropped destination={number} reason={reason}"),
            None => format!("spanprof.export.{field} destination={number}"),
        },
        ["metrics", number, field] => format!("spanprof.metrics.{field} receiver={number}"),
        _ => format!("spanprof.{name}"),
    })
}

/// A value that the receiver wrote.
struct WrittenValue {
    value: u64,
    is_total: bool,
}

/// Reads the file until it has all requests of the service; returns the values of the last one.
fn wait_for(file: &str, service: &str, requests: u64) -> Result<BTreeMap<String, WrittenValue>, String> {
    let deadline = Instant::now() + RECEIVER_DEADLINE;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // The last line may be incomplete.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let resources = lines.flat_map(|line| list(&line["resourceMetrics"]).to_vec());
        let of_service: Vec<_> = resources
            .filter(|resource| {
                texts(&resource["resource"]["attributes"]).get("service.name").is_some_and(|name| name == service)
            })
            .collect();
        if of_service.len() as u64 == requests {
            let last = of_service.last().ok_or("no request")?;
            return values(last);
        }
        if Instant::now() > deadline {
            return Err(format!("{file} has {} of {requests} requests of {service}", of_service.len()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn values(resource: &Value) -> Result<BTreeMap<String, WrittenValue>, String> {
    let mut values = BTreeMap::new();
    let metrics = list(&resource["scopeMetrics"]).iter().flat_map(|scope| list(&scope["metrics"]));
    for metric in metrics {
        let name = metric["name"].as_str().unwrap_or_default();
        let sum = &metric["sum"];
        let is_total = sum["isMonotonic"] == true && sum["aggregationTemporality"] == 2;
        let points = if is_total { &sum["dataPoints"] } else { &metric["gauge"]["dataPoints"] };
        for point in list(points) {
            let mut attributes = texts(&point["attributes"]);
            attributes.remove("kind");
            let words: String = attributes.iter().map(|(key, value)| format!(" {key}={value}")).collect();
            let value = point["asInt"].as_str().and_then(|text| text.parse().ok());
            let value = value.ok_or(format!("{name} has no integer: {point}"))?;
            values.insert(format!("{name}{words}"), WrittenValue { value, is_total });
        }
    }
    Ok(values)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(attributes: &Value) -> BTreeMap<String, String> {
    let text = |attribute: &Value| {
        let value = attribute["value"]["stringValue"].as_str().unwrap_or_default();
        (attribute["key"].as_str().unwrap_or_default().to_owned(), value.to_owned())
    };
    list(attributes).iter().map(text).collect()
}

/// Each total is between those before and after `stop`, in which it may have grown; returns the number of values that are equal.
fn compare(
    before: &BTreeMap<String, u64>,
    last: &BTreeMap<String, WrittenValue>,
    after: &BTreeMap<String, u64>,
) -> Result<usize, String> {
    let names = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>();
    let (expected, found) = (names(after.keys().collect()), names(last.keys().collect()));
    if expected != found {
        let missing: Vec<_> = expected.iter().filter(|name| !found.contains(name)).collect();
        let unexpected: Vec<_> = found.iter().filter(|name| !expected.contains(name)).collect();
        return Err(format!("missing {missing:?}, unexpected {unexpected:?}"));
    }
    let mut equal = 0;
    for (name, WrittenValue { value, is_total }) in last {
        let (least, most) = (before.get(name).copied().unwrap_or(0), after[name]);
        equal += usize::from(*value == most);
        // Counters of the clocks begin anew when the clocks stop.
        if *is_total && *value != most && !(least..=most).contains(value) {
            return Err(format!("{name}: {value} is not between {least} and {most}"));
        }
    }
    match equal * 4 > last.len() * 3 {
        true => Ok(equal),
        false => Err(format!("only {equal} of {} values are equal", last.len())),
    }
}
