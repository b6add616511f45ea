//! Records which code objects have been sampled, and in which generation: a fixed hash table over code addresses. Written in
//! handlers (a code object is sampled) and by the code-end hook; read by both and by the resolver. No allocation, no lock, no
//! wait. Not here: the copy of an ended code object's names (`code_lifetime`, which also holds the proof).
//!
//! # Rules
//! 1. A bucket's **generation** only grows (32 bits, wrapping). It grows once for each marked code object of the bucket that
//!    ends, after its tombstone was queued.
//! 2. A bucket's **owner** is the one code object marked in it. [`SHARED`] is set once two collide: from then on, each code
//!    object of the bucket counts as marked.
//! 3. A code object is marked before the handler that sampled it commits its sample. An end clears only its own mark.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// 384 KiB in `.bss`; pages are touched only for sampled code objects.
const BUCKETS: usize = 1 << 14;
/// Several code objects collided in this bucket. Code addresses are multiples of 8, so the bit is free.
const SHARED: u64 = 1;
/// Set in [`Bucket::lost_through`] once a tombstone was lost; the low 32 bits are the generation.
const ANY_LOST: u64 = 1 << 32;

#[repr(C, align(8))]
struct Bucket {
    owner: AtomicU64,
    /// The newest generation whose tombstone was lost: frames up to it cannot be distinguished without one.
    lost_through: AtomicU64,
    generation: AtomicU32,
}

/// Code objects that have been sampled.
pub struct SampledCode {
    buckets: [Bucket; BUCKETS],
    /// Count of code objects that began to end, marked or not; the wall walk compares it before and after.
    ends_begun: AtomicU64,
}

/// Whether generation `a` is at or after `b`; both wrap.
pub const fn is_at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

/// The table of the process: the interpreter's code objects are global too.
pub static SAMPLED_CODE: SampledCode = SampledCode::new();

