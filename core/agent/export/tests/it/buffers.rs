//! The disk buffer: requests survive outages, a full memory queue and the end of the process, and arrive in order.

use crate::clocks::{FastClock, InstantClock};
use crate::outages::outages;
use crate::scripted_http::{HttpReply, RefusingPort, ScriptedHttp};
use crate::shared::{assert_counters_balance, http_endpoint, payload, settings_on, stats_of, wait_for, TEST_TIMEOUT};
use spanprof_export::{
    BufferSettings, Destination, DestinationStats, DiscardReason, ExportPayload, Exporter, ExporterSettings,
};
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

pub fn buffer_in(directory: &Path) -> BufferSettings {
    BufferSettings {
        directory: directory.to_owned(),
        service: "shop".to_owned(),
        max_bytes: 1 << 20,
        max_age: DAY,
        split: None,
    }
}

/// An exporter with short timeouts, whose delays of 30 s take 30 ms.
pub fn exporter_with(port: u16, buffer: BufferSettings) -> Exporter {
    let settings = ExporterSettings { buffer: Some(buffer), ..settings_on(FastClock::new(1000)) };
    let mut endpoint = http_endpoint(port);
    endpoint.timeout = Duration::from_millis(300);
    Exporter::start(vec![Destination::OtlpHttp(endpoint)], settings).unwrap()
}

pub fn request(body: impl Into<Vec<u8>>) -> ExportPayload {
    ExportPayload { time_unix_ms: unix_ms(), ..payload(body, 2) }
}

/// The complete requests below a directory, oldest first.
pub fn requests_in(directory: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            paths.extend(requests_in(&entry.path()));
        } else if entry.file_name().to_str().unwrap().ends_with(".request") {
            paths.push(entry.path());
        }
    }
    paths.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    paths
}

/// Files are removed after a result is counted.
fn assert_no_files_remain(directory: &Path) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !requests_in(directory).is_empty() {
        assert!(Instant::now() < until, "{:?} remain", requests_in(directory));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_until_stored(exporter: &Exporter, count: usize) -> DestinationStats {
    wait_for(exporter, "the requests are stored", |stats| stats.buffer_payloads == count)
}

/// Bodies in order of their first arrival; asserts that none arrived more than twice.
fn arrivals(server: &ScriptedHttp) -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    let all = server.bodies();
    for body in &all {
        if !bodies.contains(body) {
            bodies.push(body.clone());
        }
    }
    bodies
}

#[test]
fn an_accepted_request_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let exporter = exporter_with(server.port(), buffer_in(directory.path()));
    for number in 0..5u8 {
        exporter.enqueue(0, request([number]));
    }

    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(server.bodies(), [[0], [1], [2], [3], [4]]);
    assert_no_files_remain(directory.path());
    let stats = stats_of(&exporter);
    assert_eq!((stats.buffer_payloads, stats.buffer_bytes, stats.buffer_errors), (0, 0, 0), "{stats:#?}");
    assert_counters_balance(&stats, 0);
    assert!(exporter.stop(TEST_TIMEOUT));
    let shared = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_dir(shared).unwrap().count(), 0, "the directory of the process is removed");
}

#[test]
fn requests_of_a_stopped_exporter_are_sent_by_the_next_one_before_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let first = exporter_with(refusing.port, buffer_in(directory.path()));
    for number in 0..3u8 {
        first.enqueue(0, request([number]));
    }
    assert!(!first.stop(TEST_TIMEOUT), "nothing was delivered");
    let stats = wait_for(&first, "all are counted", |stats| stats.queue_payloads == 0);
    assert_eq!((stats.buffer_left, stats.dropped_total().payloads), (3, 0), "{stats:#?}");
    assert_eq!(requests_in(directory.path()).len(), 3);

    let (port, server) = (refusing.port, refusing.become_receiver(|_, _| HttpReply::ok()));
    let second = exporter_with(port, buffer_in(directory.path()));
    second.enqueue(0, request([3]));
    assert!(second.flush(TEST_TIMEOUT));

    let stats = stats_of(&second);
    assert_eq!(arrivals(&server), [[0], [1], [2], [3]]);
    assert_eq!((stats.buffer_adopted, stats.sent, stats.sent_samples, stats.enqueued), (3, 4, 8, 4), "{stats:#?}");
    assert_no_files_remain(directory.path());
}

