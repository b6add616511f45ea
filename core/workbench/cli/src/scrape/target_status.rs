//! Counters of a target and its endpoints, and the log lines about it: one when it becomes unreachable or a profile fails,
//! one when that ends.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{json, Value};
use spanprof_answers::selection::moment;

use super::target_client::PullError;

#[derive(Clone, Debug, Default)]
pub(super) struct EndpointCounters {
    pub name: String,
    /// Requests with a usable profile.
    pub pulled: u64,
    pub failed: u64,
    /// Requests of a default profile that the target lacks.
    pub absent: u64,
    /// Pulls that were due while an earlier one was running.
    pub skipped: u64,
    /// Restarts of the process, found by totals that decreased.
    pub restarts: u64,
    /// Bytes of the responses.
    pub bytes: u64,
    pub samples: u64,
    pub last_success_unix_ms: Option<u64>,
    pub last_error: Option<String>,
    is_failing: bool,
}

#[derive(Debug, Default)]
struct TargetCounters {
    is_unreachable: bool,
    endpoints: Vec<EndpointCounters>,
}

/// The status of one target, updated by each scrape.
pub(super) struct TargetStatus {
    shown: String,
    counters: Mutex<TargetCounters>,
}

impl TargetStatus {
    pub fn new<'a>(shown: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let endpoints = names.map(|name| EndpointCounters { name: name.to_owned(), ..EndpointCounters::default() });
        let counters = TargetCounters { is_unreachable: false, endpoints: endpoints.collect() };
        Self { shown: shown.to_owned(), counters: Mutex::new(counters) }
    }

    fn counters(&self) -> MutexGuard<'_, TargetCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the counters of the endpoint at `index`.
    pub fn count(&self, index: usize, change: impl FnOnce(&mut EndpointCounters)) {
        self.counters().endpoints.get_mut(index).map(change);
    }

    /// Counts a pull with a profile; returns the lines to log.
    pub fn succeeded(&self, index: usize, now_unix_ns: u64) -> Vec<String> {
        let mut counters = self.counters();
        let mut lines = self.responded(&mut counters);
        if let Some(endpoint) = counters.endpoints.get_mut(index) {
            endpoint.pulled += 1;
            endpoint.last_success_unix_ms = Some(now_unix_ns / 1_000_000);
            if std::mem::take(&mut endpoint.is_failing) {
                lines.push(format!("{}: {} is available again", self.shown, endpoint.name));
            }
        }
        lines
    }

    /// Counts a pull without a profile; returns the lines to log.
    pub fn failed(&self, index: usize, error: &PullError) -> Vec<String> {
        let mut counters = self.counters();
        let (message, mut lines) = match error {
            PullError::Refused(message) | PullError::Busy(message) | PullError::Absent(message) => {
                (message, self.responded(&mut counters))
            }
            PullError::Unreachable(message) => {
                let lines = if std::mem::replace(&mut counters.is_unreachable, true) {
                    Vec::new()
                } else {
                    vec![format!("{} is unreachable: {message}", self.shown)]
                };
                (message, lines)
            }
        };
        let is_refused = !matches!(error, PullError::Unreachable(_));
        if let Some(endpoint) = counters.endpoints.get_mut(index) {
            endpoint.failed += 1;
            endpoint.last_error = Some(message.clone());
            if is_refused && !std::mem::replace(&mut endpoint.is_failing, true) {
                lines.push(format!("{}: {} fails: {message}", self.shown, endpoint.name));
            }
        }
        lines
    }

    /// Counts a pull of a default profile that the target lacks; returns the lines to log.
    pub fn absent(&self, index: usize, message: &str) -> Vec<String> {
        let mut counters = self.counters();
        let mut lines = self.responded(&mut counters);
        if let Some(endpoint) = counters.endpoints.get_mut(index) {
            endpoint.absent += 1;
            if endpoint.absent == 1 {
                lines.push(format!("{} has no profile {}: {message}", self.shown, endpoint.name));
            }
        }
        lines
    }

    fn responded(&self, counters: &mut TargetCounters) -> Vec<String> {
        if std::mem::take(&mut counters.is_unreachable) {
            vec![format!("{} is reachable again", self.shown)]
        } else {
            Vec::new()
        }
    }

    /// Pulls with and without a profile.
    pub fn totals(&self) -> (u64, u64) {
        let counters = self.counters();
        let sum = |value: fn(&EndpointCounters) -> u64| counters.endpoints.iter().map(value).sum();
        (sum(|endpoint| endpoint.pulled), sum(|endpoint| endpoint.failed))
    }

    pub fn json(&self) -> Value {
        let counters = self.counters();
        let endpoints = counters.endpoints.iter().map(|endpoint| {
            json!({
                "name": endpoint.name, "pulled": endpoint.pulled, "failed": endpoint.failed,
                "absent": endpoint.absent, "skipped": endpoint.skipped, "restarts": endpoint.restarts, "bytes": endpoint.bytes,
                "samples": endpoint.samples, "last_error": endpoint.last_error,
                "last_success": endpoint.last_success_unix_ms.map(|ms| moment::format_rfc3339(ms * 1_000_000)),
            })
        });
        json!({
            "url": self.shown, "reachable": !counters.is_unreachable, "profiles": endpoints.collect::<Vec<_>>(),
        })
    }
}
