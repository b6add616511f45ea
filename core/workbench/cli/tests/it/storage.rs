//! Storage: files, restarts, duplicates, retention.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use spanprof_profile::Profile;

use crate::client::{get, post};
use crate::fixture::{
    encoded, gzip, now_ns, number, shop, spanprof, window, window_at, Serve, TestDirectory, TestSample,
};

impl TestDirectory {
    /// Names of the files that other commands read.
    fn profiles(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| !name.starts_with('.')).collect()
    }
}

#[test]
fn a_request_becomes_one_private_file_with_the_bytes_received() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let zipped = gzip(&encoded(&shop("checkout")));
    assert_eq!(post(&serve.http, &[("content-encoding", "gzip")], &zipped).status, 200);
    let names = home.profiles();
    assert_eq!(names.len(), 1, "{names:?}");
    let path = home.path().join(&names[0]);
    assert_eq!(std::fs::read(&path).unwrap(), zipped);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_restart_keeps_the_profiles_and_skips_corrupt_files() {
    let home = TestDirectory::new();
    let mut first = Serve::start(home.path(), &[]);
    assert_eq!(post(&first.http, &[], &encoded(&shop("checkout"))).status, 200);
    let before = get(&first.http, "/api/top?type=cpu").text();
    let (code, stderr) = first.end("-TERM");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("first profiles from \"checkout\": cpu"), "{stderr}");

    home.file("1700000000000-1-000000.otlp.pb.gz", b"\x1f\x8bnot gzip at all");
    home.file("1700000000001-1-000001.otlp.pb.gz", b"");
    home.file("notes.txt", b"not a profile");
    let mut second = Serve::start(home.path(), &[]);
    assert_eq!(get(&second.http, "/api/top?type=cpu").text(), before);
    let stats = get(&second.http, "/api/stats").text();
    assert_eq!((number(&stats, "windows"), number(&stats, "received_requests")), (1, 0), "{stats}");
    let (code, stderr) = second.end("-INT");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("skipped") && stderr.contains("1700000000000-1-000000.otlp.pb.gz"), "{stderr}");
    assert!(!stderr.contains("notes.txt"), "{stderr}");
}

#[test]
fn a_restart_reads_the_index_instead_of_the_files_that_have_not_changed() {
    let home = TestDirectory::new();
    let mut first = Serve::start(home.path(), &[]);
    for service in ["checkout", "search"] {
        assert_eq!(post(&first.http, &[], &encoded(&shop(service))).status, 200);
    }
    first.end("-KILL");
    let paths = home.profiles().into_iter().map(|name| home.path().join(name));
    let [kept, changed] = &paths.collect::<Vec<_>>()[..] else { panic!("two files") };
    // Both files are unreadable now. One of them has its earlier size and time, by which its entry is found.
    let before = std::fs::metadata(kept).unwrap();
    std::fs::write(kept, vec![0; before.len() as usize]).unwrap();
    std::fs::File::options().write(true).open(kept).unwrap().set_modified(before.modified().unwrap()).unwrap();
    std::fs::write(changed, b"not a profile").unwrap();
    let second = Serve::start(home.path(), &[]);
    let stats = get(&second.http, "/api/stats").text();
    assert_eq!((number(&stats, "windows"), number(&stats, "unreadable_files")), (1, 1), "{stats}");
    let services = get(&second.http, "/api/services").text();
    assert!(services.contains("checkout") && !services.contains("search"), "{services}");
}

#[test]
fn the_verbs_and_the_server_count_windows_once_beside_their_rollups() {
    let home = TestDirectory::new();
    let hour_ago_ms = now_ns() / 1_000_000 - 3_600_000;
    for nth in 0..6 {
        let received_ms = hour_ago_ms + nth * 10_000;
        let start_ns = (received_ms - 10_000) * 1_000_000;
        let samples = [TestSample(&["main"], 100_000_000, &[("endpoint", "/cart")], nth + 1)];
        let data = window_at("checkout", "cpu", start_ns, &samples);
        home.file(&format!("{received_ms:013}-1-000000.otlp.pb.gz"), &gzip(&encoded(&data)));
    }
    let mut serve = Serve::start(home.path(), &[]);
    let until = Instant::now() + Duration::from_secs(60);
    while number(&get(&serve.http, "/api/stats").text(), "rollups") < 2 {
        assert!(Instant::now() < until, "no roll-ups");
        std::thread::sleep(Duration::from_millis(50));
    }
    serve.end("-KILL");
    let serve = Serve::start(home.path(), &[]);
    let label = ["--label", "endpoint=/cart"];
    for source in [serve.url(), home.path().to_str().unwrap().to_owned()] {
        let top = spanprof(&[&["top", &source, "--type", "cpu", "--json"][..], &label].concat());
        assert_eq!(number(&top.stdout, "total"), 600_000_000, "{top:?}");
    }
    let requests = get(&serve.http, "/api/requests").text();
    assert_eq!((number(&requests, "spans"), number(&requests, "linked_total")), (6, 600_000_000), "{requests}");
}

