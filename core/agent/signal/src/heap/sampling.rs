//! The heap profile's part inside allocator hooks: selects allocations, records them in the ring and in the live set, and
//! removes them when they are freed. One instance per process, [`HEAP`]. The hooks of a binding call it on the allocating
//! thread. Not here: weights, thinning, in-use profiles (the drain thread).
//!
//! # Rules of a hook
//! 1. Allocation: [`HeapSampling::deduct`], and if false [`HeapSampling::select`], both before the allocator is called. Then,
//!    if it was selected, [`HeapSampling::record_sample`] with the new address. Callers need no lock.
//! 2. Free: if [`HeapSampling::may_be_live`], [`HeapSampling::freed`], both before the allocator is called. The address may
//!    be allocated again as soon as the allocator has it.
//! 3. Reallocation: a free of the old object, then an allocation of the new one. If it fails, the old object is live but
//!    no longer in the set: [`HeapSampling::count_lost`].
//! 4. Callers with thread-local storage count with a `ThreadSampler` each instead of rule 1.
//! 5. A hook stays installed after [`HeapSampling::stop`]: it then selects nothing and finds no address.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::context::Context;
use crate::heap::address_filter::AddressFilter;
use crate::heap::live_set::LiveSet;
pub use crate::heap::sampler_table::thread_pointer;
use crate::heap::sampler_table::{self, THREAD_SAMPLERS};
use crate::heap::thread_sampler;
use crate::heap::thread_sampler::{SelectedAllocation, ThreadSampling};
use crate::ring::entry::{MAX_FRAMES, NO_FRAME};
use crate::ring::inbox::Inbox;
use crate::ring::sample::{RawFrame, RawSample, SampleFlags, SampleKind};
use crate::walk::buffer_pool::{claim_buffer, return_all, PooledBuffer};
use crate::walk::capture::{Captured, RawStack};

/// The heap profile of the process.
pub static HEAP: HeapSampling = HeapSampling::new();
/// The filter of the set in [`HEAP`]; a static of its own, so that its address is a constant in the hook.
pub static LIVE_ADDRESSES: AddressFilter = AddressFilter::new();

/// Parameters of a run.
pub struct HeapSettings {
    /// Mean interval between samples, bytes, at least 1.
    pub interval: u64,
    /// Seed of the random intervals.
    pub seed: u64,
    /// Maximum number of frames.
    pub max_stack_depth: usize,
    /// Receives the samples.
    pub inbox: &'static Inbox,
    /// Receives the sampled objects. Its filter is [`LIVE_ADDRESSES`].
    pub live: &'static LiveSet,
}

/// An allocation that was selected as a sample.
pub struct SelectedObject<'a> {
    /// Its key in the live set: an address that [`HeapSampling::freed`] gets later. `None`: not in the live set.
    pub address: Option<usize>,
    /// Its size, bytes.
    pub size: u64,
    /// The mean interval with which it was selected, bytes.
    pub interval: u64,
    /// The interval that corresponds to its probability of being in the live set, bytes.
    pub live_interval: u64,
    /// Context of the allocating thread.
    pub context: Context,
    /// Its stack, leaf first.
    pub frames: &'a [RawFrame],
    /// The stack is cut at the root side.
    pub truncated: bool,
}

/// Numbers since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapCounts {
    /// Allocations recorded as samples.
    pub samples: u64,
    /// Sampled objects that were freed.
    pub freed: u64,
    /// Samples lost because too many other threads took one at the same time.
    pub busy: u64,
    /// Samples that are missing in in-use profiles, because the live set had no free slot or a reallocation failed.
    pub lost_live: u64,
    /// Samples lost because the ring was full.
    pub ring_full: u64,
}

/// Threads that may walk their stacks for a sample at the same time. A walk takes microseconds.
pub const CONCURRENT_WALKS: usize = 16;
type FrameBuffer = PooledBuffer<[RawFrame; MAX_FRAMES]>;

/// State of heap sampling, shared by all allocating threads.
pub struct HeapSampling {
    /// Mean interval of the current or next run, bytes.
    interval: AtomicU64,
    /// The configured interval, bytes: the shortest one.
    configured_interval: AtomicU64,
    running: AtomicBool,
    inbox: AtomicPtr<Inbox>,
    live: AtomicPtr<LiveSet>,
    depth: AtomicUsize,
    frames: [FrameBuffer; CONCURRENT_WALKS],
    samples: AtomicU64,
    freed: AtomicU64,
    busy: AtomicU64,
    lost_live: AtomicU64,
    ring_full: AtomicU64,
}

