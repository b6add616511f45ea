//! The file destination in child processes: killed at random moments, under different umasks, with a file size limit.
//!
//! Each test starts this binary again with itself as the only test and an environment variable that selects the child's
//! role.

use crate::files::{gunzipped, names_in, profile};
use crate::shared::{exporter_to, wait_for, TEST_TIMEOUT};
use spanprof_export::{Destination, DiscardReason, ExportPayload, Exporter, ExporterSettings, FileDirectory};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "SPANPROF_TEST_DIRECTORY";

/// In a child process: the directory to write.
pub fn directory_to_write() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Starts this binary again for one test, after a line of shell.
pub fn start(test: &str, directory: &Path, shell: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn random_bytes(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..bytes).map(|_| random.u8(..)).collect()
}

#[test]
fn files_of_a_killed_process_are_complete_and_its_unfinished_file_is_removed_at_the_next_start() {
    if let Some(directory) = directory_to_write() {
        let exporter =
            Exporter::start(vec![Destination::File(FileDirectory::new(directory))], ExporterSettings::default())
                .unwrap();
        let body = random_bytes(100_000);
        for time_unix_ms in 0.. {
            exporter.enqueue(0, profile("cpu", time_unix_ms, body.clone()));
            exporter.flush(TEST_TIMEOUT);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut unfinished_seen = 0;
    for round in 0..12u64 {
        let test =
            "file_processes::files_of_a_killed_process_are_complete_and_its_unfinished_file_is_removed_at_the_next_start";
        let mut writer = start(test, directory.path(), "");
        let until = Instant::now() + TEST_TIMEOUT;
        let newest = || fs::read_dir(directory.path()).unwrap().count();
        let before = newest();
        while newest() <= before.min(50) + 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        writer.kill().unwrap();
        writer.wait().unwrap();
        unfinished_seen += names_in(directory.path()).iter().filter(|name| name.ends_with(".tmp")).count();
    }

    // The start removes them.
    let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(directory.path())));
    let names = names_in(directory.path());
    assert!(names.len() > 12 && names.len() <= 100, "{} files", names.len());
    for name in &names {
        assert!(
            name.starts_with("cpu-") && name.ends_with(".pb.gz"),
            "{name} was left; {unfinished_seen} unfinished seen"
        );
        assert_eq!(gunzipped(&directory.path().join(name)).len(), 100_000, "{name}");
    }
    drop(exporter);
}

#[test]
fn unfinished_files_of_live_and_foreign_processes_stay() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    let namespace: String = namespace.chars().filter(char::is_ascii_digit).collect();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let started = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(19).unwrap().to_owned();
    let own_id = std::process::id();
    let live = format!(".spanprof-{own_id}-{namespace}-{started}-00000000000000aa.tmp");
    let reused_id = format!(".spanprof-{own_id}-{namespace}-{}-00000000000000aa.tmp", started.clone() + "1");
    let exited = format!(".spanprof-4194305-{namespace}-1-00000000000000aa.tmp");
    let other_namespace = ".spanprof-1-1-1-00000000000000aa.tmp".to_owned();
    for name in [&live, &reused_id, &exited, &other_namespace, &".other.tmp".to_owned()] {
        fs::write(directory.path().join(name), "").unwrap();
    }

    let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(directory.path())));

    let mut expected = vec![live, other_namespace, ".other.tmp".to_owned()];
    expected.sort();
    assert_eq!(names_in(directory.path()), expected);
    drop(exporter);
}

#[test]
fn files_are_private_under_any_umask() {
    if let Some(directory) = directory_to_write() {
        let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(directory.join("made"))));
        exporter.enqueue(0, profile("cpu", 1, "x"));
        assert!(exporter.flush(TEST_TIMEOUT));
        return;
    }
    for umask in ["000", "077"] {
        let directory = tempfile::tempdir().unwrap();
        let test = "file_processes::files_are_private_under_any_umask";
        let status = start(test, directory.path(), &format!("umask {umask};")).wait().unwrap();

        assert!(status.success(), "{status}");
        let mode = |path: &str| fs::metadata(directory.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("made"), mode("made/cpu-1.pb.gz")), (0o700, 0o600), "umask {umask}");
    }
}

#[test]
fn a_failed_write_leaves_no_file_and_the_next_succeeds() {
    if let Some(directory) = directory_to_write() {
        let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(&directory)));
        exporter.enqueue(0, profile("cpu", 1, random_bytes(200_000)));
        exporter.enqueue(0, profile("cpu", 2, "small"));
        let stats = wait_for(&exporter, "both are settled", |stats| stats.queue_payloads == 0);
        assert_eq!((stats.dropped(DiscardReason::Permanent).payloads, stats.sent), (1, 1), "{stats:#?}");
        assert!(stats.last_error.unwrap().contains("File too large"));
        assert_eq!(names_in(&directory), ["cpu-2.pb.gz"]);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "file_processes::a_failed_write_leaves_no_file_and_the_next_succeeds";
    // SIGXFSZ would terminate the process; in a host, its runtime or the thread hook blocks the signal.
    let status = start(test, directory.path(), "trap '' XFSZ; ulimit -f 64;").wait().unwrap();

    assert!(status.success(), "{status}");
    assert_eq!(names_in(directory.path()), ["cpu-2.pb.gz"]);
}

#[test]
fn a_killed_process_leaves_no_side_car_without_a_profile() {
    let keep = 5;
    let destination = |directory: &Path| Destination::File(FileDirectory { keep, ..FileDirectory::new(directory) });
    if let Some(directory) = directory_to_write() {
        let exporter = Exporter::start(vec![destination(&directory)], ExporterSettings::default()).unwrap();
        for time_unix_ms in 0.. {
            let sidecar = Some(format!("{{\"window\": {time_unix_ms}}}\n").into_bytes());
            exporter.enqueue(0, ExportPayload { sidecar, ..profile("cpu", time_unix_ms, "x") });
            exporter.flush(TEST_TIMEOUT);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20u64 {
        let test = "file_processes::a_killed_process_leaves_no_side_car_without_a_profile";
        let mut writer = start(test, directory.path(), "");
        let has_file = |name: &String| name.starts_with("cpu-");
        let until = Instant::now() + TEST_TIMEOUT;
        while !names_in(directory.path()).iter().any(has_file) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(20_000 + 700 * round));
        writer.kill().unwrap();
        writer.wait().unwrap();

        let names: Vec<_> = names_in(directory.path()).into_iter().filter(has_file).collect();
        let sidecars: Vec<_> = names.iter().filter_map(|name| name.strip_suffix(".json")).collect();
        assert!(!sidecars.is_empty(), "round {round}: {names:?}");
        for stem in sidecars {
            assert!(names.contains(&format!("{stem}.pb.gz")), "round {round}: {stem}.json is left, {names:?}");
            let text = fs::read_to_string(directory.path().join(format!("{stem}.json"))).unwrap();
            assert!(text.ends_with("}\n"), "round {round}: {text:?} is torn");
        }
        for name in names_in(directory.path()) {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
}