#[test]
fn a_profile_that_is_sent_twice_is_counted_once() {
    let home = TestDirectory::new();
    let mut first = Serve::start(home.path(), &[]);
    let mut data = shop("checkout");
    data.resources[0].profiles[0].profile_id = [7; 16];
    let total = |serve: &Serve| number(&get(&serve.http, "/api/top?type=cpu").text(), "total");
    for _ in 0..3 {
        assert_eq!(post(&first.http, &[], &encoded(&data)).status, 200);
    }
    assert_eq!(total(&first), 1_000_000_000);
    let stats = get(&first.http, "/api/stats").text();
    assert_eq!((number(&stats, "windows"), number(&stats, "duplicate_profiles")), (1, 2), "{stats}");
    // A request with one duplicate and one new profile.
    let mut mixed = data.clone();
    let new = Profile { profile_id: [8; 16], ..mixed.resources[0].profiles[0].clone() };
    mixed.resources[0].profiles.push(new);
    assert_eq!(post(&first.http, &[], &encoded(&mixed)).status, 200);
    assert_eq!(total(&first), 2_000_000_000);
    first.end("-TERM");

    let second = Serve::start(home.path(), &[]);
    assert_eq!(post(&second.http, &[], &encoded(&mixed)).status, 200);
    assert_eq!(total(&second), 2_000_000_000, "profiles of an earlier run are indexed");
}

#[test]
fn the_oldest_windows_are_removed_beyond_the_size_limit() {
    let home = TestDirectory::new();
    let body = gzip(&encoded(&shop("checkout")));
    let limit = (body.len() * 3 + 10).to_string();
    let serve = Serve::start(home.path(), &["--max-bytes", &limit]);
    for _ in 0..5 {
        assert_eq!(post(&serve.http, &[("content-encoding", "gzip")], &body).status, 200);
    }
    let stats = get(&serve.http, "/api/stats").text();
    assert_eq!((number(&stats, "windows"), number(&stats, "removed_by_size")), (3, 2), "{stats}");
    assert_eq!(home.profiles().len(), 3);
    assert_eq!(number(&get(&serve.http, "/api/top?type=cpu").text(), "total"), 3 * 1_000_000_000);
}

#[test]
fn windows_beyond_the_age_limit_are_removed_at_start_and_other_files_stay() {
    let home = TestDirectory::new();
    let old = gzip(&encoded(&shop("old")));
    home.file("1600000000000-1-000000.otlp.pb.gz", &old);
    home.file("cpu-1600000000000.pb.gz", &old);
    let serve = Serve::start(home.path(), &["--max-age", "1h"]);
    let stats = get(&serve.http, "/api/stats").text();
    assert_eq!((number(&stats, "windows"), number(&stats, "removed_by_age")), (1, 1), "{stats}");
    assert_eq!(home.profiles(), ["cpu-1600000000000.pb.gz"]);
}

#[test]
fn a_request_without_samples_is_accepted_and_not_kept() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let empty: &[TestSample<'_>] = &[];
    assert_eq!(post(&serve.http, &[], &encoded(&window("idle", "cpu", empty))).status, 200);
    assert_eq!(post(&serve.http, &[], b"").status, 200);
    assert!(home.profiles().is_empty());
}

#[test]
fn a_failed_write_is_a_retryable_error() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    // Without the directory every write fails.
    let moved = home.path().with_extension("moved");
    std::fs::rename(home.path(), &moved).unwrap();
    let response = post(&serve.http, &[], &encoded(&shop("checkout")));
    std::fs::rename(&moved, home.path()).unwrap();
    assert_eq!((response.status, response.header("retry-after")), (503, "5"));
    assert_eq!(post(&serve.http, &[], &encoded(&shop("checkout"))).status, 200);
}
