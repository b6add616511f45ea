//! The one line after the first window: clock, samples, losses, destination and whether it arrived. So that a misconfigured
//! receiver is seen in the host's own log within seconds.

use std::time::{Duration, Instant};

use super::health;
use super::session::Session;
use crate::host_log::{log, LogLevel};
use crate::window::ClosedWindow;
use spanprof_export::DestinationStats;

/// How long an answer of the destination is waited for.
const PATIENCE: Duration = Duration::from_secs(12);

/// See the head of the module.
#[derive(Default)]
pub(super) enum FirstLine {
    /// No window has closed.
    #[default]
    NotYet,
    /// A window was handed over at this time.
    Waiting { since: Instant, samples: u64, seconds: f64, clock: String },
    /// Logged.
    Done,
}

impl FirstLine {
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    pub fn window_closed(&mut self, window: &ClosedWindow, session: &Session) {
        if matches!(self, Self::NotYet) {
            let seconds = window.duration_ns as f64 / 1e9;
            // The window's: by the time of the answer the profiler may have been stopped.
            let clock = clock_of(session);
            *self = Self::Waiting { since: Instant::now(), samples: window.samples, seconds, clock };
        }
    }

    /// Logs the line once every destination has answered, or patience ends; returns what it reported, once.
    pub fn poll(&mut self, session: &Session) -> Option<Vec<DestinationStats>> {
        let Self::Waiting { since, samples, seconds, clock } = self else { return None };
        let destinations = session.delivery.as_ref().map(|delivery| delivery.stats()).unwrap_or_default();
        if !destinations.iter().all(is_answered) && since.elapsed() < PATIENCE {
            return None;
        }
        let healthy = destinations.iter().all(|destination| destination.sent > 0);
        let level = if healthy { LogLevel::Info } else { LogLevel::Warning };
        log(level, &line(session, *samples, *seconds, clock, &destinations));
        *self = Self::Done;
        Some(destinations)
    }
}

fn is_answered(destination: &DestinationStats) -> bool {
    destination.sent > 0 || destination.last_error.is_some() || destination.dropped_total().payloads > 0
}

pub(super) fn clock_of(session: &Session) -> String {
    match &*session.clocks.load() {
        Some(clocks) => {
            let in_use = clocks.in_use();
            format!("clock {} ({})", in_use.name, in_use.reason)
        }
        None => "no CPU clock".to_owned(),
    }
}

fn line(session: &Session, samples: u64, seconds: f64, clock: &str, destinations: &[DestinationStats]) -> String {
    let losses = health::losses(session);
    let losses = match losses.is_empty() {
        true => "nothing lost".to_owned(),
        false => losses.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", "),
    };
    let outcomes: Vec<_> = destinations.iter().map(outcome).collect();
    let outcomes = match &session.config.load().output {
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
        (Some(error), 0) => format!("not delivered to {target}: {error}"),
        (None, 0) => format!("no answer yet from {target}"),
    }
}