#[test]
fn requests_delayed_by_an_outage_of_any_kind_arrive_in_order_and_the_memory_queue_stays_empty() {
    for (name, begin) in outages() {
        let directory = tempfile::tempdir().unwrap();
        let (port, end) = begin();
        // At most two requests in memory.
        let settings = ExporterSettings {
            buffer: Some(buffer_in(directory.path())),
            queue_max_bytes: 2_500,
            ..settings_on(FastClock::new(1000))
        };
        let mut endpoint = http_endpoint(port);
        endpoint.timeout = Duration::from_millis(300);
        let exporter = Exporter::start(vec![Destination::OtlpHttp(endpoint)], settings).unwrap();
        for number in 0..30u8 {
            exporter.enqueue(0, request(vec![number; 1000]));
            // One window at a time, as in a program.
            let stored = |stats: &DestinationStats| stats.sent as usize + stats.buffer_payloads > usize::from(number);
            wait_for(&exporter, "it is stored", stored);
        }
        let server = end();

        let stats = wait_for(&exporter, name, |stats| stats.sent == 30);
        let expected: Vec<_> = (0..30u8).map(|number| vec![number; 1000]).collect();
        assert_eq!(arrivals(&server), expected, "{name}");
        assert_eq!(stats.dropped_total().payloads, 0, "{name}: {stats:#?}");
        assert!(stats.queue_bytes <= 1000, "{name}: {stats:#?}");
    }
}

#[test]
fn the_oldest_are_discarded_when_the_buffer_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let buffer = BufferSettings { max_bytes: 350, ..buffer_in(directory.path()) };
    let exporter = exporter_with(refusing.port, buffer);
    exporter.enqueue(0, request(vec![0; 100]));
    wait_for(&exporter, "the first is in flight", |stats| stats.last_error.is_some());
    for number in 1..=9u8 {
        exporter.enqueue(0, request(vec![number; 100]));
    }

    let stats = wait_for(&exporter, "six are discarded", |stats| {
        stats.dropped(DiscardReason::QueueFull).payloads == 6 && stats.buffer_payloads == 4
    });
    assert!(stats.buffer_bytes <= 450 && stats.dropped_total().samples == 12, "{stats:#?}");
    let server = refusing.become_receiver(|_, _| HttpReply::ok());
    wait_for(&exporter, "the rest is sent", |stats| stats.sent == 4);
    let firsts: Vec<_> = arrivals(&server).iter().map(|body| body[0]).collect();
    assert_eq!(firsts, [0, 7, 8, 9]);
    assert_no_files_remain(directory.path());
}

#[test]
fn torn_files_are_counted_and_never_sent() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let first = exporter_with(refusing.port, buffer_in(directory.path()));
    for number in 0..5u8 {
        first.enqueue(0, request(vec![number; 1000]));
    }
    wait_until_stored(&first, 5);
    first.stop(Duration::from_secs(1));
    wait_for(&first, "all are counted", |stats| stats.queue_payloads == 0);
    let files = requests_in(directory.path());
    fs::OpenOptions::new().write(true).open(&files[0]).unwrap().set_len(500).unwrap();
    let mut content = fs::read(&files[2]).unwrap();
    content[600] ^= 1;
    fs::write(&files[2], content).unwrap();
    fs::write(&files[4], "").unwrap();
    fs::write(files[1].with_file_name("left.tmp"), "unfinished").unwrap();

    let (port, server) = (refusing.port, refusing.become_receiver(|_, _| HttpReply::ok()));
    let second = exporter_with(port, buffer_in(directory.path()));
    let stats = wait_for(&second, "all are settled", |stats| stats.sent == 2 && stats.queue_payloads == 0);

    let firsts: Vec<_> = arrivals(&server).iter().map(|body| body[0]).collect();
    assert_eq!((firsts, stats.dropped(DiscardReason::Torn).payloads), (vec![1, 3], 3), "{stats:#?}");
    assert_counters_balance(&stats, 0);
    assert_no_files_remain(directory.path());
}

#[test]
fn a_request_older_than_the_maximum_age_is_not_sent() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let first = exporter_with(refusing.port, buffer_in(directory.path()));
    first.enqueue(0, ExportPayload { time_unix_ms: unix_ms() - 7_200_000, ..payload("old", 3) });
    first.enqueue(0, request("new"));
    wait_until_stored(&first, 2);
    first.stop(Duration::from_secs(1));
    wait_for(&first, "all are counted", |stats| stats.queue_payloads == 0);

    let (port, server) = (refusing.port, refusing.become_receiver(|_, _| HttpReply::ok()));
    // The test's clock is fast: a day passes in 86 s.
    let settings = ExporterSettings {
        buffer: Some(BufferSettings { max_age: Duration::from_secs(3600), ..buffer_in(directory.path()) }),
        ..ExporterSettings::default()
    };
    let second = Exporter::start(vec![Destination::OtlpHttp(http_endpoint(port))], settings).unwrap();
    let stats = wait_for(&second, "both are settled", |stats| stats.enqueued == 2 && stats.queue_payloads == 0);

    assert_eq!(server.bodies(), [b"new"]);
    assert_eq!(stats.dropped(DiscardReason::Expired).samples, 3, "{stats:#?}");
}

