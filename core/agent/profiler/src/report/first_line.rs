//! The log line after the first window: clock, samples, losses, and the result of the delivery. It shows a misconfigured
//! receiver in the host's log within seconds.

use std::time::{Duration, Instant};

use super::health;
use crate::host_log::{log, LogLevel};
use crate::session::clocks::clock_of;
use crate::session::Session;
use spanprof_aggregate::ClosedWindow;
use spanprof_export::DestinationStats;

/// Timeout for the response of the destinations.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);

/// State of the line, which is logged once per run.
#[derive(Default)]
pub(crate) enum FirstLine {
    /// No window has closed.
    #[default]
    NoWindow,
    /// The first window was queued at `since`.
    Waiting { since: Instant, samples: u64, seconds: f64, clock: String },
    /// The line was logged.
    Done,
}

impl FirstLine {
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    pub fn window_closed(&mut self, window: &ClosedWindow, session: &Session) {
        if matches!(self, Self::NoWindow) {
            let seconds = window.duration_ns as f64 / 1e9;
            // Read now, because the profiler may be stopped before the response.
            let clock = clock_of(session);
            *self = Self::Waiting { since: Instant::now(), samples: window.samples, seconds, clock };
        }
    }

    /// Logs the line when every destination has responded, or the timeout ends. Returns the reported statistics, once.
    pub fn poll(&mut self, session: &Session) -> Option<Vec<DestinationStats>> {
        let Self::Waiting { since, samples, seconds, clock } = self else { return None };
        let destinations = session.outputs.delivery.as_ref().map(|delivery| delivery.stats()).unwrap_or_default();
        if !destinations.iter().all(has_response) && since.elapsed() < RESPONSE_TIMEOUT {
            return None;
        }
        let all_delivered = destinations.iter().all(|destination| destination.sent > 0);
        let level = if all_delivered { LogLevel::Info } else { LogLevel::Warning };
        log(level, &line(session, *samples, *seconds, clock, &destinations));
        *self = Self::Done;
        Some(destinations)
    }
}

fn has_response(destination: &DestinationStats) -> bool {
    destination.sent > 0 || destination.last_error.is_some() || destination.dropped_total().payloads > 0
}

fn line(session: &Session, samples: u64, seconds: f64, clock: &str, destinations: &[DestinationStats]) -> String {
    let losses = health::losses(session);
    let losses = if losses.is_empty() {
        "nothing lost".to_owned()
    } else {
        losses.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
    };
    let outcomes: Vec<_> = destinations.iter().map(outcome).collect();
    let outcomes = match &session.config.active.load().output {
        Some(name) if outcomes.is_empty() => format!("{name} is written at the end"),
        None if outcomes.is_empty() => "no destination".to_owned(),
        _ => outcomes.join("; "),
    };
    let samples = if samples == 1 { "1 sample".to_owned() } else { format!("{samples} samples") };
    format!("spanprof: first window: {samples} in {seconds:.1} s, {clock}, {losses}, {outcomes}")
}

fn outcome(destination: &DestinationStats) -> String {
    let target = &destination.target;
    match (&destination.last_error, destination.sent) {
        (_, 1..) => format!("delivered to {target}"),
        (Some(error), 0) => format!("not delivered to {target}: {error} (`spanprof doctor` checks receivers)"),
        (None, 0) => format!("no response yet from {target}"),
    }
}
