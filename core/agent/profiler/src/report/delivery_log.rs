//! Log lines about delivery after the first window: when it stops, when it resumes, and the windows lost meanwhile. Reads the
//! exporter's counters when a window closes; a retry that succeeds within a window is not logged. Not here: the line of the
//! first window (`first_line`), the outcome line (`outcome`).

use std::time::Duration;

use crate::host_log::LogLevel;
use spanprof_export::{DestinationStats, DiscardReason, Discarded};

/// Minimum time between two lines about stopped delivery, for each destination. Doubles with each such line.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(60);
const MAX_LOG_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval of the lines about a continuing interruption with losses.
const REMINDER_INTERVAL: Duration = Duration::from_secs(3600);

type Losses = [Discarded; DiscardReason::ALL.len()];

/// The state of each destination since the line of the first window.
#[derive(Default)]
pub(crate) struct DeliveryLog {
    destinations: Vec<DestinationLog>,
}

struct DestinationLog {
    sent: u64,
    dropped: Losses,
    interruption: Option<Interruption>,
    log_interval: Duration,
    /// Time before which no further line about stopped delivery is logged.
    next_line_at: Duration,
    /// Number of interruptions without a line.
    unreported: u32,
    /// Losses at the last line about losses outside of interruptions.
    dropped_when_reported: Losses,
}

struct Interruption {
    since: Duration,
    sent_before: u64,
    dropped_before: Losses,
    is_reported: bool,
    next_reminder: Duration,
}

impl DeliveryLog {
    /// Begins after the line of the first window, which reported these statistics.
    pub fn begin(&mut self, now: Duration, destinations: &[DestinationStats]) {
        self.destinations = destinations.iter().map(|destination| DestinationLog::new(now, destination)).collect();
    }

    /// The lines to log at the end of a window; empty before [`DeliveryLog::begin`].
    pub fn observe(&mut self, now: Duration, destinations: &[DestinationStats]) -> Vec<(LogLevel, String)> {
        let pairs = self.destinations.iter_mut().zip(destinations);
        pairs.filter_map(|(log, destination)| log.observe(now, destination)).collect()
    }
}

impl DestinationLog {
    fn new(now: Duration, destination: &DestinationStats) -> Self {
        let interruption = (destination.sent == 0).then(|| Interruption {
            since: now,
            sent_before: 0,
            dropped_before: Losses::default(),
            is_reported: true,
            next_reminder: now,
        });
        Self {
            sent: destination.sent,
            dropped: destination.dropped,
            interruption,
            log_interval: MIN_LOG_INTERVAL,
            next_line_at: now,
            unreported: 0,
            dropped_when_reported: destination.dropped,
        }
    }

    fn observe(&mut self, now: Duration, destination: &DestinationStats) -> Option<(LogLevel, String)> {
        let has_sent = destination.sent > self.sent;
        let has_lost = lost(&self.dropped, &destination.dropped).0 > 0;
        let is_stuck = destination.queue_payloads > 0 && is_failing(destination);
        let before = (self.sent, self.dropped);
        (self.sent, self.dropped) = (destination.sent, destination.dropped);
        let line = match &mut self.interruption {
            None if !has_sent && (has_lost || is_stuck) => {
                self.interruption = Some(Interruption {
                    since: now,
                    sent_before: before.0,
                    dropped_before: before.1,
                    is_reported: false,
                    next_reminder: now,
                });
                self.stopped(now, destination)
            }
            None => self.partial_loss(now, destination),
            Some(interruption) if has_sent && !is_failing(destination) => {
                let line = interruption.is_reported.then(|| resumed(interruption, now, destination));
                if line.is_none() {
                    self.unreported += 1;
                }
                self.dropped_when_reported = destination.dropped;
                self.interruption = None;
                line
            }
            Some(interruption) if !interruption.is_reported => self.stopped(now, destination),
            Some(interruption) if has_lost && now >= interruption.next_reminder => {
                interruption.next_reminder = now + REMINDER_INTERVAL;
                Some(still_failing(interruption, now, destination))
            }
            Some(_) => None,
        };
        line.map(|line| (LogLevel::Warning, format!("spanprof: {line}")))
    }

