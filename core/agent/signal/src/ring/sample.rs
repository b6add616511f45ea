//! The raw sample that a handler or a runtime submits to the ring. It serves samples of
//! every kind of every language. Not the aggregated `Sample` of a profile.

use crate::context::Context;
use crate::drop_reason::DropReason;
use crate::ring::synthetic_frame::SyntheticFrame;

/// The source of a raw sample, and the meaning of its two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SampleKind {
    /// `values[0]` = CPU nanoseconds since the thread's last sample; `values[1]` = periods it represents (≥ 1).
    Cpu = 1,
    /// `values[0]` = wall nanoseconds the sample represents, `values[1]` = the part of them off CPU; key = code of the
    /// [`SyntheticFrame`] that names the reason of the wait (0: none).
    Wall = 2,
    /// `values[0]` = bytes, `values[1]` = objects it represents; with [`SampleFlags::SIZE_AND_INTERVAL`] size and interval
    /// instead, and key = its id in the live set (0: not there).
    Alloc = 3,
    /// Live objects at the end of a window: `values[0]` = bytes, `values[1]` = objects it represents.
    InUse = 4,
    /// `values[0]` = nanoseconds waited, `values[1]` = contentions; key = lock.
    Lock = 5,
    /// A part of a block of an event loop: `values[0]` = nanoseconds of the part, `values[1]` = of the whole block; key = loop
    /// iteration.
    EventLoop = 6,
    /// `values[0]` = nanoseconds blocked.
    OffCpu = 7,
    /// `values[0]` = nanoseconds of a pause for garbage collection.
    Gc = 8,
    /// Live threads at the end of a window: `values[0]` = threads it represents.
    Threads = 9,
    /// The end of a request: `values[0]` = its duration in nanoseconds, `values[1]` = 1 after an error; key = hash of its endpoint.
    /// The context has its trace, its local root span, and the label `endpoint`.
    RequestEnd = 10,
    /// What a request awaited, before its end: `values[0]` = nanoseconds of its calls with one name, `values[1]` = the calls. The
    /// context is that of the end; the frame has the name.
    Awaited = 11,
}

impl SampleKind {
    /// Every kind; the code of each is its position plus one.
    pub const ALL: [Self; 11] = [
        Self::Cpu,
        Self::Wall,
        Self::Alloc,
        Self::InUse,
        Self::Lock,
        Self::EventLoop,
        Self::OffCpu,
        Self::Gc,
        Self::Threads,
        Self::RequestEnd,
        Self::Awaited,
    ];

    /// The kind of a code read from the ring; `None` for an unknown code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// One unresolved frame: two words that only its runtime can decode, or one of the core's own four kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct RawFrame {
    /// Code pointer or method id of the runtime; values below [`RawFrame::FIRST_RUNTIME_CODE`] belong to the core.
    pub code: u64,
    /// Instruction pointer, byte-code index or program counter within that code.
    pub at: u64,
}

impl RawFrame {
    /// Codes below this are not addresses in any process (page zero).
    pub const FIRST_RUNTIME_CODE: u64 = 4096;
    const NATIVE: u64 = 1;
    const REASON: u64 = 2;
    const SYNTHETIC: u64 = 3;
    const NAMED: u64 = 4;

    /// A native frame: the core symbolizes `pc`.
    pub const fn native(pc: u64) -> Self {
        Self { code: Self::NATIVE, at: pc }
    }

    /// A reason frame: the reason for which frames are missing. It keeps the sample's weight visible.
    pub const fn reason(reason: DropReason) -> Self {
        Self { code: Self::REASON, at: reason as u64 }
    }

    /// A frame that names an activity of the runtime.
    pub const fn synthetic(frame: SyntheticFrame) -> Self {
        Self { code: Self::SYNTHETIC, at: frame as u64 }
    }

    /// A frame whose name is the value of the only label in a set.
    pub const fn named(label_set: u32) -> Self {
        Self { code: Self::NAMED, at: label_set as u64 }
    }

    /// The label set, if this is a named frame.
    pub const fn as_named(self) -> Option<u32> {
        if self.code == Self::NAMED {
            Some(self.at as u32)
        } else {
            None
        }
    }

    /// The program counter, if this is a native frame.
    pub const fn native_pc(self) -> Option<u64> {
        if self.code == Self::NATIVE {
            Some(self.at)
        } else {
            None
        }
    }

    /// The reason, if this is a reason frame.
    pub const fn as_reason(self) -> Option<DropReason> {
        if self.code == Self::REASON {
            DropReason::from_code(self.at)
        } else {
            None
        }
    }

    /// The activity, if this is a synthetic frame.
    pub fn as_synthetic(self) -> Option<SyntheticFrame> {
        (self.code == Self::SYNTHETIC).then(|| SyntheticFrame::from_code(self.at)).flatten()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleFlags(pub u8);

impl SampleFlags {
    /// The first sample of its thread, whose weight is below a period because of the random phase.
    pub const FIRST_OF_THREAD: u8 = 1;
    /// The stack exceeded `max_stack_depth`; the root side is cut.
    pub const TRUNCATED: u8 = 2;
    /// An allocation that was selected by its size: `values` are its size and the mean interval, both in bytes.
    pub const SIZE_AND_INTERVAL: u8 = 4;
    /// Taken for collections only, such as a pull: not part of the open window.
    pub const ON_DEMAND: u8 = 8;

    /// Whether `flag` is set.
    pub const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// A sample in the ring.
#[derive(Clone, Copy, Debug)]
pub struct RawSample<'a> {
    /// The source.
    pub kind: SampleKind,
    /// See [`SampleFlags`].
    pub flags: SampleFlags,
    /// Kernel thread id of the sampled thread.
    pub thread_id: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time_ns: u64,
    /// Two values, defined by `kind`.
    pub values: [u64; 2],
    /// Object address, lock, loop iteration; 0 when the kind has none.
    pub key: u64,
    /// Label set and span link.
    pub context: Context,
    /// Leaf first.
    pub frames: &'a [RawFrame],
}
