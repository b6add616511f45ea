//! Lines about delivery after the first window: when it stops, when it resumes, and which windows were lost meanwhile.
//! Reads the exporter's counters when a window closes; a retry that succeeds within a window is no line. Not here: the line of
//! the first window (`first_line`), the end of the run (`outcome`).

use std::time::Duration;

use crate::host_log::LogLevel;
use spanprof_export::{DestinationStats, DiscardReason, Discarded};

/// Least time between two lines that say delivery stopped, for each destination. Doubles with each such line.
const SHORTEST_QUIET: Duration = Duration::from_secs(60);
const LONGEST_QUIET: Duration = Duration::from_secs(3600);
/// How often an interruption that goes on and loses windows is reported.
const REMINDER: Duration = Duration::from_secs(3600);

type Losses = [Discarded; DiscardReason::ALL.len()];

/// See the head of the module.
#[derive(Default)]
pub(super) struct DeliveryLog {
    watched: Vec<Watched>,
}

struct Watched {
    sent: u64,
    dropped: Losses,
    interruption: Option<Interruption>,
    quiet: Duration,
    quiet_until: Duration,
    /// Interruptions that no line reported.
    unreported: u32,
    /// Losses outside of interruptions that no line reported.
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
    /// Begins after the line of the first window, which reported these destinations.
    pub fn begin(&mut self, now: Duration, destinations: &[DestinationStats]) {
        self.watched = destinations.iter().map(|destination| Watched::new(now, destination)).collect();
    }

    /// The lines to be logged at the end of a window; nothing before [`DeliveryLog::begin`].
    pub fn observe(&mut self, now: Duration, destinations: &[DestinationStats]) -> Vec<(LogLevel, String)> {
        let pairs = self.watched.iter_mut().zip(destinations);
        pairs.filter_map(|(watched, destination)| watched.observe(now, destination)).collect()
    }
}

impl Watched {
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
            quiet: SHORTEST_QUIET,
            quiet_until: now,
            unreported: 0,
            dropped_when_reported: destination.dropped,
        }
    }

    fn observe(&mut self, now: Duration, destination: &DestinationStats) -> Option<(LogLevel, String)> {
        let sends = destination.sent > self.sent;
        let loses = lost(&self.dropped, &destination.dropped).0 > 0;
        let is_stuck = destination.queue_payloads > 0 && is_failing(destination);
        let before = (self.sent, self.dropped);
        (self.sent, self.dropped) = (destination.sent, destination.dropped);
        let line = match &mut self.interruption {
            None if !sends && (loses || is_stuck) => {
                self.interruption = Some(Interruption {
                    since: now,
                    sent_before: before.0,
                    dropped_before: before.1,
                    is_reported: false,
                    next_reminder: now,
                });
                self.stopped(now, destination)
            }
            None => self.lost_in_passing(now, destination),
            Some(interruption) if sends && !is_failing(destination) => {
                let line = interruption.is_reported.then(|| resumed(interruption, now, destination));
                if line.is_none() {
                    self.unreported += 1;
                }
                self.dropped_when_reported = destination.dropped;
                self.interruption = None;
                line
            }
            Some(interruption) if !interruption.is_reported => self.stopped(now, destination),
            Some(interruption) if loses && now >= interruption.next_reminder => {
                interruption.next_reminder = now + REMINDER;
                Some(still_failing(interruption, now, destination))
            }
            Some(_) => None,
        };
        line.map(|line| (LogLevel::Warning, format!("spanprof: {line}")))
    }

    /// The line of an interruption that begins, unless one was logged a short time ago.
    fn stopped(&mut self, now: Duration, destination: &DestinationStats) -> Option<String> {
        let interruption = self.interruption.as_mut().filter(|_| now >= self.quiet_until)?;
        if now > self.quiet_until + LONGEST_QUIET {
            self.quiet = SHORTEST_QUIET;
        }
        self.quiet_until = now + self.quiet;
        self.quiet = (self.quiet * 2).min(LONGEST_QUIET);
        interruption.is_reported = true;
        interruption.next_reminder = now + REMINDER;
        let (count, reasons) = lost(&interruption.dropped_before, &destination.dropped);
        let fate = match count {
            0 => "what waits is resent".to_owned(),
            _ => format!("{} lost ({reasons})", counted(count, destination)),
        };
        let more = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            more => format!("; {more} shorter interruptions since the last line"),
        };
        Some(format!("delivery to {} stopped: {}; {fate}{more}", destination.target, reason(destination)))
    }

    /// The receiver refuses some windows and accepts others.
    fn lost_in_passing(&mut self, now: Duration, destination: &DestinationStats) -> Option<String> {
        let (count, reasons) = lost(&self.dropped_when_reported, &destination.dropped);
        if count == 0 || now < self.quiet_until {
            return None;
        }
        self.quiet_until = now + self.quiet;
        self.quiet = (self.quiet * 2).min(LONGEST_QUIET);
        self.dropped_when_reported = destination.dropped;
        let target = &destination.target;
        Some(format!("{} to {target} lost ({reasons}): {}", counted(count, destination), reason(destination)))
    }
}

