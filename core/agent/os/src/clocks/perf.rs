//! The perf task clock of one thread: a software event that counts the thread's CPU time with the precision of the
//! high-resolution timers. `spanprof_signal::arm` arms it.
//!
//! At an overflow the kernel sends an ordinary signal, with the descriptor. The handler restarts a call that was about to sleep
//! (`spanprof_signal`, module `restart`).
//!
//! Kernel time is counted: an event that excludes it loses system calls (30 % of a program in long calls shows as 0.4
//! %). This requires CAP_PERFMON or `kernel.perf_event_paranoid` below 2.

use crate::system_calls::{self, SystemCall};
use spanprof_signal::overflow;
use std::io::Error;

/// The kernel's `perf_event_attr`: in the size that has `sample_regs_user` and `clockid`.
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
    _unused: [u64; 4],
}

/// Older kernels accept a larger size while the fields they lack are zero.
const SIZE: u32 = 128;
/// `use_clockid`: record times use `clock`. Since Linux 4.1.
const USE_CLOCK: u64 = 1 << 25;

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

/// An open event: its descriptor and the kernel's event id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerfEvent {
    pub descriptor: u32,
    pub id: u64,
    /// Address of the ring buffer: the number of overflows, and a record of each.
    pub buffer: usize,
}

/// Opens a disabled task clock of `thread_id` that counts user and kernel time and sends `signal` to that thread.
pub(crate) fn open(thread_id: u32, signal: libc::c_int, period_ns: u64) -> Result<PerfEvent, Error> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: SIZE,
        config: TASK_CLOCK,
        sample_period: period_ns,
        sample_type: overflow::SAMPLE_TYPE,
        read_format: 0,
        flags: DISABLED | EXCLUDE_HYPERVISOR | USE_CLOCK,
        wakeup_events: 1,
        breakpoint_type: 0,
        config1: 0,
        _config2_and_branches: [0; 2],
        sample_regs_user: overflow::REGISTERS,
        sample_stack_user: 0,
        clock: libc::CLOCK_MONOTONIC,
        _unused: [0; 4],
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
    // SAFETY: the descriptor was just opened; F_SETOWN_EX reads two ints, IOC_ID writes eight bytes.
    let ready = unsafe {
        libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC) == 0
            && libc::fcntl(descriptor, F_SETSIG, signal) == 0
            && libc::fcntl(descriptor, F_SETOWN_EX, owner.as_ptr()) == 0
            && libc::syscall(libc::SYS_ioctl, descriptor, IOC_ID, &raw mut id) == 0
    };
    if let Some(buffer) = ready.then(|| map_buffer(descriptor)).flatten() {
        return Ok(PerfEvent { descriptor: descriptor as u32, id, buffer });
    }
    let error = Error::last_os_error();
    // SAFETY: opened above and not shared.
    unsafe { libc::close(descriptor) };
    Err(error)
}

/// Maps an event's ring buffer read-only: the kernel then overwrites the oldest records.
fn map_buffer(descriptor: libc::c_int) -> Option<usize> {
    // SAFETY: maps new memory; affects no existing mapping.
    let buffer = unsafe {
        libc::mmap(std::ptr::null_mut(), overflow::buffer_bytes(), libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
    };
    (buffer != libc::MAP_FAILED).then_some(buffer as usize)
}

/// Disables an event without closing it.
pub(crate) fn disable(event: PerfEvent) {
    if is_still_ours(event) {
        // SAFETY: takes no argument; the descriptor was just verified to be our event.
        unsafe { libc::syscall(libc::SYS_ioctl, event.descriptor, IOC_DISABLE, 0) };
    }
}

/// Closes an event, unless the host closed its descriptor and reused the number. Safe in the fork hook of a child: two
/// system calls.
pub(crate) fn close(event: PerfEvent) {
    // SAFETY: mapped by `open`; no handler is in the slot.
    unsafe { libc::munmap(event.buffer as *mut libc::c_void, overflow::buffer_bytes()) };
    close_descriptor(event);
}

/// As [`close`], in a forked child, which does not inherit the mapping of a ring buffer (VM_DONTCOPY,
/// kernel/events/core.c).
pub(crate) fn close_descriptor(event: PerfEvent) {
    if is_still_ours(event) {
        // SAFETY: the descriptor was just verified to be our event.
        unsafe { libc::close(event.descriptor as libc::c_int) };
    }
}

pub(crate) fn is_still_ours(event: PerfEvent) -> bool {
    let mut id = 0u64;
    // SAFETY: writes eight bytes to a local if the descriptor is a perf event; no other driver writes more for this
    // request.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, event.descriptor, IOC_ID, &raw mut id) };
    result == 0 && id == event.id
}

/// Whether the kernel allows counting user and kernel time of our own threads; the error gives the reason.
pub(crate) fn probe(signal: libc::c_int) -> Result<(), String> {
    if !system_calls::may_use(SystemCall::PerfEventOpen) {
        return Err("perf_event_open: forbidden by the seccomp filter, which ends the process".into());
    }
    open(crate::threads::listing::thread_id(), signal, 1_000_000).map(close).map_err(|error| {
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        match paranoid.trim() {
            "" => format!("perf_event_open: {error}"),
            level => format!("perf_event_open: {error}, kernel.perf_event_paranoid is {level}"),
        }
    })
}

/// Whether the handler restarts a system call that a signal at the overflow interrupted. In musl on x86-64 the number of a call
/// that can be canceled is in none of its registers (`src/thread/x86_64/syscall_cp.s`, 1.1.2–1.2.5).
pub(crate) const fn restarts_calls() -> bool {
    cfg!(any(target_arch = "aarch64", all(target_arch = "x86_64", target_env = "gnu")))
}

/// Maximum number of descriptors for events, so that the host does not run out of them: an eighth of its limit, and no more than
/// 256. Further threads have timers.
pub(crate) fn descriptor_budget() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit to a local.
    let succeeded = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if succeeded {
        (limit.rlim_cur / 8).min(256) as usize
    } else {
        0
    }
}
