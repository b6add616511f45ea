//! The lock-free ring between all producers of samples and the one drain thread, in memory that the caller provides for
//! the life of the process. No allocation, no lock, no wait. Not here: waking the reader (`inbox`), the layout of an
//! entry (`entry`).
//!
//! One ring serves the whole process. One ring per thread would take 64 KiB for each, and would have to be handed over when
//! threads start and end. Positions in one ring also order all samples, so "this code ended at position p" is a comparison.
//! The price is one contended cache line per sample, about 0.1 µs at 2 kHz × cores.
//!
//! # Rules
//! 1. A position is a word offset since the ring was created. It only grows; its index is `position & mask`.
//! 2. `tail <= head <= tail + capacity`. Producers move `head` by compare-and-swap (reserve); the reader alone moves `tail`.
//! 3. Every word outside `[tail, head)` is zero. A reserved header word stays zero until its entry is complete.
//! 4. A producer writes the words after its header relaxed, then the header with one release store (commit). It
//!    touches only the words that it reserved, and never waits: a full ring is [`DropReason::RingFull`].
//! 5. The reader loads the header at `tail` with acquire. Zero means reserved without commit, or empty: it stops.
//!    Otherwise it copies the entry, zeroes its words, then advances `tail` with one release store.
//! 6. A producer loads `tail` with acquire before it reserves. It thus sees the zeroes of the words that it reserves
//!    (rule 3). Its header store follows the reader's zero in the modification order of that word.
//! 7. A signal between reserve and commit reserves after the entry it interrupted. The reader sees neither until the
//!    interrupted producer commits. A producer that never commits would stop the reader: the ring would fill, and each
//!    loss would be counted. A signal ends such a thread only with its process.
//! 8. `head()` is above every position whose reservation happened before the call, and at most every position whose
//!    reservation happens after it. Code that is unloaded at `head()` is therefore different code from that position
//!    on.

use crate::atomics::{AtomicBool, AtomicU64, Ordering};
use crate::drop_reason::DropReason;
use crate::ring::entry::{context_words, Header, FIXED_WORDS, INLINE_CONTEXT_WORDS, MAX_FRAMES, NO_FRAME};
use crate::ring::sample::{RawFrame, RawSample};

/// Places a counter in its own pair of cache lines, to avoid false sharing.
#[repr(align(128))]
struct CacheAligned<T>(T);

/// The lock-free ring; see the rules of this module.
pub struct Ring {
    words: &'static [AtomicU64],
    mask: u64,
    head: CacheAligned<AtomicU64>,
    tail: CacheAligned<AtomicU64>,
    /// Enforces the single reader of rule 5.
    has_reader: AtomicBool,
}