    /// The line at the start of an interruption, unless the last one is too recent.
    fn stopped(&mut self, now: Duration, destination: &DestinationStats) -> Option<String> {
        let interruption = self.interruption.as_mut().filter(|_| now >= self.next_line_at)?;
        if now > self.next_line_at + MAX_LOG_INTERVAL {
            self.log_interval = MIN_LOG_INTERVAL;
        }
        self.next_line_at = now + self.log_interval;
        self.log_interval = (self.log_interval * 2).min(MAX_LOG_INTERVAL);
        interruption.is_reported = true;
        interruption.next_reminder = now + REMINDER_INTERVAL;
        let (count, reasons) = lost(&interruption.dropped_before, &destination.dropped);
        let losses = match count {
            0 => "queued windows are resent".to_owned(),
            _ => format!("{} lost ({reasons})", counted(count, destination)),
        };
        let more = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            more => format!("; {more} shorter interruptions since the last line"),
        };
        Some(format!("delivery to {} stopped: {}; {losses}{more}", destination.target, reason(destination)))
    }

    /// The line about a receiver that refuses some windows and accepts others.
    fn partial_loss(&mut self, now: Duration, destination: &DestinationStats) -> Option<String> {
        let (count, reasons) = lost(&self.dropped_when_reported, &destination.dropped);
        if count == 0 || now < self.next_line_at {
            return None;
        }
        self.next_line_at = now + self.log_interval;
        self.log_interval = (self.log_interval * 2).min(MAX_LOG_INTERVAL);
        self.dropped_when_reported = destination.dropped;
        let target = &destination.target;
        Some(format!("{} to {target} lost ({reasons}): {}", counted(count, destination), reason(destination)))
    }
}

/// The line at the end of an interruption, at the level of the line at its start.
fn resumed(interruption: &Interruption, now: Duration, destination: &DestinationStats) -> String {
    let sent = destination.sent - interruption.sent_before;
    let (count, reasons) = lost(&interruption.dropped_before, &destination.dropped);
    let losses = match count {
        0 => "none lost".to_owned(),
        _ => format!("{count} lost ({reasons})"),
    };
    let seconds = now.saturating_sub(interruption.since).as_secs();
    format!(
        "delivery to {} resumed after {seconds} s: {} delivered, {losses}",
        destination.target,
        counted(sent, destination)
    )
}

fn still_failing(interruption: &Interruption, now: Duration, destination: &DestinationStats) -> String {
    let (count, reasons) = lost(&interruption.dropped_before, &destination.dropped);
    let seconds = now.saturating_sub(interruption.since).as_secs();
    format!(
        "delivery to {} has failed for {seconds} s: {} lost ({reasons}), {} waiting: {}",
        destination.target,
        counted(count, destination),
        destination.queue_payloads,
        reason(destination)
    )
}

/// Whether the last attempt failed.
fn is_failing(destination: &DestinationStats) -> bool {
    destination.last_error_unix_ms.is_some() && destination.last_error_unix_ms > destination.last_success_unix_ms
}

/// The reason of a failure, for a log line.
pub(crate) fn reason(destination: &DestinationStats) -> &str {
    destination.last_error.as_deref().unwrap_or("no response yet")
}

/// Payloads lost between two readings, and the reasons as `queue_full 2, expired 1`.
pub(crate) fn lost(before: &Losses, now: &Losses) -> (u64, String) {
    let mut total = 0;
    let mut reasons = Vec::new();
    for reason in DiscardReason::ALL {
        let count = now[*reason as usize].payloads.saturating_sub(before[*reason as usize].payloads);
        total += count;
        if count > 0 {
            reasons.push(format!("{} {count}", reason.name()));
        }
    }
    (total, reasons.join(", "))
}