impl Default for HeapSampling {
    fn default() -> Self {
        Self::new()
    }
}

impl HeapSampling {
    pub const fn new() -> Self {
        Self {
            interval: AtomicU64::new(1),
            configured_interval: AtomicU64::new(1),
            running: AtomicBool::new(false),
            inbox: AtomicPtr::new(core::ptr::null_mut()),
            live: AtomicPtr::new(core::ptr::null_mut()),
            depth: AtomicUsize::new(0),
            frames: [const { PooledBuffer::new([NO_FRAME; MAX_FRAMES]) }; CONCURRENT_WALKS],
            samples: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            lost_live: AtomicU64::new(0),
            ring_full: AtomicU64::new(0),
        }
    }

    /// Counts an allocation of the calling thread, for libraries without thread-local storage. False when it needs
    /// [`Self::select`] instead, which then counts it.
    #[inline(always)]
    pub fn deduct(&self, bytes: usize) -> bool {
        sampler_table::deduct(bytes)
    }

    /// False when the object at `address` is not in the live set.
    #[inline(always)]
    pub fn may_be_live(&self, address: usize) -> bool {
        LIVE_ADDRESSES.may_contain(address)
    }

    /// Counts an allocation for which [`Self::deduct`] returned false. Returns the mean interval with which it was selected,
    /// bytes; `None` when it is not a sample.
    #[cold]
    pub fn select(&self, bytes: usize) -> Option<u64> {
        match sampler_table::select(bytes)? {
            SelectedAllocation::Sample(interval) => Some(interval),
            SelectedAllocation::Probe => None,
        }
    }

    /// Records the sample at `address`, 0 if the allocation failed, with the interval of its selection by [`Self::select`] or
    /// by a `ThreadSampler`. On any number of threads at once. `capture` walks the calling thread. Preserves errno.
    #[cold]
    pub fn record_sample(
        &self,
        address: usize,
        bytes: usize,
        interval: u64,
        capture: impl FnOnce(&mut RawStack<'_>) -> Captured,
    ) {
        if !self.is_running() {
            // A change of the interval may have overtaken the stop.
            return thread_sampler::stop();
        }
        if address == 0 {
            return;
        }
        // Threads have different stacks, and rarely the same hint.
        let marker = 0u8;
        let Some(mut frames) = claim_buffer(&self.frames, &raw const marker as usize >> 12) else {
            self.busy.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
        let saved = unsafe { *errno };
        frames.with(|frames| {
            let mut stack = RawStack::new(frames.get_mut(..self.max_stack_depth()).unwrap_or(&mut []));
            let reason = match capture(&mut stack) {
                Captured::Walked => None,
                Captured::Dropped(reason) => Some([RawFrame::reason(reason)]),
            };
            self.record_selected(&SelectedObject {
                address: Some(address),
                size: bytes as u64,
                interval,
                live_interval: interval,
                context: stack.context,
                frames: reason.as_ref().map_or(stack.frames(), |reason| reason),
                truncated: stack.is_truncated(),
            });
        });
        // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
        unsafe { *errno = saved };
    }

    /// Records an allocation that the runtime's own sampler selected, on any thread and without [`Self::deduct`]. Nothing
    /// while stopped. Returns the id of its sample in the live set, or 0.
    pub fn record_selected(&self, object: &SelectedObject<'_>) -> u64 {
        if !self.is_running() {
            return 0;
        }
        // SAFETY: null, or a `'static` reference that `start` stored.
        let Some(inbox) = (unsafe { self.inbox.load(Ordering::Acquire).as_ref() }) else { return 0 };
        let live = self.live_set().zip(object.address);
        // Before the sample is in the ring: the drain thread treats a sample that is not in the set as freed.
        let sample = live.and_then(|(live, address)| live.insert(address, object.size, object.live_interval));
        if sample.is_none() && object.address.is_some() {
            self.count_lost();
        }
        let truncated = if object.truncated { SampleFlags::TRUNCATED } else { 0 };
        let submitted = inbox.submit(&RawSample {
            kind: SampleKind::Alloc,
            flags: SampleFlags(SampleFlags::SIZE_AND_INTERVAL | truncated),
            thread_id: crate::signals::forward::thread_id(),
            time_ns: crate::signals::arm::monotonic_ns(),
            values: [object.size, object.interval],
            key: sample.unwrap_or(0),
            context: object.context,
            frames: object.frames,
        });
        match (submitted, live, sample) {
            (Ok(_), _, sample) => {
                self.samples.fetch_add(1, Ordering::Relaxed);
                sample.unwrap_or(0)
            }
            (Err(_), live, sample) => {
                self.ring_full.fetch_add(1, Ordering::Relaxed);
                if let (Some((live, _)), Some(sample)) = (live, sample) {
                    live.remove_sample(sample);
                }
                0
            }
        }
    }

    /// Maximum number of frames of a stack in the current run.
    pub fn max_stack_depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed).clamp(1, MAX_FRAMES)
    }

