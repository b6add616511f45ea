//! Side-cars of profile files: names, contents, removal.

use crate::files::{gunzipped, names_in, profile};
use crate::shared::{exporter_to, stats_of, TEST_TIMEOUT};
use spanprof_export::{Destination, ExportPayload, FileDirectory};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn with_sidecar(profile_type: &str, time_unix_ms: u64, text: &str) -> ExportPayload {
    ExportPayload { sidecar: Some(text.as_bytes().to_vec()), ..profile(profile_type, time_unix_ms, text) }
}

fn into(directory: &Path, keep: usize) -> Destination {
    Destination::File(FileDirectory { keep, ..FileDirectory::new(directory) })
}

#[test]
fn each_profile_has_a_private_side_car_of_the_same_name() {
    let directory = tempfile::tempdir().unwrap();
    let (exporter, _) = exporter_to(into(directory.path(), 100));

    exporter.enqueue(0, with_sidecar("cpu", 7, "first"));
    exporter.enqueue(0, with_sidecar("cpu", 7, "second"));
    exporter.enqueue(0, profile("wall", 7, "without"));
    assert!(exporter.flush(TEST_TIMEOUT));

    let names = ["cpu-7-1.json", "cpu-7-1.pb.gz", "cpu-7.json", "cpu-7.pb.gz", "wall-7.pb.gz"];
    assert_eq!(names_in(directory.path()), names);
    for (name, text) in [("cpu-7", "first"), ("cpu-7-1", "second")] {
        let sidecar = directory.path().join(format!("{name}.json"));
        assert_eq!(fs::read(&sidecar).unwrap(), text.as_bytes());
        assert_eq!(gunzipped(&directory.path().join(format!("{name}.pb.gz"))), text.as_bytes());
        assert_eq!(fs::metadata(&sidecar).unwrap().permissions().mode() & 0o7777, 0o600);
    }
    assert_eq!(stats_of(&exporter).sent, 3);
}

#[test]
fn a_side_car_is_removed_with_its_profile_and_other_json_files_stay() {
    let directory = tempfile::tempdir().unwrap();
    let own = ["notes.json", "cpu-1.json"];
    for name in own {
        fs::write(directory.path().join(name), "own").unwrap();
    }
    let (exporter, _) = exporter_to(into(directory.path(), 2));

    for time_unix_ms in 1..=4 {
        exporter.enqueue(0, with_sidecar("cpu", time_unix_ms, "x"));
    }
    assert!(exporter.flush(TEST_TIMEOUT));

    // The profile of the first window had the name `cpu-1-1`, since `cpu-1.json` existed.
    let names = ["cpu-1.json", "cpu-3.json", "cpu-3.pb.gz", "cpu-4.json", "cpu-4.pb.gz", "notes.json"];
    assert_eq!(names_in(directory.path()), names);
    assert_eq!(fs::read(directory.path().join("cpu-1.json")).unwrap(), b"own");
}
