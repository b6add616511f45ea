//! Follows the threads of a program by ptrace, counts the calls of the profiler and makes one of them fail.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::Child;

use nix::libc::{self, c_long};
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::process::{wait, WaitOptions};

use super::calls::OF_RUNTIMES;
use super::Fault;

/// An event stop of a thread that a tracer has seized.
const EVENT_STOP: i32 = 128;

/// No runtime makes these.
const PROFILER_ONLY: &[c_long] =
    &[libc::SYS_perf_event_open, libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_delete];

/// Their functions in the C library have no frame, in which addresses of earlier calls would lie: the stack shows the caller.
const WITHOUT_FRAME: &[c_long] = &[libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_madvise];

/// Bytes of the stack in which the caller of a function of the C library is found.
const STACK_BYTES: usize = 2048;

/// The calls that tell whether a file exists, and the position of its path among the arguments.
const MARKS: &[(c_long, usize)] = &[
    (libc::SYS_stat, 0),
    (libc::SYS_access, 0),
    (libc::SYS_newfstatat, 1),
    (libc::SYS_faccessat, 1),
    (libc::SYS_faccessat2, 1),
    (libc::SYS_statx, 1),
];

#[derive(Default)]
struct Thread {
    /// Created by the profiler.
    is_own: bool,
    /// Between two marks.
    is_marked: bool,
    /// Nested handlers of the profiler's signal.
    handlers: u32,
    is_in_call: bool,
    /// The error of the current call, which was not made.
    error: Option<i32>,
}

impl Thread {
    fn is_profiling(&self) -> bool {
        self.is_own || self.is_marked || self.handlers > 0
    }
}

/// Makes calls fail while the program runs.
pub struct Tracer {
    main: Pid,
    threads: HashMap<Pid, Thread>,
    /// New threads that wait for the event of their creation.
    waiting: HashSet<Pid>,
    fault: Option<Fault>,
    /// The code of the profiler's library, read after each marked part. The Rust program is linked with the profiler.
    library: Vec<Range<u64>>,
    /// The calls of the profiler.
    pub counts: BTreeMap<c_long, u32>,
    /// Whether a call has failed.
    pub was_injected: bool,
}

impl Tracer {
    /// Stops every thread of the process and continues it under the tracer.
    pub fn attach(child: &Child, fault: Option<Fault>) -> nix::Result<Self> {
        let main = Pid::from_raw(child.id() as i32);
        let mut tracer = Self {
            main,
            threads: HashMap::new(),
            waiting: HashSet::new(),
            fault,
            library: Vec::new(),
            counts: BTreeMap::new(),
            was_injected: false,
        };
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_EXITKILL;
        loop {
            let tasks = std::fs::read_dir(format!("/proc/{main}/task")).map_err(|_| nix::Error::ESRCH)?;
            let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
            let new: Vec<_> = ids.filter(|id| !tracer.threads.contains_key(id)).collect();
            if new.is_empty() {
                return Ok(tracer);
            }
            for id in new {
                // EPERM: it was created by a seized thread meanwhile. ESRCH: it has ended.
                if ptrace::seize(id, options).is_ok() {
                    ptrace::interrupt(id)?;
                }
                tracer.threads.insert(id, Thread::default());
            }
        }
    }

