//! Whether a thread runs or waits, and for what, from /proc/self/task/*/syscall and schedstat. Reads files: never called in a
//! handler. A process may read these files of its own threads (`ptrace_may_access`, `same_thread_group`, in the kernel's
//! kernel/ptrace.c, Linux 3.2–6.18), unless it is not dumpable, or /proc is hidden.

use spanprof_signal::SyntheticFrame;
use std::io::Read;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// It has a processor, or could use one.
    Runnable,
    /// It waits, for this reason if that is known.
    Waiting(Option<SyntheticFrame>),
}

/// The system call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCallWait {
    pub number: libc::c_long,
    /// The thread's stack pointer.
    pub stack_pointer: u64,
    /// The address after the instruction of the call.
    pub pc: u64,
}

/// Longest content of a file: ten hexadecimal words, or three decimal ones.
const MAX_BYTES: usize = 256;

/// The state of a thread; `None` when it ended, or the kernel does not show it.
pub fn thread_state(thread_id: u32) -> Option<ThreadState> {
    let mut buffer = [0; MAX_BYTES];
    parse_state(read(thread_id, "syscall", &mut buffer)?)
}

/// The system call in which a thread waits; `None` if it runs, ended, waits outside of a call, or the kernel does not show it.
pub fn system_call_wait(thread_id: u32) -> Option<SystemCallWait> {
    let mut buffer = [0; MAX_BYTES];
    parse_wait(read(thread_id, "syscall", &mut buffer)?)
}

/// Whether a thread waits in a system call that returns EINTR after a signal handler, even with SA_RESTART: the calls in
/// signal(7), "Interruption of system calls and library functions by signal handlers". Programs often take this for the end of the
/// wait, and a restart would begin the timeout again. Not `epoll_wait`: event loops handle its EINTR. Calls on sockets return it only
/// if they have a timeout, which the kernel does not show.
pub fn signal_ends_wait(thread_id: u32) -> bool {
    system_call_wait(thread_id).is_some_and(|wait| NEVER_RESTARTED.contains(&wait.number))
}

const NEVER_RESTARTED: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_io_getevents,
];

/// Time for which a thread could run but had no processor, since its start; `None` when the kernel does not count it.
pub fn run_delay_ns(thread_id: u32) -> Option<u64> {
    let mut buffer = [0; MAX_BYTES];
    parse_run_delay(read(thread_id, "schedstat", &mut buffer)?)
}

fn read<'b>(thread_id: u32, name: &str, buffer: &'b mut [u8; MAX_BYTES]) -> Option<&'b str> {
    let mut file = std::fs::File::open(format!("/proc/self/task/{thread_id}/{name}")).ok()?;
    let len = file.read(buffer).ok()?;
    std::str::from_utf8(buffer.get(..len)?).ok()
}

/// `running`, or the number of the system call and its six arguments, or -1 outside of a call (fs/proc/base.c,
/// `proc_pid_syscall`).
fn parse_state(text: &str) -> Option<ThreadState> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(ThreadState::Runnable);
    }
    let number = first.parse::<libc::c_long>().ok()?;
    let mut arguments = words.map(|word| word.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()));
    let first_two = [arguments.next().flatten(), arguments.next().flatten()];
    Some(ThreadState::Waiting(reason(number, first_two)))
}

/// Number, six arguments, stack pointer and program counter; -1 and the last two outside of a call.
fn parse_wait(text: &str) -> Option<SystemCallWait> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse::<libc::c_long>().ok().filter(|number| *number >= 0)?;
    let mut addresses = words.skip(6).map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    Some(SystemCallWait { number, stack_pointer: addresses.next()??, pc: addresses.next()?? })
}

/// CPU time, run delay and number of runs (fs/proc/base.c, `proc_pid_schedstat`); all are 0 without CONFIG_SCHED_INFO.
fn parse_run_delay(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let [_, delay_ns, runs] = [words.next()??, words.next()??, words.next()??];
    (runs > 0).then_some(delay_ns)
}

