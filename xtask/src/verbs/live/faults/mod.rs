//! System calls of the profiler that fail: output and status of the program must be those without the profiler. A tracer (ptrace)
//! attaches before `start()`. It counts the profiler's calls, then runs the program once for each fault: the N-th call of a kind
//! fails, or each one from the N-th on, with each error of its manual page that valid arguments can give.
//!
//! Calls are the profiler's between the marks of the program, in threads that were created there, in handlers of the profiler's
//! signal, in hooks of a fork, for memory in its library, and where no runtime makes them. A runtime's own calls for memory, threads
//! and classes are left out, also between the marks: the complete run shows that the program without the profiler ends where these
//! fail. Of the N-th calls, those up to the 16th and the powers of two fail: the size of a list depends on the windows that the
//! program delivers. Not here: the limits of the process. Requires x86-64.

mod calls;
mod tracer;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::libc::{self, c_long};
use rustix::process::kill_process_group;

use calls::{CALLS, INFALLIBLE, OF_RUNTIMES};
use tracer::Tracer;

use crate::arguments::LiveArguments;
use crate::scratch;
use crate::step::{all_passed, StepFailure, StepResult};
use crate::verbs::live::suite_program::SuiteProgram;

/// A run of the program takes one second beside others.
const LIMIT: Duration = Duration::from_secs(60);
/// Programs that run at the same time.
const AT_ONCE: usize = 2;
/// Faults beyond this count of calls of one kind are those of its doublings.
const EACH_UP_TO: u32 = 16;
/// Distance of the faults that run one after the other: a part of the list has faults of each kind of call.
const STRIDE: usize = 41;

/// The `nth` call of the profiler fails, or each one from it on.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: c_long,
    nth: u32,
    error: i32,
    is_lasting: bool,
    /// The runtime's own calls fail instead, in all threads.
    is_of_runtime: bool,
}

/// What a program left, and the calls of the profiler.
struct Run {
    /// Status and output.
    outcome: String,
    errors: String,
    counts: BTreeMap<c_long, u32>,
    was_injected: bool,
}

/// Builds the package and the program of a language.
type Prepare = fn() -> StepResult<SuiteProgram>;

const PROGRAMS: [(&str, Prepare); 4] = [
    ("python", || SuiteProgram::python("faults", "program.py")),
    ("node", || SuiteProgram::node("faults", "program.js")),
    ("java", || SuiteProgram::java("faults", "Program.java")),
    ("rust", || SuiteProgram::rust("faults")),
];

/// Every fault, or as many as begin within the given seconds for each language and setting.
pub fn run(arguments: &LiveArguments) -> StepResult {
    let limit = arguments.seconds.map_or(Duration::MAX, Duration::from_secs);
    let spread = |_: usize, faults: Vec<Fault>| -> Vec<Fault> {
        (0..STRIDE).flat_map(|first| faults.iter().skip(first).step_by(STRIDE)).copied().collect()
    };
    let programs = prepare(|language| arguments.has_cell(language))?;
    programs.iter().try_for_each(SuiteProgram::end_without_calls_of_runtime)?;
    all(&programs, &["default", "all"], limit, &spread)
}

/// The faults of CI: each kind of call fails in one language, lastingly where it has an error that lasts.
pub fn short() -> StepResult {
    all(&prepare(|_| true)?, &["all"], Duration::MAX, &|position, faults| {
        let of_each_call = faults.chunk_by(|one, next| one.call == next.call);
        let of_language = of_each_call.filter(|of_call| of_call[0].call as usize % PROGRAMS.len() == position);
        of_language.filter_map(|of_call| of_call.iter().rfind(|fault| fault.nth == 1)).copied().collect()
    })
}

/// Builds the programs before the first fault.
fn prepare(is_chosen: impl Fn(&str) -> bool) -> StepResult<Vec<SuiteProgram>> {
    PROGRAMS.iter().filter(|(language, _)| is_chosen(language)).map(|(_, prepare)| prepare()).collect()
}

