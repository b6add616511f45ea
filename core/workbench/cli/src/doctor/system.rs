//! The kernel: version, CPU clock, seccomp filter, threads, memory and queued signals of this process.

use std::fs;

use spanprof_config::{Clock, Config};
use spanprof_os::{CallRefusal, ClockChoice, SystemCall};

use super::DoctorCheck;

/// Queued signals below which a program that adds threads can exhaust them.
const FEW_SIGNALS: u64 = 256;
const ALLOW_PERF: &str = "sudo sysctl kernel.perf_event_paranoid=1, or give the process CAP_PERFMON (docker run --cap-add PERFMON, \
     Kubernetes securityContext.capabilities.add: [PERFMON], systemd AmbientCapabilities=CAP_PERFMON) with a seccomp profile \
     that allows perf_event_open";

pub(super) fn checks(config: &Config) -> Vec<DoctorCheck> {
    let mut checks = vec![kernel(), cpu_clock(config), seccomp(), thread(), address_space()];
    checks.extend(queued_signals());
    checks
}

fn kernel() -> DoctorCheck {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let found = format!("Linux {} {}", release.trim(), std::env::consts::ARCH);
    match cfg!(target_arch = "x86_64") {
        true => DoctorCheck::ok("kernel", found, "a supported platform"),
        false => DoctorCheck::problem(
            "kernel",
            found,
            "no profile is taken: the packages contain native code for Linux x86-64 only",
            "run the program on Linux x86-64",
        ),
    }
}

/// The decision of a start, by the code that a start uses.
fn cpu_clock(config: &Config) -> DoctorCheck {
    const CHECK: &str = "cpu_clock";
    let choice = match config.clock {
        Clock::Auto => ClockChoice::Auto,
        Clock::ThreadTimer => ClockChoice::ThreadTimer,
        Clock::Perf => ClockChoice::Perf,
    };
    match spanprof_os::probe_clock(choice, config.sample_rate) {
        Ok(clock) if clock.name == "perf" => DoctorCheck::ok(
            CHECK,
            format!("{} ({})", clock.name, clock.reason),
            "each thread is sampled by its own CPU time, at any rate",
        ),
        Ok(clock) => {
            let found = format!("{} ({})", clock.name, clock.reason);
            let meaning = "totals are exact; shares of code that runs in step with the kernel tick can be wrong";
            let action = match config.clock {
                Clock::ThreadTimer => "unset clock (SPANPROF_CLOCK), or set it to auto".to_owned(),
                _ => ALLOW_PERF.to_owned(),
            };
            DoctorCheck::limited(CHECK, found, meaning, action)
        }
        Err(error) => DoctorCheck::problem(CHECK, error.message, "no CPU samples are taken", error.hint),
    }
}

fn seccomp() -> DoctorCheck {
    const CHECK: &str = "seccomp";
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let refused = spanprof_os::refused_calls();
    let mode = match status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) {
        Some("0") => "no filter",
        Some("1") => "strict mode",
        Some("2") => "a filter",
        _ => "unknown, since /proc is not readable",
    };
    if refused.is_empty() {
        return DoctorCheck::ok(CHECK, mode, "no system call of the profiler is refused");
    }
    let calls: Vec<String> = refused.iter().map(|(call, refusal)| refused_call(*call, *refusal)).collect();
    let effects: Vec<&str> = refused.iter().map(|(call, _)| effect_without(*call)).collect();
    let names: Vec<String> = refused.iter().map(|(call, _)| call.name()).collect();
    DoctorCheck::limited(
        CHECK,
        format!("{mode} that refuses {}", calls.join(", ")),
        effects.join("; "),
        format!(
            "allow {} in the seccomp profile (docker run --security-opt seccomp=FILE, systemd SystemCallFilter=)",
            names.join(", ")
        ),
    )
}

fn refused_call(call: SystemCall, refusal: CallRefusal) -> String {
    let how = match refusal {
        CallRefusal::EndsProcess => "ends the process, so it is never made".to_owned(),
        CallRefusal::Errno(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    };
    format!("{} ({how})", call.name())
}

/// What a profile lacks without a call.
const fn effect_without(call: SystemCall) -> &'static str {
    match call {
        SystemCall::PerfEventOpen => "thread timers take the CPU samples",
        SystemCall::TimerCreate => {
            "CPU samples need the perf clock, and new threads are found once per upload interval"
        }
        SystemCall::RestartSyscall => {
            "a poll that a sample interrupts at its end may wait for its timeout a second time"
        }
        SystemCall::Prctl => "threads and mappings of the profiler have no names",
        SystemCall::MemfdCreate => "a second copy of the library is not detected",
        SystemCall::ProcessVmReadv => "samples beside another fault handler have the reason faulted_read",
        SystemCall::RtTgsigqueueinfo => "wall stacks of waiting threads only in Java, none in Node.js",
        SystemCall::RtSigtimedwait => "SIGPIPE of the profiler's threads stays pending",
        SystemCall::Fallocate => "the file of heap_peak_directory is filled with zeroes",
    }
}

fn thread() -> DoctorCheck {
    match spanprof_os::start_own_thread(c"spanprof-doctor", 256 * 1024, || ()) {
        Ok(thread) => {
            thread.join();
            DoctorCheck::ok("threads", "a thread was started", "the profiler starts two to four threads")
        }
        Err(error) => DoctorCheck::problem(
            "threads",
            format!("no thread can be started: {error}"),
            "the profiler does not start, and the program continues without it",
            "raise the limit of threads: ulimit -u, pids.max of the control group (docker run --pids-limit, systemd TasksMax=)",
        ),
    }
}

fn address_space() -> DoctorCheck {
    let needed = format!("{} MiB", spanprof_os::START_BYTES >> 20);
    match spanprof_os::has_address_space(spanprof_os::START_BYTES) {
        true => DoctorCheck::ok("address_space", format!("{needed} can be mapped"), "enough for a start"),
        false => DoctorCheck::problem(
            "address_space",
            format!("{needed} cannot be mapped"),
            "the profiler does not start, and the program continues without it",
            "ulimit -v unlimited, or a higher limit (systemd LimitAS=)",
        ),
    }
}

/// A thread timer keeps one queued signal of the user (kernel/time/posix-timers.c).
fn queued_signals() -> Option<DoctorCheck> {
    const CHECK: &str = "queued_signals";
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let (queued, limit) = status.lines().find_map(|line| line.strip_prefix("SigQ:"))?.trim().split_once('/')?;
    let (queued, limit): (u64, u64) = (queued.parse().ok()?, limit.parse().ok()?);
    let free = limit.saturating_sub(queued);
    let found = format!("RLIMIT_SIGPENDING is {limit}, {queued} in use by the user");
    let meaning = format!("timers for {free} threads; further ones have no CPU samples");
    let action = "ulimit -i 4096 (systemd LimitSIGPENDING=4096, docker run --ulimit sigpending=4096)";
    Some(match free {
        0 => DoctorCheck::problem(CHECK, found, meaning, action),
        1..FEW_SIGNALS => DoctorCheck::limited(CHECK, found, meaning, action),
        _ => DoctorCheck::ok(CHECK, found, meaning),
    })
}
