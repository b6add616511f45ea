//! Receivers that refuse or reset connections, drop packets or never respond: delivery resumes in order, and the counters
//! match the losses exactly.

use crate::clocks::{FastClock, InstantClock};
use crate::scripted_http::{BlackHole, HttpReply, RefusingPort, ScriptedHttp};
use crate::shared::{assert_counters_balance, http_endpoint, payload, settings_on, stats_of, wait_for, TEST_TIMEOUT};
use spanprof_export::{Destination, DiscardReason, Discarded, Exporter, ExporterSettings};
use std::time::Duration;

fn exporter_at(port: u16, settings: ExporterSettings) -> Exporter {
    Exporter::start(vec![Destination::OtlpHttp(http_endpoint(port))], settings).unwrap()
}

/// For unresponsive receivers. On a loaded machine a responsive one may time out too, which adds attempts.
fn exporter_with_short_timeout(port: u16, settings: ExporterSettings) -> Exporter {
    let mut endpoint = http_endpoint(port);
    endpoint.timeout = Duration::from_millis(300);
    Exporter::start(vec![Destination::OtlpHttp(endpoint)], settings).unwrap()
}

/// Delays of 30 s take 30 ms, and no payload expires.
fn settings_without_expiry() -> ExporterSettings {
    ExporterSettings { retry_max_age: Duration::from_secs(86_400), ..settings_on(FastClock::new(1000)) }
}

/// Port of a receiver that is unavailable, and what makes it available.
pub type Outage = (u16, Box<dyn FnOnce() -> ScriptedHttp>);

type BeginOutage = fn() -> Outage;

