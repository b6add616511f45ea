//! Tests of the queue's bounds and counters.

use super::{DeliveryResult, DestinationQueue};
use crate::payload::ExportPayload;
use crate::settings::ExporterSettings;
use crate::stats::{DiscardReason, Discarded};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn queue(max_bytes: usize, max_payloads: usize) -> Arc<DestinationQueue> {
    let settings = ExporterSettings {
        queue_max_bytes: max_bytes,
        queue_max_payloads: max_payloads,
        ..ExporterSettings::default()
    };
    Arc::new(DestinationQueue::new("file", "target".to_owned(), &settings))
}

fn payload(bytes: usize, samples: u64) -> ExportPayload {
    ExportPayload { body: vec![0; bytes], samples, ..ExportPayload::default() }
}

fn deliver_one(queue: &DestinationQueue) -> bool {
    let Some(payload) = queue.take() else { return false };
    queue.count_result(&payload, DeliveryResult::Sent { warning: None });
    queue.settle();
    true
}

#[test]
fn a_large_payload_evicts_as_many_as_it_needs_and_none_when_it_exceeds_the_queue() {
    let queue = queue(10, 100);
    for _ in 0..5 {
        queue.enqueue(payload(2, 1));
    }

    queue.enqueue(payload(5, 1));
    assert_eq!(queue.stats().queue_bytes, 9);
    queue.enqueue(payload(11, 7));

    let stats = queue.stats();
    assert_eq!((stats.queue_bytes, stats.dropped(DiscardReason::QueueFull).payloads), (9, 4));
    assert!(stats.last_error.unwrap().contains("11 bytes"));
}

#[test]
fn a_closed_queue_counts_waiting_and_later_payloads_under_the_first_reason() {
    let queue = queue(10, 100);
    queue.enqueue(payload(1, 2));

    queue.close(DiscardReason::Deadline);
    queue.close(DiscardReason::Disabled);
    queue.enqueue(payload(1, 3));

    let stats = queue.stats();
    assert_eq!(stats.dropped(DiscardReason::Deadline), Discarded { payloads: 2, samples: 5 });
    assert_eq!((stats.queue_payloads, stats.queue_bytes, queue.take().is_none()), (0, 0, true));
}

#[test]
fn waiting_ends_when_the_payloads_before_the_mark_are_settled() {
    let queue = queue(1000, 100);
    queue.enqueue(payload(1, 1));
    let mark = queue.mark();
    queue.enqueue(payload(1, 1));

    assert!(!queue.wait_until_settled(queue.mark(), Instant::now()));
    assert!(deliver_one(&queue));

    assert!(queue.wait_until_settled(mark, Instant::now()));
    assert_eq!(queue.stats().queue_payloads, 1);
}

#[test]
fn waiting_reports_a_loss_after_the_mark() {
    let queue = queue(1, 100);
    queue.enqueue(payload(1, 1));
    let mark = queue.mark();
    queue.enqueue(payload(1, 1));

    assert!(!queue.wait_until_settled(mark, Instant::now() + Duration::from_secs(5)));
}

#[test]
fn every_payload_of_many_threads_is_counted_once() {
    let queue = queue(2000, 100);
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            std::thread::spawn(move || (0..2000).for_each(|_| queue.enqueue(payload(100, 3))))
        })
        .collect();
    while producers.iter().any(|producer| !producer.is_finished()) {
        deliver_one(&queue);
        let stats = queue.stats();
        assert!(stats.queue_bytes <= 2000 && stats.queue_payloads <= 20, "{stats:?}");
    }
    while deliver_one(&queue) {}

    let stats = queue.stats();
    assert_eq!(stats.enqueued, 8000);
    assert_eq!(stats.sent + stats.dropped(DiscardReason::QueueFull).payloads, 8000);
    assert_eq!(stats.sent_samples + stats.dropped(DiscardReason::QueueFull).samples, 24_000);
}
