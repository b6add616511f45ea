//! `spanprof heap`: the files of ended processes.

use spanprof_profile::encode::pprof;
use spanprof_profile::heap_peak::{compact, PeakProcess, PeakRecord};

use crate::fixture::{number, spanprof, window, TestDirectory, TestSample};

/// A file of process `process_id`, with 5 MiB of `remember` at `time_s`.
fn crash_file(process_id: u32, time_s: u64) -> Vec<u8> {
    let samples =
        [TestSample(&["main", "remember"], 5 << 20, &[], 0), TestSample(&["main", "fill_cache"], 1 << 20, &[], 0)];
    let profile = pprof::encode_uncompressed(&window("shop", "inuse_space", &samples));
    let process = PeakProcess { process_id, start_ticks: 1, pid_namespace: 2, service_name: "shop".to_owned() };
    let record = PeakRecord {
        sequence: 1,
        time_unix_ns: time_s * 1_000_000_000,
        live_bytes: 6 << 20,
        live_objects: 60,
        resident_bytes: 30 << 20,
        limit_bytes: Some(32 << 20),
        omitted_stacks: 0,
        profile: profile.into(),
    };
    compact(&process, &record)
}

#[test]
fn the_heap_of_the_process_that_ended_last_is_shown_with_its_functions_and_limit() {
    let home = TestDirectory::new();
    let older = home.file("heap-1-1.crash", &crash_file(1, 1_700_000_000));
    home.file("heap-2-1.peak", &crash_file(2, 1_700_000_100));
    home.file("heap-3-1.crash", &crash_file(3, 1)[..100]);
    home.file("other.txt", b"of the host");
    let directory = home.path().to_str().unwrap();
    let shown = spanprof(&["heap", "--last-crash", directory]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stderr.contains("not shown: heap-3-1.crash: the header is truncated or damaged"), "{shown:?}");
    assert!(shown.stdout.starts_with("process 2 (shop), heap at its peak on 2023-11-14T22:15:00"), "{shown:?}");
    assert!(
        shown.stdout.contains("in use 6.00 MiB in 60 objects, resident 30.0 MiB, memory limit 32.0 MiB"),
        "{shown:?}"
    );
    assert!(
        shown.stdout.contains("remember") && shown.stderr.contains(&format!("1 older: the latest is {older}")),
        "{shown:?}"
    );
    let json = spanprof(&["heap", "--last-crash", &older, "--json", "-n", "1"]);
    assert_eq!((number(&json.stdout, "process_id"), number(&json.stdout, "limit_bytes")), (1, 32 << 20), "{json:?}");
    assert!(json.stdout.contains("remember") && !json.stdout.contains("fill_cache"), "{json:?}");
}

#[test]
fn the_objects_can_be_written_as_pprof() {
    let home = TestDirectory::new();
    home.file("heap-1-1.crash", &crash_file(1, 1_700_000_000));
    let file = home.path().join("heap.pb.gz").to_str().unwrap().to_owned();
    assert_eq!(spanprof(&["heap", "--last-crash", home.path().to_str().unwrap(), "-o", &file]).code, 0);
    let top = spanprof(&["top", &file, "--type", "inuse_space", "--json"]);
    assert_eq!(number(&top.stdout, "total"), 6 << 20, "{top:?}");
}

#[test]
fn a_directory_without_such_a_file_is_an_error_and_so_is_a_damaged_file() {
    let home = TestDirectory::new();
    let empty = spanprof(&["heap", "--last-crash", home.path().to_str().unwrap()]);
    assert!(empty.code == 1 && empty.stderr.contains("no process left its heap"), "{empty:?}");
    let damaged = home.file("heap-1-1.crash", &crash_file(1, 1)[..4000]);
    let shown = spanprof(&["heap", "--last-crash", &damaged]);
    assert!(shown.code == 1 && shown.stderr.contains("truncated or damaged"), "{shown:?}");
    let in_directory = spanprof(&["heap", "--last-crash", home.path().to_str().unwrap()]);
    let reason = "heap-1-1.crash: the header is truncated or damaged";
    assert!(in_directory.code == 1 && in_directory.stderr.contains(reason), "{in_directory:?}");
    let absent = spanprof(&["heap", "--last-crash", home.path().join("absent").to_str().unwrap()]);
    assert!(absent.code == 1 && absent.stderr.contains("absent: No such file"), "{absent:?}");
    assert_eq!(spanprof(&["heap"]).code, 2);
}

#[test]
fn a_file_of_a_newer_version_and_one_without_a_record_are_named_with_the_reason() {
    let home = TestDirectory::new();
    let mut newer = crash_file(1, 1);
    newer[8] = 2;
    home.file("heap-1-1.crash", &newer);
    home.file("heap-2-1.peak", &crash_file(2, 1)[..4096]);
    let shown = spanprof(&["heap", "--last-crash", home.path().to_str().unwrap()]);
    let newer = "heap-1-1.crash: version 2 of the format, of a newer spanprof; this one reads 1";
    let early = "heap-2-1.peak: process 2 ended before its first record";
    assert!(shown.code == 1 && shown.stderr.contains(&format!("{newer}; {early}")), "{shown:?}");
    home.file("heap-3-1.crash", &crash_file(3, 1));
    let shown = spanprof(&["heap", "--last-crash", home.path().to_str().unwrap()]);
    assert!(shown.code == 0 && shown.stdout.starts_with("process 3 (shop)"), "{shown:?}");
    assert!(shown.stderr.contains(&format!("not shown: {newer}; {early}")), "{shown:?}");
}

#[test]
fn the_file_of_a_running_process_is_not_shown() {
    let home = TestDirectory::new();
    let path = home.file("heap-5-1.peak", &crash_file(5, 1));
    // This process holds the lock, as the profiled one does.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    for argument in [path.as_str(), home.path().to_str().unwrap()] {
        let shown = spanprof(&["heap", "--last-crash", argument]);
        let reason = "no process left its heap in";
        assert!(shown.code == 1 && shown.stderr.contains(reason), "{shown:?}");
        assert!(shown.stderr.contains("heap-5-1.peak: process 5 still runs"), "{shown:?}");
    }
    drop(file);
    assert_eq!(spanprof(&["heap", "--last-crash", &path]).code, 0);
}
