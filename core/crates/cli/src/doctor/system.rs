//! The kernel: version, CPU clock, perf events, seccomp filter, clock source, threads and memory of this process.

use std::fs;
use std::time::{Duration, Instant};

use spanprof_config::{Clock, Config};
use spanprof_os::{CallRefusal, ClockChoice, SystemCall};

use super::DoctorCheck;

/// Cost of one clock read from which the clock source is slow: a system call instead of a read by the vDSO.
const SLOW_CLOCK_READ: Duration = Duration::from_nanos(200);
/// Perf events below which a service of usual size has threads with timers.
const FEW_PERF_EVENTS: usize = 64;

pub(super) const ALLOW_PERF: &str = "sudo sysctl kernel.perf_event_paranoid=1, or give the process CAP_PERFMON (docker run --cap-add PERFMON, \
     Kubernetes securityContext.capabilities.add: [PERFMON], systemd AmbientCapabilities=CAP_PERFMON) with a seccomp profile \
     that allows perf_event_open";

pub(super) fn checks(config: &Config) -> Vec<DoctorCheck> {
    let mut checks = vec![kernel(), cpu_clock(config)];
    checks.extend(perf_events());
    checks.extend([seccomp(), clock_source(), thread(), address_space()]);
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

/// Whether perf events may be opened, and for how many threads at once.
fn perf_events() -> Vec<DoctorCheck> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let (paranoid, locked_kb) = (read("perf_event_paranoid"), read("perf_event_mlock_kb"));
    let probe = spanprof_os::probe_perf_events();
    let settings = match paranoid.trim() {
        "" => "kernel.perf_event_paranoid is not readable".to_owned(),
        level => format!("kernel.perf_event_paranoid is {level}"),
    };
    if let (0, Some(refusal)) = (probe.opened, &probe.refusal) {
        let found =
            if refusal.contains("perf_event_paranoid") { refusal.clone() } else { format!("{refusal}; {settings}") };
        let meaning = "the perf clock is not available; thread timers take the CPU samples";
        return vec![DoctorCheck::limited("perf_event_open", found, meaning, ALLOW_PERF)];
    }
    let permitted = DoctorCheck::ok("perf_event_open", format!("permitted; {settings}"), "the perf clock is available");
    let found = format!("{} of {} perf events with ring buffers opened", probe.opened, probe.budget);
    let meaning = "threads beyond this number have timers instead of perf events";
    let buffers = match probe.refusal {
        None if probe.budget >= FEW_PERF_EVENTS => DoctorCheck::ok("perf_buffers", found, meaning),
        None => DoctorCheck::limited(
            "perf_buffers",
            format!("{found}: an eighth of the descriptors"),
            meaning,
            "ulimit -n 4096 (systemd LimitNOFILE=4096, docker run --ulimit nofile=4096)",
        ),
        Some(refusal) => {
            let found = format!("{found}, then: {refusal}; kernel.perf_event_mlock_kb is {}", locked_kb.trim());
            let action =
                "ulimit -l 4096 (systemd LimitMEMLOCK=4M, docker run --ulimit memlock=4194304), or sudo sysctl \
                          kernel.perf_event_mlock_kb=4096; the memory is counted per user and machine";
            DoctorCheck::limited("perf_buffers", found, meaning, action)
        }
    };
    vec![permitted, buffers]
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

/// Two clock reads are in each sample.
fn clock_source() -> DoctorCheck {
    const CHECK: &str = "clock_source";
    let name = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let name = name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned());
    let read = cost_of_clock_read();
    let found = format!("{name}, {} ns per read", read.as_nanos());
    match read < SLOW_CLOCK_READ {
        true => DoctorCheck::ok(CHECK, found, "clocks are read without a system call"),
        false => DoctorCheck::limited(
            CHECK,
            found,
            "each sample and each observed event of the program costs more CPU time",
            "cat /sys/devices/system/clocksource/clocksource0/available_clocksource; if tsc is listed, write it to \
             current_clocksource beside it",
        ),
    }
}

/// The least of several batches: others ran at the same time as another process.
fn cost_of_clock_read() -> Duration {
    const READS: u32 = 1_000;
    let batch = |_| {
        let begun = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(Instant::now());
        }
        begun.elapsed() / READS
    };
    (0..20).map(batch).min().unwrap_or_default()
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