#[test]
fn a_running_exporter_and_other_services_and_receivers_keep_their_requests() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let running = exporter_with(refusing.port, buffer_in(directory.path()));
    running.enqueue(0, request("running"));
    wait_until_stored(&running, 1);
    for buffer in
        [buffer_in(directory.path()), BufferSettings { service: "other".to_owned(), ..buffer_in(directory.path()) }]
    {
        let other = exporter_with(refusing.port, buffer);
        other.enqueue(0, request("own"));
        let stats = wait_until_stored(&other, 1);
        assert_eq!(stats.buffer_adopted, 0);
        other.stop(Duration::ZERO);
    }
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let elsewhere = exporter_with(server.port(), buffer_in(directory.path()));
    elsewhere.enqueue(0, request("elsewhere"));
    assert!(elsewhere.flush(TEST_TIMEOUT));
    assert_eq!(server.bodies(), [b"elsewhere"]);
    assert_eq!(stats_of(&running).buffer_payloads, 1);
}

#[test]
fn a_disk_that_refuses_the_request_leaves_it_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let exporter = exporter_with(refusing.port, buffer_in(directory.path()));
    // The shared directory is replaced by a file; also root cannot write below it.
    let shared = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    fs::remove_dir_all(&shared).unwrap();
    fs::write(&shared, "").unwrap();
    exporter.enqueue(0, request("memory"));
    let stats = wait_for(&exporter, "the write failed", |stats| stats.buffer_errors == 1);
    assert_eq!((stats.queue_payloads, stats.buffer_payloads), (1, 0), "{stats:#?}");

    let server = refusing.become_receiver(|_, _| HttpReply::ok());
    wait_for(&exporter, "it is sent", |stats| stats.sent == 1);
    assert_eq!(server.bodies(), [b"memory"]);
}

#[test]
fn stop_leaves_the_last_request_on_disk_even_without_time() {
    let directory = tempfile::tempdir().unwrap();
    let server = ScriptedHttp::start(|_, _| HttpReply::Silence);
    let exporter = exporter_with(server.port(), buffer_in(directory.path()));
    exporter.enqueue(0, request("first"));
    wait_until_stored(&exporter, 1);
    exporter.enqueue(0, request("last"));

    assert!(!exporter.stop(Duration::from_millis(200)));

    let stats = wait_for(&exporter, "both are counted", |stats| stats.queue_payloads == 0);
    assert_eq!((stats.buffer_left, requests_in(directory.path()).len()), (2, 2), "{stats:#?}");
}

#[test]
fn files_and_directories_are_private_and_a_planted_link_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = RefusingPort::open();
    let exporter = exporter_with(refusing.port, buffer_in(directory.path()));
    exporter.enqueue(0, request("x"));
    wait_until_stored(&exporter, 1);
    let file = requests_in(directory.path()).remove(0);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    let shared = file.parent().unwrap().parent().unwrap();
    assert_eq!(mode(shared), 0o700);
    exporter.stop(Duration::from_secs(1));

    // A link in place of a dead process's directory, and one in place of a request.
    let elsewhere = tempfile::tempdir().unwrap();
    let victim = elsewhere.path().join("1700000000000-0000000001-00000000000000aa.request");
    fs::copy(&file, &victim).unwrap();
    symlink(elsewhere.path(), shared.join("1-1-link")).unwrap();
    fs::create_dir(shared.join("1-1-planted")).unwrap();
    symlink(&victim, shared.join("1-1-planted").join("1700000000000-0000000002-00000000000000aa.request")).unwrap();
    let second = exporter_with(refusing.port, buffer_in(directory.path()));
    let stats = wait_for(&second, "adoption is complete", |stats| stats.dropped(DiscardReason::Torn).payloads == 1);
    assert!(stats.buffer_adopted <= 1 && victim.exists(), "{stats:#?}");

    // A directory that others may write is refused.
    fs::set_permissions(shared, fs::Permissions::from_mode(0o777)).unwrap();
    let settings = ExporterSettings { buffer: Some(buffer_in(directory.path())), ..settings_on(InstantClock::new()) };
    let refused = Exporter::start(vec![Destination::OtlpHttp(http_endpoint(refusing.port))], settings);
    assert!(refused.unwrap_err().to_string().contains("writable by others"));
}
