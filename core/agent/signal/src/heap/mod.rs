//! The heap profile in allocator hooks: selection, and the set of live objects.

pub(crate) mod address_filter;
pub(crate) mod exponential_distance;
pub(crate) mod live_set;
#[cfg(all(test, not(loom)))]
mod live_set_tests;
pub(crate) mod sampler_table;
#[cfg(not(loom))]
mod sampling;
#[cfg(not(loom))]
pub(crate) mod thread_sampler;

#[cfg(not(loom))]
pub use sampling::{
    thread_pointer, HeapCounts, HeapSampling, HeapSettings, SelectedObject, CONCURRENT_WALKS, HEAP, LIVE_ADDRESSES,
};
