//! System calls of the profiler, from traces by strace. A program runs bare and profiled. SECURITY.md must list every kind of
//! call that only the profiled run makes. After the first window no further kind may appear, except those of [`LATER`] and
//! those that a child process probes at the start.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::verbs::demo;
use crate::verbs::live::suite_program::SuiteProgram;
use crate::{scratch, workspace};

/// Name of a missing file in the trace; later calls are made after the first window.
const MARK: &str = "\"/system-calls/later\"";
/// Kinds that may appear after the first window: a connection that fails, its end, a contended lock. Named in SECURITY.md.
const LATER: [&str; 3] = ["getsockopt", "sched_yield", "shutdown"];
/// A profiled JVM under strace takes some 20 s.
const LIMIT: Duration = Duration::from_secs(180);
/// Configurations: the perf clock where the kernel allows it, and timers; each kind of destination.
const RUNS: [ProfiledRun; 3] = [
    ProfiledRun { name: "auto, http", clock: "auto", protocol: Some("http/protobuf") },
    ProfiledRun { name: "thread_timer, grpc", clock: "thread_timer", protocol: Some("grpc") },
    ProfiledRun { name: "auto, file", clock: "auto", protocol: None },
];

/// Configuration of a profiled program.
struct ProfiledRun {
    name: &'static str,
    clock: &'static str,
    /// Protocol of the receiver; without one, windows go to files.
    protocol: Option<&'static str>,
}

/// Kinds of calls of one process and its children.
#[derive(Debug, Default, PartialEq, Eq)]
struct Trace {
    first: BTreeSet<String>,
    /// Calls after the mark.
    later: BTreeSet<String>,
}

/// Calls that SECURITY.md lists.
#[derive(Debug, PartialEq, Eq)]
struct DocumentedCalls {
    probed: BTreeSet<String>,
    ordinary: BTreeSet<String>,
}

pub fn run(_: &LiveArguments) -> StepResult {
    let listed = DocumentedCalls::read(&scratch::read(&workspace::root().join("SECURITY.md"))?)?;
    let directory = scratch::empty("live-system-calls")?;
    let ports = demo::Ports::free()?;
    let _receiver = demo::DemoServer::start(&artifact::command_line()?, &directory, &ports)?;
    let (mut failed, mut observed) = (Vec::new(), BTreeSet::new());
    let programs = [
        SuiteProgram::python("system-calls", "program.py")?,
        SuiteProgram::node("system-calls", "program.js")?,
        SuiteProgram::java("system-calls", "Program.java")?,
        SuiteProgram::rust("system-calls")?,
    ];
    for program in programs {
        let bare = program.traced("bare", &directory, "bare", &[])?;
        for run in RUNS {
            let name = format!("{}, {}", program.language, run.name);
            let trace = program.traced(&name, &directory, "profiled", &run.settings(&ports, &directory))?;
            let calls = trace.compared(&bare, &listed);
            println!("{name}: {} kinds beyond the bare program", calls.added.len());
            observed.extend(calls.added);
            for (kinds, problem) in
                [(calls.unlisted, "not in SECURITY.md"), (calls.late, "first made after the first window")]
            {
                if !kinds.is_empty() {
                    failed.push(format!("{name}: {problem}: {}", kinds.join(", ")));
                }
            }
        }
    }
    let unobserved: Vec<_> = listed.all().filter(|kind| !observed.contains(*kind)).map(String::as_str).collect();
    println!("listed but made by no profiled program, or also by the bare one: {}", unobserved.join(", "));
    if failed.is_empty() {
        Ok(())
    } else {
        Err(StepFailure::new("live system-calls", failed.join("\n")))
    }
}

impl ProfiledRun {
    /// Variables of the profiled program.
    fn settings(&self, ports: &demo::Ports, directory: &Path) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("SPANPROF_CLOCK", self.clock.to_owned()),
            ("SPANPROF_WALL", "true".to_owned()),
            ("SPANPROF_UPLOAD_INTERVAL", "1".to_owned()),
        ];
        match self.protocol {
            Some(protocol) => {
                let port = if protocol == "grpc" { ports.grpc } else { ports.http };
                settings.push(("SPANPROF_ENDPOINT", format!("http://localhost:{port}")));
                settings.push(("SPANPROF_PROTOCOL", protocol.to_owned()));
            }
            None => settings.push(("SPANPROF_FILE_DIRECTORY", directory.join("profiles").display().to_string())),
        }
        settings
    }
}

impl SuiteProgram {
    /// Runs it under strace.
    fn traced(&self, name: &str, directory: &Path, how: &str, settings: &[(&str, String)]) -> StepResult<Trace> {
        let file = directory.join(format!("{}.strace", self.language));
        let step = ProcessStep::new(format!("trace {} {name}", self.language), "strace")
            .install_hint("apt-get install strace")
            .args(["-f", "-qq", "-s", "200", "-o"])
            .arg(&file)
            .args(&self.words)
            .arg(how);
        let step = self.variables.iter().fold(step, |step, (key, value)| step.env(key, value));
        settings.iter().fold(step, |step, (key, value)| step.env(key, value)).time_limit(LIMIT).run()?;
        let text = std::fs::read(&file).map_err(|error| StepFailure::new("read the trace", error.to_string()))?;
        let trace = Trace::read(&String::from_utf8_lossy(&text));
        if trace.later.is_empty() {
            Err(StepFailure::new("read the trace", format!("{}: no call after `{MARK}`", file.display())))
        } else {
            Ok(trace)
        }
    }
}

