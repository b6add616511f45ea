//! A burst: a higher rate, and further kinds of samples, that end by themselves. Webhooks of alert managers begin one; the body of a resolved alert begins none.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{failed, log_change, refused};
use crate::http::message::{HttpRequest, HttpResponse};
use crate::session::Session;
use crate::wall::pace;
use spanprof_config::{Burst, ConfigSource, ConfigValue};

/// Duration and rate without parameters.
const DEFAULT_SECONDS: u32 = 600;
const DEFAULT_RATE_HZ: u32 = 1000;
const MAX_SECONDS: u32 = 3600;
const MAX_RATE_HZ: u32 = 1000;
/// Parameters that are keys of the configuration: further kinds of samples, and their intervals.
const KEYS: [&str; 8] = ["wall", "wall_rate", "off_cpu", "lock", "threads", "gc", "heap", "heap_interval"];

#[derive(Clone, Debug, PartialEq)]
struct BurstParameters {
    seconds: u32,
    rate_hz: u32,
    /// Values of [`KEYS`].
    values: Vec<(String, ConfigValue)>,
}

/// Begins a burst, or extends the current one.
pub(crate) fn begin(session: &Session, request: &HttpRequest) -> Result<(), HttpResponse> {
    let BurstParameters { seconds, rate_hz, values } = parameters(&request.query)
        .map_err(|problem| refused(400, &problem, "burst?seconds=600&rate=1000&wall=true"))?;
    if is_resolved_alert(&request.body) {
        return Ok(());
    }
    if !session.is_running() {
        // Disabling is a safety switch, which a repeated alert must not revert.
        return Err(refused(409, "the profiler is disabled", "enable it first: POST /debug/spanprof"));
    }
    let selected: String = values.iter().map(|(key, value)| format!(", {key}={}", value.shown())).collect();
    let until_ns = spanprof_os::monotonic_ns() + Duration::from_secs(seconds.into()).as_nanos() as u64;
    let changed = session.change(|running| {
        let lasting = running.lasting();
        // The wall rate follows `sample_rate` unless it is set; the rate is that of CPU samples.
        let rates = [("sample_rate", rate_hz), ("wall_rate", pace::rate_hz(lasting))];
        let rates = rates.map(|(key, rate)| (key.to_owned(), ConfigValue::Int(rate.into())));
        // A burst is an order to spend more than the budget.
        let budget = [("cpu_budget".to_owned(), ConfigValue::Int(0))];
        let values: Vec<_> = rates.into_iter().chain(budget).chain(values).collect();
        lasting.patched(&values, &ConfigSource::Burst)?;
        Ok(running.with_burst(Burst { until_ns, values }))
    });
    changed.map_err(failed)?;
    log_change(request, &format!("a burst of {seconds} s begins, sample_rate={rate_hz}{selected}"));
    Ok(())
}

/// Ends the current burst, if there is one.
pub(crate) fn end(session: &Session, request: &HttpRequest) -> Result<(), HttpResponse> {
    let has_burst = session.burst_end_ns().is_some();
    session.change(|running| Ok(running.without_burst())).map_err(failed)?;
    if has_burst {
        log_change(request, "the burst was ended early");
    }
    Ok(())
}

fn parameters(query: &str) -> Result<BurstParameters, String> {
    let mut parameters = BurstParameters { seconds: DEFAULT_SECONDS, rate_hz: DEFAULT_RATE_HZ, values: Vec::new() };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8_lossy();
        let (target, max) = match name {
            "seconds" => (&mut parameters.seconds, MAX_SECONDS),
            "rate" => (&mut parameters.rate_hz, MAX_RATE_HZ),
            _ if KEYS.contains(&name) => {
                parameters.values.push((name.to_owned(), ConfigValue::Text(value.into_owned())));
                continue;
            }
            _ => return Err(format!("unknown parameter `{name}`; expected seconds, rate, {}", KEYS.join(", "))),
        };
        let number = value.parse::<u32>().ok().filter(|number| (1..=max).contains(number));
        *target = number.ok_or_else(|| format!("{name} must be a whole number between 1 and {max}, got `{value}`"))?;
    }
    Ok(parameters)
}

/// Whether the request is a webhook about an alert that ended.
fn is_resolved_alert(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.get("status").and_then(Value::as_str).is_some_and(|status| status.eq_ignore_ascii_case("resolved"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_and_rate_have_defaults_and_caps() {
        let expected = |seconds, rate_hz| Ok(BurstParameters { seconds, rate_hz, values: Vec::new() });
        assert_eq!(parameters(""), expected(600, 1000));
        assert_eq!(parameters("seconds=60&rate=250"), expected(60, 250));
        let values = ["wall=true", "heap_interval=64KiB"].map(|pair| pair.split_once('=').unwrap());
        let values = values.map(|(key, value)| (key.to_owned(), value.into())).into();
        let selected = BurstParameters { seconds: 600, rate_hz: 1000, values };
        assert_eq!(parameters("wall=true&heap_interval=64KiB"), Ok(selected));
        for refused in [
            "seconds=0",
            "endpoint=x",
            "seconds=3601",
            "rate=1001",
            "rate=-1",
            "rate=NaN",
            "seconds=1e9",
            "minutes=5",
            "rate",
        ] {
            assert!(parameters(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn only_the_webhook_of_a_resolved_alert_begins_no_burst() {
        assert!(is_resolved_alert(br#"{"version": "4", "status": "resolved", "alerts": []}"#));
        for begins in [&b""[..], b"not json", br#"{"status": "firing"}"#, b"[]"] {
            assert!(!is_resolved_alert(begins));
        }
    }
}