/// As loud as the line that said delivery stopped: who read that one reads this one.
fn resumed(interruption: &Interruption, now: Duration, destination: &DestinationStats) -> String {
    let late = destination.sent - interruption.sent_before;
    let (count, reasons) = lost(&interruption.dropped_before, &destination.dropped);
    let losses = match count {
        0 => "none lost".to_owned(),
        _ => format!("{count} lost ({reasons})"),
    };
    let seconds = now.saturating_sub(interruption.since).as_secs();
    format!(
        "delivery to {} resumed after {seconds} s: {} delivered, {losses}",
        destination.target,
        counted(late, destination)
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

/// Why, for a line.
pub(super) fn reason(destination: &DestinationStats) -> &str {
    destination.last_error.as_deref().unwrap_or("no answer yet")
}

/// Payloads lost between two readings, and the reasons as `queue_full 2, expired 1`.
pub(super) fn lost(before: &Losses, now: &Losses) -> (u64, String) {
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
pub(super) fn counted(count: u64, destination: &DestinationStats) -> String {
    let noun = if destination.kind == "file" { "file" } else { "window" };
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver whose counters the test moves, observed at the end of each window of ten seconds.
    struct Scene {
        log: DeliveryLog,
        stats: DestinationStats,
        seconds: u64,
    }

    impl Scene {
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

        fn waits(&mut self) -> Vec<String> {
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
    fn an_outage_is_one_line_when_it_begins_and_one_when_it_ends() {
        let mut scene = Scene::delivering();
        assert_eq!(scene.accepts(1), NONE);
        assert_eq!(
            scene.waits(),
            ["spanprof: delivery to http://receiver stopped: cannot connect; what waits is resent"]
        );
        assert_eq!(scene.waits(), NONE);
        assert_eq!(scene.waits(), NONE);
        scene.stats.dropped[DiscardReason::Expired as usize].payloads = 1;
        assert_eq!(
            scene.accepts(3),
            ["spanprof: delivery to http://receiver resumed after 30 s: 3 windows delivered, 1 lost (expired 1)"]
        );
        assert_eq!(scene.accepts(1), NONE);
    }

    #[test]
    fn a_token_that_was_revoked_is_a_line_with_the_receivers_answer() {
        let mut scene = Scene::delivering();
        assert_eq!(
            scene.refuses("401 Unauthorized"),
            ["spanprof: delivery to http://receiver stopped: 401 Unauthorized; 1 window lost (permanent 1)"]
        );
        assert_eq!(scene.refuses("401 Unauthorized"), NONE);
    }

    #[test]
    fn a_receiver_that_flaps_for_a_day_writes_a_few_dozen_lines() {
        let mut scene = Scene::delivering();
        let mut lines = Vec::new();
        for _ in 0..4320 {
            lines.extend(scene.waits());
            lines.extend(scene.accepts(1));
        }
        assert!((10..70).contains(&lines.len()), "{} lines: {lines:#?}", lines.len());
        assert!(lines.iter().any(|line| line.contains("shorter interruptions since the last line")), "{lines:#?}");
    }

    #[test]
    fn an_outage_that_goes_on_losing_windows_is_reported_every_hour() {
        let mut scene = Scene::delivering();
        let lines: Vec<_> = (0..1080).flat_map(|_| scene.refuses("503")).collect();
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[1].contains("has failed for 3600 s: 361 windows lost (permanent 361)"), "{lines:#?}");
    }

    #[test]
    fn windows_refused_between_others_that_are_accepted_are_reported_too() {
        let mut scene = Scene::delivering();
        scene.stats.dropped[DiscardReason::TooLarge as usize].payloads = 2;
        scene.stats.last_error = Some("413".to_owned());
        assert_eq!(scene.accepts(1), ["spanprof: 2 windows to http://receiver lost (too_large 2): 413"]);
        assert_eq!(scene.accepts(1), NONE);
    }

    #[test]
    fn a_receiver_that_was_away_from_the_start_is_reported_when_it_comes() {
        let mut scene = Scene::delivering();
        scene.stats.sent = 0;
        scene.stats.last_success_unix_ms = None;
        scene.log.begin(Duration::ZERO, std::slice::from_ref(&scene.stats));
        assert_eq!(scene.waits(), NONE);
        assert_eq!(
            scene.accepts(2),
            ["spanprof: delivery to http://receiver resumed after 20 s: 2 windows delivered, none lost"]
        );
    }
}