/// Calls of a profiled run that the bare one does not make.
struct AddedCalls {
    added: BTreeSet<String>,
    unlisted: Vec<String>,
    late: Vec<String>,
}

impl Trace {
    fn read(text: &str) -> Self {
        let mut trace = Self::default();
        let mut is_later = false;
        for line in text.lines() {
            is_later |= line.contains(MARK);
            if let Some(kind) = kind_of(line) {
                if is_later { &mut trace.later } else { &mut trace.first }.insert(kind);
            }
        }
        trace
    }

    fn compared(&self, bare: &Trace, listed: &DocumentedCalls) -> AddedCalls {
        let is_in_bare = |kind: &&String| bare.first.contains(*kind) || bare.later.contains(*kind);
        let added: BTreeSet<String> = self.first.union(&self.later).filter(|kind| !is_in_bare(kind)).cloned().collect();
        let is_listed = |kind: &&String| listed.all().any(|listed| listed == *kind);
        let may_be_late = |kind: &String| listed.probed.contains(kind) || LATER.contains(&kind.as_str());
        let late = added.iter().filter(|kind| !self.first.contains(*kind) && !may_be_late(kind));
        AddedCalls {
            unlisted: added.iter().filter(|kind| !is_listed(kind)).cloned().collect(),
            late: late.cloned().collect(),
            added,
        }
    }
}

/// The kind of call in a line of strace: its name, for `prctl` with the operation. `None` for signals, process exits and
/// resumed calls.
fn kind_of(line: &str) -> Option<String> {
    let (_, call) = line.split_once(' ')?;
    let (name, arguments) = call.trim_start().split_once('(')?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    match name {
        "prctl" => Some(format!("prctl({})", arguments.split([',', ')', ' ']).next()?)),
        _ => Some(name.to_owned()),
    }
}

impl DocumentedCalls {
    /// The first columns of the two tables in the section on system calls.
    fn read(page: &str) -> StepResult<Self> {
        let section = page.split_once("## System calls").map_or("", |(_, rest)| rest);
        let section = section.split("\n## ").next().unwrap_or_default();
        let tables: Vec<BTreeSet<String>> = section
            .split("\n\n")
            .filter(|part| part.starts_with('|'))
            .map(|table| {
                let cells = table.lines().filter_map(|line| line.split('|').nth(1));
                cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
            })
            .collect();
        match <[_; 2]>::try_from(tables) {
            Ok([probed, ordinary]) => Ok(Self { probed, ordinary }),
            Err(tables) => {
                let message = format!("expected two tables of system calls, got {}", tables.len());
                Err(StepFailure::new("read SECURITY.md", message))
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.probed.iter().chain(&self.ordinary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(kinds: &[&str]) -> BTreeSet<String> {
        kinds.iter().map(|kind| (*kind).to_owned()).collect()
    }

    #[test]
    fn kinds_of_calls_are_read_from_a_trace_and_signals_are_none() {
        let trace = Trace::read(concat!(
            "12 openat(AT_FDCWD, \"/x\", O_RDONLY) = 3\n",
            "123   prctl(PR_SET_NAME, \"a\" <unfinished ...>\n",
            "12 --- SIGURG {si_signo=SIGURG, si_code=SI_TIMER} ---\n",
            "123   <... prctl resumed>)                    = 0\n",
            "12 newfstatat(AT_FDCWD, \"/system-calls/later\", 0x7ffc, 0) = -1 ENOENT (No such file or directory)\n",
            "12 gettid()                         = 12\n",
            "12 +++ exited with 0 +++\n",
        ));
        let expected = Trace { first: set(&["openat", "prctl(PR_SET_NAME)"]), later: set(&["newfstatat", "gettid"]) };
        assert_eq!(trace, expected);
    }

    #[test]
    fn unlisted_and_late_calls_are_found() {
        let listed =
            DocumentedCalls { probed: set(&["timer_create", "timer_delete"]), ordinary: set(&["fsync", "shutdown"]) };
        let bare = Trace { first: set(&["read"]), later: set(&["write"]) };
        let first = set(&["read", "timer_create", "bpf"]);
        let later = set(&["read", "write", "timer_delete", "shutdown", "fsync"]);
        let calls = Trace { first, later }.compared(&bare, &listed);
        assert_eq!(calls.unlisted, ["bpf"]);
        assert_eq!(calls.late, ["fsync"], "shutdown may be late, and timer_delete is probed");
    }

    #[test]
    fn the_tables_are_read_from_the_section_of_the_page() {
        let page = scratch::read(&workspace::root().join("SECURITY.md")).unwrap();
        let listed = DocumentedCalls::read(&page).unwrap();
        assert!(listed.probed.contains("prctl(PR_SET_NAME)") && listed.probed.contains("timer_delete"), "{listed:?}");
        assert!(LATER.iter().all(|kind| listed.ordinary.contains(*kind)), "{listed:?}");
        assert!(DocumentedCalls::read("# Security").is_err());
    }
}
