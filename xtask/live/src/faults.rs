//! The Rust counterpart of xtask/live/faults/program.py, with a child of fork(2) that becomes another program.

use std::io::BufRead;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use spanprof::sync::Mutex;
use spanprof::{tag_wrapper, Config, Profiler};

const WORK: Duration = Duration::from_millis(350);

/// Profiled or bare. A start that fails is no failure of the program.
pub fn run(is_profiled: bool) -> Result<(), String> {
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).map_err(|error| error.to_string())?;
    let directory = std::env::var("DIRECTORY").unwrap_or_default();
    let start = || {
        let config = Config::builder()
            .file_directory(directory.clone())
            .upload_interval(Duration::from_millis(100))
            .stop_timeout(Duration::from_secs(10));
        config.load().and_then(Profiler::start).map_err(|error| eprintln!("{error}")).ok()
    };
    let profiler = if is_profiled { marked(start) } else { None };
    let total = Mutex::new(0);
    // The work makes no call of its own between the marks: the code of the profiler is in the program's file.
    let work = |number: u64| {
        if is_profiled {
            marked(|| tag_wrapper([("k", "1")], || work(number, &total)))
        } else {
            work(number, &total)
        }
    };
    let results =
        std::thread::scope(|scope| [1, 2].map(|number| scope.spawn(move || work(number))).map(|t| t.join().ok()));
    // With a user, the standard library forks instead of calling posix_spawn.
    let user = Path::new("/proc/self").metadata().map_err(|error| error.to_string())?.uid();
    let child = Command::new("/bin/echo").arg("child").uid(user).output().map_err(|error| error.to_string())?;
    if let Some(profiler) = profiler {
        marked(|| profiler.stop());
    }
    println!("{results:?} {child:?}");
    Ok(())
}

fn marked<T>(call: impl FnOnce() -> T) -> T {
    let _ = Path::new("/faults/begin").exists();
    let value = call();
    let _ = Path::new("/faults/end").exists();
    value
}

fn work(number: u64, total: &Mutex<u64>) -> u64 {
    let sum = (0..100_000).fold(0u64, |sum, round| sum.wrapping_mul(31).wrapping_add(round * number));
    let end = Instant::now() + WORK;
    while Instant::now() < end {
        let numbers = std::hint::black_box(vec![number; 100]);
        *total.lock().unwrap_or_else(|held| held.into_inner()) += numbers[0];
    }
    sum
}
