//! The minimum cost of a thread timer's tick on this machine, as a baseline for the engine's handler. The handler of this
//! bench only reads the thread's CPU clock and arms the timer again. The timer runs at 100 Hz, in a thread whose work evicts
//! the caches. Run with `cargo bench -p spanprof-signal --bench empty_tick`.

use spanprof_signal::arm::{self, SignalTarget};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PERIOD_NS: u64 = 10_000_000;
const MEMORY_BYTES: usize = 64 << 20;
const RUN: Duration = Duration::from_secs(5);

static TIMER: AtomicU32 = AtomicU32::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
static HANDLER_NS: AtomicU64 = AtomicU64::new(0);

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

extern "C" fn on_tick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let begun = read(libc::CLOCK_MONOTONIC);
    arm::arm_timer(TIMER.load(Ordering::Relaxed), read(libc::CLOCK_THREAD_CPUTIME_ID) + PERIOD_NS);
    HANDLER_NS.store(read(libc::CLOCK_MONOTONIC) - begun, Ordering::Relaxed);
    TICKS.fetch_add(1, Ordering::Relaxed);
}

fn start() {
    // SAFETY: no arguments, no failure.
    let thread_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // SAFETY: an all-zero sigaction is a valid value. The handler has the SA_SIGINFO signature and makes async-signal-safe
    // calls.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_tick as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) == 0
    };
    assert!(installed, "sigaction failed: {}", std::io::Error::last_os_error());
    let id = arm::create_timer(libc::CLOCK_THREAD_CPUTIME_ID, SignalTarget::Thread(thread_id), libc::SIGPROF, 0)
        .expect("a timer");
    TIMER.store(id, Ordering::Relaxed);
    arm::arm_timer(id, read(libc::CLOCK_THREAD_CPUTIME_ID) + PERIOD_NS);
}

fn main() {
    let memory = vec![1u8; MEMORY_BYTES];
    start();
    let (mut seen, mut sum, mut handler_ns) = (0, 1u64, Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < RUN {
        for _ in 0..1_000 {
            sum = sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sum = sum.wrapping_add(u64::from(memory[(sum >> 20) as usize % MEMORY_BYTES]));
        }
        let ticks = TICKS.load(Ordering::Relaxed);
        if ticks != seen {
            seen = ticks;
            handler_ns.push(HANDLER_NS.load(Ordering::Relaxed));
        }
    }
    std::hint::black_box(sum);
    handler_ns.sort_unstable();
    let median = handler_ns.get(handler_ns.len() / 2).copied().unwrap_or(0);
    // Aligned with the engine's lines, which `cargo xtask bench` prints before it.
    println!(
        "an empty tick of a thread timer at 100 Hz, caches cold      {:>10.1} ns   the minimum: {:.3} % of a core",
        median as f64,
        median as f64 * 100.0 / 1e7
    );
}
