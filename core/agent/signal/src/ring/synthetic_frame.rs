//! Frames that name an activity of a runtime, or the reason of a wait, instead of code. They are the same in every
//! language.

/// An activity of the runtime, or the reason of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyntheticFrame {
    /// A pause for garbage collection.
    Gc = 1,
    /// The collected generation.
    Generation0 = 2,
    /// The collected generation.
    Generation1 = 3,
    /// The collected generation.
    Generation2 = 4,
    /// The runtime began the collection by itself.
    Automatic = 5,
    /// The program requested the collection.
    Requested = 6,
    /// The thread waits for a lock, a condition or a queue: anything that ends in a futex.
    Lock = 7,
    /// The thread waits for a file, a socket, or a set of them.
    Io = 8,
    /// The thread sleeps for a time.
    Sleep = 9,
    /// The thread could run, but has no processor.
    ScheduledOut = 10,
    /// A request ended.
    Request = 11,
    /// An asynchronous task awaits.
    Await = 12,
}

impl SyntheticFrame {
    const ALL: [Self; 12] = [
        Self::Gc,
        Self::Generation0,
        Self::Generation1,
        Self::Generation2,
        Self::Automatic,
        Self::Requested,
        Self::Lock,
        Self::Io,
        Self::Sleep,
        Self::ScheduledOut,
        Self::Request,
        Self::Await,
    ];

    /// The frame of a code read from the ring; `None` for an unknown code.
    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|frame| *frame as u64 == code)
    }

    /// The frame of generation `number`; the oldest one for a larger number.
    pub const fn generation(number: u64) -> Self {
        match number {
            0 => Self::Generation0,
            1 => Self::Generation1,
            _ => Self::Generation2,
        }
    }

    /// Its name in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gc => "[GC]",
            Self::Generation0 => "[generation 0]",
            Self::Generation1 => "[generation 1]",
            Self::Generation2 => "[generation 2]",
            Self::Automatic => "[automatic]",
            Self::Requested => "[requested]",
            Self::Lock => "[lock]",
            Self::Io => "[I/O]",
            Self::Sleep => "[sleep]",
            Self::ScheduledOut => "[scheduled out]",
            Self::Request => "[request]",
            Self::Await => "[await]",
        }
    }
}
