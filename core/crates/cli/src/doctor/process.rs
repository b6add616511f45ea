//! The process that is checked: this one, or another by its id. Of another one: the library in it, its seccomp filter and its
//! right to perf events, from /proc. The calls of `system` are tried in this process.

use std::collections::BTreeMap;
use std::fs;

use spanprof_config::{process_environment, Environment};

use super::DoctorCheck;
use crate::failure::Failure;

/// Capabilities that permit perf events, by their bit (linux/capability.h).
const PERF_CAPABILITIES: [(u32, &str); 2] = [(38, "CAP_PERFMON"), (21, "CAP_SYS_ADMIN")];
/// Capability without a limit of locked memory.
const CAP_IPC_LOCK: u32 = 14;
/// The mapping by which a running copy of the profiler announces itself (`spanprof_os::announce_copy`).
const RUNNING_COPY: &str = "spanprof-copy";
/// Part of the path of the library in each package.
const LIBRARY: &str = "spanprof";

/// The process that is checked.
pub(super) struct Subject {
    /// `None` for this process.
    pub pid: Option<u32>,
    /// Fields of `/proc/PID/status`.
    status: BTreeMap<String, String>,
}

impl Subject {
    pub fn of(pid: Option<u32>) -> Result<Self, Failure> {
        let path = format!("{}/status", directory(pid));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // This process is checked without /proc too.
            Err(_) if pid.is_none() => String::new(),
            Err(error) => {
                return Err(Failure::new(format!("cannot read {path}: {error}"))
                    .hint("--pid expects the id of a running process, in the pid namespace of this command"))
            }
        };
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let status = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        Ok(Self { pid, status })
    }

    /// The text of a file in the process's directory of /proc; the error for a message.
    pub fn read(&self, name: &str) -> Result<String, String> {
        let path = format!("{}/{name}", directory(self.pid));
        fs::read(&path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|error| format!("{path} is not readable: {error}"))
    }

    /// A field of `/proc/PID/status`.
    pub fn status(&self, name: &str) -> Option<&str> {
        self.status.get(name).map(String::as_str)
    }

    /// Number of open descriptors.
    pub fn descriptors(&self) -> Option<usize> {
        fs::read_dir(format!("{}/fd", directory(self.pid))).ok().map(Iterator::count)
    }

    /// The variables with which the process began.
    pub fn environment(&self) -> Result<Environment, Failure> {
        if self.pid.is_none() {
            return Ok(process_environment());
        }
        let failed =
            |reason| Failure::new(reason).hint("run `spanprof doctor --pid` as the user of the process, or as root");
        let text = self.read("environ").map_err(failed)?;
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn has_capability(&self, bit: u32) -> bool {
        let set = self.status("CapEff").and_then(|text| u64::from_str_radix(text, 16).ok());
        set.is_some_and(|set| set >> bit & 1 != 0)
    }

    /// Whether memory that it locks has no limit.
    pub fn locks_without_limit(&self) -> bool {
        self.has_capability(CAP_IPC_LOCK)
    }
}

fn directory(pid: Option<u32>) -> String {
    pid.map_or_else(|| "/proc/self".to_owned(), |pid| format!("/proc/{pid}"))
}

/// The checks of another process; none of this one.
pub(super) fn checks(subject: &Subject) -> Vec<DoctorCheck> {
    match subject.pid {
        Some(pid) => vec![library(subject, pid), perf_right(subject), filter(subject)],
        None => Vec::new(),
    }
}

fn library(subject: &Subject, pid: u32) -> DoctorCheck {
    const CHECK: &str = "process";
    let name = subject.status("Name").unwrap_or("?");
    let maps = match subject.read("maps") {
        Ok(maps) => maps,
        Err(reason) => {
            return DoctorCheck::limited(
                CHECK,
                reason,
                "whether the library is loaded is unknown",
                "run `spanprof doctor --pid` as the user of the process, or as root",
            )
        }
    };
    if maps.contains(RUNNING_COPY) {
        return DoctorCheck::ok(CHECK, format!("{name} ({pid}) runs the profiler"), "samples are taken");
    }
    let loaded = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        let file = path.rsplit('/').next()?;
        (file.contains(LIBRARY) && file.contains(".so") || file.ends_with(".node") && path.contains(LIBRARY))
            .then_some(path)
    });
    match loaded {
        Some(path) => DoctorCheck::problem(
            CHECK,
            format!("{name} ({pid}) has loaded {path}, and no profiler runs"),
            "no profile is taken",
            "call start(); its log line and `state` in stats() name the reason if it did not start",
        ),
        None => DoctorCheck::problem(
            CHECK,
            format!("{name} ({pid}) has no library of spanprof"),
            "no profile is taken",
            "start the program with spanprof: `spanprof run app.py`, `node --import spanprof/register app.mjs`, `java \
             -javaagent:spanprof.jar -jar app.jar`, or a call of start(); see docs/start/README.md",
        ),
    }
}

fn perf_right(subject: &Subject) -> DoctorCheck {
    const CHECK: &str = "process_perf";
    let held: Vec<&str> =
        PERF_CAPABILITIES.into_iter().filter(|(bit, _)| subject.has_capability(*bit)).map(|(_, name)| name).collect();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let level = paranoid.trim().parse::<i32>().ok();
    let paranoid = level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    let found = match held.as_slice() {
        [] => format!("no CAP_PERFMON; kernel.perf_event_paranoid is {paranoid}"),
        held => format!("{}; kernel.perf_event_paranoid is {paranoid}", held.join(", ")),
    };
    match !held.is_empty() || level.is_some_and(|level| level < 2) {
        true => {
            DoctorCheck::ok(CHECK, found, "the process may open perf events, if its seccomp filter allows the call")
        }
        false => DoctorCheck::limited(
            CHECK,
            found,
            "thread timers take the CPU samples of the process",
            super::system::ALLOW_PERF,
        ),
    }
}

fn filter(subject: &Subject) -> DoctorCheck {
    const CHECK: &str = "process_seccomp";
    let field = |name| subject.status(name).unwrap_or("unknown");
    let found = format!("Seccomp {}, NoNewPrivs {}", field("Seccomp"), field("NoNewPrivs"));
    match field("Seccomp") {
        "0" => DoctorCheck::ok(CHECK, found, "no filter refuses a call of the profiler"),
        _ => DoctorCheck::limited(
            CHECK,
            found,
            "a filter can refuse calls of the profiler; which ones is visible inside it only",
            "run `spanprof doctor` without --pid in the container or unit of the process (docker exec, kubectl exec)",
        ),
    }
}
