//! The perf task clock of one thread: a software event that counts the thread's CPU time with the precision of the
//! high-resolution timers. Arming it is `spanprof_signal::arm`.
//!
//! Its signal comes in one of two ways. A *trap* (Linux 6.1 and later) is sent when the thread is on its way back to the
//! program, so that no system call is ever cut short, and names the slot. Older kernels send a standard signal at the
//! overflow itself, which names the descriptor; a call that was about to sleep then returns EINTR.

use super::process;
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel's `perf_event_attr`: the first version, known to every kernel, and behind it what traps need.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    _unused: [u64; 7],
    signal_data: u64,
}

/// Sizes of the first version and of the one with traps.
const SIZE_FIRST: u32 = 64;
const SIZE_TRAP: u32 = 128;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const TRAP: u64 = 1 << 37;

/// Since this Linux a trap is sent from task work; those before it, since 5.13, sent it at the overflow itself.
const SAFE_TRAPS: (u32, u32) = (6, 1);

/// Whether the kernel gave us an event that traps; asked by the probe, once per start.
static TRAPS: AtomicBool = AtomicBool::new(false);

const TYPE_SOFTWARE: u32 = 1;
const TASK_CLOCK: u64 = 1;
const DISABLED: u64 = 1;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 8;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_ID: libc::c_ulong = 0x8008_2407;
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// An open event: the descriptor, and the kernel's id of the event behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub descriptor: u32,
    pub id: u64,
}

/// The signal that perf events send: `otherwise` where they cannot trap.
pub(super) fn signal(otherwise: libc::c_int) -> libc::c_int {
    if traps() {
        libc::SIGTRAP
    } else {
        otherwise
    }
}

/// Whether perf events cut no system call short.
pub(super) fn traps() -> bool {
    TRAPS.load(Ordering::Relaxed)
}

/// Opens a disabled task clock of `thread_id`, user and kernel time, whose signal goes to that thread, with `value` if it is
/// a trap. Else errno.
pub(super) fn open(thread_id: u32, signal: libc::c_int, period_ns: u64, value: usize) -> Result<Event, Error> {
    let traps = traps();
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: if traps { SIZE_TRAP } else { SIZE_FIRST },
        config: TASK_CLOCK,
        sample_period: period_ns,
        sample_type: 0,
        read_format: 0,
        flags: DISABLED | EXCLUDE_HYPERVISOR | if traps { REMOVE_ON_EXEC | TRAP } else { 0 },
        wakeup_events: 1,
        breakpoint_type: 0,
        config1: 0,
        _unused: [0; 7],
        signal_data: value as u64,
    };
    let (any_cpu, no_group) = (-1, -1);
    // SAFETY: the kernel reads `size` bytes of the attributes.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread_id as libc::pid_t,
            any_cpu,
            no_group,
            FLAG_CLOSE_ON_EXEC,
        )
    };
    if opened < 0 {
        return Err(Error::last_os_error());
    }
    let descriptor = opened as libc::c_int;
    let owner = [F_OWNER_TID, thread_id as libc::c_int];
    let mut id = 0u64;
    // SAFETY: a descriptor just opened; F_SETOWN_EX reads two ints, IOC_ID writes eight bytes.
    let ready = unsafe {
        (traps
            || libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC) == 0
                && libc::fcntl(descriptor, F_SETSIG, signal) == 0
                && libc::fcntl(descriptor, F_SETOWN_EX, owner.as_ptr()) == 0)
            && libc::syscall(libc::SYS_ioctl, descriptor, IOC_ID, &raw mut id) == 0
    };
    let event = Event { descriptor: descriptor as u32, id };
    if ready {
        return Ok(event);
    }
    let error = Error::last_os_error();
    // SAFETY: opened above and known to nobody else.
    unsafe { libc::close(descriptor) };
    Err(error)
}

/// Stops an event without closing it.
pub(super) fn disable(event: Event) {
    if is_still_ours(event) {
        // SAFETY: takes no argument; the descriptor is our event.
        unsafe { libc::syscall(libc::SYS_ioctl, event.descriptor, IOC_DISABLE, 0) };
    }
}

/// Closes an event, unless the host closed the descriptor behind our back and it is something else now. Safe in the
/// first moments of a forked child: two system calls.
pub(super) fn close(event: Event) {
    if is_still_ours(event) {
        // SAFETY: the descriptor is our event, just asked.
        unsafe { libc::close(event.descriptor as libc::c_int) };
    }
}

fn is_still_ours(event: Event) -> bool {
    let mut id = 0u64;
    // SAFETY: writes eight bytes to a local when the descriptor is a perf event; the number means nothing else that
    // writes more.
    let asked = unsafe { libc::syscall(libc::SYS_ioctl, event.descriptor, IOC_ID, &raw mut id) };
    asked == 0 && id == event.id
}

/// Whether the kernel lets us count user and kernel time of our own threads; the words say why not.
pub(super) fn probe(signal: libc::c_int) -> Result<(), String> {
    let open = |traps| {
        TRAPS.store(traps, Ordering::Relaxed);
        open(super::thread_id(), signal, 1_000_000, 0)
    };
    let trapped =
        if process::kernel_version() >= SAFE_TRAPS { open(true) } else { Err(Error::from_raw_os_error(libc::ENOSYS)) };
    match trapped.or_else(|_| open(false)) {
        Ok(event) => {
            close(event);
            Ok(())
        }
        Err(error) => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            let paranoid = paranoid.trim();
            Err(match paranoid {
                "" => format!("perf_event_open: {error}"),
                level => format!("perf_event_open: {error}, kernel.perf_event_paranoid is {level}"),
            })
        }
    }
}

/// Descriptors we may take: few enough that the host never runs out because of us.
pub(super) fn descriptor_budget() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit to a local.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if known {
        (limit.rlim_cur / 8).min(256) as usize
    } else {
        0
    }
}