impl SampledCode {
    pub const fn new() -> Self {
        Self {
            buckets: [const {
                Bucket { owner: AtomicU64::new(0), lost_through: AtomicU64::new(0), generation: AtomicU32::new(0) }
            }; BUCKETS],
            ends_begun: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn bucket(&self, code: u64) -> &Bucket {
        // Objects are 16 bytes apart; the multiplication spreads adjacent addresses.
        let index = (code >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros());
        &self.buckets[index as usize & (BUCKETS - 1)]
    }

    /// The generation, if `code` is the owner of its bucket: it was validated when it was marked, and has not ended since.
    #[inline(always)]
    pub fn generation_if_marked(&self, code: u64) -> Option<u32> {
        let bucket = self.bucket(code);
        // SeqCst: the wall walk's side of rule 3 (see `code_lifetime`, case 4). The generation is read first. If it is read
        // after an end, an owner equal to `code` belongs to the next lifetime, and the generation is that of this lifetime.
        let generation = bucket.generation.load(Ordering::SeqCst);
        (bucket.owner.load(Ordering::SeqCst) == code).then_some(generation)
    }

    /// Marks `code` and returns its generation.
    #[inline(never)]
    pub fn mark(&self, code: u64) -> u32 {
        let bucket = self.bucket(code);
        if let Err(owner) = bucket.owner.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst) {
            if owner != code && owner & SHARED == 0 {
                bucket.owner.fetch_or(SHARED, Ordering::SeqCst);
            }
        }
        bucket.generation.load(Ordering::SeqCst)
    }

    /// Counts the end of a code object. True when it may have been sampled: queue its tombstone, then call [`Self::end`].
    #[inline]
    pub fn begin_end(&self, code: u64) -> bool {
        self.ends_begun.fetch_add(1, Ordering::SeqCst);
        let owner = self.bucket(code).owner.load(Ordering::SeqCst);
        owner == code || owner & SHARED != 0
    }

    /// Increments the generation, after the tombstone of `code` was queued (or `lost`): the next code object at this address is
    /// another one.
    pub fn end(&self, code: u64, lost: bool) {
        let bucket = self.bucket(code);
        if lost {
            self.lose(code, bucket.generation.load(Ordering::SeqCst));
        }
        let _ = bucket.owner.compare_exchange(code, 0, Ordering::SeqCst, Ordering::SeqCst);
        bucket.generation.fetch_add(1, Ordering::SeqCst);
        // Orders stores that reuse the memory after the new generation. Pairs with the fence in `FrameResolver::read_live`.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The current generation of `code`.
    pub fn generation(&self, code: u64) -> u32 {
        self.bucket(code).generation.load(Ordering::SeqCst)
    }

    /// Whether a frame of `code` sampled in `generation` may be of a lifetime whose tombstone was lost.
    pub fn is_lost(&self, code: u64, generation: u32) -> bool {
        let lost = self.bucket(code).lost_through.load(Ordering::SeqCst);
        lost & ANY_LOST != 0 && is_at_or_after(lost as u32, generation)
    }

    /// Records that the tombstone of `code` that ended at `generation` was lost or has expired. Not called in handlers.
    pub fn lose(&self, code: u64, generation: u32) {
        let newest = |lost: u64| {
            let is_newer = lost & ANY_LOST == 0 || is_at_or_after(generation, lost as u32);
            is_newer.then_some(ANY_LOST | u64::from(generation))
        };
        let _ = self.bucket(code).lost_through.fetch_update(Ordering::SeqCst, Ordering::SeqCst, newest);
    }

    /// Removes all marks and generations.
    #[cfg(any(test, feature = "record-stacks"))]
    pub fn clear(&self) {
        for bucket in &self.buckets {
            bucket.owner.store(0, Ordering::Relaxed);
            bucket.lost_through.store(0, Ordering::Relaxed);
            bucket.generation.store(0, Ordering::Relaxed);
        }
    }

    /// Number of code objects that began to end.
    #[inline]
    pub fn ends_begun(&self) -> u64 {
        self.ends_begun.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Box<SampledCode> {
        Box::new(SampledCode::new())
    }

    /// Another code address of the same bucket.
    fn colliding_code(table: &SampledCode, code: u64) -> u64 {
        (1..).map(|step| code + step * 16).find(|&other| std::ptr::eq(table.bucket(other), table.bucket(code))).unwrap()
    }

    #[test]
    fn a_code_object_that_was_never_sampled_needs_no_tombstone() {
        let table = table();
        assert!(!table.begin_end(0x7000_0000_1000));
        assert_eq!(table.generation(0x7000_0000_1000), 0);
        assert_eq!(table.ends_begun(), 1);
    }

    #[test]
    fn the_next_code_object_at_an_address_has_another_generation() {
        let table = table();
        let code = 0x7000_0000_1000;
        let first = table.mark(code);
        assert_eq!(table.generation_if_marked(code), Some(first));
        assert!(table.begin_end(code));
        table.end(code, false);
        assert_eq!(table.generation_if_marked(code), None);
        assert_ne!(table.mark(code), first);
    }

    #[test]
    fn code_objects_that_share_a_bucket_all_count_as_sampled() {
        let table = table();
        let code = 0x7000_0000_1000;
        let other = colliding_code(&table, code);
        table.mark(code);
        let sampled = table.mark(other);
        assert!(table.begin_end(code));
        table.end(code, false);
        assert!(table.begin_end(other), "its mark must survive the end of the other code object");
        assert!(table.generation(other) >= sampled);
    }

    #[test]
    fn a_lost_tombstone_invalidates_the_frames_up_to_it_and_no_later_ones() {
        let table = table();
        let code = 0x7000_0000_1000;
        let sampled = table.mark(code);
        assert!(!table.is_lost(code, sampled));
        table.begin_end(code);
        table.end(code, true);
        assert!(table.is_lost(code, sampled));
        assert!(!table.is_lost(code, table.mark(code)));
        table.lose(code, sampled.wrapping_sub(1));
        assert!(table.is_lost(code, sampled), "an older loss must not replace a newer one");
    }

    #[test]
    fn generations_are_compared_across_the_wraparound() {
        assert!(is_at_or_after(0, u32::MAX));
        assert!(!is_at_or_after(u32::MAX, 0));
        assert!(is_at_or_after(7, 7));
    }
}
