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
            self.created(id);
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

    fn created(&mut self, creator: Pid) {
        let Ok(id) = ptrace::getevent(creator).map(|id| Pid::from_raw(id as i32)) else { return };
        let Some(creator) = self.threads.get(&creator) else { return };
        // A child process continues between the marks; a new thread belongs to the profiler altogether.
        let is_process = std::fs::metadata(format!("/proc/{}/task/{id}", self.main)).is_err();
        let thread = Thread {
            is_own: creator.is_own || (!is_process && creator.is_profiling()),
            is_marked: is_process && creator.is_marked,
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
        if let Some((_, position)) = MARKS.iter().find(|(number, _)| *number == call) {
            match path_at(id, [registers.rdi, registers.rsi][*position]).as_slice() {
                b"/faults/begin" => thread.is_marked = true,
                b"/faults/end" => thread.is_marked = false,
                _ => {}
            }
        }
        // Wakeups, by a futex or an event descriptor, have no error that valid arguments give. A fork is the program's.
        let is_wake = call == libc::SYS_futex && ![0, 9].contains(&(registers.rsi & 0x7f))
            || [libc::SYS_read, libc::SYS_write].contains(&call) && registers.rdx == 8;
        let is_fork = call == libc::SYS_clone && registers.rdi & libc::CLONE_VM as u64 == 0;
        let is_candidate = hits_runtime || thread.is_profiling() || PROFILER_ONLY.contains(&call);
        if is_wake || is_fork || !is_candidate || is_of_runtime(id, call, &registers) != hits_runtime {
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

/// The file of the innermost caller outside the C library, and whether it made the call without the C library's code in between: the
/// functions for these calls have no frame, so the first address of code on the stack is their return address.
fn caller(id: Pid, stack: u64) -> Option<(String, bool)> {
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).ok()?;
    let code: Vec<(Range<u64>, &str)> = maps.lines().filter_map(code_of_line).collect();
    let mut bytes = [0; STACK_BYTES];
    let read = read_at(id, stack, &mut bytes);
    let addresses = bytes[..read].chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_ne_bytes);
    let files =
        addresses.filter_map(|word| code.iter().find(|(range, _)| range.contains(&word)).map(|(_, file)| *file));
    let mut callers =
        files.enumerate().filter(|(_, file)| !file.starts_with("libc.so") && !file.starts_with("ld-linux"));
    callers.next().map(|(position, file)| (file.to_owned(), position == 0))
}

/// The addresses and the name of the file of a line of `maps`, if it maps code.
fn code_of_line(line: &str) -> Option<(Range<u64>, &str)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (start, end) = words.first()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let file = words.get(5).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    words.get(1)?.contains('x').then_some((address(start)?..address(end)?, file))
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
