//! OTLP/gRPC: the contents of a call, and the handling of each response.

use crate::scripted_grpc::{GrpcReply, ScriptedGrpc};
use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{assert_counters_balance, exporter_to, grpc_endpoint, payload, stats_of, wait_for, TEST_TIMEOUT};
use spanprof_export::{Compression, Destination, DestinationStats, DiscardReason, Discarded, ExportPayload, Secret};
use std::time::Duration;

/// Sends one payload of 7 samples to a receiver whose first response is `first` and whose later ones are success.
fn after_first_response(first: GrpcReply) -> (DestinationStats, Vec<Duration>) {
    let server = ScriptedGrpc::start(move |number, _| if number == 0 { first.clone() } else { GrpcReply::Ok(vec![]) });
    let (exporter, clock) = exporter_to(Destination::OtlpGrpc(grpc_endpoint(server.port())));
    exporter.enqueue(0, payload("body", 7));
    // No flush, which would end the delays that the tests check.
    let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
    assert_eq!(server.received().len() as u64, 1 + stats.retries, "{stats:#?}");
    assert_counters_balance(&stats, 0);
    (stats, clock.pauses())
}

#[test]
fn the_error_of_grpc_to_an_http_port_names_the_protocol_to_set() {
    // Nearly all servers respond and close; the client sees the response or, first, a failed write.
    for reply in [HttpReply::status(400), HttpReply::Reset] {
        let server = ScriptedHttp::start(move |_, _| reply.clone());
        let (exporter, _) = exporter_to(Destination::OtlpGrpc(grpc_endpoint(server.port())));
        exporter.enqueue(0, payload("body", 7));
        let stats = wait_for(&exporter, "it has failed", |stats| stats.last_error.is_some());
        let error = stats.last_error.unwrap();
        assert!(error.contains("set protocol=http/protobuf"), "{error}");
    }
}

/// google.rpc.Status with a RetryInfo of `seconds`.
fn retry_info(seconds: u8) -> Vec<u8> {
    let type_url = b"type.googleapis.com/google.rpc.RetryInfo";
    let mut any = vec![0x0a, type_url.len() as u8];
    any.extend(type_url);
    any.extend([0x12, 4, 0x0a, 2, 0x08, seconds]);
    let mut status = vec![0x08, 8, 0x1a, any.len() as u8];
    status.extend(any);
    status
}

#[test]
fn a_call_carries_the_unchanged_body_with_metadata_deadline_and_version() {
    let server = ScriptedGrpc::start(|_, _| GrpcReply::Ok(vec![0x0a, 0x00]));
    let mut endpoint = grpc_endpoint(server.port());
    endpoint.headers = vec![("X-Token".to_owned(), Secret::from("abc"))];
    endpoint.url = endpoint.url.replace("http://", "http://user:pass@");
    let (exporter, _) = exporter_to(Destination::OtlpGrpc(endpoint));

    exporter.enqueue(0, payload(vec![9; 5000], 1));
    assert!(exporter.flush(TEST_TIMEOUT));

    let received = server.received().remove(0);
    assert_eq!(received.path, "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export");
    assert_eq!((received.body, received.was_compressed), (vec![9; 5000], true));
    assert_eq!(received.metadata["otlp-profiles-development-version"], "1");
    assert_eq!(received.metadata["x-token"], "abc");
    assert_eq!(received.metadata["authorization"], "Basic dXNlcjpwYXNz");
    assert_eq!(received.metadata["user-agent"], concat!("spanprof/", env!("CARGO_PKG_VERSION")));
    assert!(received.metadata.contains_key("grpc-timeout"));
}

#[test]
fn a_call_can_go_uncompressed_and_calls_share_a_connection() {
    let server = ScriptedGrpc::start(|_, _| GrpcReply::Ok(vec![]));
    let mut endpoint = grpc_endpoint(server.port());
    endpoint.compression = Compression::None;
    let (exporter, _) = exporter_to(Destination::OtlpGrpc(endpoint));

    for number in 0..4u8 {
        exporter.enqueue(0, payload([number; 100], 1));
        assert!(exporter.flush(TEST_TIMEOUT));
    }

    assert!(server.received().iter().all(|received| !received.was_compressed));
    assert_eq!(server.bodies(), (0..4u8).map(|number| vec![number; 100]).collect::<Vec<_>>());
    assert_eq!(server.connections(), 1);
}

#[test]
fn exactly_the_codes_of_the_specification_are_retried() {
    // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS
    let retried = [1, 4, 10, 11, 14, 15];
    for code in 1..=16 {
        let (stats, pauses) = after_first_response(GrpcReply::status(code, "why"));
        if retried.contains(&code) {
            assert_eq!((stats.sent, stats.retries, stats.dropped_total().payloads), (1, 1, 0), "{code}: {stats:#?}");
            assert_eq!(pauses.len(), 1, "{code}");
        } else {
            assert_eq!(
                stats.dropped(DiscardReason::Permanent),
                Discarded { payloads: 1, samples: 7 },
                "{code}: {stats:#?}"
            );
            assert_eq!(stats.retries, 0, "{code}");
        }
        assert!(stats.last_error.unwrap().contains("why"), "{code}");
    }
}

#[test]
fn resource_exhausted_with_retry_info_is_retried_after_its_delay() {
    let (stats, pauses) = after_first_response(GrpcReply::Status { code: 8, message: "busy", details: retry_info(6) });

    assert_eq!((stats.sent, stats.retries), (1, 1), "{stats:#?}");
    let slept: Duration = pauses.iter().sum();
    assert!(slept >= Duration::from_secs(6) && slept <= Duration::from_secs(7), "{pauses:?}");
}

