//! The file destination in processes of its own: killed at any moment, under a wide umask, on a disk that is full.
//!
//! Each test starts this binary again with only itself to run and a variable set; then it is the process to be watched.

use crate::files::{gunzipped, names_in, profile};
use crate::shared::{exporter_to, wait_for, PATIENCE};
use spanprof_export::{Destination, DropReason, Exporter, ExporterSettings, FileDirectory};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "SPANPROF_TEST_DIRECTORY";

/// In a started process: where it writes.
fn directory_to_write() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Starts this binary again for one test, behind a line of shell.
fn start(test: &str, directory: &Path, shell: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut dice = fastrand::Rng::with_seed(7);
    (0..bytes).map(|_| dice.u8(..)).collect()
}

#[test]
fn every_file_of_a_killed_process_is_whole_and_its_litter_goes_at_the_next_start() {
    if let Some(directory) = directory_to_write() {
        let exporter =
            Exporter::start(vec![Destination::File(FileDirectory::new(directory))], ExporterSettings::default())
                .unwrap();
        let body = noise(100_000);
        for time_unix_ms in 0.. {
            exporter.enqueue(0, profile("cpu", time_unix_ms, body.clone()));
            exporter.flush(PATIENCE);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut litter_seen = 0;
    for round in 0..12u64 {
        let test = "files_of_processes::every_file_of_a_killed_process_is_whole_and_its_litter_goes_at_the_next_start";
        let mut writer = start(test, directory.path(), "");
        let until = Instant::now() + PATIENCE;
        let newest = || fs::read_dir(directory.path()).unwrap().count();
        let before = newest();
        while newest() <= before.min(50) + 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        writer.kill().unwrap();
        writer.wait().unwrap();
        litter_seen += names_in(directory.path()).iter().filter(|name| name.ends_with(".tmp")).count();
    }

    // Starting is enough.
    let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(directory.path())));
    let names = names_in(directory.path());
    assert!(names.len() > 12 && names.len() <= 100, "{} files", names.len());
    for name in &names {
        assert!(name.starts_with("cpu-") && name.ends_with(".pb.gz"), "{name} was left; {litter_seen} unfinished seen");
        assert_eq!(gunzipped(&directory.path().join(name)).len(), 100_000, "{name}");
    }
    drop(exporter);
}

#[test]
fn litter_of_the_living_and_of_others_stays() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    let namespace: String = namespace.chars().filter(char::is_ascii_digit).collect();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let started = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(19).unwrap().to_owned();
    let us = std::process::id();
    let ours_alive = format!(".spanprof-{us}-{namespace}-{started}-00000000000000aa.tmp");
    let same_number_earlier = format!(".spanprof-{us}-{namespace}-{}-00000000000000aa.tmp", started.clone() + "1");
    let nobody = format!(".spanprof-4194305-{namespace}-1-00000000000000aa.tmp");
    let elsewhere = ".spanprof-1-1-1-00000000000000aa.tmp".to_owned();
    for name in [&ours_alive, &same_number_earlier, &nobody, &elsewhere, &".other.tmp".to_owned()] {
        fs::write(directory.path().join(name), "").unwrap();
    }

    let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(directory.path())));

    let mut stays = vec![ours_alive, elsewhere, ".other.tmp".to_owned()];
    stays.sort();
    assert_eq!(names_in(directory.path()), stays);
    drop(exporter);
}

#[test]
fn files_are_private_under_any_umask() {
    if let Some(directory) = directory_to_write() {
        let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(directory.join("made"))));
        exporter.enqueue(0, profile("cpu", 1, "x"));
        assert!(exporter.flush(PATIENCE));
        return;
    }
    for umask in ["000", "077"] {
        let directory = tempfile::tempdir().unwrap();
        let test = "files_of_processes::files_are_private_under_any_umask";
        let status = start(test, directory.path(), &format!("umask {umask};")).wait().unwrap();

        assert!(status.success(), "{status}");
        let mode = |path: &str| fs::metadata(directory.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("made"), mode("made/cpu-1.pb.gz")), (0o700, 0o600), "umask {umask}");
    }
}

#[test]
fn a_file_the_system_does_not_let_us_finish_leaves_nothing_and_the_next_succeeds() {
    if let Some(directory) = directory_to_write() {
        let (exporter, _) = exporter_to(Destination::File(FileDirectory::new(&directory)));
        exporter.enqueue(0, profile("cpu", 1, noise(200_000)));
        exporter.enqueue(0, profile("cpu", 2, "small"));
        let stats = wait_for(&exporter, "both are settled", |stats| stats.queue_payloads == 0);
        assert_eq!((stats.dropped(DropReason::Permanent).payloads, stats.sent), (1, 1), "{stats:#?}");
        assert!(stats.last_error.unwrap().contains("File too large"));
        assert_eq!(names_in(&directory), ["cpu-2.pb.gz"]);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "files_of_processes::a_file_the_system_does_not_let_us_finish_leaves_nothing_and_the_next_succeeds";
    // The signal that comes with the limit would end the process; a host's runtime or the thread hook blocks it.
    let status = start(test, directory.path(), "trap '' XFSZ; ulimit -f 64;").wait().unwrap();

    assert!(status.success(), "{status}");
    assert_eq!(names_in(directory.path()), ["cpu-2.pb.gz"]);
}
