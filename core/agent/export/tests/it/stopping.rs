//! `stop`: queued payloads are sent within the deadline, and the rest is discarded and counted.

use crate::clocks::InstantClock;
use crate::scripted_grpc::{self, ScriptedGrpc};
use crate::scripted_http::{BlackHole, HttpReply, RefusingPort, ScriptedHttp};
use crate::shared::{
    assert_counters_balance, grpc_endpoint, http_endpoint, payload, settings_on, stats_of, wait_for, TEST_TIMEOUT,
};
use spanprof_export::{Destination, DiscardReason, Discarded, Exporter, ExporterSettings};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(400);
/// Below the request timeout of 10 s. The live suite measures the time from the deadline to the return.
const NOT_THE_TIMEOUT: Duration = Duration::from_secs(9);

fn start(port: u16) -> Exporter {
    Exporter::start(vec![Destination::OtlpHttp(http_endpoint(port))], ExporterSettings::default()).unwrap()
}

/// Stops with three payloads of two samples enqueued; returns the duration of the call.
fn stop_with_three(exporter: &Exporter, deadline: Duration) -> Duration {
    for number in 0..3u8 {
        exporter.enqueue(0, payload([number], 2));
    }
    let began = Instant::now();
    let delivered = exporter.stop(deadline);
    assert_eq!(delivered, stats_of(exporter).sent == 3);
    began.elapsed()
}

fn assert_three_lost(exporter: &Exporter) {
    // `stop` does not wait for a thread without CPU time: that thread counts its payload in flight when it runs again.
    let stats = wait_for(exporter, "all are counted", |stats| stats.queue_payloads == 0);
    assert_eq!(stats.dropped(DiscardReason::Deadline), Discarded { payloads: 3, samples: 6 }, "{stats:#?}");
    assert_eq!((stats.sent, stats.queue_payloads, stats.queue_bytes), (0, 0, 0), "{stats:#?}");
    assert_counters_balance(&stats, 0);
}

#[test]
fn with_a_responsive_receiver_all_payloads_are_delivered_and_stop_returns_at_once() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let exporter = start(server.port());

    stop_with_three(&exporter, TEST_TIMEOUT);

    assert_eq!(server.bodies(), [[0], [1], [2]]);
    assert_eq!((stats_of(&exporter).sent, stats_of(&exporter).dropped_total().payloads), (3, 0));
}

#[test]
fn stop_does_not_wait_for_a_receiver_that_refuses_connections() {
    let refusing = RefusingPort::open();
    let exporter = start(refusing.port);
    for number in 0..3u8 {
        exporter.enqueue(0, payload([number], 2));
    }

    let began = Instant::now();
    assert!(!exporter.stop(Duration::from_secs(60)));

    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_three_lost(&exporter);
}

#[test]
fn stop_waits_for_a_receiver_that_does_not_respond_until_the_deadline() {
    let silent = ScriptedHttp::start(|_, _| HttpReply::Silence);
    let silent_grpc = ScriptedGrpc::start(|_, _| scripted_grpc::GrpcReply::Silence);
    let black_hole = BlackHole::open();
    for destination in [
        Destination::OtlpHttp(http_endpoint(silent.port())),
        Destination::OtlpGrpc(grpc_endpoint(silent_grpc.port())),
        Destination::OtlpHttp(http_endpoint(black_hole.port)),
    ] {
        let exporter = Exporter::start(vec![destination], ExporterSettings::default()).unwrap();
        let took = stop_with_three(&exporter, DEADLINE);
        assert!(took >= DEADLINE && took < NOT_THE_TIMEOUT, "{took:?}");
        assert_three_lost(&exporter);
    }
}

#[test]
fn stop_ends_a_delay_in_progress_and_makes_a_last_attempt() {
    let server = ScriptedHttp::start(|number, _| if number < 6 { HttpReply::status(503) } else { HttpReply::ok() });
    let exporter = start(server.port());
    exporter.enqueue(0, payload("body", 1));
    // After six failures the delay is long: the seventh attempt is in time only because `stop` ends the delay.
    for attempts in 1..=6 {
        wait_for(&exporter, "the next attempt failed", |_| server.received().len() >= attempts);
        if attempts < 6 {
            exporter.flush(Duration::from_millis(20));
        }
    }
    wait_for(&exporter, "the sixth failure is recorded", |stats| stats.retries == 5 && stats.last_error.is_some());

    exporter.stop(TEST_TIMEOUT);

    assert_eq!((stats_of(&exporter).sent, server.received().len()), (1, 7));
}

#[test]
fn stop_makes_no_attempt_when_the_requested_delay_exceeds_the_deadline() {
    let server = ScriptedHttp::start(|_, _| HttpReply::status(429).with("Retry-After", "60"));
    let exporter = start(server.port());

    let took = stop_with_three(&exporter, DEADLINE);

    assert!(took < NOT_THE_TIMEOUT, "{took:?}");
    assert_eq!(server.received().len(), 1);
    assert_three_lost(&exporter);
}

#[test]
fn after_stop_payloads_are_discarded_and_counted_and_a_second_stop_returns_at_once() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let exporter = start(server.port());
    exporter.stop(DEADLINE);

    exporter.enqueue(0, payload("late", 4));
    let began = Instant::now();
    exporter.stop(Duration::from_secs(60));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(exporter.flush(Duration::from_secs(60)), "nothing waits");

    assert_eq!(stats_of(&exporter).dropped(DiscardReason::Deadline), Discarded { payloads: 1, samples: 4 });
    assert!(server.received().is_empty());
}

#[test]
fn stop_reports_a_payload_that_was_rejected_before_the_call() {
    let server = ScriptedHttp::start(|_, _| HttpReply::status(400));
    let exporter = start(server.port());

    let before = exporter.loss_baseline();
    exporter.enqueue(0, payload("rejected", 4));
    wait_for(&exporter, "it is rejected", |stats| stats.queue_payloads == 0);

    assert!(!exporter.stop_since(&before, DEADLINE));
    assert_eq!(stats_of(&exporter).dropped(DiscardReason::Permanent), Discarded { payloads: 1, samples: 4 });
}

#[test]
fn dropping_the_exporter_ends_its_thread_without_waiting() {
    let (server, ended) = (ScriptedHttp::start(|_, _| HttpReply::Silence), &ENDED);
    let settings = ExporterSettings {
        start_thread: |_, body| {
            let recorded = move || {
                body();
                ENDED.store(true, std::sync::atomic::Ordering::SeqCst);
            };
            std::thread::Builder::new().spawn(recorded).map(drop)
        },
        ..settings_on(InstantClock::new())
    };
    let exporter = Exporter::start(vec![Destination::OtlpHttp(http_endpoint(server.port()))], settings).unwrap();
    exporter.enqueue(0, payload("body", 1));
    wait_for(&exporter, "it is in flight", |_| server.received().len() == 1);

    drop(exporter);

    let until = Instant::now() + TEST_TIMEOUT;
    while !ended.load(std::sync::atomic::Ordering::SeqCst) {
        assert!(Instant::now() < until, "the thread still runs");
        std::thread::sleep(Duration::from_millis(2));
    }
}

static ENDED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[test]
fn another_exporter_works_after_one_was_forgotten() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    start(server.port()).forget_after_fork();
    let exporter = start(server.port());

    exporter.enqueue(0, payload("child", 1));

    assert!(exporter.flush(TEST_TIMEOUT));
}