/// Runs the faults that are chosen of each program by its position.
fn all(
    programs: &[SuiteProgram],
    profiles: &[&str],
    limit: Duration,
    choose: &dyn Fn(usize, Vec<Fault>) -> Vec<Fault>,
) -> StepResult {
    let receiver = receive()?;
    let mut failed = Vec::new();
    for (position, program) in programs.iter().enumerate() {
        for profiles in profiles {
            let name = format!("{}, profiles={profiles}", program.language);
            let settings = [("SPANPROF_PROFILES", *profiles), ("SPANPROF_ENDPOINT", &receiver)];
            let bare = program.run_traced("bare", 0, &settings, None)?;
            let counted = program.run_traced("profiled", 0, &settings, None)?;
            let is_delivered = counted.counts.contains_key(&libc::SYS_linkat);
            if counted.outcome != bare.outcome || !is_delivered {
                let problem =
                    format!("without a fault, delivered {is_delivered}: {}\n{}", counted.outcome, counted.errors);
                return Err(StepFailure::new(name, problem));
            }
            let faults = choose(position, faults(&counted.counts)?);
            println!("{name}: {} faults in {} kinds of calls", faults.len(), counted.counts.len());
            failed.extend(program.failures(&name, &settings, &bare.outcome, &faults, limit)?);
        }
    }
    all_passed("live faults", &failed)
}

/// Every fault of the counted calls.
fn faults(counts: &BTreeMap<c_long, u32>) -> StepResult<Vec<Fault>> {
    let mut faults = Vec::new();
    for (call, count) in counts.iter().filter(|(call, _)| !INFALLIBLE.contains(call)) {
        let Some((_, _, errors)) = CALLS.iter().find(|(number, ..)| number == call) else {
            return Err(StepFailure::new("live faults", format!("system call {call} has no row in `calls!`")));
        };
        let numbers: Vec<u32> = (1..=*count).filter(|nth| *nth <= EACH_UP_TO || nth.is_power_of_two()).collect();
        for nth in numbers {
            for (error, _) in *errors {
                faults.push(Fault { call: *call, nth, error: *error, is_lasting: false, is_of_runtime: false });
            }
            // A wait that is interrupted without end does not exist.
            if let Some((error, _)) = errors.iter().find(|(e, _)| nth.is_power_of_two() && *e != libc::EINTR) {
                faults.push(Fault { call: *call, nth, error: *error, is_lasting: true, is_of_runtime: false });
            }
        }
    }
    Ok(faults)
}

impl Fault {
    fn name(&self) -> String {
        let call = CALLS.iter().find(|(number, ..)| *number == self.call);
        let error = call.and_then(|call| call.2.iter().find(|(error, _)| *error == self.error));
        let call = call.map_or("", |call| call.1.trim_start_matches("SYS_"));
        format!("{call} {}{} {}", self.nth, if self.is_lasting { "+" } else { "" }, error.map_or("", |error| error.1))
    }
}

impl SuiteProgram {
    /// Fails if the program without the profiler survives failures of a call of its runtime: these are left out of the faults.
    fn end_without_calls_of_runtime(&self) -> StepResult {
        let expected = self.run_traced("bare", 0, &[], None)?.outcome;
        for (call, _, errors) in CALLS.iter().filter(|(call, ..)| OF_RUNTIMES.contains(call)) {
            let fault = Fault { call: *call, nth: 1, error: errors[0].0, is_lasting: true, is_of_runtime: true };
            let run = self.run_traced("bare", 0, &[], Some(fault))?;
            if run.was_injected {
                let outcome = run.outcome.lines().next().unwrap_or_default();
                println!("{} without profiler, calls of the runtime, {}: {outcome}", self.language, fault.name());
                if run.outcome == expected {
                    return Err(StepFailure::new(fault.name(), "the program survives it: do not leave it out"));
                }
            }
        }
        Ok(())
    }

