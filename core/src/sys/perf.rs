//! The perf task clock of one thread: a software event that counts the thread's CPU time with the precision of the
//! high-resolution timers. Arming it is `spanprof_signal::arm`.
//!
//! It notifies the thread in one of two ways:
//! - [`Notify::Signal`], the default: the kernel sends an ordinary signal at the overflow. It names the descriptor. A call
//!   that was about to sleep is restarted by the handler (`spanprof_signal`, module `restart`).
//! - [`Notify::Trap`]: the kernel sends SIGTRAP when the thread returns to user mode (`perf_event_attr.sigtrap`, Linux 6.1
//!   and later; 5.13 to 6.0 sent it at the overflow). It carries the slot. A trap that is pending during `execve` ends the
//!   new program (200 of 200 on Linux 6.18), so nothing chooses it but the explicit setting `clock=sigtrap`.
//!
//! Kernel time is counted too: an event that excludes it loses the system calls (30 % of a program in long calls shows as
//! 0.4 %). That needs CAP_PERFMON or `kernel.perf_event_paranoid` below 2.

use super::process;
use super::system_calls::{self, SystemCall};
use spanprof_signal::overflow;
use std::io::Error;

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
    _config2_and_branches: [u64; 2],
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    _unused: [u64; 3],
    signal_data: u64,
}

/// The version with traps. An older kernel takes it as long as what it does not know is zero.
const SIZE: u32 = 128;
/// `use_clockid`: the times of records are those of `clock`. Since Linux 4.1.
const USE_CLOCK: u64 = 1 << 25;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const TRAP: u64 = 1 << 37;

/// Since this Linux a trap is sent from task work.
const SAFE_TRAPS: (u32, u32) = (6, 1);

/// How an event notifies its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notify {
    /// This signal, at the overflow.
    Signal(libc::c_int),
    /// SIGTRAP, on the way back to user mode.
    Trap,
}

impl Notify {
    /// The number of the signal.
    pub fn signal(self) -> libc::c_int {
        match self {
            Self::Signal(signal) => signal,
            Self::Trap => libc::SIGTRAP,
        }
    }
}

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
    /// Address of the ring buffer, from which the handler knows whether to restart a call; 0 without one.
    pub ring: usize,
}

/// Opens a disabled task clock of `thread_id`, user and kernel time, that notifies that thread, with `value` if it is a
/// trap. Else errno.
pub(super) fn open(thread_id: u32, notify: Notify, period_ns: u64, value: usize) -> Result<Event, Error> {
    let traps = notify == Notify::Trap;
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: SIZE,
        config: TASK_CLOCK,
        sample_period: period_ns,
        sample_type: if traps { 0 } else { overflow::SAMPLE_TYPE },
        read_format: 0,
        flags: DISABLED | EXCLUDE_HYPERVISOR | if traps { REMOVE_ON_EXEC | TRAP } else { USE_CLOCK },
        wakeup_events: 1,
        breakpoint_type: 0,
        config1: 0,
        _config2_and_branches: [0; 2],
        sample_regs_user: if traps { 0 } else { overflow::REGISTERS },
        sample_stack_user: 0,
        clock: libc::CLOCK_MONOTONIC,
        _unused: [0; 3],
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
                && libc::fcntl(descriptor, F_SETSIG, notify.signal()) == 0
                && libc::fcntl(descriptor, F_SETOWN_EX, owner.as_ptr()) == 0)
            && libc::syscall(libc::SYS_ioctl, descriptor, IOC_ID, &raw mut id) == 0
    };
    let ring = if ready && !traps { map_ring(descriptor) } else { Some(0) };
    if let (true, Some(ring)) = (ready, ring) {
        return Ok(Event { descriptor: descriptor as u32, id, ring });
    }
    let error = Error::last_os_error();
    // SAFETY: opened above and known to nobody else.
    unsafe { libc::close(descriptor) };
    Err(error)
}

/// Maps an event's ring buffer to be read: the kernel then overwrites the oldest records.
fn map_ring(descriptor: libc::c_int) -> Option<usize> {
    // SAFETY: asks for new memory; touches none that exists.
    let ring = unsafe {
        libc::mmap(std::ptr::null_mut(), overflow::RING_BYTES, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
    };
    (ring != libc::MAP_FAILED).then_some(ring as usize)
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
    if event.ring != 0 {
        // SAFETY: mapped by `open`; no handler is in the slot any more.
        unsafe { libc::munmap(event.ring as *mut libc::c_void, overflow::RING_BYTES) };
    }
    close_descriptor(event);
}

/// The same in a forked child, which has no mapping of a ring buffer (VM_DONTCOPY, kernel/events/core.c).
pub(super) fn close_descriptor(event: Event) {
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

/// Whether the kernel lets us count user and kernel time of our own threads; the error says why not.
pub(super) fn probe(notify: Notify) -> Result<(), String> {
    if ![SystemCall::PerfEventOpen, SystemCall::RtSigpending].into_iter().all(system_calls::may_use) {
        return Err("perf_event_open: forbidden by the seccomp filter, which ends the process".into());
    }
    if notify == Notify::Trap && process::kernel_version() < SAFE_TRAPS {
        return Err("perf_event_open: sigtrap needs Linux 6.1 or later".into());
    }
    open(super::thread_id(), notify, 1_000_000, 0).map(close).map_err(|error| {
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        match paranoid.trim() {
            "" => format!("perf_event_open: {error}"),
            level => format!("perf_event_open: {error}, kernel.perf_event_paranoid is {level}"),
        }
    })
}

/// Whether the handler restarts a system call that a signal at the overflow interrupts.
pub(super) const fn restarts_calls() -> bool {
    cfg!(target_arch = "x86_64")
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
