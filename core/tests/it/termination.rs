//! SIGTERM without a handler of the program: a Rust program that it ends delivers its last window, and ends by the signal.

use super::profiler::start_native;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use spanprof_config::Config;
use spanprof_profiler::ProfilerHandle;

const DIRECTORY: &str = "SPANPROF_TEST_TERMINATED_DIRECTORY";
const SIGTERM: i32 = 15;

/// Works until a signal ends this process.
fn work(directory: String) {
    let config =
        Config { file_directory: Some(directory), upload_interval: Duration::from_secs(300), ..Config::default() };
    let profiler = start_native(config).unwrap();
    take_samples(&profiler);
    // The first window also reads the debug information of this program.
    assert!(profiler.flush(Duration::from_secs(100)));
    take_samples(&profiler);
    println!("\nat work");
    loop {
        std::thread::park();
    }
}

fn take_samples(profiler: &ProfilerHandle) {
    let samples = || profiler.stats().counter("samples.cpu");
    let before = samples();
    while samples() < before + 20 {
        std::hint::black_box((0..100_000u64).sum::<u64>());
    }
}

fn cpu_profiles(directory: &Path) -> usize {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".pb.gz")).count()
}

#[test]
fn a_rust_program_that_sigterm_ends_delivers_its_last_window_and_ends_by_sigterm() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        work(directory);
    }
    let directory = std::env::temp_dir().join(format!("spanprof-terminated-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "termination::a_rust_program_that_sigterm_ends_delivers_its_last_window_and_ends_by_sigterm"])
        .arg("--nocapture")
        .env(DIRECTORY, &directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "at work"));
    assert!(Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status().unwrap().success());
    let status = child.wait().unwrap();
    let profiles = cpu_profiles(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(status.signal(), Some(SIGTERM), "{status}");
    assert_eq!(profiles, 2);
}