/// `1 window`, `2 files`. A window above `max_profile_size` counts as several.
pub(crate) fn counted(count: u64, destination: &DestinationStats) -> String {
    let noun = if destination.kind == "file" { "file" } else { "window" };
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver with scripted counters, observed at the end of each window of ten seconds.
    struct Receiver {
        log: DeliveryLog,
        stats: DestinationStats,
        seconds: u64,
    }

    impl Receiver {
        fn delivering() -> Self {
            let stats = DestinationStats {
                kind: "otlp_http",
                target: "http://receiver".to_owned(),
                sent: 1,
                last_success_unix_ms: Some(1),
                ..DestinationStats::default()
            };
            let mut log = DeliveryLog::default();
            log.begin(Duration::ZERO, std::slice::from_ref(&stats));
            Self { log, stats, seconds: 0 }
        }

        fn window(&mut self) -> Vec<String> {
            self.seconds += 10;
            let lines = self.log.observe(Duration::from_secs(self.seconds), std::slice::from_ref(&self.stats));
            lines.into_iter().map(|(_, line)| line).collect()
        }

        fn accepts(&mut self, windows: u64) -> Vec<String> {
            self.stats.sent += windows;
            self.stats.queue_payloads = 0;
            self.stats.last_success_unix_ms = Some(self.seconds * 1000 + 9000);
            self.window()
        }

        fn is_unreachable(&mut self) -> Vec<String> {
            self.stats.queue_payloads += 1;
            self.stats.last_error = Some("cannot connect".to_owned());
            self.stats.last_error_unix_ms = Some(self.seconds * 1000 + 9001);
            self.window()
        }

        fn refuses(&mut self, message: &str) -> Vec<String> {
            self.stats.dropped[DiscardReason::Permanent as usize].payloads += 1;
            self.stats.last_error = Some(message.to_owned());
            self.stats.last_error_unix_ms = Some(self.seconds * 1000 + 9001);
            self.window()
        }
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn an_outage_is_one_line_at_its_start_and_one_at_its_end() {
        let mut receiver = Receiver::delivering();
        assert_eq!(receiver.accepts(1), NONE);
        assert_eq!(
            receiver.is_unreachable(),
            ["spanprof: delivery to http://receiver stopped: cannot connect; queued windows are resent"]
        );
        assert_eq!(receiver.is_unreachable(), NONE);
        assert_eq!(receiver.is_unreachable(), NONE);
        receiver.stats.dropped[DiscardReason::Expired as usize].payloads = 1;
        assert_eq!(
            receiver.accepts(3),
            ["spanprof: delivery to http://receiver resumed after 30 s: 3 windows delivered, 1 lost (expired 1)"]
        );
        assert_eq!(receiver.accepts(1), NONE);
    }

    #[test]
    fn a_revoked_token_is_a_line_with_the_receivers_response() {
        let mut receiver = Receiver::delivering();
        assert_eq!(
            receiver.refuses("401 Unauthorized"),
            ["spanprof: delivery to http://receiver stopped: 401 Unauthorized; 1 window lost (permanent 1)"]
        );
        assert_eq!(receiver.refuses("401 Unauthorized"), NONE);
    }

    #[test]
    fn a_receiver_that_flaps_for_a_day_writes_a_few_dozen_lines() {
        let mut receiver = Receiver::delivering();
        let mut lines = Vec::new();
        for _ in 0..4320 {
            lines.extend(receiver.is_unreachable());
            lines.extend(receiver.accepts(1));
        }
        assert!((10..70).contains(&lines.len()), "{} lines: {lines:#?}", lines.len());
        assert!(lines.iter().any(|line| line.contains("shorter interruptions since the last line")), "{lines:#?}");
    }

    #[test]
    fn a_continuing_outage_with_losses_is_reported_every_hour() {
        let mut receiver = Receiver::delivering();
        let lines: Vec<_> = (0..1080).flat_map(|_| receiver.refuses("503")).collect();
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[1].contains("has failed for 3600 s: 361 windows lost (permanent 361)"), "{lines:#?}");
    }

    #[test]
    fn windows_refused_between_others_that_are_accepted_are_reported_too() {
        let mut receiver = Receiver::delivering();
        receiver.stats.dropped[DiscardReason::TooLarge as usize].payloads = 2;
        receiver.stats.last_error = Some("413".to_owned());
        assert_eq!(receiver.accepts(1), ["spanprof: 2 windows to http://receiver lost (too_large 2): 413"]);
        assert_eq!(receiver.accepts(1), NONE);
    }

    #[test]
    fn a_receiver_that_was_unreachable_at_the_start_is_reported_when_it_responds() {
        let mut receiver = Receiver::delivering();
        receiver.stats.sent = 0;
        receiver.stats.last_success_unix_ms = None;
        receiver.log.begin(Duration::ZERO, std::slice::from_ref(&receiver.stats));
        assert_eq!(receiver.is_unreachable(), NONE);
        assert_eq!(
            receiver.accepts(2),
            ["spanprof: delivery to http://receiver resumed after 20 s: 2 windows delivered, none lost"]
        );
    }
}