/// Clears `has_reader` on every exit from `drain`, including a panic of the caller's closure.
struct ReaderGuard<'a>(&'a AtomicBool);

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Ring {
    /// A ring over `words`, all zero. `None` unless their number is a power of two.
    pub fn new(words: &'static [AtomicU64]) -> Option<Self> {
        if !words.len().is_power_of_two() {
            return None;
        }
        Some(Self {
            words,
            mask: words.len() as u64 - 1,
            head: CacheAligned(AtomicU64::new(0)),
            tail: CacheAligned(AtomicU64::new(0)),
            has_reader: AtomicBool::new(false),
        })
    }

    /// Capacity in words of eight bytes.
    pub fn capacity_words(&self) -> u64 {
        self.words.len() as u64
    }

    /// The position of the next entry (rule 8).
    pub fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// The position of the oldest entry not yet drained.
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Words reserved and not yet drained.
    pub fn used_words(&self) -> u64 {
        let tail = self.tail();
        self.head().saturating_sub(tail)
    }

    /// Whether [`Ring::drain`] would find an entry now.
    pub fn has_committed(&self) -> bool {
        self.load(self.tail(), Ordering::Acquire) != 0
    }

    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.used_words() == 0
    }

    /// Writes one entry; returns its position. From any thread, inside handlers too.
    pub fn push(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let header = Header::of(sample);
        let position = self.reserve(header.words() as u64)?;
        self.fill(position, sample, header);
        self.commit(position, header);
        Ok(position)
    }

    /// Prefetches the words of the next entry, up to 64.
    pub(crate) fn prefetch_next_entry(&self) {
        const WORDS: usize = 64;
        let first = (self.head.0.load(Ordering::Relaxed) & self.mask) as usize;
        if let Some(words) = self.words.get(first..self.words.len().min(first + WORDS)) {
            crate::prefetch::range(words.as_ptr().cast(), core::mem::size_of_val(words));
        }
    }

    pub(crate) fn reserve(&self, words: u64) -> Result<u64, DropReason> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let tail = self.tail.0.load(Ordering::Acquire);
            // A `head` older than this `tail` counts as zero used words; the compare-and-swap then fails and loads the
            // newer one.
            if head.saturating_sub(tail) + words > self.capacity_words() {
                return Err(DropReason::RingFull);
            }
            match self.head.0.compare_exchange_weak(head, head + words, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(position) => return Ok(position),
                Err(newer) => head = newer,
            }
        }
    }

    pub(crate) fn fill(&self, position: u64, sample: &RawSample<'_>, header: Header) {
        let mut at = position + 1;
        let mut put = |word: u64| {
            self.store(at, word, Ordering::Relaxed);
            at += 1;
        };
        put(sample.thread_id as u64);
        put(sample.time_ns);
        put(sample.values[0]);
        put(sample.values[1]);
        put(sample.key);
        let (context, count) = context_words(&sample.context);
        for word in context.iter().take(count) {
            put(*word);
        }
        for frame in sample.frames.iter().take(header.frames()) {
            put(frame.code);
            put(frame.at);
        }
    }

    pub(crate) fn commit(&self, position: u64, header: Header) {
        self.store(position, header.to_word(), Ordering::Release);
    }

    /// Passes every committed entry before `up_to` to `each`, oldest first, and frees its words. Stops at the first
    /// entry without commit. Returns the number of entries. A concurrent second caller gets 0 at once.
    pub fn drain(&self, up_to: u64, each: &mut dyn FnMut(u64, RawSample<'_>)) -> usize {
        if self.has_reader.swap(true, Ordering::Acquire) {
            return 0;
        }
        let _reader = ReaderGuard(&self.has_reader);
        let mut frames = [NO_FRAME; MAX_FRAMES];
        let mut entries = 0;
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        while tail < up_to {
            let Some(header) = Header::from_word(self.load(tail, Ordering::Acquire)) else { break };
            let sample = self.copy_out(tail, header, &mut frames);
            for at in tail..tail + header.words() as u64 {
                self.store(at, 0, Ordering::Relaxed);
            }
            let position = tail;
            tail += header.words() as u64;
            self.tail.0.store(tail, Ordering::Release);
            entries += 1;
            each(position, sample);
        }
        entries
    }

    fn copy_out<'f>(&self, position: u64, header: Header, frames: &'f mut [RawFrame; MAX_FRAMES]) -> RawSample<'f> {
        let word = |offset: usize| self.load(position + offset as u64, Ordering::Relaxed);
        let mut context = [0; INLINE_CONTEXT_WORDS];
        for (index, slot) in context.iter_mut().take(header.context_words()).enumerate() {
            *slot = word(FIXED_WORDS + index);
        }
        let first = FIXED_WORDS + header.context_words();
        for (index, frame) in frames.iter_mut().take(header.frames()).enumerate() {
            *frame = RawFrame { code: word(first + 2 * index), at: word(first + 2 * index + 1) };
        }
        RawSample {
            kind: header.kind,
            flags: header.flags,
            thread_id: word(1) as u32,
            time_ns: word(2),
            values: [word(3), word(4)],
            key: word(5),
            context: header.context(&context),
            frames: frames.get(..header.frames()).unwrap_or(&[]),
        }
    }

    /// Empties the ring in a forked child, where the parent's producers and reader do not exist. Only while no thread
    /// pushes or drains.
    pub fn reset_after_fork(&self) {
        let head = self.head.0.load(Ordering::Acquire);
        let mut at = self.tail.0.load(Ordering::Relaxed);
        while at < head {
            self.store(at, 0, Ordering::Relaxed);
            at += 1;
        }
        self.tail.0.store(head, Ordering::Release);
        self.has_reader.store(false, Ordering::Release);
    }

    #[inline]
    fn load(&self, position: u64, order: Ordering) -> u64 {
        // The mask keeps the index in bounds; `get` avoids a panic path in handlers.
        self.words.get((position & self.mask) as usize).map_or(0, |word| word.load(order))
    }

    #[inline]
    fn store(&self, position: u64, value: u64, order: Ordering) {
        if let Some(word) = self.words.get((position & self.mask) as usize) {
            word.store(value, order);
        }
    }
}
