//! Limits of the file destination by age, bytes and number, also of several processes.

use crate::file_processes::{directory_to_write, start};
use crate::files::{names_in, profile};
use crate::shared::{exporter_to, stats_of, TEST_TIMEOUT};
use spanprof_export::{Destination, ExportPayload, FileDirectory, RemovedFiles};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);

/// Gzipped bytes of exactly this length: the file has the same.
fn stored(bytes: usize) -> Vec<u8> {
    let mut body = vec![0; bytes];
    body[..2].copy_from_slice(&[0x1f, 0x8b]);
    body
}

fn with_sidecar(time_unix_ms: u64, bytes: usize, sidecar_bytes: usize) -> ExportPayload {
    ExportPayload { sidecar: Some(vec![b' '; sidecar_bytes]), ..profile("cpu", time_unix_ms, stored(bytes)) }
}

/// A file and its side-car, last modified before this time.
fn old_file(directory: &Path, stem: &str, age: Duration) {
    for suffix in [".pb.gz", ".json"] {
        let file = File::create(directory.join(format!("{stem}{suffix}"))).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
}

#[test]
fn files_older_than_the_maximum_age_are_removed_with_their_side_cars() {
    let directory = tempfile::tempdir().unwrap();
    // The number in the name is the start of a window. The age counts from the last modification.
    old_file(directory.path(), "cpu-1", 3 * HOUR);
    old_file(directory.path(), "wall-2", HOUR / 2);
    old_file(directory.path(), "cpu-3", 2 * HOUR);
    old_file(directory.path(), "notes", 5 * HOUR);
    let settings = FileDirectory { max_age: Some(HOUR), ..FileDirectory::new(directory.path()) };
    let (exporter, _) = exporter_to(Destination::File(settings));

    exporter.enqueue(0, profile("cpu", 4, "x"));
    assert!(exporter.flush(TEST_TIMEOUT));

    let names = ["cpu-4.pb.gz", "notes.json", "notes.pb.gz", "wall-2.json", "wall-2.pb.gz"];
    assert_eq!(names_in(directory.path()), names);
    assert_eq!(stats_of(&exporter).files_removed, RemovedFiles { max_age: 2, ..RemovedFiles::default() });
}

#[test]
fn the_newest_file_is_kept_at_any_age_and_size() {
    let directory = tempfile::tempdir().unwrap();
    old_file(directory.path(), "cpu-9", 3 * HOUR);
    let settings = FileDirectory { max_age: Some(HOUR), max_bytes: Some(10), ..FileDirectory::new(directory.path()) };
    let (exporter, _) = exporter_to(Destination::File(settings));

    // A retried profile of an earlier window.
    exporter.enqueue(0, profile("cpu", 8, stored(100)));
    assert!(exporter.flush(TEST_TIMEOUT));
    assert_eq!(names_in(directory.path()), ["cpu-9.json", "cpu-9.pb.gz"]);

    exporter.enqueue(0, profile("cpu", 10, stored(100)));
    assert!(exporter.flush(TEST_TIMEOUT));
    assert_eq!(names_in(directory.path()), ["cpu-10.pb.gz"]);
    let removed = stats_of(&exporter).files_removed;
    assert_eq!(removed, RemovedFiles { keep: 0, max_age: 1, max_bytes: 1 });
}

#[test]
fn the_oldest_files_beyond_the_maximum_of_bytes_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = FileDirectory { max_bytes: Some(1000), ..FileDirectory::new(directory.path()) };
    let (exporter, _) = exporter_to(Destination::File(settings));

    for time_unix_ms in 1..=3 {
        exporter.enqueue(0, with_sidecar(time_unix_ms, 300, 33));
    }
    assert!(exporter.flush(TEST_TIMEOUT));
    assert_eq!(names_in(directory.path()).len(), 6, "999 bytes");
    exporter.enqueue(0, with_sidecar(4, 300, 35));
    assert!(exporter.flush(TEST_TIMEOUT));

    let names = ["cpu-2.json", "cpu-2.pb.gz", "cpu-3.json", "cpu-3.pb.gz", "cpu-4.json", "cpu-4.pb.gz"];
    assert_eq!(names_in(directory.path()), &names[2..], "1001 bytes with the window 2");
    assert_eq!(stats_of(&exporter).files_removed, RemovedFiles { max_bytes: 2, ..RemovedFiles::default() });
}

#[test]
fn processes_that_share_a_directory_hold_its_limits_together_and_count_each_removed_file_once() {
    const WRITES: u64 = 150;
    const PROCESSES: usize = 3;
    if let Some(directory) = directory_to_write() {
        let settings = FileDirectory { keep: 40, max_bytes: Some(12_000), ..FileDirectory::new(&directory) };
        let (exporter, _) = exporter_to(Destination::File(settings));
        for time_unix_ms in 0..WRITES {
            exporter.enqueue(0, with_sidecar(time_unix_ms, 450, 50));
            assert!(exporter.flush(TEST_TIMEOUT));
        }
        let stats = stats_of(&exporter);
        assert_eq!((stats.sent, stats.dropped_total().payloads), (WRITES, 0), "{stats:#?}");
        let RemovedFiles { keep, max_age, max_bytes } = stats.files_removed;
        let report = directory.join(format!("removed.{}", std::process::id()));
        fs::write(report, (keep + max_age + max_bytes).to_string()).unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let test =
        "file_limits::processes_that_share_a_directory_hold_its_limits_together_and_count_each_removed_file_once";
    let mut children: Vec<_> = (0..PROCESSES).map(|_| start(test, directory.path(), "")).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }

    let names = names_in(directory.path());
    let stems = |suffix: &str| {
        let of_suffix = names.iter().filter_map(|name| name.strip_suffix(suffix));
        of_suffix.map(str::to_owned).collect::<Vec<_>>()
    };
    let (profiles, sidecars) = (stems(".pb.gz"), stems(".json"));
    assert_eq!(profiles, sidecars, "each profile has its side-car");
    assert!(profiles.len() <= 12_000 / 500, "{} files", profiles.len());
    assert!(profiles.len() > 1, "{names:?}");
    let removed: u64 = names
        .iter()
        .filter(|name| name.starts_with("removed."))
        .map(|name| fs::read_to_string(directory.path().join(name)).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(removed + profiles.len() as u64, WRITES * PROCESSES as u64);
}