    /// Removes the object at `address` from the live set, if it is there.
    #[cold]
    pub fn freed(&self, address: usize) -> bool {
        let removed = self.live_set().and_then(|live| live.remove(address)).is_some();
        self.freed.fetch_add(u64::from(removed), Ordering::Relaxed);
        removed
    }

    /// Counts a sampled object that is live but not in the set.
    pub fn count_lost(&self) {
        self.lost_live.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts sampling. The caller holds its lifecycle lock, and installs the hooks before or after.
    pub fn start(&self, settings: HeapSettings) {
        self.depth.store(settings.max_stack_depth, Ordering::Relaxed);
        self.inbox.store((settings.inbox as *const Inbox).cast_mut(), Ordering::Release);
        self.live.store((settings.live as *const LiveSet).cast_mut(), Ordering::Release);
        self.configured_interval.store(settings.interval.max(1), Ordering::Relaxed);
        self.interval.store(settings.interval.max(1), Ordering::Relaxed);
        self.running.store(true, Ordering::Release);
        thread_sampler::start(settings.interval, settings.seed);
    }

    /// Repeats the start of the countdowns if a hook that read the state before the start stopped them. Called by the drain
    /// thread.
    pub fn ensure_sampling(&self) {
        if self.is_running() {
            thread_sampler::set_interval(self.interval());
        }
    }

    /// Whether samples are being taken.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Takes no samples from now on. Objects stay in the live set until they are freed or the set is cleared.
    pub fn stop(&self) {
        self.running.store(false, Ordering::Release);
        thread_sampler::stop();
    }

    /// Changes the configured mean interval, bytes, from the next allocation of each thread on.
    pub fn set_interval(&self, interval: u64) {
        self.configured_interval.store(interval.max(1), Ordering::Relaxed);
        self.lengthen_interval(interval);
    }

    /// Changes the mean interval to at least the configured one, from the next allocation of each thread on. Called by the drain
    /// thread, which limits the number of samples.
    pub fn lengthen_interval(&self, interval: u64) {
        self.interval.store(interval.max(1), Ordering::Relaxed);
        if self.is_running() {
            thread_sampler::set_interval(interval);
        }
    }

    /// The current mean interval, bytes.
    pub fn interval(&self) -> u64 {
        self.interval.load(Ordering::Relaxed)
    }

    /// The configured mean interval, bytes, for a runtime whose own sampler cannot change its interval.
    pub fn configured_interval(&self) -> u64 {
        self.configured_interval.load(Ordering::Relaxed)
    }

    /// The set of the current or last run; `None` before the first.
    pub fn live_set(&self) -> Option<&'static LiveSet> {
        // SAFETY: null, or a `'static` reference that `start` stored.
        unsafe { self.live.load(Ordering::Acquire).as_ref() }
    }

    /// Calls `call`, during which each hook on the calling thread calls [`Self::select`], so that the caller observes which
    /// hooks are called.
    pub fn probe(&self, call: impl FnOnce()) {
        // A thread without a countdown calls `select` for each allocation anyway.
        let sampler = THREAD_SAMPLERS.claim(thread_pointer());
        let before = sampler.map(|sampler| sampler.set_sampling(ThreadSampling::Probe));
        call();
        if let (Some(sampler), Some(before)) = (sampler, before) {
            sampler.set_sampling(before);
        }
    }

    /// In the fork hook: stops sampling until the child starts it. The live set keeps the parent's objects.
    pub fn after_fork_in_child(&self) {
        self.stop();
        return_all(&self.frames);
    }

    /// Numbers since the start of the process.
    pub fn counts(&self) -> HeapCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HeapCounts {
            samples: value(&self.samples),
            freed: value(&self.freed),
            busy: value(&self.busy),
            lost_live: value(&self.lost_live),
            ring_full: value(&self.ring_full),
        }
    }
}
