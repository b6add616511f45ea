//! The raw sample: what a handler or a submitting runtime puts into the ring. General enough for CPU, wall, allocation,
//! lock and event-loop samples; knows no language. Not the aggregated `Sample` of a profile.

use crate::{Context, DropReason};

/// What produced a raw sample, and how its two values read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SampleKind {
    /// `values[0]` = CPU nanoseconds the thread burnt since its last sample; `values[1]` = periods it stands for (≥ 1).
    Cpu = 1,
    /// `values[0]` = wall nanoseconds the sample stands for.
    Wall = 2,
    /// `values[0]` = bytes, `values[1]` = objects it stands for; key = address.
    Alloc = 3,
    /// `values[0]` = size in bytes; key = address of the object that ended.
    Free = 4,
    /// `values[0]` = nanoseconds waited, `values[1]` = contentions; key = lock.
    Lock = 5,
    /// `values[0]` = nanoseconds of lag; key = loop iteration.
    EventLoop = 6,
    /// `values[0]` = nanoseconds blocked.
    OffCpu = 7,
}

impl SampleKind {
    /// The kind of a code read back from the ring; `None` for a code no version wrote.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Cpu,
            2 => Self::Wall,
            3 => Self::Alloc,
            4 => Self::Free,
            5 => Self::Lock,
            6 => Self::EventLoop,
            7 => Self::OffCpu,
            _ => return None,
        })
    }
}

/// One frame before it is resolved: two words that only its runtime can read, or one of the two kinds the core knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct RawFrame {
    /// Code pointer or method id of the runtime; values below [`RawFrame::FIRST_RUNTIME_CODE`] are the core's.
    pub code: u64,
    /// Instruction pointer, byte-code index or program counter within it.
    pub at: u64,
}

impl RawFrame {
    /// Codes below this are no address in any process (page zero).
    pub const FIRST_RUNTIME_CODE: u64 = 4096;
    const NATIVE: u64 = 1;
    const REASON: u64 = 2;

    /// A native frame: `pc` is symbolised by the core.
    pub const fn native(pc: u64) -> Self {
        Self { code: Self::NATIVE, at: pc }
    }

    /// A frame that says why nothing more could be walked, so that no sample goes missing.
    pub const fn reason(reason: DropReason) -> Self {
        Self { code: Self::REASON, at: reason as u64 }
    }

    /// The program counter, if this is a native frame.
    pub const fn native_pc(self) -> Option<u64> {
        if self.code == Self::NATIVE {
            Some(self.at)
        } else {
            None
        }
    }

    /// The reason, if this frame stands for what could not be walked.
    pub const fn as_reason(self) -> Option<DropReason> {
        if self.code == Self::REASON {
            DropReason::from_code(self.at)
        } else {
            None
        }
    }
}

/// Flags of a raw sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleFlags(pub u8);

impl SampleFlags {
    /// The first sample of its thread: its weight is less than a period by the thread's random phase.
    pub const FIRST_OF_THREAD: u8 = 1;
    /// The stack was deeper than `max_stack_depth`; the root side is cut.
    pub const TRUNCATED: u8 = 2;

    /// Whether `flag` is set.
    pub const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// A sample on its way through the ring.
#[derive(Clone, Copy, Debug)]
pub struct RawSample<'a> {
    /// What produced it.
    pub kind: SampleKind,
    /// See [`SampleFlags`].
    pub flags: SampleFlags,
    /// Kernel thread id of the sampled thread.
    pub thread_id: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time_ns: u64,
    /// Two values; their meaning is the kind's.
    pub values: [u64; 2],
    /// Object address, lock, loop iteration; 0 when the kind has none.
    pub key: u64,
    /// What the sample knows of its request.
    pub context: Context,
    /// Leaf first.
    pub frames: &'a [RawFrame],
}