/// Every kind of outage, with the error that it causes.
pub fn outages() -> [(&'static str, BeginOutage); 4] {
    fn scripted(reply: HttpReply) -> Outage {
        let server = ScriptedHttp::start(move |number, _| if number < 3 { reply.clone() } else { HttpReply::ok() });
        (server.port(), Box::new(|| server))
    }
    [
        ("Connection refused", || {
            let refusing = RefusingPort::open();
            (refusing.port, Box::new(|| refusing.become_receiver(|_, _| HttpReply::ok())))
        }),
        ("within 300ms", || {
            let hole = BlackHole::open();
            (hole.port, Box::new(|| hole.become_receiver(|_, _| HttpReply::ok())))
        }),
        ("within 300ms", || scripted(HttpReply::Silence)),
        ("closed the connection without a response", || scripted(HttpReply::Reset)),
    ]
}

#[test]
fn payloads_queued_during_an_outage_of_any_kind_arrive_in_order_after_it() {
    for (error, begin) in outages() {
        let (port, end) = begin();
        let exporter = exporter_with_short_timeout(port, settings_without_expiry());
        for number in 0..5u8 {
            exporter.enqueue(0, payload([number], 2));
        }
        let stats = wait_for(&exporter, "it was tried twice", |stats| stats.retries >= 1);
        assert!(stats.last_error.as_ref().unwrap().contains(error), "{stats:#?}");
        let server = end();

        let stats = wait_for(&exporter, "all five are sent", |stats| stats.sent == 5);
        assert_eq!((stats.sent_samples, stats.dropped_total()), (10, Discarded::default()), "{stats:#?}");
        assert_counters_balance(&stats, 0);
        let mut bodies = server.bodies();
        bodies.dedup();
        assert_eq!(bodies, [[0], [1], [2], [3], [4]]);
    }
}

#[test]
fn a_receiver_that_resets_each_second_request_causes_no_further_retry() {
    let server = ScriptedHttp::start(|number, _| if number % 2 == 0 { HttpReply::Reset } else { HttpReply::ok() });
    let exporter = exporter_at(server.port(), settings_without_expiry());
    for number in 0..5u8 {
        exporter.enqueue(0, payload([number], 2));
    }
    let stats = wait_for(&exporter, "all five are sent", |stats| stats.sent == 5);
    // The reset of an idle connection causes no retry, so only the first reset did.
    assert_eq!((stats.retries, server.received().len()), (1, 10));
}

#[test]
fn an_overloaded_receiver_is_retried_until_the_payload_expires() {
    let server = ScriptedHttp::start(|_, _| HttpReply::status(503));
    let clock = InstantClock::new();
    let settings = ExporterSettings { retry_max_age: Duration::from_secs(120), ..settings_on(clock.clone()) };
    let exporter = exporter_at(server.port(), settings);

    exporter.enqueue(0, payload("body", 3));
    let stats = wait_for(&exporter, "it is discarded", |stats| stats.queue_payloads == 0);

    assert_eq!(stats.dropped(DiscardReason::Expired), Discarded { payloads: 1, samples: 3 }, "{stats:#?}");
    assert_eq!(server.received().len() as u64, stats.retries + 1);
    assert!(clock.pauses().iter().sum::<Duration>() <= Duration::from_secs(120), "{:?}", clock.pauses());
    assert!(stats.last_error.unwrap().contains("503 Service Unavailable"));
}

#[test]
fn a_payload_that_expires_does_not_shorten_the_delay_that_the_receiver_requested() {
    let server = ScriptedHttp::start(|number, _| match number {
        0 => HttpReply::status(429).with("Retry-After", "100"),
        _ => HttpReply::ok(),
    });
    let clock = InstantClock::new();
    let settings = ExporterSettings { retry_max_age: Duration::from_secs(99), ..settings_on(clock.clone()) };
    let exporter = exporter_at(server.port(), settings);

    exporter.enqueue(0, payload("first", 3));
    wait_for(&exporter, "the first is discarded", |stats| stats.dropped(DiscardReason::Expired).payloads == 1);
    exporter.enqueue(0, payload("second", 3));
    let stats = wait_for(&exporter, "the second is settled", |stats| stats.queue_payloads == 0);

    // Enqueued at the moment of the rejection, the second expires before the requested delay ends as well.
    assert_eq!(stats.dropped(DiscardReason::Expired), Discarded { payloads: 2, samples: 6 }, "{stats:#?}");
    assert_eq!(server.received().len(), 1);
}

#[test]
fn a_full_queue_discards_the_oldest_and_counts_them() {
    let (release, released) = std::sync::mpsc::channel();
    let server = ScriptedHttp::start(move |number, _| {
        if number == 0 {
            // An error means that the test has failed and dropped its end of the channel.
            let _: Result<(), _> = released.recv();
        }
        HttpReply::ok()
    });
    let mut settings = settings_without_expiry();
    settings.queue_max_bytes = 300;
    let exporter = exporter_at(server.port(), settings);
    exporter.enqueue(0, payload(vec![0; 100], 10));
    wait_for(&exporter, "the first is in flight", |_| server.received().len() == 1);

    for number in 1..=9u8 {
        exporter.enqueue(0, payload(vec![number; 100], 10));
    }
    exporter.enqueue(0, payload(vec![99; 301], 4));
    let stats = stats_of(&exporter);
    assert_eq!((stats.queue_payloads, stats.queue_bytes), (4, 400), "one in flight, three waiting");
    assert_eq!(stats.dropped(DiscardReason::QueueFull), Discarded { payloads: 7, samples: 64 });

    release.send(()).unwrap();
    let stats = wait_for(&exporter, "the rest is sent", |stats| stats.queue_payloads == 0);
    assert_eq!((stats.sent, stats.sent_samples), (4, 40));
    let firsts: Vec<_> = server.bodies().iter().map(|body| body[0]).collect();
    assert_eq!(firsts, [0, 7, 8, 9]);
    assert_counters_balance(&stats, 0);
}

#[test]
fn a_queue_is_limited_in_payloads() {
    let server = ScriptedHttp::start(|_, _| HttpReply::Silence);
    let mut settings = settings_without_expiry();
    settings.queue_max_payloads = 5;
    let exporter = exporter_at(server.port(), settings);
    exporter.enqueue(0, payload("", 1));
    wait_for(&exporter, "the first is in flight", |_| server.received().len() == 1);

    for _ in 0..100 {
        exporter.enqueue(0, payload("", 1));
    }

    let stats = stats_of(&exporter);
    assert_eq!((stats.queue_payloads, stats.dropped(DiscardReason::QueueFull).payloads), (6, 95));
}

#[test]
fn a_flush_ends_a_back_off_delay_but_not_one_that_the_receiver_requested() {
    // With the system's clock, only a flush ends these delays in time.
    let server = ScriptedHttp::start(|number, _| match number {
        0..=7 => HttpReply::status(503),
        8 => HttpReply::status(503).with("Retry-After", "3600"),
        _ => HttpReply::ok(),
    });
    let settings = ExporterSettings { retry_max_age: Duration::from_secs(86_400), ..ExporterSettings::default() };
    let exporter = exporter_at(server.port(), settings);
    exporter.enqueue(0, payload("body", 1));
    for attempts in 1..=8 {
        let stats = wait_for(&exporter, "the next attempt failed", |_| server.received().len() >= attempts);
        assert_eq!(stats.sent, 0);
        exporter.flush(Duration::from_millis(20));
    }
    wait_for(&exporter, "the delay was requested", |_| server.received().len() == 9);

    assert!(!exporter.flush(Duration::from_millis(300)));
    assert_eq!(server.received().len(), 9);
}

#[test]
fn a_panic_disables_one_destination_and_not_the_others() {
    let too_large = ScriptedHttp::start(|_, _| HttpReply::status(413));
    let working = ScriptedHttp::start(|_, _| HttpReply::ok());
    let destinations = [&too_large, &working].map(|server| Destination::OtlpHttp(http_endpoint(server.port())));
    let exporter = Exporter::start(destinations.to_vec(), ExporterSettings::default()).unwrap();

    let mut broken = payload("body", 5);
    broken.split = Some(|_| panic!("the split function is broken"));
    exporter.enqueue(0, broken);
    exporter.enqueue(0, payload("next", 3));
    exporter.flush(TEST_TIMEOUT);
    wait_for(&exporter, "it is disabled", |stats| stats.disabled);
    exporter.enqueue(0, payload("after", 2));
    exporter.enqueue(1, payload("other", 1));
    assert!(!exporter.flush(TEST_TIMEOUT));

    let stats = exporter.stats();
    assert_eq!(
        (stats[0].panics, stats[0].dropped(DiscardReason::Disabled)),
        (1, Discarded { payloads: 3, samples: 10 })
    );
    assert_counters_balance(&stats[0], 0);
    assert!(stats[0].last_error.as_ref().unwrap().contains("internal error"));
    assert_eq!((stats[1].sent, stats[1].disabled), (1, false));
}
