//! A burst: a higher rate that ends by itself. Webhooks of alert managers begin one; the body of a resolved alert begins none.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{ControlRequest, ControlResponse};
use crate::config::{Burst, ConfigValue};
use crate::{sys, Profiler};

/// Duration and rate without parameters.
const DEFAULT: BurstParameters = BurstParameters { seconds: 600, rate_hz: 1000 };
const MAX_SECONDS: u32 = 3600;
const MAX_RATE_HZ: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BurstParameters {
    seconds: u32,
    rate_hz: u32,
}

/// Begins a burst, or extends the current one.
pub(super) fn begin(profiler: &Profiler, request: &ControlRequest<'_>) -> Result<(), ControlResponse> {
    let parameters = parameters(request.query)
        .map_err(|problem| ControlResponse::refused(400, &problem, "burst?seconds=600&rate=1000"))?;
    if is_resolved_alert(request.body) {
        return Ok(());
    }
    if !profiler.is_running() {
        // Disabling is a safety switch, which a repeated alert must not revert.
        return Err(ControlResponse::refused(409, "the profiler is disabled", "enable it first: POST /debug/spanprof"));
    }
    let duration = Duration::from_secs(parameters.seconds.into());
    let until_ns = sys::monotonic_ns() + duration.as_nanos() as u64;
    Ok(profiler.reconfigure(|running| {
        let lasting = running.lasting();
        // The wall rate follows `sample_rate` unless it is set; the burst is one of CPU samples.
        let wall_rate = lasting.wall_rate.unwrap_or(lasting.sample_rate);
        let rates = [("sample_rate", parameters.rate_hz), ("wall_rate", wall_rate.min(MAX_RATE_HZ))];
        let values = rates.map(|(key, rate)| (key.to_owned(), ConfigValue::Int(rate.into())));
        Ok(running.with_burst(Burst { until_ns, values: values.into() }))
    })?)
}

fn parameters(query: &str) -> Result<BurstParameters, String> {
    let mut parameters = DEFAULT;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8_lossy();
        let (target, max) = match name {
            "seconds" => (&mut parameters.seconds, MAX_SECONDS),
            "rate" => (&mut parameters.rate_hz, MAX_RATE_HZ),
            _ => return Err(format!("unknown parameter `{name}`; expected seconds or rate")),
        };
        let number = value.parse::<u32>().ok().filter(|number| (1..=max).contains(number));
        *target = number.ok_or_else(|| format!("{name} must be a whole number between 1 and {max}, got `{value}`"))?;
    }
    Ok(parameters)
}

/// Whether the body is that of a webhook about an alert that ended.
fn is_resolved_alert(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.get("status").and_then(Value::as_str).is_some_and(|status| status.eq_ignore_ascii_case("resolved"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_and_rate_have_defaults_and_caps() {
        assert_eq!(parameters(""), Ok(DEFAULT));
        assert_eq!(parameters("seconds=60&rate=250"), Ok(BurstParameters { seconds: 60, rate_hz: 250 }));
        for refused in
            ["seconds=0", "seconds=3601", "rate=1001", "rate=-1", "rate=NaN", "seconds=1e9", "minutes=5", "rate"]
        {
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
