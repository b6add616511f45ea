//! The outcome line at the end of every run: number of samples, losses, and delivery per destination. The line is a
//! warning when nothing was delivered, when windows were lost, and when the program used the CPU without a sample.

use std::time::{Duration, Instant};

use super::delivery_log::{counted, lost, reason};
use super::health;
use crate::host_log::{log, LogLevel, NO_DESTINATION, OUTCOME_PREFIX};
use crate::session::Session;
use spanprof_export::DestinationStats;

/// Mean sampling periods of CPU time after which the absence of samples is suspicious.
const SUSPICIOUS_PERIODS: u64 = 20;

/// The part of the outcome that is read before the clocks stop.
pub(crate) struct OutcomeReport {
    clock: String,
    begun: Instant,
}

/// The figures of the outcome line.
pub(crate) struct RunOutcome {
    ran_for: Duration,
    /// Those of CPU time, wall time and time off the CPU, and those of events such as allocations.
    samples: [u64; 4],
    clock: String,
    losses: Vec<(&'static str, u64)>,
    /// CPU time of the program, when there are no samples although it is long enough to expect some.
    cpu_without_samples: Option<Duration>,
    destinations: Vec<DestinationStats>,
    /// Result of writing the file of the whole run.
    output: Option<Result<String, String>>,
    /// Whether the only receiver is the default one.
    is_default_receiver: bool,
    /// Whether the drain thread closed the last window in time.
    is_complete: bool,
    stop_timeout: Duration,
}

impl OutcomeReport {
    /// Called before the clocks stop.
    pub fn before_stop(session: &Session) -> Self {
        Self { clock: crate::session::clocks::clock_of(session), begun: session.process.begun }
    }

