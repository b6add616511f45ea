//! Directories that the profiler writes: names of files, and side-cars.

use crate::fixture::{shop, spanprof, window, Serve, TestDirectory, TestSample};
use spanprof_profile::encode::pprof;

/// Not JSON, so that a reader of side-cars reports it: JSON of another format decodes to an empty profile.
const SIDECAR: &[u8] = b"not a profile\n";

/// The total of the top table over these sources.
fn total(sources: &[&str], type_name: &str) -> i64 {
    let done = spanprof(&[&["top", "--json", "--type", type_name][..], sources].concat());
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    crate::fixture::number(&done.stdout, "total")
}

fn written() -> (TestDirectory, Vec<String>) {
    let directory = TestDirectory::new();
    let in_use = window("checkout", "inuse_space", &[TestSample(&["main", "keep"], 4096, &[], 0)]);
    let allocated = window("checkout", "alloc_space", &[TestSample(&["main", "make"], 8192, &[], 0)]);
    let paths = [
        ("cpu-1700000000000.pb.gz", pprof::encode(&shop("checkout"))),
        ("cpu-1700000000000.json", SIDECAR.to_vec()),
        ("heap-1700000010000.pb.gz", pprof::encode(&in_use)),
        ("heap-1700000010000.json", SIDECAR.to_vec()),
        ("allocs-1700000010000-1.pb.gz", pprof::encode(&allocated)),
        ("allocs-1700000010000-1.json", SIDECAR.to_vec()),
    ];
    let paths = paths.map(|(name, bytes)| directory.file(name, &bytes));
    (directory, paths.to_vec())
}

#[test]
fn side_cars_are_not_read_as_profiles() {
    let (directory, paths) = written();
    assert_eq!(total(&paths.iter().map(String::as_str).collect::<Vec<_>>(), "cpu"), 1_000_000_000);
    let done = spanprof(&["top", &paths[1]]);
    assert!(done.code != 0 && done.stderr.contains(".json"), "a side-car alone is an error: {done:?}");

    // A JSON file without a profile of the same name may be OTLP/JSON.
    directory.file("other-1.json", SIDECAR);
    let done = spanprof(&["top", "--type", "cpu", directory.path().to_str().unwrap()]);
    assert_eq!(done.stderr.matches("skipped").count(), 1, "{done:?}");
    assert!(done.stderr.contains("other-1.json"), "{done:?}");
}

#[test]
fn a_file_url_is_a_path() {
    let (directory, _) = written();
    let url = format!("file://{}", directory.path().display());
    assert_eq!(total(&[&url], "cpu"), 1_000_000_000);
    let merged = format!("{url}/all%20types.pb.gz");
    let done = spanprof(&["merge", &format!("{url}/cpu-1700000000000.pb.gz"), "-o", &merged]);
    assert!(done.code == 0 && directory.path().join("all types.pb.gz").is_file(), "{done:?}");
    let done = spanprof(&["top", "file://elsewhere/x"]);
    assert!(done.code == 2 && done.stderr.contains("expected file:///PATH"), "{done:?}");
}

#[cfg(not(feature = "object-storage"))]
#[test]
fn a_build_without_object_storage_names_the_command_that_has_it() {
    let (directory, paths) = written();
    let directory = directory.path().to_str().unwrap();
    for arguments in [
        vec!["top", "s3://b/x/"],
        vec!["merge", &paths[0], "-o", "gs://b/x.pb.gz"],
        vec!["upload", directory, "az://b/x/"],
    ] {
        let done = spanprof(&arguments);
        let is_clear = done.stderr.contains("has no object storage") && done.stderr.contains("cargo install");
        assert!(done.code == 2 && is_clear, "{done:?}");
    }
}

#[test]
fn serve_lists_no_side_cars() {
    let (directory, _) = written();
    let serve = Serve::start(directory.path(), &[]);
    let done = spanprof(&["services", &serve.url(), "--json"]);
    assert!(done.code == 0 && done.stdout.contains("checkout"), "{done:?}");
    let windows = crate::client::get(&serve.http, "/api/windows").text();
    assert!(windows.contains("cpu-1700000000000.pb.gz") && !windows.contains(".json"), "{windows}");
}
