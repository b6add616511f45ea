//! What a thread without JavaScript is: told by the function it began in, which its stack ends with. Node gives its threads
//! no names before 22. libuv's pool and V8's platform begin in functions that no Node exports, but each lies next to an
//! exported function of its own object file, in every Node that was measured. What a thread is found to be is remembered,
//! since not every stack can be walked to its end. Asked by the walk, and by who resolves its markers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::RawFrame;

use super::v8;

/// A kind of thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Unknown = 0,
    /// Serves files, look-ups and ciphers.
    Pool = 1,
    /// Compiles and collects.
    Platform = 2,
}

impl Kind {
    pub fn of(number: u64) -> Self {
        match number {
            1 => Self::Pool,
            2 => Self::Platform,
            _ => Self::Unknown,
        }
    }

    /// As newer Nodes name such threads themselves.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Pool => Some("libuv-worker"),
            Self::Platform => Some("V8Worker"),
        }
    }
}

/// Next to libuv's `worker`, before or behind it: at most 2 KiB away in Node 18 to 26.
static POOL_NEIGHBOUR: AtomicUsize = AtomicUsize::new(0);
const POOL_BYTES: usize = 4096;
/// Behind Node's `PlatformWorkerThread`: at most 6 KiB in Node 18 to 26.
static PLATFORM_NEIGHBOUR: AtomicUsize = AtomicUsize::new(0);
const PLATFORM_BYTES: usize = 8192;
/// Below the first function are the C library's own, and libuv's wrapper.
const ROOT_FRAMES: usize = 4;

/// Threads whose kind was found, by the low bits of their id.
static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Looks the neighbours up. Normal ground.
pub fn learn() {
    let address = |name| v8::symbol(&[name]) as usize;
    POOL_NEIGHBOUR.store(address(c"uv_queue_work"), Ordering::Relaxed);
    let drain = address(c"_ZN4node23WorkerThreadsTaskRunner13BlockingDrainEv");
    PLATFORM_NEIGHBOUR.store(drain, Ordering::Relaxed);
}

/// The kind of a thread with this stack, leaf first.
pub fn seen(thread_id: u32, frames: &[RawFrame]) -> Kind {
    let roots = frames.iter().rev().take(ROOT_FRAMES).filter_map(|frame| frame.native_pc());
    let found = roots.map(|pc| beginning(pc as usize)).find(|kind| *kind != Kind::Unknown);
    match (found, KNOWN.get(thread_id as usize % KNOWN.len())) {
        (Some(kind), Some(place)) => {
            place.store(u64::from(thread_id) << 8 | kind as u64, Ordering::Relaxed);
            kind
        }
        _ => known(thread_id),
    }
}

/// What a thread was found to be.
pub fn known(thread_id: u32) -> Kind {
    let word = KNOWN.get(thread_id as usize % KNOWN.len()).map_or(0, |place| place.load(Ordering::Relaxed));
    match word >> 8 == u64::from(thread_id) {
        true => Kind::of(word & 0xff),
        false => Kind::Unknown,
    }
}

fn beginning(pc: usize) -> Kind {
    let (pool, platform) = (POOL_NEIGHBOUR.load(Ordering::Relaxed), PLATFORM_NEIGHBOUR.load(Ordering::Relaxed));
    match () {
        () if pool != 0 && pc.abs_diff(pool) < POOL_BYTES => Kind::Pool,
        () if platform != 0 && pc < platform && platform - pc < PLATFORM_BYTES => Kind::Platform,
        () => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_what_its_stack_ends_with_and_stays_so_when_a_stack_breaks_off() {
        POOL_NEIGHBOUR.store(0x50_0000, Ordering::Relaxed);
        PLATFORM_NEIGHBOUR.store(0x70_0000, Ordering::Relaxed);
        let stack = |root| [0x1234, root, 0x7f00_0000_0000].map(RawFrame::native);
        assert_eq!(seen(70, &stack(0x4f_f800)), Kind::Pool);
        assert_eq!(seen(71, &stack(0x6f_f000)), Kind::Platform);
        assert_eq!(seen(72, &stack(0x70_0001)), Kind::Unknown);
        let broken = [RawFrame::native(0x1234)];
        assert_eq!(
            [70, 71, 72, 70 + 64].map(|id| seen(id, &broken)),
            [Kind::Pool, Kind::Platform, Kind::Unknown, Kind::Unknown]
        );
    }
}
