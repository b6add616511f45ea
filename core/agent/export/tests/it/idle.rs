//! An idle exporter has no timer, no wakeup, and no threads beyond its own and one per connection.

use crate::scripted_grpc::{self, ScriptedGrpc};
use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{grpc_endpoint, http_endpoint, payload, TEST_TIMEOUT};
use spanprof_export::{Destination, Exporter, ExporterSettings};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

static THREADS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Voluntary context switches of the thread.
fn sleeps_of(task: &PathBuf) -> u64 {
    let status = std::fs::read_to_string(PathBuf::from("/proc").join(task).join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_ascii_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn an_idle_exporter_has_one_thread_and_one_per_connection_and_none_of_them_wakes() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let settings = ExporterSettings {
        start_thread: |name, body| {
            let recorded = move || {
                THREADS.lock().unwrap().push(std::fs::read_link("/proc/thread-self").unwrap());
                body();
            };
            std::thread::Builder::new().name(name.to_string_lossy().into_owned()).spawn(recorded).map(drop)
        },
        ..ExporterSettings::default()
    };
    let mut endpoint = http_endpoint(server.port());
    endpoint.url = endpoint.url.replace("127.0.0.1", "localhost");
    let grpc = ScriptedGrpc::start(|_, _| scripted_grpc::GrpcReply::Ok(vec![]));
    let destinations = vec![Destination::OtlpHttp(endpoint), Destination::OtlpGrpc(grpc_endpoint(grpc.port()))];
    let exporter = Exporter::start(destinations, settings).unwrap();
    exporter.enqueue(0, payload("body", 1));
    exporter.enqueue(1, payload("body", 1));
    assert!(exporter.flush(TEST_TIMEOUT));

    let threads = THREADS.lock().unwrap().clone();
    assert_eq!(threads.len(), 1 + 2, "a request to localhost needs no thread for look-ups");
    for thread in &threads {
        let name = std::fs::read_to_string(PathBuf::from("/proc").join(thread).join("comm")).unwrap();
        assert_eq!(name.trim(), "spanprof-export");
    }
    // Work after the response (counters, storing the connection) may continue briefly; a timer would wake in every second.
    let sleeps = || threads.iter().map(sleeps_of).sum::<u64>();
    let until = Instant::now() + TEST_TIMEOUT;
    let mut before = sleeps();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = sleeps();
        if now == before {
            break;
        }
        assert!(Instant::now() < until, "they woke {} times in the last second", now - before);
        before = now;
    }
    drop(exporter);
}
