//! The limits of the process: descriptors, queued signals, locked memory, address space, control groups.

use spanprof_config::{Config, DestinationType};

use super::process::Subject;
use super::DoctorCheck;

/// Descriptors for receivers, files and /proc.
const LEAST_DESCRIPTORS: u64 = 16;
/// Queued signals below which a program that adds threads can exhaust them.
const FEW_SIGNALS: u64 = 256;
/// Perf events below which a service of usual size has threads with timers.
const FEW_PERF_EVENTS: u64 = 64;
/// Memory of a sampled object in use (the key `heap_live_samples`).
const LIVE_SAMPLE_BYTES: u64 = 180;

pub(super) fn checks(subject: &Subject, config: &Config) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    match subject.read("limits") {
        Ok(limits) => {
            checks.extend(descriptors(subject, &limits));
            checks.extend(locked_memory(subject, &limits));
            checks.extend(address_space(subject, &limits));
        }
        Err(reason) => checks.push(DoctorCheck::limited(
            "limits",
            reason,
            "the limits of the process are unknown; threads are found by their first sample only",
            "mount /proc, without hidepid for this user",
        )),
    }
    checks.extend(queued_signals(subject));
    checks.push(cpu_quota(subject));
    checks.push(memory(subject, config));
    checks
}

/// The soft limit in a row of `/proc/PID/limits`; `None` in the result for `unlimited`.
fn soft_limit(limits: &str, name: &str) -> Option<Option<u64>> {
    let value = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    match value {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

fn shown(limit: Option<u64>, unit: &str) -> String {
    match (limit, unit) {
        (None, _) => "unlimited".to_owned(),
        (Some(bytes), "bytes") if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        (Some(bytes), "bytes") => format!("{} KiB", bytes >> 10),
        (Some(count), _) => count.to_string(),
    }
}

fn descriptors(subject: &Subject, limits: &str) -> Option<DoctorCheck> {
    const CHECK: &str = "descriptors";
    const RAISE: &str = "ulimit -n 4096 (systemd LimitNOFILE=4096, docker run --ulimit nofile=4096)";
    let limit = soft_limit(limits, "Max open files")?;
    // Those of this command are not those of a service.
    let open = subject.pid.and_then(|_| subject.descriptors()).map(|open| open as u64);
    let events = spanprof_os::perf_event_budget(limit.unwrap_or(u64::MAX));
    let found = match open {
        Some(open) => format!("RLIMIT_NOFILE is {}, {open} are open", shown(limit, "")),
        None => format!("RLIMIT_NOFILE is {}", shown(limit, "")),
    };
    let free = limit.map_or(u64::MAX, |limit| limit.saturating_sub(open.unwrap_or(0)));
    Some(if free < LEAST_DESCRIPTORS {
        let meaning = "receivers, files and threads of the program cannot be opened: windows are lost, and counted";
        DoctorCheck::problem(CHECK, found, meaning, RAISE)
    } else {
        DoctorCheck::ok(CHECK, found, format!("perf events for {events} threads at most, further ones have timers"))
    })
}

/// Ring buffers are charged to the user up to `perf_event_mlock_kb` per processor, then to RLIMIT_MEMLOCK
/// (kernel/events/core.c, `perf_mmap`).
fn locked_memory(subject: &Subject, limits: &str) -> Option<DoctorCheck> {
    const CHECK: &str = "locked_memory";
    let limit = soft_limit(limits, "Max locked memory")?;
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").ok();
    let kb_per_processor: u64 = setting?.trim().parse().ok()?;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let found = format!(
        "RLIMIT_MEMLOCK is {}, kernel.perf_event_mlock_kb is {kb_per_processor} for each of {processors} processors",
        shown(limit, "bytes")
    );
    if subject.locks_without_limit() {
        return Some(DoctorCheck::ok(CHECK, format!("{found}, CAP_IPC_LOCK"), "ring buffers have no limit"));
    }
    let bytes = limit.map(|limit| limit.saturating_add(kb_per_processor * 1024 * processors));
    let events = bytes.map_or(u64::MAX, |bytes| bytes / spanprof_os::PERF_BUFFER_BYTES);
    let meaning = match bytes {
        None => "ring buffers of perf events have no limit".to_owned(),
        Some(_) => format!("ring buffers for {events} perf events at most; further threads have timers"),
    };
    Some(match events < FEW_PERF_EVENTS {
        false => DoctorCheck::ok(CHECK, found, meaning),
        true => DoctorCheck::limited(
            CHECK,
            found,
            meaning,
            "ulimit -l 4096 (systemd LimitMEMLOCK=4M, docker run --ulimit memlock=4194304)",
        ),
    })
}

/// Of another process; in this one the mapping is tried.
fn address_space(subject: &Subject, limits: &str) -> Option<DoctorCheck> {
    subject.pid?;
    let limit = soft_limit(limits, "Max address space")?;
    let used = subject.status("VmSize")?.trim_end_matches(" kB").parse::<u64>().ok()? << 10;
    let found = format!("RLIMIT_AS is {}, {} in use", shown(limit, "bytes"), shown(Some(used), "bytes"));
    let needed = spanprof_os::START_BYTES as u64;
    Some(match limit.is_none_or(|limit| limit.saturating_sub(used) >= needed) {
        true => DoctorCheck::ok("process_address_space", found, "enough for a start"),
        false => DoctorCheck::problem(
            "process_address_space",
            found,
            format!("a start needs {} MiB; the profiler does not start, and the program continues", needed >> 20),
            "ulimit -v unlimited, or a higher limit (systemd LimitAS=)",
        ),
    })
}

/// A thread timer keeps one queued signal of the user (kernel/time/posix-timers.c).
fn queued_signals(subject: &Subject) -> Option<DoctorCheck> {
    const CHECK: &str = "queued_signals";
    let (queued, limit) = subject.status("SigQ")?.split_once('/')?;
    let (queued, limit): (u64, u64) = (queued.parse().ok()?, limit.parse().ok()?);
    let free = limit.saturating_sub(queued);
    let found = format!("RLIMIT_SIGPENDING is {limit}, {queued} in use by the user");
    let threads = subject.status("Threads").and_then(|text| text.parse().ok()).unwrap_or(1);
    let action = "ulimit -i 4096 (systemd LimitSIGPENDING=4096, docker run --ulimit sigpending=4096)";
    Some(if free < threads {
        let meaning = "threads without a perf event have no CPU samples, and new threads are found late";
        DoctorCheck::problem(CHECK, found, meaning, action)
    } else if free < FEW_SIGNALS {
        DoctorCheck::limited(
            CHECK,
            found,
            format!("timers for {free} threads; further ones have no CPU samples"),
            action,
        )
    } else {
        DoctorCheck::ok(CHECK, found, format!("timers for {free} threads"))
    })
}

fn cpu_quota(subject: &Subject) -> DoctorCheck {
    const CHECK: &str = "cpu_quota";
    let quota = subject.pid.map_or_else(spanprof_os::cpu_quota, spanprof_os::cpu_quota_of);
    match quota {
        None => DoctorCheck::ok(CHECK, "no quota", "the governor limits the profiler by its share of the CPU time"),
        Some(quota) if quota >= 1.0 => DoctorCheck::ok(
            CHECK,
            format!("{quota:.2} processors"),
            "the threads of the profiler use the quota of the program",
        ),
        Some(quota) => DoctorCheck::limited(
            CHECK,
            format!("{quota:.2} processors"),
            format!("wall samples are taken at {:.0} % of their rate; CPU samples are complete", quota * 100.0),
            "raise the CPU limit of the container to 1 processor (docker run --cpus 1, Kubernetes resources.limits.cpu), or \
             leave it: totals are exact",
        ),
    }
}

fn memory(subject: &Subject, config: &Config) -> DoctorCheck {
    const CHECK: &str = "memory_limit";
    let limit = subject.pid.map_or_else(spanprof_os::memory_limit, spanprof_os::memory_limit_of);
    let Some(limit) = limit else {
        return DoctorCheck::ok(CHECK, "no limit", "the profiler's own bounds apply");
    };
    let queues = config.effective_destinations();
    let queues =
        queues.iter().filter(|destination| destination.destination_type != DestinationType::File).count() as u64;
    let objects = if config.heap { u64::from(config.heap_live_samples) * LIVE_SAMPLE_BYTES } else { 0 };
    let needed = config.queue_max_bytes.saturating_mul(queues).saturating_add(objects);
    let [bytes, free, most] = [limit.bytes, limit.until_bytes, needed].map(|bytes| shown(Some(bytes), "bytes"));
    let found = format!("{bytes}, of which {free} are free");
    let meaning = format!("queued profiles and sampled objects take {most} at most");
    match limit.until_bytes < needed {
        false => DoctorCheck::ok(CHECK, found, meaning),
        true => DoctorCheck::limited(
            CHECK,
            found,
            format!("{meaning}; beyond the limit the kernel ends the program"),
            "raise the memory limit of the container, or lower queue_max_bytes (SPANPROF_QUEUE_MAX_BYTES) and heap_live_samples",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limits_are_numbers_or_unlimited() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(Some(1024)));
        assert_eq!(soft_limit(limits, "Max address space"), Some(None));
        assert_eq!(soft_limit(limits, "Max locked memory"), None);
    }
}
