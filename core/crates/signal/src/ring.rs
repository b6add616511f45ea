//! The ring between every producer of samples and the one drain thread: words over memory that the caller gives and
//! never takes back. No allocation, no lock, no wait. Not here: waking the reader (`inbox`), what a word means (`entry`).
//!
//! # Rules
//! 1. A position is a word offset since the ring was made. It only grows; its index is `position & mask`.
//! 2. `tail <= head <= tail + capacity`. Producers move `head` by compare-and-swap (reserve); the reader alone moves `tail`.
//! 3. Every word outside `[tail, head)` is zero. A reserved header word stays zero until its entry is whole.
//! 4. A producer writes the words behind its header relaxed, then the header with one release store (commit). It touches
//!    nothing outside what it reserved, and never waits: no room is [`DropReason::RingFull`].
//! 5. The reader loads the header at `tail` with acquire. Zero means: reserved and not committed, or nothing there; it
//!    stops. Else it copies the entry, zeroes every word of it, then moves `tail` with one release store.
//! 6. A producer loads `tail` with acquire before it reserves: it thus sees the zeroes of what it reserves (rule 3), and
//!    its header store comes after the reader's zero in the order of that word.
//! 7. A signal between reserve and commit reserves behind the entry it interrupted; the reader sees neither until the
//!    interrupted one commits. A thread that never commits (killed alone, by no means a process can survive) stops the
//!    reader: the ring fills, and each loss is counted.
//! 8. `head()` read by a thread is above each position reserved by what happened before, and at most each position
//!    reserved by what happens after: a code that ends at `head()` is other code at and behind that position.

use crate::atomics::{AtomicBool, AtomicU64, Ordering};
use crate::entry::{context_words, Header, FIXED_WORDS, INLINE_CONTEXT_WORDS, MAX_FRAMES, NO_FRAME};
use crate::{DropReason, RawFrame, RawSample};

/// Keeps two counters that different threads write off each other's cache line.
#[repr(align(128))]
struct Alone<T>(T);

/// See the rules at the head of the module.
pub struct Ring {
    words: &'static [AtomicU64],
    mask: u64,
    head: Alone<AtomicU64>,
    tail: Alone<AtomicU64>,
    /// Rule 5 speaks of one reader; this makes it so.
    reading: AtomicBool,
}

/// Hands the right to read back on every way out of `drain`, a panic of the caller's closure included.
struct Reading<'a>(&'a AtomicBool);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Ring {
    /// A ring over `words`, which must all be zero. `None` unless their number is a power of two.
    pub fn new(words: &'static [AtomicU64]) -> Option<Self> {
        if !words.len().is_power_of_two() {
            return None;
        }
        Some(Self {
            words,
            mask: words.len() as u64 - 1,
            head: Alone(AtomicU64::new(0)),
            tail: Alone(AtomicU64::new(0)),
            reading: AtomicBool::new(false),
        })
    }

    /// Capacity in words of eight bytes.
    pub fn capacity_words(&self) -> u64 {
        self.words.len() as u64
    }

    /// The position that the next entry will have (rule 8).
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

    /// Writes one entry; gives its position. From any thread, inside handlers too.
    pub fn push(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let header = Header::of(sample);
        let position = self.reserve(header.words() as u64)?;
        self.fill(position, sample, header);
        self.commit(position, header);
        Ok(position)
    }

    /// Has the words of the next entry, if it is not larger than most, brought near.
    pub(crate) fn prefetch_next_entry(&self) {
        const WORDS: usize = 64;
        let first = (self.head.0.load(Ordering::Relaxed) & self.mask) as usize;
        if let Some(room) = self.words.get(first..self.words.len().min(first + WORDS)) {
            crate::prefetch::range(room.as_ptr().cast(), core::mem::size_of_val(room));
        }
    }

    pub(crate) fn reserve(&self, words: u64) -> Result<u64, DropReason> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let tail = self.tail.0.load(Ordering::Acquire);
            // A head older than this tail reads as zero used words; the exchange then fails and brings the newer one.
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

    /// Hands every committed entry before `up_to` to `each`, oldest first, and frees its room. Stops at the first entry
    /// that is not committed yet. Gives the number of entries. A second caller at the same time gets 0 at once.
    pub fn drain(&self, up_to: u64, each: &mut dyn FnMut(u64, RawSample<'_>)) -> usize {
        if self.reading.swap(true, Ordering::Acquire) {
            return 0;
        }
        let _reading = Reading(&self.reading);
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

    /// Empties the ring in a forked child, where the threads that were writing or reading are no more. Only while nobody
    /// pushes or drains.
    pub fn reset_after_fork(&self) {
        let head = self.head.0.load(Ordering::Acquire);
        let mut at = self.tail.0.load(Ordering::Relaxed);
        while at < head {
            self.store(at, 0, Ordering::Relaxed);
            at += 1;
        }
        self.tail.0.store(head, Ordering::Release);
        self.reading.store(false, Ordering::Release);
    }

    #[inline]
    fn load(&self, position: u64, order: Ordering) -> u64 {
        // The mask keeps the index inside; `get` keeps a panic path out of handlers.
        self.words.get((position & self.mask) as usize).map_or(0, |word| word.load(order))
    }

    #[inline]
    fn store(&self, position: u64, value: u64, order: Ordering) {
        if let Some(word) = self.words.get((position & self.mask) as usize) {
            word.store(value, order);
        }
    }
}