    /// Follows all threads to the end of the process and its children; returns the status of the process.
    pub fn run(&mut self) -> String {
        let all_threads = WaitOptions::from_bits_retain((libc::__WALL | libc::__WNOTHREAD) as u32);
        let mut ended = "lost".to_owned();
        while let Ok(Some((id, status))) = wait(all_threads) {
            let id = Pid::from_raw(id.as_raw_nonzero().get());
            if let Some(signal) = status.stopping_signal() {
                self.stopped(id, signal, status.as_raw() >> 16);
                continue;
            }
            self.threads.remove(&id);
            if id == self.main {
                ended = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("status {code}"),
                    (_, signal) => format!("signal {}", signal.unwrap_or_default()),
                };
            }
        }
        ended
    }

    fn stopped(&mut self, id: Pid, signal: i32, event: i32) {
        if !self.threads.contains_key(&id) {
            self.waiting.insert(id);
            return;
        }
        let is_creation = [Event::PTRACE_EVENT_CLONE, Event::PTRACE_EVENT_FORK, Event::PTRACE_EVENT_VFORK]
            .iter()
            .any(|e| *e as i32 == event);
        let mut delivered = None;
        if is_creation {
            self.created(id, event);
        } else if signal == libc::SIGTRAP | 0x80 {
            self.call(id);
        } else if event == 0 {
            delivered = Signal::try_from(signal).ok();
            if let Some(thread) = self.threads.get_mut(&id).filter(|_| signal == libc::SIGURG) {
                thread.handlers += 1;
            }
        }
        // ESRCH: it was killed meanwhile, and the next status is its end.
        let _ = ptrace::syscall(id, delivered);
        debug_assert!(event == 0 || is_creation || event == EVENT_STOP, "{event}");
    }

    fn created(&mut self, creator: Pid, event: i32) {
        let Ok(id) = ptrace::getevent(creator).map(|id| Pid::from_raw(id as i32)) else { return };
        let Some(creator) = self.threads.get(&creator) else { return };
        // A child process continues between the marks; a new thread belongs to the profiler altogether.
        let is_process = event != Event::PTRACE_EVENT_CLONE as i32;
        // The hooks of a fork in the Rust program, up to the child's first own call.
        let runs_hooks = event == Event::PTRACE_EVENT_FORK as i32 && self.library.is_empty();
        let thread = Thread {
            is_own: creator.is_own || (!is_process && creator.is_profiling()),
            is_marked: is_process && (creator.is_marked || runs_hooks),
            ..Thread::default()
        };
        self.threads.insert(id, thread);
        if self.waiting.remove(&id) {
            let _ = ptrace::syscall(id, None);
        }
    }

    /// A thread enters or leaves a call.
    fn call(&mut self, id: Pid) {
        let hits_runtime = self.fault.is_some_and(|fault| fault.is_of_runtime);
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let Ok(mut registers) = ptrace::getregs(id) else { return };
        thread.is_in_call = !thread.is_in_call;
        if !thread.is_in_call {
            if let Some(error) = thread.error.take() {
                registers.rax = -i64::from(error) as u64;
                let _ = ptrace::setregs(id, registers);
            }
            return;
        }
        let call = registers.orig_rax as c_long;
        if call == libc::SYS_rt_sigreturn {
            thread.handlers = thread.handlers.saturating_sub(1);
        }
        if call == libc::SYS_dup2 {
            thread.is_marked = false;
        }
        if let Some((_, position)) = MARKS.iter().find(|(number, _)| *number == call) {
            match path_at(id, [registers.rdi, registers.rsi][*position]).as_slice() {
                b"/faults/begin" => thread.is_marked = true,
                b"/faults/end" => {
                    thread.is_marked = false;
                    let code = code_of(id).into_iter().filter(|(_, file)| is_library(file));
                    self.library = code.map(|(range, _)| range).collect();
                }
                _ => {}
            }
        }
        // Wakeups, by a futex or an event descriptor, have no error that valid arguments give. A fork is the program's.
        let is_wake = call == libc::SYS_futex && ![0, 9].contains(&(registers.rsi & 0x7f))
            || [libc::SYS_read, libc::SYS_write].contains(&call) && registers.rdx == 8;
        let is_fork = call == libc::SYS_clone && registers.rdi & libc::CLONE_VM as u64 == 0;
        if is_wake || is_fork {
            return;
        }
        let is_candidate = hits_runtime
            || thread.is_profiling()
            || PROFILER_ONLY.contains(&call)
            || (WITHOUT_FRAME.contains(&call) && is_of_library(id, &self.library, registers.rsp));
        if !is_candidate || is_of_runtime(id, call, &registers) != hits_runtime {
            return;
        }
        let count = self.counts.entry(call).or_default();
        *count += 1;
        let is_due =
            |fault: &Fault| fault.call == call && (fault.nth == *count || fault.is_lasting && fault.nth < *count);
        if let Some(fault) = self.fault.filter(is_due) {
            self.was_injected = true;
            thread.error = Some(fault.error);
            // A descriptor is closed whatever the call returns.
            if call != libc::SYS_close {
                registers.orig_rax = u64::MAX;
                let _ = ptrace::setregs(id, registers);
            }
        }
    }
}

