//! The disk buffer of processes that are killed while they write, and while they send: the next process sends every complete
//! request, in order, and never a torn one.
//!
//! The tests start this binary again, as in `file_processes`.

use crate::buffers::{buffer_in, requests_in, unix_ms};
use crate::file_processes::{directory_to_write, start};
use crate::scripted_http::{HttpReply, RefusingPort};
use crate::shared::{http_endpoint, payload, TEST_TIMEOUT};
use spanprof_export::{BufferSettings, Destination, ExportPayload, Exporter, ExporterSettings, OtlpEndpoint};
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills; `live outage` makes 1,000.
const KILLS: &str = "SPANPROF_TEST_KILLS";
/// Port of the receiver, for the child.
const PORT: &str = "SPANPROF_TEST_PORT";
const BODY_BYTES: usize = 60_000;
/// Requests of the backlog that arrive before the last kill.
const SENT_BEFORE_KILL: usize = 10;

fn exporter(directory: &Path, endpoint: OtlpEndpoint) -> Exporter {
    let buffer = BufferSettings { max_bytes: 1 << 30, ..buffer_in(directory) };
    let settings = ExporterSettings { buffer: Some(buffer), ..ExporterSettings::default() };
    Exporter::start(vec![Destination::OtlpHttp(endpoint)], settings).unwrap()
}

/// A body that shows its own tears: its start time and number, and the same byte in every other position.
fn body(began_ms: u64, number: u64) -> Vec<u8> {
    let mut body = vec![number as u8; BODY_BYTES];
    body[..8].copy_from_slice(&began_ms.to_be_bytes());
    body[8..16].copy_from_slice(&number.to_be_bytes());
    body
}

/// Start time and number of a body, which must be whole.
fn identity_of_whole(bytes: &[u8]) -> (u64, u64) {
    assert!(bytes.len() >= BODY_BYTES, "{} bytes", bytes.len());
    // A file has its header before the body.
    let content = &bytes[bytes.len() - BODY_BYTES..];
    let [began_ms, number] =
        [0, 8].map(|position| u64::from_be_bytes(content[position..position + 8].try_into().unwrap()));
    assert!(*content == body(began_ms, number), "{began_ms} {number} is torn");
    (began_ms, number)
}

#[test]
fn no_request_of_a_killed_process_is_torn_and_all_arrive_in_order() {
    if let Some(directory) = directory_to_write() {
        let port = std::env::var(PORT).unwrap().parse().unwrap();
        let exporter = exporter(&directory, http_endpoint(port));
        let began_ms = unix_ms();
        for number in 0.. {
            let payload = ExportPayload { time_unix_ms: unix_ms(), ..payload(body(began_ms, number), 1) };
            exporter.enqueue(0, payload);
            // Paced by the disk, not by the memory queue.
            while exporter.stats()[0].queue_bytes > 4 * BODY_BYTES {
                std::thread::yield_now();
            }
        }
    }
    let kills: u64 = std::env::var(KILLS).map_or(8, |kills| kills.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    // Every child adopts the requests of those before it; the receiver refuses connections.
    let refusing = RefusingPort::open();
    let test = "buffer_processes::no_request_of_a_killed_process_is_torn_and_all_arrive_in_order";
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..kills {
        let before = requests_in(directory.path()).len();
        let mut writer = start(test, directory.path(), &format!("{PORT}={}; export {PORT};", refusing.port));
        let until = Instant::now() + TEST_TIMEOUT;
        while requests_in(directory.path()).len() <= before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.u64(..3000)));
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Keeps the test short: a receiver would have taken the oldest.
        let requests = requests_in(directory.path());
        for oldest in requests.iter().take(requests.len().saturating_sub(60)) {
            identity_of_whole(&std::fs::read(oldest).unwrap());
            std::fs::remove_file(oldest).unwrap();
        }
    }
    let left: Vec<(u64, u64)> =
        requests_in(directory.path()).iter().map(|path| identity_of_whole(&std::fs::read(path).unwrap())).collect();

    let port = refusing.port;
    let server = refusing.become_receiver(|_, _| HttpReply::ok());
    let wait_until = |is_true: &dyn Fn() -> bool| {
        let until = Instant::now() + TEST_TIMEOUT;
        while !is_true() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let mut sender = start(test, directory.path(), &format!("{PORT}={port}; export {PORT};"));
    wait_until(&|| server.received().len() >= SENT_BEFORE_KILL);
    sender.kill().unwrap();
    sender.wait().unwrap();
    let complete = requests_in(directory.path()).len();
    let last = exporter(directory.path(), http_endpoint(port));
    wait_until(&|| last.stats()[0].sent as usize >= complete);
    let stats = last.stats().remove(0);
    assert_eq!((stats.dropped_total().payloads, stats.buffer_adopted), (0, complete as u64), "{stats:#?}");

    let mut order: Vec<(u64, u64)> = server.bodies().iter().map(|whole| identity_of_whole(whole)).collect();
    let arrived = order.len();
    order.dedup();
    assert!(arrived - order.len() <= 1, "only the request that was in flight may arrive twice");
    assert!(order.is_sorted() && left.iter().all(|identity| order.contains(identity)), "{order:?} of {left:?}");
    println!("{kills} kills: {} requests were left, all arrived in order", left.len());
}
