//! The Rust counterpart of xtask/live/system-calls/program.py: uses CPU time in threads, waits and labels its work, once before
//! and once after the mark `later`, under a tracer of system calls.

use std::path::Path;
use std::time::Duration;

use spanprof::{tag_wrapper, Config, Profiler};
use spanprof_os::current_thread_cpu_ns;

const LIMIT: Duration = Duration::from_secs(20);

/// Profiled with the settings of the environment, or bare.
pub fn run(is_profiled: bool) -> Result<(), String> {
    let config = is_profiled.then(|| Config::builder().load().map_err(|error| error.to_string())).transpose()?;
    let profiler = config.map(Profiler::start).transpose().map_err(|error| error.to_string())?;
    rounds(profiler.as_ref())?;
    // The name appears in the trace.
    let _ = Path::new("/system-calls/later").exists();
    rounds(profiler.as_ref())?;
    if profiler.is_none_or(|profiler| profiler.stop()) {
        Ok(())
    } else {
        Err("the last window was not delivered".to_owned())
    }
}

fn rounds(profiler: Option<&Profiler>) -> Result<(), String> {
    for _ in 0..3 {
        match profiler {
            Some(_) => tag_wrapper([("route", "/cart")], work),
            None => work(),
        }
    }
    if profiler.is_none_or(|profiler| profiler.flush(LIMIT)) {
        Ok(())
    } else {
        Err("a window was not delivered".to_owned())
    }
}

fn work() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| burn(Duration::from_millis(200)));
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    burn(Duration::from_millis(200));
}

fn burn(cpu: Duration) {
    let until_ns = current_thread_cpu_ns() + cpu.as_nanos() as u64;
    let mut total = 0u64;
    while current_thread_cpu_ns() < until_ns {
        for number in 0..10_000u64 {
            total = std::hint::black_box(total.wrapping_mul(31).wrapping_add(number));
        }
    }
}
