//! The file destination: names, contents, rotation, symbolic links.

use crate::clocks::InstantClock;
use crate::shared::{exporter_to, payload, settings_on, stats_of, wait_for, TEST_TIMEOUT};
use crate::sidecars::with_sidecar;
use flate2::read::GzDecoder;
use spanprof_export::{
    Destination, DestinationStats, DiscardReason, ExportPayload, Exporter, ExporterSettings, FileDirectory,
    RemovedFiles,
};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use std::time::Duration;

pub fn profile(profile_type: &str, time_unix_ms: u64, body: impl Into<Vec<u8>>) -> ExportPayload {
    ExportPayload { profile_type: Some(profile_type.to_owned()), time_unix_ms, ..payload(body, 1) }
}

pub fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn gunzipped(path: &Path) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut plain).unwrap();
    plain
}

fn into(directory: &Path) -> Destination {
    Destination::File(FileDirectory::new(directory))
}

#[test]
fn a_profile_becomes_a_private_file_named_by_type_and_time() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    let (exporter, _) = exporter_to(into(&directory));

    exporter.enqueue(0, profile("cpu", 1_795_219_200_123, "not yet gzipped"));
    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(names_in(&directory), ["cpu-1795219200123.pb.gz"]);
    let path = directory.join("cpu-1795219200123.pb.gz");
    assert_eq!(gunzipped(&path), b"not yet gzipped");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    for made in [&directory, &parent.path().join("a")] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o7777, 0o700);
    }
    let stats = stats_of(&exporter);
    assert_eq!((stats.kind, stats.sent, stats.target), ("file", 1, directory.display().to_string()));
}

#[test]
fn a_gzipped_profile_is_written_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (exporter, _) = exporter_to(into(directory.path()));
    let mut gzipped = Vec::new();
    flate2::read::GzEncoder::new(&b"pprof"[..], flate2::Compression::best()).read_to_end(&mut gzipped).unwrap();

    exporter.enqueue(0, ExportPayload { profile_type: None, ..profile("", 5, gzipped.clone()) });
    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(fs::read(directory.path().join("profile-5.pb.gz")).unwrap(), gzipped);
}

#[test]
fn files_of_the_same_millisecond_get_distinct_names() {
    let directory = tempfile::tempdir().unwrap();
    let (exporter, _) = exporter_to(into(directory.path()));

    for body in ["first", "second", "third"] {
        exporter.enqueue(0, profile("cpu", 7, body));
    }
    exporter.enqueue(0, profile("wall", 7, "other"));
    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(names_in(directory.path()), ["cpu-7-1.pb.gz", "cpu-7-2.pb.gz", "cpu-7.pb.gz", "wall-7.pb.gz"]);
    assert_eq!(gunzipped(&directory.path().join("cpu-7.pb.gz")), b"first");
    assert_eq!(gunzipped(&directory.path().join("cpu-7-2.pb.gz")), b"third");
}

#[test]
fn only_the_newest_profiles_are_kept_and_foreign_files_are_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = ["notes.txt", "cpu.pb.gz", "cpu-old.pb.gz", "a b-1.pb.gz"];
    for name in foreign {
        fs::write(directory.path().join(name), name).unwrap();
    }
    let (exporter, _) =
        exporter_to(Destination::File(FileDirectory { keep: 3, ..FileDirectory::new(directory.path()) }));

    for (profile_type, time_unix_ms) in [("cpu", 9), ("wall", 10), ("cpu", 100), ("alloc_space", 99), ("cpu", 1000)] {
        exporter.enqueue(0, profile(profile_type, time_unix_ms, "x"));
    }
    assert!(exporter.flush(TEST_TIMEOUT));

    let mut expected = vec!["alloc_space-99.pb.gz", "cpu-100.pb.gz", "cpu-1000.pb.gz"];
    expected.extend(foreign);
    expected.sort_unstable();
    assert_eq!(names_in(directory.path()), expected);
    assert_eq!(stats_of(&exporter).files_removed, RemovedFiles { keep: 2, ..RemovedFiles::default() });
}

