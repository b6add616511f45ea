//! The end: what is there is sent within the deadline, the rest is dropped and counted, and nobody waits longer.

use crate::clocks::InstantClock;
use crate::scripted_grpc::{self, ScriptedGrpc};
use crate::scripted_http::{BlackHole, Refusing, Reply, ScriptedHttp};
use crate::shared::{
    assert_accounts_balance, grpc_endpoint, http_endpoint, payload, settings_on, stats_of, wait_for, PATIENCE,
};
use spanprof_export::{Destination, DropReason, Dropped, Exporter, ExporterSettings};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(400);
/// Without the deadline a request would be waited for until its own time-out of 10 s. How much later than the deadline a
/// call returns is measured by the live suite.
const NOT_THE_TIMEOUT: Duration = Duration::from_secs(9);

fn start(port: u16) -> Exporter {
    Exporter::start(vec![Destination::OtlpHttp(http_endpoint(port))], ExporterSettings::default()).unwrap()
}

/// Stops with three payloads of two samples enqueued; returns how long it took.
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
    // `stop` does not wait for a thread that gets no CPU: that one accounts for what it had in flight when it runs again.
    let stats = wait_for(exporter, "all are accounted", |stats| stats.queue_payloads == 0);
    assert_eq!(stats.dropped(DropReason::Deadline), Dropped { payloads: 3, samples: 6 }, "{stats:#?}");
    assert_eq!((stats.sent, stats.queue_payloads, stats.queue_bytes), (0, 0, 0), "{stats:#?}");
    assert_accounts_balance(&stats, 0);
}

#[test]
fn with_a_live_receiver_everything_is_delivered_and_the_call_returns_at_once() {
    let server = ScriptedHttp::start(|_, _| Reply::ok());
    let exporter = start(server.port());

    stop_with_three(&exporter, PATIENCE);

    assert_eq!(server.bodies(), [[0], [1], [2]]);
    assert_eq!((stats_of(&exporter).sent, stats_of(&exporter).dropped_total().payloads), (3, 0));
}

#[test]
fn a_refusing_receiver_is_not_waited_for() {
    let refusing = Refusing::open();
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
fn a_silent_receiver_is_waited_for_until_the_deadline() {
    let server = ScriptedHttp::start(|_, _| Reply::Silence);
    let exporter = start(server.port());

    let took = stop_with_three(&exporter, DEADLINE);

    assert!(took >= DEADLINE && took < NOT_THE_TIMEOUT, "{took:?}");
    assert_three_lost(&exporter);
}

#[test]
fn a_black_hole_is_waited_for_until_the_deadline() {
    let black_hole = BlackHole::open();
    let exporter = start(black_hole.port);

    let took = stop_with_three(&exporter, DEADLINE);

    assert!(took < NOT_THE_TIMEOUT, "{took:?}");
    assert_three_lost(&exporter);
}

#[test]
fn a_silent_grpc_receiver_is_waited_for_until_the_deadline() {
    let server = ScriptedGrpc::start(|_, _| scripted_grpc::Reply::Silence);
    let destination = Destination::OtlpGrpc(grpc_endpoint(server.port()));
    let exporter = Exporter::start(vec![destination], ExporterSettings::default()).unwrap();

    let took = stop_with_three(&exporter, DEADLINE);

    assert!(took >= DEADLINE && took < NOT_THE_TIMEOUT, "{took:?}");
    assert_three_lost(&exporter);
}

#[test]
fn a_pause_in_progress_ends_and_the_last_chance_is_used() {
    let server = ScriptedHttp::start(|number, _| if number < 6 { Reply::status(503) } else { Reply::ok() });
    let exporter = start(server.port());
    exporter.enqueue(0, payload("body", 1));
    // After so many failures the pause is long: only the end of it by `stop` lets the seventh attempt happen in time.
    for attempts in 1..=6 {
        wait_for(&exporter, "the next attempt failed", |_| server.received().len() >= attempts);
        if attempts < 6 {
            exporter.flush(Duration::from_millis(20));
        }
    }
    wait_for(&exporter, "the sixth failure is noted", |stats| stats.retries == 5 && stats.last_error.is_some());

    exporter.stop(PATIENCE);

    assert_eq!((stats_of(&exporter).sent, server.received().len()), (1, 7));
}

#[test]
fn a_receiver_that_asks_for_more_time_than_there_is_is_not_asked_again() {
    let server = ScriptedHttp::start(|_, _| Reply::status(429).with("Retry-After", "60"));
    let exporter = start(server.port());

    let took = stop_with_three(&exporter, DEADLINE);

    assert!(took < NOT_THE_TIMEOUT, "{took:?}");
    assert_eq!(server.received().len(), 1);
    assert_three_lost(&exporter);
}

#[test]
fn after_the_end_payloads_are_dropped_and_counted_and_a_second_stop_returns_at_once() {
    let server = ScriptedHttp::start(|_, _| Reply::ok());
    let exporter = start(server.port());
    exporter.stop(DEADLINE);

    exporter.enqueue(0, payload("late", 4));
    let began = Instant::now();
    exporter.stop(Duration::from_secs(60));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(exporter.flush(Duration::from_secs(60)), "nothing waits");

    assert_eq!(stats_of(&exporter).dropped(DropReason::Deadline), Dropped { payloads: 1, samples: 4 });
    assert!(server.received().is_empty());
}

#[test]
fn stop_tells_of_a_payload_that_was_refused_before_it_began() {
    let server = ScriptedHttp::start(|_, _| Reply::status(400));
    let exporter = start(server.port());

    let before = exporter.moment();
    exporter.enqueue(0, payload("refused", 4));
    wait_for(&exporter, "it is refused", |stats| stats.queue_payloads == 0);

    assert!(!exporter.stop_since(&before, DEADLINE));
    assert_eq!(stats_of(&exporter).dropped(DropReason::Permanent), Dropped { payloads: 1, samples: 4 });
}

#[test]
fn dropping_the_exporter_ends_its_thread_without_waiting() {
    let (server, ended) = (ScriptedHttp::start(|_, _| Reply::Silence), &ENDED);
    let settings = ExporterSettings {
        start_thread: |_, body| {
            let told = move || {
                body();
                ENDED.store(true, std::sync::atomic::Ordering::SeqCst);
            };
            std::thread::Builder::new().spawn(told).map(drop)
        },
        ..settings_on(InstantClock::new())
    };
    let exporter = Exporter::start(vec![Destination::OtlpHttp(http_endpoint(server.port()))], settings).unwrap();
    exporter.enqueue(0, payload("body", 1));
    wait_for(&exporter, "it is in flight", |_| server.received().len() == 1);

    drop(exporter);

    let until = Instant::now() + PATIENCE;
    while !ended.load(std::sync::atomic::Ordering::SeqCst) {
        assert!(Instant::now() < until, "the thread lives on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

static ENDED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[test]
fn a_forgotten_exporter_makes_room_for_another() {
    let server = ScriptedHttp::start(|_, _| Reply::ok());
    start(server.port()).forget_after_fork();
    let exporter = start(server.port());

    exporter.enqueue(0, payload("child", 1));

    assert!(exporter.flush(PATIENCE));
}