#[test]
fn the_error_of_unimplemented_says_that_profiles_are_not_enabled_at_the_receiver() {
    for reply in [GrpcReply::status(12, "unknown service"), GrpcReply::Http(404)] {
        let (stats, _) = after_first_response(reply);
        assert_eq!(stats.dropped(DiscardReason::Permanent).payloads, 1);
        let error = stats.last_error.unwrap();
        assert!(error.contains("profiles are not enabled") && error.contains("service.profilesSupport"), "{error}");
    }
}

#[test]
fn http_errors_of_a_load_balancer_without_grpc_are_classified() {
    for (status, is_retried) in
        [(502, true), (503, true), (504, true), (429, true), (400, false), (401, false), (500, false)]
    {
        let (stats, _) = after_first_response(GrpcReply::Http(status));
        assert_eq!((stats.retries == 1, stats.sent == 1), (is_retried, is_retried), "{status}: {stats:#?}");
    }
}

#[test]
fn a_response_without_status_or_with_a_malformed_message_is_no_success() {
    for reply in [GrpcReply::NoStatus, GrpcReply::Ok(b"<html>".to_vec()), GrpcReply::Ok(vec![0; (4 << 20) + 1])] {
        let (stats, _) = after_first_response(reply);
        assert_eq!((stats.dropped(DiscardReason::Permanent).payloads, stats.retries), (1, 0), "{stats:#?}");
    }
}

#[test]
fn a_partial_success_is_counted_and_never_sent_again() {
    let message = [&[0x0a, 11, 0x08, 2, 0x12, 7][..], b"too old"].concat();
    let (stats, _) = after_first_response(GrpcReply::Ok(message));

    assert_eq!(stats.dropped(DiscardReason::Partial), Discarded { payloads: 1, samples: 7 });
    assert_eq!((stats.rejected_profiles, stats.sent, stats.retries), (2, 0, 0));
    assert!(stats.last_error.unwrap().contains("too old"));
}

#[test]
fn a_gzipped_response_is_decoded_and_a_gzip_bomb_is_not() {
    let (stats, _) = after_first_response(GrpcReply::Gzipped(vec![0x0a, 0x00]));
    assert_eq!((stats.sent, stats.last_error), (1, None));

    let (stats, _) = after_first_response(GrpcReply::Gzipped([&[0x0a, 11, 0x08, 2, 0x12, 7][..], b"too old"].concat()));
    assert_eq!((stats.rejected_profiles, stats.dropped(DiscardReason::Partial).payloads), (2, 1));

    let (stats, _) = after_first_response(GrpcReply::Gzipped(vec![0; 6 << 20]));
    assert_eq!((stats.dropped(DiscardReason::Permanent).payloads, stats.retries), (1, 0), "{stats:#?}");
}

#[test]
fn a_connection_that_ends_without_a_response_is_retried() {
    let (stats, pauses) = after_first_response(GrpcReply::HangUp);

    assert_eq!((stats.sent, stats.retries, pauses.len()), (1, 1, 1), "{stats:#?}");
    assert!(stats.last_error.unwrap().contains("closed the connection without a response"));
}

#[test]
fn an_idle_connection_that_fails_in_a_call_is_replaced_once_within_the_attempt() {
    let server = ScriptedGrpc::start(|number, _| if number == 1 { GrpcReply::HangUp } else { GrpcReply::Ok(vec![]) });
    let (exporter, _) = exporter_to(Destination::OtlpGrpc(grpc_endpoint(server.port())));

    for number in 0..2u8 {
        exporter.enqueue(0, payload([number], 1));
        assert!(exporter.flush(TEST_TIMEOUT));
    }

    let stats = stats_of(&exporter);
    assert_eq!((stats.sent, stats.retries, server.connections()), (2, 0, 2));
}

#[test]
fn a_message_over_the_limit_of_the_receiver_is_split_once() {
    let server = ScriptedGrpc::start(|_, received| {
        if received.body.len() > 4 {
            GrpcReply::status(8, "grpc: received message larger than max (5243707 vs. 4194304)")
        } else {
            GrpcReply::Ok(vec![])
        }
    });
    let (exporter, _) = exporter_to(Destination::OtlpGrpc(grpc_endpoint(server.port())));

    let halves = |body: &[u8]| Some(body.chunks(body.len() / 2).map(<[u8]>::to_vec).collect());
    let before = exporter.loss_baseline();
    exporter.enqueue(0, ExportPayload { split: Some(halves), ..payload("abcdefgh", 10) });
    exporter.enqueue(0, ExportPayload { split: Some(halves), ..payload("abcdefghijkl", 10) });
    assert!(!exporter.flush_since(&before, TEST_TIMEOUT));

    let stats = stats_of(&exporter);
    assert_eq!((stats.sent, stats.sent_samples, stats.splits, stats.retries), (2, 10, 2, 0));
    assert_eq!(stats.dropped(DiscardReason::TooLarge), Discarded { payloads: 2, samples: 10 });
    assert_counters_balance(&stats, 2);
}

#[test]
fn each_attempt_to_an_unresponsive_receiver_ends_after_the_timeout() {
    let server = ScriptedGrpc::start(|number, _| if number == 0 { GrpcReply::Silence } else { GrpcReply::Ok(vec![]) });
    let mut endpoint = grpc_endpoint(server.port());
    endpoint.timeout = Duration::from_millis(150);
    let (exporter, _) = exporter_to(Destination::OtlpGrpc(endpoint));

    exporter.enqueue(0, payload("body", 1));
    assert!(exporter.flush(TEST_TIMEOUT));

    let stats = stats_of(&exporter);
    // On a loaded machine another attempt may time out.
    assert!(stats.sent == 1 && stats.retries == server.received().len() as u64 - 1, "{stats:#?}");
    assert!(stats.last_error.unwrap().contains("did not respond within 150ms"));
}
