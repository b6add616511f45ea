//! Reasons for the loss of a sample or a part of it. Every loss has exactly one reason and one counter in `stats()`.

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $name:literal;)+) => {
        /// Why a sample, or the frames of one, could not be recorded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant = $code,)+ }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)+];

            /// The counter's name in `stats()`, and the reason frame's text.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// A sentence for the reference page.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }

            /// The reason with this code, as read from the ring.
            pub const fn from_code(code: u64) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

drop_reasons! {
    /// The ring was full: the new sample is lost.
    RingFull = 1, "ring_full";
    /// A signal arrived while the same thread was inside the handler.
    Reentered = 2, "reentered";
    /// The runtime had no state for this thread (it starts, ends, or never ran managed code).
    NoThreadState = 3, "no_thread_state";
    /// A guarded read hit unmapped memory.
    FaultedRead = 4, "faulted_read";
    /// A frame failed its validation (half-built or torn).
    InvalidFrame = 5, "invalid_frame";
    /// The signal arrived after stop or during a window change.
    Disabled = 6, "disabled";
    /// The table of thread slots is full.
    TooManyThreads = 7, "too_many_threads";
    /// The kernel refused a timer or perf event for the thread.
    NoClock = 8, "no_clock";
    /// The code was unloaded before it could be resolved.
    CodeEnded = 9, "code_ended";
    /// The unique-stack table of the window is full.
    TooManyStacks = 10, "too_many_stacks";
    /// The thread ended between two samples, or was never sampled; its CPU time is known, its stack is not.
    UnseenThread = 11, "unseen_thread";
    /// The thread ran while the wall sampler walked its stack.
    MovedDuringWalk = 12, "moved_during_walk";
    /// The thread blocked the fault signals: a guarded read that faults would have ended the process.
    FaultsBlocked = 13, "faults_blocked";
    /// The thread ran with the clock's signal blocked; its CPU time is known, its stack is not.
    SignalBlocked = 14, "signal_blocked";
    /// The tick came more than two periods late; its stack represents one period, the CPU time before it has no stack.
    LateTick = 15, "late_tick";
    /// The thread waited in a system call that a signal would end early, and was not interrupted to walk its stack.
    WaitNotInterrupted = 16, "wait_not_interrupted";
    /// The callers of a native function are unknown: its code has no unwind information, or its file was just loaded.
    UnknownCallers = 17, "unknown_callers";
    /// The thread had too little stack left for a walk of its frames; its CPU time is known, its stack is not.
    StackTooSmall = 18, "stack_too_small";
}