/// Why a thread waits in a system call. A call that waits for none of its descriptors, as some languages implement sleeping,
/// is a sleep.
fn reason(number: libc::c_long, arguments: [Option<u64>; 2]) -> Option<SyntheticFrame> {
    let watches = |count: Option<u64>| if count == Some(0) { SyntheticFrame::Sleep } else { SyntheticFrame::Io };
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_select => return Some(watches(arguments[0])),
        libc::SYS_poll => return Some(watches(arguments[1])),
        libc::SYS_epoll_wait | libc::SYS_open => return Some(SyntheticFrame::Io),
        _ => {}
    }
    Some(match number {
        libc::SYS_futex | SYS_FUTEX_WAITV | SYS_FUTEX_WAIT | libc::SYS_flock => SyntheticFrame::Lock,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => SyntheticFrame::Sleep,
        libc::SYS_pselect6 => watches(arguments[0]),
        libc::SYS_ppoll => watches(arguments[1]),
        libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_preadv2 => {
            SyntheticFrame::Io
        }
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            SyntheticFrame::Io
        }
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => SyntheticFrame::Io,
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg | libc::SYS_sendfile => SyntheticFrame::Io,
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_connect => SyntheticFrame::Io,
        libc::SYS_epoll_pwait | SYS_EPOLL_PWAIT2 | libc::SYS_io_getevents | SYS_IO_URING_ENTER => SyntheticFrame::Io,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_openat | libc::SYS_splice => SyntheticFrame::Io,
        _ => return None,
    })
}

// Numbers above 400 are the same on every architecture (the kernel's scripts/syscall.tbl).
const SYS_IO_URING_ENTER: libc::c_long = 426;
const SYS_EPOLL_PWAIT2: libc::c_long = 441;
const SYS_FUTEX_WAITV: libc::c_long = 449;
const SYS_FUTEX_WAIT: libc::c_long = 455;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::{mpsc, Arc, Mutex};
    use std::time::{Duration, Instant};

    #[test]
    fn a_line_of_the_kernel_becomes_a_state() {
        let call =
            |number: libc::c_long, arguments: &str| parse_state(&format!("{number} {arguments} 0x7f00 0x7f01\n"));
        let waiting = |reason| Some(ThreadState::Waiting(Some(reason)));
        assert_eq!(parse_state("running\n"), Some(ThreadState::Runnable));
        assert_eq!(parse_state("-1 0x7ffc 0x7f4c\n"), Some(ThreadState::Waiting(None)), "waits outside of a call");
        assert_eq!(call(libc::SYS_futex, "0x55 0x189"), waiting(SyntheticFrame::Lock));
        assert_eq!(call(libc::SYS_pselect6, "0x0 0x0"), waiting(SyntheticFrame::Sleep));
        assert_eq!(call(libc::SYS_pselect6, "0x4 0x7f"), waiting(SyntheticFrame::Io));
        assert_eq!(call(libc::SYS_ppoll, "0x7f 0x0"), waiting(SyntheticFrame::Sleep));
        assert_eq!(call(libc::SYS_wait4, "0x7f 0x0"), Some(ThreadState::Waiting(None)));
        assert_eq!([parse_state(""), parse_state("0x1")], [None, None]);
        let wait = parse_wait("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc 0x7f4c\n");
        let expected = SystemCallWait { number: 202, stack_pointer: 0x7ffc, pc: 0x7f4c };
        assert_eq!(wait, Some(expected));
        assert_eq!(["running\n", "-1 0x7ffc 0x7f4c\n", "202 0x1", ""].map(parse_wait), [None; 4]);
        assert_eq!(parse_run_delay("47431 50305 4\n"), Some(50305));
        assert_eq!([parse_run_delay("0 0 0\n"), parse_run_delay("1 2")], [None, None]);
    }

    /// The first state of a new thread that `is_expected`, or the last one after a minute.
    fn state_of(body: impl FnOnce() + Send + 'static, is_expected: impl Fn(ThreadState) -> bool) -> ThreadState {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            sender.send(crate::threads::listing::thread_id()).unwrap();
            body();
        });
        let thread_id = receiver.recv().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let state = thread_state(thread_id).unwrap();
            if is_expected(state) || Instant::now() > deadline {
                return state;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_live_thread_shows_the_reason_of_its_wait() {
        let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let other = lock.clone();
        let read = move || {
            let mut byte = [0u8; 1];
            // SAFETY: reads at most one byte into a local; the descriptor belongs to this closure.
            unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
        };
        let waits = |reason| ThreadState::Waiting(Some(reason));
        let expect = |state| move |it| it == state;
        let io = waits(SyntheticFrame::Io);
        assert_eq!(state_of(read, expect(io)), io);
        let sleep = waits(SyntheticFrame::Sleep);
        assert_eq!(state_of(|| std::thread::sleep(Duration::from_secs(100)), expect(sleep)), sleep);
        let waits_for_lock = waits(SyntheticFrame::Lock);
        assert_eq!(state_of(move || drop(other.lock()), expect(waits_for_lock)), waits_for_lock);
        let begun = Instant::now();
        let spin = move || while begun.elapsed() < Duration::from_secs(2) {};
        assert_eq!(state_of(spin, expect(ThreadState::Runnable)), ThreadState::Runnable);
        drop(held);
    }
}
