//! Why walks ended, counted for `stats()`. Safe in handlers.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::DropReason;

/// Why the caller of a frame is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WalkEnd {
    /// The first function of the thread: the stack is complete.
    Root,
    /// The code is in no loaded file, as generated code.
    OutsideFiles,
    /// The file has no table yet; the next drain builds it.
    TableMissing,
    /// The table was left out: its size would exceed the limit, or the file has no unwind information.
    NoTable,
    /// No unwind information for the instruction: most hand-written assembly.
    NoRule,
    /// The rule needs a register whose value is not known.
    UnknownRegister,
    /// The rule leads to an address that is none of this stack.
    InvalidFrame,
    /// The stack could not be read.
    FaultedRead,
    /// The consumer stopped: it has the frames that it needs, or no more space.
    Stopped,
}

impl WalkEnd {
    /// Every end.
    pub const ALL: [Self; 9] = [
        Self::Root,
        Self::OutsideFiles,
        Self::TableMissing,
        Self::NoTable,
        Self::NoRule,
        Self::UnknownRegister,
        Self::InvalidFrame,
        Self::FaultedRead,
        Self::Stopped,
    ];

    /// Its word in `stats()`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::OutsideFiles => "outside_files",
            Self::TableMissing => "table_missing",
            Self::NoTable => "no_table",
            Self::NoRule => "no_rule",
            Self::UnknownRegister => "unknown_register",
            Self::InvalidFrame => "invalid_frame",
            Self::FaultedRead => "faulted_read",
            Self::Stopped => "stopped",
        }
    }

    /// The reason that stands for the missing callers; `None` if none are missing.
    pub const fn missing_callers(self) -> Option<DropReason> {
        match self {
            Self::Root | Self::Stopped => None,
            Self::OutsideFiles | Self::TableMissing | Self::NoTable | Self::NoRule | Self::UnknownRegister => {
                Some(DropReason::UnknownCallers)
            }
            Self::InvalidFrame => Some(DropReason::InvalidFrame),
            Self::FaultedRead => Some(DropReason::FaultedRead),
        }
    }

    /// Counts a walk that ended so.
    pub fn count(self) {
        if let Some(counter) = ENDS.get(self as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Walks that ended so since the process began.
    pub fn counted(self) -> u64 {
        ENDS.get(self as usize).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

static ENDS: [AtomicU64; WalkEnd::ALL.len()] = [const { AtomicU64::new(0) }; WalkEnd::ALL.len()];