/// Whether a runtime makes a call for memory, threads or classes of its own. V8, libuv and HotSpot end the process where it fails, as
/// does Rust where the C library's allocator has no memory; `libjimage` returns a class that it could not read.
fn is_of_runtime(id: Pid, call: c_long, registers: &libc::user_regs_struct) -> bool {
    if !OF_RUNTIMES.contains(&call) {
        return false;
    }
    let is_stack = call == libc::SYS_mmap && registers.r10 & libc::MAP_STACK as u64 != 0;
    let Some((file, is_direct)) = caller(id, registers.rsp) else { return false };
    match (file.as_str(), call) {
        ("node", _) => call != libc::SYS_pread64,
        ("libjvm.so", libc::SYS_mmap) => !is_stack,
        ("libjvm.so", libc::SYS_mprotect) => is_direct,
        ("libjimage.so", libc::SYS_pread64) => true,
        ("spanprof-live", libc::SYS_mmap) => !is_direct && !is_stack,
        _ => false,
    }
}

/// Whether the profiler's library makes a call. The files of all code are read only if an address of it is on the stack.
fn is_of_library(id: Pid, library: &[Range<u64>], stack: u64) -> bool {
    words_at(id, stack).any(|word| library.iter().any(|range| range.contains(&word)))
        && caller(id, stack).is_some_and(|(file, _)| is_library(&file))
}

fn is_library(file: &str) -> bool {
    file.contains("spanprof") && file != "spanprof-live"
}

/// The file of the innermost caller outside the C library, and whether it made the call without the C library's code in between: the
/// functions for these calls have no frame, so the first address of code on the stack is their return address.
fn caller(id: Pid, stack: u64) -> Option<(String, bool)> {
    let code = code_of(id);
    let files = words_at(id, stack).filter_map(|word| code.iter().find(|(range, _)| range.contains(&word)));
    let mut callers =
        files.enumerate().filter(|(_, (_, file))| !file.starts_with("libc.so") && !file.starts_with("ld-linux"));
    callers.next().map(|(position, (_, file))| (file.clone(), position == 0))
}

/// The words at the top of a stack.
fn words_at(id: Pid, stack: u64) -> impl Iterator<Item = u64> {
    let mut bytes = [0; STACK_BYTES];
    let read = read_at(id, stack, &mut bytes) / 8;
    (0..read).map(move |word| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[word * 8 + byte])))
}

/// The addresses and files of a process's code.
fn code_of(id: Pid) -> Vec<(Range<u64>, String)> {
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
    maps.lines().filter_map(code_of_line).collect()
}

/// The addresses and the name of the file of a line of `maps`, if it maps code.
fn code_of_line(line: &str) -> Option<(Range<u64>, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (start, end) = words.first()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let file = words.get(5).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    words.get(1)?.contains('x').then_some((address(start)?..address(end)?, file.to_owned()))
}

/// The beginning of the text at an address of a process.
fn path_at(id: Pid, address: u64) -> Vec<u8> {
    let mut bytes = [0; 16];
    let read = read_at(id, address, &mut bytes);
    bytes[..read].split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn read_at(id: Pid, address: u64, bytes: &mut [u8]) -> usize {
    File::open(format!("/proc/{id}/mem")).and_then(|memory| memory.read_at(bytes, address)).unwrap_or(0)
}
