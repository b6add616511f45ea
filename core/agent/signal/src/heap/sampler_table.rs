//! The countdowns of threads in static memory, for a library that is loaded at run time: the first access of a thread to such
//! a library's thread-local storage allocates. Called by allocator hooks. Not here: the countdown (`thread_sampler`).
//!
//! # Rules
//! 1. A slot belongs to one thread until the process ends. The thread is identified by its thread pointer, which its own
//!    instructions read and which no other running thread has. A later thread with the same pointer continues the countdown
//!    of the ended one: an exponential distance has no memory.
//! 2. Only the owner counts in a slot, so loads and stores are enough, and threads share no cache line.
//! 3. The slot of the thread that called [`select`] last is tried first: that is nearly always the one of the GIL's holder, and
//!    costs less than the hash. Threads change this word once per sample, so those that allocate at the same time share it.
//! 4. A thread whose slot belongs to another one has no countdown. It decides each allocation by a new distance: the
//!    probability is the same, since the distance has no memory, but each allocation costs a draw.

#[cfg(not(loom))]
use core::sync::atomic::AtomicPtr;

use crate::atomics::{AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::heap::thread_sampler::{SelectedAllocation, ThreadSampler};

/// Number of slots, as a power of two. With 100 threads, one of twenty has no slot.
#[cfg(not(any(loom, miri)))]
const INDEX_BITS: u32 = 10;
/// Model checkers need threads that share a slot.
#[cfg(any(loom, miri))]
const INDEX_BITS: u32 = 1;
const SLOTS: usize = 1 << INDEX_BITS;
/// The top bits of its products spread thread pointers at the usual distances: stack sizes of 128 KiB to 64 MiB, with and
/// without a guard page.
const HASH: u64 = 0xFF51_AFD7_ED55_8CCD;

/// One slot, in a cache line of its own.
#[repr(align(64))]
struct OwnedSlot<T> {
    /// Thread pointer of the owner; 0: none yet.
    owner: AtomicU64,
    state: T,
}

/// The countdowns of threads without thread-local storage.
#[cfg(not(loom))]
pub(crate) static THREAD_SAMPLERS: SamplerTable<ThreadSampler> = SamplerTable::new();

/// A pointer in a cache line of its own, since every allocation of every thread reads it.
#[cfg(not(loom))]
#[repr(align(128))]
struct RecentSlot(AtomicPtr<OwnedSlot<ThreadSampler>>);

/// The slot of [`THREAD_SAMPLERS`] that is tried first.
#[cfg(not(loom))]
static RECENT: RecentSlot = RecentSlot(AtomicPtr::new((&raw const THREAD_SAMPLERS.0[0]).cast_mut()));

/// [`SamplerTable::deduct`] in [`THREAD_SAMPLERS`], for the calling thread.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn deduct(bytes: usize) -> bool {
    let thread = thread_pointer();
    // SAFETY: only slots of the static table are ever stored there.
    let recent = unsafe { &*RECENT.0.load(Ordering::Relaxed) };
    if recent.owner.load(Ordering::Relaxed) == thread {
        recent.state.deduct(bytes)
    } else {
        THREAD_SAMPLERS.deduct(thread, bytes)
    }
}

/// [`SamplerTable::select`] in [`THREAD_SAMPLERS`], for the calling thread.
#[cfg(not(loom))]
pub(crate) fn select(bytes: usize) -> Option<SelectedAllocation> {
    let thread = thread_pointer();
    RECENT.0.store(core::ptr::from_ref(THREAD_SAMPLERS.slot(thread)).cast_mut(), Ordering::Relaxed);
    THREAD_SAMPLERS.select(thread, bytes)
}

/// A state per thread.
pub(crate) struct SamplerTable<T>([OwnedSlot<T>; SLOTS]);

#[cfg(not(loom))]
impl SamplerTable<ThreadSampler> {
    /// A table without owners.
    pub(crate) const fn new() -> Self {
        Self([const { OwnedSlot { owner: AtomicU64::new(0), state: ThreadSampler::new() } }; SLOTS])
    }