    /// Runs the program with each fault; returns the faults that changed it.
    fn failures(
        &self,
        name: &str,
        settings: &[(&str, &str)],
        expected: &str,
        faults: &[Fault],
        limit: Duration,
    ) -> StepResult<Vec<String>> {
        let (next, hits, begun) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
        let failed = Mutex::new(Vec::new());
        let run_next = |lane: usize| -> StepResult<()> {
            while begun.elapsed() < limit {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(fault) = faults.get(index) else { return Ok(()) };
                if index % 200 == 199 {
                    println!("{name}: {index} done");
                }
                let run = self.run_traced("profiled", lane, settings, Some(*fault))?;
                hits.fetch_add(usize::from(run.was_injected), Ordering::Relaxed);
                if run.was_injected && run.outcome != expected {
                    let problem = format!("{name}: {}: {}", fault.name(), run.outcome.replace('\n', " "));
                    let errors: Vec<_> = run.errors.lines().rev().take(20).collect();
                    println!("{problem}\n  {}", errors.into_iter().rev().collect::<Vec<_>>().join("\n  "));
                    failed.lock().unwrap_or_else(|held| held.into_inner()).push(problem);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..AT_ONCE).map(|lane| scope.spawn(move || run_next(lane))).collect();
            lanes
                .into_iter()
                .try_for_each(|lane| lane.join().unwrap_or_else(|_| Err(StepFailure::new(name, "panicked"))))
        })?;
        let ran = next.into_inner().min(faults.len());
        println!("{name}: {ran} faults ran, {} met their call", hits.into_inner());
        Ok(failed.into_inner().unwrap_or_else(|held| held.into_inner()))
    }

    /// Runs the program with a tracer from the line `ready` on.
    fn run_traced(&self, how: &str, lane: usize, settings: &[(&str, &str)], fault: Option<Fault>) -> StepResult<Run> {
        let failed = |error: std::io::Error| StepFailure::new(format!("trace {}", self.language), error.to_string());
        let directory = scratch::empty(&format!("live-faults-{}-{lane}", self.language))?;
        let errors = directory.join("stderr");
        let mut command = Command::new(&self.words[0]);
        // The JVM writes the report of a crash into the working directory.
        command.args(&self.words[1..]).arg(how).process_group(0).current_dir(&directory);
        command.env("DIRECTORY", directory.join("profiles")).env("SPANPROF_CPU_BUDGET", "0");
        // The marker of a crashed run, which would put the next one into safe mode, is removed with the directory.
        command.env("XDG_RUNTIME_DIR", &directory);
        command.envs(settings.iter().copied()).envs(self.variables.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors).map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut ready = String::new();
        output.read_line(&mut ready).map_err(failed)?;
        if ready.trim() != "ready" {
            let text = scratch::read(&errors)?;
            return Err(StepFailure::new(format!("start {}", self.language), format!("it is not ready: {text}")));
        }
        let mut tracer = Tracer::attach(&child, fault).map_err(|error| failed(error.into()))?;
        child.stdin.take().expect("piped").write_all(b"go\n").map_err(failed)?;
        let group = rustix::process::Pid::from_child(&child);
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            let is_hung = end.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if is_hung {
                let _ = kill_process_group(group, rustix::process::Signal::KILL);
            }
            is_hung
        });
        let status = tracer.run();
        drop(ended);
        let status = if watchdog.join().unwrap_or(false) { "hung".to_owned() } else { status };
        let mut text = String::new();
        output.read_to_string(&mut text).map_err(failed)?;
        // The JVM writes its own warnings to standard output.
        let text: String =
            text.lines().filter(|line| !line.contains("[warning]")).map(|line| format!("{line}\n")).collect();
        Ok(Run {
            outcome: format!("{status}: {text}"),
            errors: scratch::read(&errors)?,
            counts: tracer.counts,
            was_injected: tracer.was_injected,
        })
    }
}

/// The address of a receiver that accepts every request.
fn receive() -> StepResult<String> {
    let failed = |error: std::io::Error| StepFailure::new("receiver", error.to_string());
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(connection);
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let header = std::mem::take(&mut line).to_ascii_lowercase();
                    if let Some(value) = header.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap_or(0);
                    } else if header.trim().is_empty() {
                        let body = std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink());
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        if body.is_err() || reader.get_mut().write_all(answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    Ok(format!("http://{address}"))
}
