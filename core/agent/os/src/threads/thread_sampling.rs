//! The countdown of the heap profile of each thread, in thread-local storage: the variable is a constant without a
//! destructor, so no access to it initializes or registers anything. In a program it is part of the thread's initial block,
//! at a constant offset. In a library that is loaded at run time, the dynamic linker may allocate the block at the first
//! access, with the C library's allocator and not with the hooked one. Used by allocator hooks, never in a signal handler.

use spanprof_signal::{SelectedAllocation, ThreadSampler, ThreadSampling};

thread_local! {
    static SAMPLER: ThreadSampler = const { ThreadSampler::new() };
}
const _: () = assert!(!std::mem::needs_drop::<ThreadSampler>());

/// Counts an allocation of the calling thread; false when it needs [`select`] instead.
#[inline(always)]
pub fn deduct(bytes: usize) -> bool {
    SAMPLER.with(|sampler| sampler.deduct(bytes))
}

/// Counts an allocation for which [`deduct`] returned false; `None` when it is not selected.
pub fn select(bytes: usize) -> Option<SelectedAllocation> {
    SAMPLER.with(|sampler| sampler.select(bytes))
}

/// Changes which allocations of the calling thread are selected; returns the previous value.
pub fn set_own_sampling(sampling: ThreadSampling) -> ThreadSampling {
    SAMPLER.with(|sampler| sampler.set_sampling(sampling))
}