#[test]
fn an_existing_link_is_neither_followed_nor_replaced() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "unchanged").unwrap();
    symlink(&victim, directory.path().join("cpu-1.pb.gz")).unwrap();
    symlink(elsewhere.path().join("absent"), directory.path().join("cpu-2.pb.gz")).unwrap();
    fs::hard_link(&victim, directory.path().join("cpu-3.pb.gz")).unwrap();
    symlink(&victim, directory.path().join("cpu-4.json")).unwrap();
    symlink(elsewhere.path().join("absent"), directory.path().join("cpu-5.json")).unwrap();
    let (exporter, _) = exporter_to(into(directory.path()));

    for time_unix_ms in 1..=5 {
        exporter.enqueue(0, with_sidecar("cpu", time_unix_ms, "profile"));
    }
    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(fs::read(&victim).unwrap(), b"unchanged");
    assert_eq!(names_in(elsewhere.path()), ["victim"]);
    for stem in ["cpu-1-1", "cpu-2-1", "cpu-3-1", "cpu-4-1", "cpu-5-1"] {
        assert_eq!(gunzipped(&directory.path().join(format!("{stem}.pb.gz"))), b"profile");
        assert_eq!(fs::read(directory.path().join(format!("{stem}.json"))).unwrap(), b"profile");
    }
}

#[test]
fn a_type_that_looks_like_a_path_stays_in_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (exporter, _) = exporter_to(into(&directory.path().join("inner")));

    exporter.enqueue(0, profile("../../evil", 1, "x"));
    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(names_in(directory.path()), ["inner"]);
    assert_eq!(names_in(&directory.path().join("inner")), ["______evil-1.pb.gz"]);
}

#[test]
fn a_removed_directory_is_created_again() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("profiles");
    let (exporter, _) = exporter_to(into(&directory));
    fs::remove_dir(&directory).unwrap();

    exporter.enqueue(0, with_sidecar("cpu", 1, "x"));
    assert!(exporter.flush(TEST_TIMEOUT));

    assert_eq!(names_in(&directory), ["cpu-1.json", "cpu-1.pb.gz"]);
}

#[test]
fn an_unwritable_directory_is_reported_and_counted_and_later_profiles_are_written() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("profiles");
    let (exporter, _) = exporter_to(into(&directory));
    fs::remove_dir(&directory).unwrap();
    fs::write(&directory, "a file where the directory was").unwrap();

    let before = exporter.loss_baseline();
    exporter.enqueue(0, profile("cpu", 1, "x"));
    // Rejected before the flush.
    let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
    assert!(!exporter.flush_since(&before, TEST_TIMEOUT));
    assert_eq!((stats.dropped(DiscardReason::Permanent).payloads, stats.retries), (1, 0), "{stats:#?}");
    assert!(stats.last_error.unwrap().contains("cannot write a profile into"));

    fs::remove_file(&directory).unwrap();
    exporter.enqueue(0, profile("cpu", 2, "x"));
    assert!(exporter.flush(TEST_TIMEOUT));
    assert_eq!(names_in(&directory), ["cpu-2.pb.gz"]);
}

#[test]
fn a_temporary_write_error_is_retried_until_it_ends_or_the_profile_expires() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("profiles");
    for retry_max_age in [60, 86_400].map(Duration::from_secs) {
        let settings = ExporterSettings { retry_max_age, ..settings_on(InstantClock::new()) };
        let exporter = Exporter::start(vec![into(&directory)], settings).unwrap();
        fs::remove_dir(&directory).unwrap();
        // A link to itself: its error, like that of a full disk, is not permanent.
        symlink(&directory, &directory).unwrap();
        exporter.enqueue(0, profile("cpu", 1, "x"));
        let is_short = retry_max_age == Duration::from_secs(60);
        let expired = |stats: &DestinationStats| stats.dropped(DiscardReason::Expired).payloads;
        wait_for(&exporter, "it was tried three times", |stats| {
            stats.retries > 1 && expired(stats) == u64::from(is_short)
        });

        fs::remove_file(&directory).unwrap();
        let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
        assert_eq!((stats.sent, expired(&stats)), if is_short { (0, 1) } else { (1, 0) }, "{stats:#?}");
        if is_short {
            fs::create_dir(&directory).unwrap();
        }
    }
    assert_eq!(names_in(&directory), ["cpu-1.pb.gz"]);
}

#[test]
fn a_directory_that_cannot_be_created_is_an_error_at_start() {
    let error = Exporter::start(vec![into(Path::new("/proc/profiles"))], ExporterSettings::default()).unwrap_err();

    assert!(error.message.contains("`/proc/profiles`") && error.hint.contains("file_directory"), "{error}");
}