    pub fn log(self, session: &Session, is_complete: bool) {
        let config = session.config.active.load();
        let counters = &session.counters;
        let samples =
            [&counters.samples_cpu, &counters.samples_wall, &counters.samples_off_cpu, &counters.samples_submitted];
        let samples = samples.map(|counter| counter.value());
        let [process_before_ns, own_before_ns] = session.process.cpu_before_ns;
        let own_ns = spanprof_os::own_cpu_ns().saturating_sub(own_before_ns);
        let used_ns = spanprof_os::process_cpu_ns().saturating_sub(process_before_ns).saturating_sub(own_ns);
        let expected_ns = SUSPICIOUS_PERIODS * 1_000_000_000 / u64::from(config.sample_rate.max(1));
        let is_suspicious = samples == [0; 4] && config.cpu && !session.config.safe_mode && used_ns > expected_ns;
        let outcome = RunOutcome {
            ran_for: self.begun.elapsed(),
            samples,
            clock: self.clock,
            losses: health::losses(session),
            cpu_without_samples: is_suspicious.then(|| Duration::from_nanos(used_ns)),
            destinations: session.outputs.delivery.as_ref().map(|delivery| delivery.stats()).unwrap_or_default(),
            output: config.output.as_ref().map(|name| {
                let timed_out = || Err(format!("{name} not written within stop_timeout"));
                session.outputs.file_result.get().cloned().unwrap_or_else(timed_out)
            }),
            is_default_receiver: config.endpoint.is_none() && config.destinations.is_none(),
            is_complete,
            stop_timeout: config.stop_timeout,
        };
        let (level, line) = outcome.line();
        log(level, &line);
    }
}

impl RunOutcome {
    fn line(&self) -> (LogLevel, String) {
        let mut level = LogLevel::Info;
        // An allocation is no sample of CPU time: one sum of both would be read as that.
        let kinds = self.samples.into_iter().zip(["CPU", "wall", "off-CPU", "event"]);
        let samples: Vec<_> =
            kinds.filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
        let samples = match (samples.join(", "), self.samples.iter().sum()) {
            (_, 0) => "0 samples".to_owned(),
            (samples, 1u64) => samples + " sample",
            (samples, _) => samples + " samples",
        };
        let mut parts =
            vec![format!("{OUTCOME_PREFIX} after {:.1} s: {samples}, {}", self.ran_for.as_secs_f64(), self.clock)];
        if let Some(used) = self.cpu_without_samples {
            level = LogLevel::Warning;
            parts.push(format!("no samples although the program used {:.1} s of CPU time", used.as_secs_f64()));
        }
        if !self.losses.is_empty() {
            let losses: Vec<_> = self.losses.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            parts.push(format!("lost samples: {}", losses.join(", ")));
        }
        if !self.is_complete {
            level = LogLevel::Warning;
            let limit_s = self.stop_timeout.as_secs_f64();
            parts.push(format!(
                "the last window was not closed within stop_timeout={limit_s}s; a longer one delivers it"
            ));
        }
        for destination in &self.destinations {
            let (is_complete, text) = delivered(destination);
            if !is_complete {
                level = LogLevel::Warning;
            }
            parts.push(text);
        }
        match &self.output {
            Some(Ok(written)) => parts.push(written.clone()),
            Some(Err(problem)) => {
                level = LogLevel::Warning;
                parts.push(problem.clone());
            }
            None if self.destinations.is_empty() => parts.push(NO_DESTINATION.to_owned()),
            None => {}
        }
        if self.is_default_receiver && self.destinations.iter().any(|it| it.enqueued > 0 && it.sent == 0) {
            parts.push("set endpoint to a receiver, or output=flame.html for a file".to_owned());
        }
        (level, parts.join("; "))
    }
}

/// Whether everything was delivered, and the text of the line.
fn delivered(destination: &DestinationStats) -> (bool, String) {
    let target = &destination.target;
    let (count, reasons) = lost(&Default::default(), &destination.dropped);
    let queued = destination.queue_payloads as u64;
    match (destination.sent, count + queued) {
        (sent, 0) if destination.buffer_left > 0 => {
            let left = counted(destination.buffer_left, destination);
            let text = match sent {
                0 => format!("nothing delivered to {target}"),
                _ => format!("{} delivered to {target}", counted(sent, destination)),
            };
            (sent > 0, format!("{text}: {}; {left} stay in buffer_directory for the next start", reason(destination)))
        }
        (0, 0) => (true, format!("nothing to deliver to {target}")),
        (sent, 0) => (true, format!("{} delivered to {target}", counted(sent, destination))),
        (sent, missing) => {
            let reasons = if reasons.is_empty() { "deadline".to_owned() } else { reasons };
            let (lost, why) = (format!("{} lost ({reasons})", counted(missing, destination)), reason(destination));
            let text = match sent {
                0 => format!("nothing delivered to {target}: {why}; {lost}"),
                _ => format!("{} delivered to {target}; {lost}: {why}", counted(sent, destination)),
            };
            let left = match destination.buffer_left {
                0 => String::new(),
                count => format!("; {} stay in buffer_directory", counted(count, destination)),
            };
            (false, text + &left)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_export::DiscardReason;

    fn outcome() -> RunOutcome {
        let destination = DestinationStats {
            kind: "otlp_http",
            target: "http://receiver".to_owned(),
            enqueued: 2,
            sent: 2,
            ..DestinationStats::default()
        };
        RunOutcome {
            ran_for: Duration::from_millis(1234),
            samples: [29, 0, 0, 630],
            clock: "clock perf (allowed)".to_owned(),
            losses: Vec::new(),
            cpu_without_samples: None,
            destinations: vec![destination],
            output: None,
            is_default_receiver: false,
            is_complete: true,
            stop_timeout: Duration::from_secs(2),
        }
    }

    #[test]
    fn a_successful_run_is_one_line_of_information() {
        let text =
            "spanprof: stopped after 1.2 s: 29 CPU, 630 event samples, clock perf (allowed); 2 windows delivered to http://receiver";
        assert_eq!(outcome().line(), (LogLevel::Info, text.to_owned()));
    }

    #[test]
    fn nothing_delivered_is_a_warning_with_the_reason_and_the_remedy() {
        let mut outcome = RunOutcome { is_default_receiver: true, ..outcome() };
        outcome.destinations[0].sent = 0;
        outcome.destinations[0].last_error = Some("cannot connect: connection refused".to_owned());
        outcome.destinations[0].dropped[DiscardReason::Deadline as usize].payloads = 2;
        let (level, line) = outcome.line();
        assert_eq!(level, LogLevel::Warning);
        let end =
            "nothing delivered to http://receiver: cannot connect: connection refused; 2 windows lost (deadline 2); \
                   set endpoint to a receiver, or output=flame.html for a file";
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn a_window_that_was_late_names_the_limit_and_the_remedy() {
        let (level, line) = RunOutcome { is_complete: false, ..outcome() }.line();
        assert_eq!(level, LogLevel::Warning);
        assert!(line.contains("not closed within stop_timeout=2s; a longer one delivers it"), "{line}");
    }

    #[test]
    fn some_windows_lost_is_a_warning() {
        let mut outcome = outcome();
        outcome.destinations[0].dropped[DiscardReason::Expired as usize].payloads = 1;
        outcome.destinations[0].last_error = Some("503".to_owned());
        let (level, line) = outcome.line();
        assert_eq!(level, LogLevel::Warning);
        assert!(line.ends_with("2 windows delivered to http://receiver; 1 window lost (expired 1): 503"), "{line}");
    }

    #[test]
    fn windows_left_in_the_buffer_are_not_reported_as_lost() {
        let mut outcome = outcome();
        outcome.destinations[0].buffer_left = 3;
        outcome.destinations[0].last_error = Some("refused".to_owned());
        let end =
            "2 windows delivered to http://receiver: refused; 3 windows stay in buffer_directory for the next start";
        let (level, line) = outcome.line();
        assert!(level == LogLevel::Info && line.ends_with(end), "{line}");
        outcome.destinations[0].sent = 0;
        let (level, line) = outcome.line();
        assert!(
            level == LogLevel::Warning && line.contains("nothing delivered to http://receiver: refused; 3"),
            "{line}"
        );
    }

    #[test]
    fn cpu_time_without_a_sample_is_a_warning_and_an_idle_program_is_not() {
        let mut outcome = RunOutcome { samples: [0; 4], ..outcome() };
        outcome.destinations[0].sent = 0;
        assert_eq!(outcome.line().0, LogLevel::Info);
        outcome.cpu_without_samples = Some(Duration::from_millis(1300));
        let (level, line) = outcome.line();
        assert_eq!(level, LogLevel::Warning);
        assert!(line.contains("no samples although the program used 1.3 s of CPU time"), "{line}");
    }
}
