//! Samples that HotSpot reports although no sample was due, from JDK 17 to 24: their object was selected with certainty. Called
//! on the allocating thread, in its `SampledObjectAlloc` event. Not for signal handlers.
//!
//! # The defect of the VM
//! To see when a sample is due, the VM ends a thread's allocation buffer (TLAB) early, at the sample point, or counts the rest
//! of the buffer if the point lies behind it. An object that does not fit may be allocated outside of the buffer instead. The
//! VM then sets a new point, but adds its distance to the distance of the old point
//! (`ThreadLocalAllocBuffer::set_sample_end`, `MemAllocator::Allocation::notify_allocation_jvmti_sampler` in
//! `hotspot/share/gc/shared`), so that it counts too many bytes with the next object that begins a buffer: that object is
//! almost always reported. Small objects after large ones thus had up to 2.4 times their bytes.
//!
//! Corrected in JDK 25 (JDK-8356372), where `threadHeapSampler.hpp` counts the bytes of each thread.
//!
//! # Lost bytes
//! An object outside of the buffer does not count the bytes that the thread allocated in the buffer since the former point,
//! a part of the interval at most. Where there are surplus samples, the VM therefore samples at a fraction of the interval,
//! and `allocations` keeps that fraction of its samples.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::runtime::capture::thread_rows::{ThreadRow, ROWS};
use crate::runtime::vm::memory::{int, pointer, word};
use crate::runtime::vm::structs::VmStructs;

/// The first version whose sampler counts all bytes once.
const CORRECTED: u32 = 25;

static OFFSETS: OnceLock<Option<BufferOffsets>> = OnceLock::new();
/// `_slow_allocations` of a thread at its last sample inside a buffer, by the index of its row.
static OUTSIDE: [AtomicU32; ROWS] = [const { AtomicU32::new(0) }; ROWS];

/// Fields of a thread's allocation buffer, as offsets in its JavaThread.
struct BufferOffsets {
    start: usize,
    top: usize,
    /// Objects allocated outside of the buffer since the last collection.
    outside: usize,
}

/// Reads the offsets, for a VM with the defect.
pub fn find_offsets(structures: &VmStructs, java_version: u32) {
    OFFSETS.get_or_init(|| {
        let buffer = structures.offset_if_known("Thread", "_tlab").filter(|_| java_version < CORRECTED)?;
        let field = |name: &str| Some(buffer + structures.offset_if_known("ThreadLocalAllocBuffer", name)?);
        Some(BufferOffsets { start: field("_start")?, top: field("_top")?, outside: field("_slow_allocations")? })
    });
}

/// A new thread has the row.
pub fn thread_starts(row: &ThreadRow) {
    if let Some(outside) = OUTSIDE.get(row.index()) {
        outside.store(0, Ordering::Relaxed);
    }
}

/// Whether the VM reported the object at `address` because it counted too much. Called once for each sample of the thread.
pub fn is_surplus(row: &ThreadRow, address: usize) -> bool {
    OFFSETS.get().and_then(Option::as_ref).is_some_and(|offsets| offsets.is_surplus(row, address).unwrap_or(false))
}

impl BufferOffsets {
    fn is_surplus(&self, row: &ThreadRow, address: usize) -> Option<bool> {
        let thread = Some(row.java_thread()).filter(|thread| *thread != 0)?;
        let (start, top) = (pointer(thread + self.start)?, word(thread + self.top)?);
        if !(start..top).contains(&address) {
            return Some(false);
        }
        let outside = int(thread + self.outside)? as u32;
        // A sample inside a buffer ends the VM's wrong count.
        let before = OUTSIDE.get(row.index())?.swap(outside, Ordering::Relaxed);
        Some(address == start && outside != before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::threads::registry;

    #[test]
    fn the_first_object_of_a_buffer_is_surplus_after_objects_outside_of_it() {
        const BUFFER: usize = 0x10_0000;
        let offsets = BufferOffsets { start: 0, top: 8, outside: 16 };
        let mut thread = [BUFFER, BUFFER + 4096, 0];
        let row = registry::register(900_302, thread.as_ptr() as usize).unwrap();
        thread_starts(row);
        let mut reported = |outside: usize, address: usize| {
            thread[2] = outside;
            // The row has the address of the array.
            std::hint::black_box(&mut thread);
            offsets.is_surplus(row, address).unwrap()
        };
        assert!(!reported(0, BUFFER), "nothing was allocated outside");
        assert!(!reported(2, 0x20_0000), "an object outside is due");
        assert!(reported(2, BUFFER), "it follows objects outside");
        assert!(!reported(2, BUFFER), "nothing was allocated outside since");
        assert!(!reported(3, BUFFER + 1024), "the object reached the sample point");
        assert!(!reported(3, BUFFER), "the count was right again");
        assert!(reported(1, BUFFER), "a collection reset the number");
        registry::unregister(900_302);
    }
}
