//! What goes into the clocks and what they tell: plain values, no behaviour.

use spanprof_signal::{CaptureFn, DropReason};
use std::fmt;

/// Which clock to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChoice {
    /// Perf where the kernel lets us count user and kernel time, else timers.
    Auto,
    /// A timer on each thread's CPU clock, which expires at the kernel's ticks.
    ThreadTimer,
    /// A perf task clock for each thread, whose signal is ignored by default.
    Perf,
    /// The same with SIGTRAP, which comes on the way back to user mode. A trap that is pending during `execve` ends the new
    /// program.
    Sigtrap,
}

/// What [`start`](super::Clocks::start) needs to know.
#[derive(Clone, Copy, Debug)]
pub struct ClockSettings {
    /// Which clock to use.
    pub kind: ClockChoice,
    /// Samples per CPU second of each thread, 1 to 10,000.
    pub rate_hz: u32,
    /// Frames kept of a stack, 1 to 2048.
    pub max_stack_depth: usize,
    /// Walks the interrupted thread.
    pub capture: CaptureFn,
    /// Size of the ring; rounded up to a power of two.
    pub ring_bytes: usize,
    /// The signal that carries the clock where SIGURG is not free; SIGPROF unless the runtime needs that one.
    pub fallback_signal: libc::c_int,
}

/// The clock that was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockInUse {
    /// `thread_timer`, `perf` or `sigtrap`.
    pub name: &'static str,
    /// Why this one, in words.
    pub reason: String,
    /// The kernel's tick: the most stacks per CPU second that timers can give.
    pub kernel_tick_hz: u32,
    /// The number of the signal that carries it.
    pub signal: libc::c_int,
}

/// Why the clocks did not start, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockError {
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.hint)
    }
}

impl std::error::Error for ClockError {}

/// What the clocks counted since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockCounters {
    /// CPU samples that reached the ring.
    pub samples: u64,
    /// Their CPU time.
    pub sampled_cpu_ns: u64,
    /// Samples lost, or kept without their frames, by reason.
    pub reasons: Vec<(DropReason, u64)>,
    /// Signals of others given to their handler.
    pub foreign_forwarded: u64,
    /// Signals nobody wanted, swallowed.
    pub stray: u64,
    /// CPU time spent in the handler, without the kernel's delivery of its signal.
    pub handler_ns: u64,
    /// The part of it in which stacks were walked.
    pub walk_ns: u64,
    /// Time from the overflows of perf events to the handler.
    pub delivery_ns: u64,
    /// Faults turned into failed reads.
    pub faults: u64,
    /// Foreign faults given to the handler that was there before us.
    pub faults_forwarded: u64,
    /// Threads with a clock now.
    pub threads: u64,
    /// Those of them whose clock is a perf event; the others have timers.
    pub threads_on_perf: u64,
    /// Threads without a clock because the table was full or the kernel refused one.
    pub threads_refused: u64,
    /// Scans of the process's threads.
    pub scans: u64,
    /// Clocks that had to be armed again because their signal was lost.
    pub rearmed: u64,
}

/// A thread that has a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveThread {
    /// Kernel thread id.
    pub thread_id: u32,
    /// Its name.
    pub name: String,
    /// Its CPU time since birth.
    pub cpu_ns: u64,
    /// Its CPU time that no sample carries yet.
    pub unaccounted_ns: u64,
}

/// Where the CPU time since start went: what is missing between the parts belongs to threads that ended unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAccount {
    /// All threads of the process since start.
    pub process_ns: u64,
    /// Our own threads.
    pub own_ns: u64,
    /// Carried by samples in the ring.
    pub sampled_ns: u64,
    /// Burnt by living threads since their last sample. The next one carries it; at the end of the run nothing does: an interval
    /// and a half per thread at most, in no relation to the length of the run.
    pub waiting_ns: u64,
}

impl CpuAccount {
    /// CPU time of threads that ended between two samples or were never seen.
    pub fn unseen_ns(&self) -> u64 {
        self.process_ns.saturating_sub(self.own_ns + self.sampled_ns + self.waiting_ns)
    }
}