    /// Counts an allocation of the calling thread, with this thread pointer. False when it needs [`Self::select`] instead,
    /// which then counts it.
    #[inline(always)]
    pub(crate) fn deduct(&self, thread: u64, bytes: usize) -> bool {
        self.owned(thread).is_some_and(|sampler| sampler.deduct(bytes))
    }

    /// Counts an allocation for which [`Self::deduct`] returned false; `None` when it is not selected.
    pub(crate) fn select(&self, thread: u64, bytes: usize) -> Option<SelectedAllocation> {
        match self.claim(thread) {
            Some(sampler) => sampler.select(bytes),
            // Draws a distance for this allocation alone.
            None => ThreadSampler::new().select(bytes),
        }
    }
}

impl<T> SamplerTable<T> {
    #[cfg(loom)]
    pub(crate) fn with(state: impl Fn() -> T) -> Self {
        Self(core::array::from_fn(|_| OwnedSlot { owner: AtomicU64::new(0), state: state() }))
    }

    #[inline(always)]
    fn slot(&self, thread: u64) -> &OwnedSlot<T> {
        &self.0[(thread.wrapping_mul(HASH) >> (u64::BITS - INDEX_BITS)) as usize]
    }

    /// The state of the calling thread, with this thread pointer; `None` before [`Self::claim`].
    #[inline(always)]
    pub(crate) fn owned(&self, thread: u64) -> Option<&T> {
        let slot = self.slot(thread);
        (slot.owner.load(Ordering::Relaxed) == thread).then_some(&slot.state)
    }

    /// As [`Self::owned`], and takes a slot without an owner. `None`: it belongs to another thread.
    pub(crate) fn claim(&self, thread: u64) -> Option<&T> {
        let slot = self.slot(thread);
        let owner = slot.owner.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        (owner.is_ok() || owner == Err(thread)).then_some(&slot.state)
    }
}

/// The thread pointer of the calling thread: identifies it among the running threads, and is never 0.
#[cfg(all(not(any(loom, miri)), target_arch = "x86_64"))]
#[inline(always)]
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: the x86-64 ABI (ELF Handling For Thread-Local Storage, 3.4.6) has the thread pointer at %fs:0 in each thread.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags)) };
    pointer
}

/// The identity of the calling thread among the running threads, never 0.
#[cfg(all(not(loom), any(miri, not(target_arch = "x86_64"))))]
#[inline(always)]
pub fn thread_pointer() -> u64 {
    // SAFETY: returns a word of the C library that identifies the thread; no other access.
    unsafe { libc::pthread_self() as u64 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_owner_and_other_threads_have_other_slots_or_none() {
        let table = SamplerTable::new();
        let owners = (1..=4 * SLOTS as u64).filter(|thread| {
            assert!(table.owned(*thread).is_none());
            let claimed = table.claim(*thread).is_some();
            assert_eq!((claimed, claimed), (table.owned(*thread).is_some(), table.claim(*thread).is_some()));
            claimed
        });
        let owners = owners.count();
        assert!(owners <= SLOTS && owners > SLOTS / 2, "{owners}");
    }

    #[test]
    fn threads_that_run_at_the_same_time_have_different_pointers() {
        let here = thread_pointer();
        assert_eq!(here, thread_pointer());
        std::thread::scope(|scope| scope.spawn(|| assert!(thread_pointer() != here && here != 0)).join().unwrap());
    }

    #[test]
    fn most_threads_whose_stacks_follow_each_other_have_a_slot() {
        for distance in [8 << 20, (8 << 20) + 4096, 132 << 10, 256 << 10, 1 << 20, (1 << 20) + 4096, 2 << 20, 64 << 20]
        {
            let table = SamplerTable::new();
            let threads = (1..=100u64).map(|thread| 0x7fff_f7d8_06c0 - thread * distance);
            let owners = threads.filter(|thread| table.claim(*thread).is_some()).count();
            assert!(cfg!(miri) || owners >= 95, "{distance}: {owners}");
        }
    }
}
