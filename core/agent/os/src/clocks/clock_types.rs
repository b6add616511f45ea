//! Settings, counters and errors of the clocks: plain values, no behavior.

use spanprof_signal::{CaptureFn, DropReason};
use std::fmt;

/// The configured clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChoice {
    /// Perf where the kernel allows counting user and kernel time, else timers.
    Auto,
    /// A timer on each thread's CPU clock, which expires at the kernel's ticks.
    ThreadTimer,
    /// A perf task clock for each thread, whose signal is ignored by default.
    Perf,
}

/// Settings of `Clocks::start`.
#[derive(Clone, Copy, Debug)]
pub struct ClockSettings {
    /// The clock to use.
    pub kind: ClockChoice,
    /// Samples per CPU second of each thread, 1 to 10,000.
    pub rate_hz: u32,
    /// Maximum number of frames of a stack, 1 to 2048.
    pub max_stack_depth: usize,
    /// Walks the interrupted thread.
    pub capture: CaptureFn,
    /// Size of the ring; rounded up to a power of two.
    pub ring_bytes: usize,
    /// The signal of the clocks where SIGURG is not free; SIGPROF unless the runtime uses it.
    pub fallback_signal: libc::c_int,
}

/// The chosen clock and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockInUse {
    /// `thread_timer` or `perf`.
    pub name: &'static str,
    /// The reason for this choice, as text.
    pub reason: String,
    /// The kernel tick: the maximum number of stacks per CPU second with timers.
    pub kernel_tick_hz: u32,
    /// The number of the clocks' signal.
    pub signal: libc::c_int,
}

/// The reason for which the clocks did not start, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockError {
    /// The failure.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.hint)
    }
}

impl std::error::Error for ClockError {}

/// Counters of the clocks since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockCounters {
    /// CPU samples that reached the ring.
    pub samples: u64,
    /// Their CPU time.
    pub sampled_cpu_ns: u64,
    /// Ticks of perf events: those whose sample reached the ring, and those that were due.
    pub perf_ticks: [u64; 2],
    /// Ticks of thread timers, likewise.
    pub timer_ticks: [u64; 2],
    /// Samples lost, or kept without their frames, by reason.
    pub reasons: Vec<(DropReason, u64)>,
    /// Foreign signals that were forwarded to their handler.
    pub foreign_forwarded: u64,
    /// Signals without an owner, swallowed.
    pub stray: u64,
    /// CPU time in the handler, without the kernel's delivery of the signal.
    pub handler_ns: u64,
    /// The part of it spent in stack walks.
    pub walk_ns: u64,
    /// Time from the overflow of perf events to the handler.
    pub delivery_ns: u64,
    /// Faults turned into failed reads.
    pub faults: u64,
    /// Foreign faults that were forwarded to a previous handler.
    pub faults_forwarded: u64,
    /// Threads with a clock now.
    pub threads: u64,
    /// Threads whose clock is a perf event; the others have timers.
    pub threads_on_perf: u64,
    /// Threads without a clock because the table was full or the kernel refused one.
    pub threads_refused: u64,
    /// Scans of the process's threads.
    pub scans: u64,
    /// Clocks that were armed again because their signal was lost.
    pub rearmed: u64,
}

/// A thread that has a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveThread {
    /// Kernel thread id.
    pub thread_id: u32,
    pub name: String,
    /// Its CPU time since birth.
    pub cpu_ns: u64,
    /// Its CPU time that no sample accounts for yet.
    pub unaccounted_ns: u64,
}

/// The CPU time since start, divided into parts. The remainder belongs to threads that ended without a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAccount {
    /// All threads of the process since start.
    pub process_ns: u64,
    /// Our own threads.
    pub own_ns: u64,
    /// Accounted for by samples in the ring.
    pub sampled_ns: u64,
    /// Used by living threads since their last sample. The next sample accounts for it. At the end of the run it is
    /// lost: at most 1.5 intervals per thread, independent of the length of the run.
    pub waiting_ns: u64,
}

impl CpuAccount {
    /// Unattributed CPU time: of threads that ended between two samples or without a sample.
    pub fn unattributed_ns(&self) -> u64 {
        self.process_ns.saturating_sub(self.own_ns + self.sampled_ns + self.waiting_ns)
    }
}
