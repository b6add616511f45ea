//! The kind of a thread without JavaScript, from the root function of its stack. Node.js names its threads from version 22 on.
//! The root functions of libuv's pool and V8's platform are not exported, but each lies next to an exported function of its own
//! object file, in every measured Node.js. The kind is remembered per thread, since not every walk reaches the root. Used by the
//! walk and by the resolution of synthetic frames.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::RawFrame;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ThreadKind {
    Unknown = 0,
    /// libuv's pool: files, DNS look-ups and ciphers.
    Pool = 1,
    /// V8's platform: compiles and collects.
    Platform = 2,
}

impl ThreadKind {
    pub fn of(number: u64) -> Self {
        match number {
            1 => Self::Pool,
            2 => Self::Platform,
            _ => Self::Unknown,
        }
    }

    /// The name that newer versions of Node.js give such threads.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Pool => Some("libuv-worker"),
            Self::Platform => Some("V8Worker"),
        }
    }
}

/// Exported function next to libuv's `worker`: at most 2 KiB away on either side in Node.js 18 to 26.
static POOL_NEIGHBOR: AtomicUsize = AtomicUsize::new(0);
const POOL_BYTES: usize = 4096;
/// Exported function after Node's `PlatformWorkerThread`: at most 6 KiB away in Node.js 18 to 26.
static PLATFORM_NEIGHBOR: AtomicUsize = AtomicUsize::new(0);
const PLATFORM_BYTES: usize = 8192;
/// The outermost frames: the C library's thread start, and libuv's wrapper.
const ROOT_FRAMES: usize = 4;

/// Kinds found so far, by the low bits of the thread id.
static REMEMBERED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Sets the addresses of both neighbors; 0 when Node.js does not export one.
pub fn set_neighbors(pool: usize, platform: usize) {
    POOL_NEIGHBOR.store(pool, Ordering::Relaxed);
    PLATFORM_NEIGHBOR.store(platform, Ordering::Relaxed);
}

/// Classifies a thread by its stack, leaf first.
pub fn classify(thread_id: u32, frames: &[RawFrame]) -> ThreadKind {
    let roots = frames.iter().rev().take(ROOT_FRAMES).filter_map(|frame| frame.native_pc());
    let kind = roots.map(|pc| kind_of_root(pc as usize)).find(|kind| *kind != ThreadKind::Unknown);
    match (kind, REMEMBERED.get(thread_id as usize % REMEMBERED.len())) {
        (Some(kind), Some(slot)) => {
            slot.store(u64::from(thread_id) << 8 | kind as u64, Ordering::Relaxed);
            kind
        }
        _ => remembered(thread_id),
    }
}

/// The kind found for this thread before.
pub fn remembered(thread_id: u32) -> ThreadKind {
    let word = REMEMBERED.get(thread_id as usize % REMEMBERED.len()).map_or(0, |slot| slot.load(Ordering::Relaxed));
    if word >> 8 == u64::from(thread_id) {
        ThreadKind::of(word & 0xff)
    } else {
        ThreadKind::Unknown
    }
}

fn kind_of_root(pc: usize) -> ThreadKind {
    let (pool, platform) = (POOL_NEIGHBOR.load(Ordering::Relaxed), PLATFORM_NEIGHBOR.load(Ordering::Relaxed));
    match () {
        () if pool != 0 && pc.abs_diff(pool) < POOL_BYTES => ThreadKind::Pool,
        () if platform != 0 && pc < platform && platform - pc < PLATFORM_BYTES => ThreadKind::Platform,
        () => ThreadKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_classified_by_its_root_and_keeps_its_kind_when_a_later_walk_is_incomplete() {
        set_neighbors(0x50_0000, 0x70_0000);
        let stack = |root| [0x1234, root, 0x7f00_0000_0000].map(RawFrame::native);
        assert_eq!(classify(70, &stack(0x4f_f800)), ThreadKind::Pool);
        assert_eq!(classify(71, &stack(0x6f_f000)), ThreadKind::Platform);
        assert_eq!(classify(72, &stack(0x70_0001)), ThreadKind::Unknown);
        let broken = [RawFrame::native(0x1234)];
        assert_eq!(
            [70, 71, 72, 70 + 64].map(|id| classify(id, &broken)),
            [ThreadKind::Pool, ThreadKind::Platform, ThreadKind::Unknown, ThreadKind::Unknown]
        );
    }
}
