//! The JavaScript threads of the process: a fixed table that the handler searches by kernel thread id. Entries are written
//! by their own thread on normal ground, read inside its handler; nothing is ever taken back.

use std::sync::atomic::{compiler_fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::recent_signal::{Recent, MAX_RAN};
use super::wall_signal::Exchange;

pub const MAX_THREADS: usize = 512;

/// Thread id of an entry that is being filled in.
pub const CLAIMED: u32 = u32::MAX;

/// Machine code lies in regions: V8 reserves one for what it makes of JavaScript and one for each module of WebAssembly,
/// anywhere. What lies between two of them, such as a library, is not code of V8.
const MAX_REGIONS: usize = 16;
/// Code closer than this to a region belongs to it.
const REGION_GAP_BYTES: usize = 8 << 20;

#[repr(C)]
struct Region {
    low: AtomicUsize,
    high: AtomicUsize,
}

/// One JavaScript thread. What each tick reads comes first, in as few lines of the cache as it takes: at a hundred ticks a
/// second none of them is there.
#[repr(C, align(64))]
pub struct JsThread {
    pub thread_id: AtomicU32,
    /// Collections under way.
    pub collecting: AtomicU32,
    pub isolate: AtomicUsize,
    /// Set while its code is listed: what its frames are is not known yet.
    pub is_listing: AtomicBool,
    pub stack_high: AtomicUsize,
    /// Where the isolate has its own mapping of the built-in code; 0 when it runs the program's.
    pub built_in_copy: AtomicUsize,
    /// Offset in the isolate of the continuation data; 0 when not read.
    pub continuation_offset: AtomicUsize,
    /// Global handle of the storage that is the key.
    pub storage: AtomicUsize,
    /// How often code of this isolate was told to move or to end.
    pub moves: AtomicU64,
    /// How often its addresses ceased to mean what they had meant: those of code that a collection moves mean it to its end.
    pub address_epoch: AtomicU64,
    /// What ran since the loop last came round; made once, then kept with the entry.
    recent: AtomicPtr<Recent<MAX_RAN>>,
    /// Context id for threads whose storage the handler does not read: the bits of a number as JavaScript has it.
    pub current: AtomicU64,
    /// The context in which the outermost collection began.
    pub collecting_in: AtomicU64,
    /// Where machine code of this isolate lies; used ones first.
    code: [Region; MAX_REGIONS],
    /// With the wall sampler; made once, then kept with the entry.
    exchange: AtomicPtr<Exchange>,
    /// The event loop's own; see `event_loop`.
    pub loop_handle: AtomicUsize,
    /// `moves` when a collection began.
    pub collecting_from: AtomicU64,
}

static THREADS: [JsThread; MAX_THREADS] = [const {
    JsThread {
        thread_id: AtomicU32::new(0),
        isolate: AtomicUsize::new(0),
        is_listing: AtomicBool::new(false),
        stack_high: AtomicUsize::new(0),
        built_in_copy: AtomicUsize::new(0),
        code: [const { Region { low: AtomicUsize::new(usize::MAX), high: AtomicUsize::new(0) } }; MAX_REGIONS],
        current: AtomicU64::new(0),
        continuation_offset: AtomicUsize::new(0),
        storage: AtomicUsize::new(0),
        moves: AtomicU64::new(0),
        address_epoch: AtomicU64::new(0),
        recent: AtomicPtr::new(std::ptr::null_mut()),
        exchange: AtomicPtr::new(std::ptr::null_mut()),
        loop_handle: AtomicUsize::new(0),
        collecting: AtomicU32::new(0),
        collecting_in: AtomicU64::new(0),
        collecting_from: AtomicU64::new(0),
    }
}; MAX_THREADS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Entries that were ever used.
pub fn all() -> &'static [JsThread] {
    THREADS.get(..USED.load(Ordering::Acquire).min(MAX_THREADS)).unwrap_or(&[])
}

pub fn by_thread_id(thread_id: u32) -> Option<&'static JsThread> {
    all().iter().find(|thread| thread.thread_id.load(Ordering::Acquire) == thread_id)
}

pub fn by_isolate(isolate: usize) -> Option<&'static JsThread> {
    all().iter().find(|thread| {
        thread.thread_id.load(Ordering::Acquire) != 0 && thread.isolate.load(Ordering::Relaxed) == isolate
    })
}

/// The entry at an address that came with a signal, if it is one.
pub fn by_address(address: usize) -> Option<&'static JsThread> {
    all().iter().find(|thread| std::ptr::from_ref(*thread) as usize == address)
}

/// A free entry, claimed for `thread_id` but not yet seen by the handler as this thread's. Normal ground only.
pub fn claim() -> Option<&'static JsThread> {
    let (index, thread) = THREADS.iter().enumerate().find(|(_, thread)| {
        thread.thread_id.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })?;
    for region in &thread.code {
        region.high.store(0, Ordering::Relaxed);
        region.low.store(usize::MAX, Ordering::Relaxed);
    }
    for word in [&thread.built_in_copy, &thread.continuation_offset, &thread.storage] {
        word.store(0, Ordering::Relaxed);
    }
    thread.loop_handle.store(0, Ordering::Relaxed);
    if thread.recent().is_none() {
        thread.recent.store(Box::into_raw(Box::new(Recent::new())), Ordering::Release);
    }
    match thread.exchange() {
        Some(exchange) => exchange.reset(),
        None => thread.exchange.store(Box::into_raw(Box::new(Exchange::new())), Ordering::Release),
    }
    thread.current.store(0, Ordering::Relaxed);
    thread.collecting.store(0, Ordering::Relaxed);
    USED.fetch_max(index + 1, Ordering::AcqRel);
    Some(thread)
}

impl JsThread {
    /// Gives the entry back. On the thread itself: its handler, which may come between any two of these, finds either
    /// the isolate or no entry.
    pub fn release(&self) {
        self.thread_id.store(CLAIMED, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        self.isolate.store(0, Ordering::Relaxed);
        self.thread_id.store(0, Ordering::Release);
    }

    pub fn exchange(&self) -> Option<&'static Exchange> {
        // SAFETY: only leaked boxes are ever stored there.
        unsafe { self.exchange.load(Ordering::Acquire).as_ref() }
    }

    /// What ran since the loop last came round.
    pub fn recent(&self) -> Option<&'static Recent<MAX_RAN>> {
        // SAFETY: only leaked boxes are ever stored there.
        unsafe { self.recent.load(Ordering::Acquire).as_ref() }
    }

    /// Takes machine code into account. Where there are more regions than places, its frames are native ones.
    pub fn cover(&self, start: usize, len: usize) {
        let end = start.saturating_add(len);
        for Region { low, high } in &self.code {
            let was =
                low.compare_exchange(usize::MAX, start, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|low| low);
            let is_near = || {
                start <= high.load(Ordering::Relaxed).saturating_add(REGION_GAP_BYTES)
                    && was <= end.saturating_add(REGION_GAP_BYTES)
            };
            if was == usize::MAX || is_near() {
                low.fetch_min(start, Ordering::Relaxed);
                high.fetch_max(end, Ordering::Relaxed);
                return;
            }
        }
    }

    pub fn has_code(&self, pc: usize) -> bool {
        let regions = self.code.iter().map(|region| (region.low.load(Ordering::Relaxed), &region.high));
        let mut used = regions.take_while(|(low, _)| *low != usize::MAX);
        used.any(|(low, high)| pc >= low && pc < high.load(Ordering::Relaxed))
    }
}

/// Where the program's built-in code lies. Most isolates run a mapping of their own of it: its addresses are said as
/// those of the program's, so that one name and one landmark serve all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltIn {
    pub start: usize,
    pub len: usize,
}

impl BuiltIn {
    pub fn holds(self, pc: usize) -> bool {
        pc.wrapping_sub(self.start) < self.len
    }

    /// The address that `pc` has in the program's own, when it lies in the mapping that begins at `copy`.
    pub fn said_by_program(self, pc: usize, copy: usize) -> usize {
        let offset = pc.wrapping_sub(copy);
        if copy != 0 && offset < self.len {
            self.start.wrapping_add(offset)
        } else {
            pc
        }
    }
}

/// Code of V8 that the walk must know; the same for every isolate of the process. Sorted, no overlaps.
#[derive(Default)]
pub struct Landmarks {
    /// The interpreter's entry: a frame that returns there is interpreted.
    pub interpreter: Vec<(usize, usize)>,
    /// From C++ into JavaScript, byte-code handlers, calls out: no frames of the program.
    pub hidden: Vec<(usize, usize)>,
    /// All built-in code.
    pub built_in: BuiltIn,
}

static LANDMARKS: AtomicPtr<Landmarks> = AtomicPtr::new(std::ptr::null_mut());

/// Publishes landmarks; earlier ones stay, since a handler may read them.
pub fn publish(landmarks: Landmarks) {
    LANDMARKS.store(Box::into_raw(Box::new(landmarks)), Ordering::Release);
}

pub fn landmarks() -> Option<&'static Landmarks> {
    // SAFETY: only leaked boxes are ever stored there.
    unsafe { LANDMARKS.load(Ordering::Acquire).as_ref() }
}

/// Whether one of the sorted ranges holds `pc`.
pub fn holds(ranges: &[(usize, usize)], pc: usize) -> bool {
    let after = ranges.partition_point(|range| range.0 <= pc);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| pc < range.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_an_isolates_own_mapping_is_said_as_the_programs() {
        let built_in = BuiltIn { start: 1000, len: 100 };
        let said = |pc| built_in.said_by_program(pc, 7000);
        assert_eq!([said(7000), said(7099), said(7100), said(6999), said(1005)], [1000, 1099, 7100, 6999, 1005]);
        assert_eq!(built_in.said_by_program(50, 0), 50, "an isolate without one");
    }

    #[test]
    fn what_lies_between_two_regions_of_code_is_no_code() {
        let thread = claim().unwrap();
        let (first, second) = (1 << 40, 1 << 46);
        for (start, len) in [(first, 64), (second, 64), (first + 4096, 64), (second - 4096, 64)] {
            thread.cover(start, len);
        }
        let held = [first, first + 4159, second - 4096, second + 63].map(|pc| thread.has_code(pc));
        assert_eq!(held, [true; 4]);
        let not = [first - 1, first + 4160, 1 << 43, second - 4097, second + 64].map(|pc| thread.has_code(pc));
        assert_eq!(not, [false; 5]);
        for region in 0..2 * MAX_REGIONS {
            thread.cover((region + 1) << 32, 64);
        }
        assert!(thread.has_code(first) && !thread.has_code((2 * MAX_REGIONS) << 32));
        thread.release();
    }

    #[test]
    fn an_entry_given_back_is_free_and_has_no_isolate() {
        let thread = claim().unwrap();
        thread.isolate.store(4096, Ordering::Relaxed);
        thread.thread_id.store(77, Ordering::Release);
        assert!(by_thread_id(77).is_some() && by_isolate(4096).is_some());
        thread.release();
        assert!(by_thread_id(77).is_none() && by_isolate(4096).is_none());
        assert_eq!((thread.thread_id.load(Ordering::Relaxed), thread.isolate.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_range_holds_its_first_address_and_not_its_end() {
        let ranges = [(10, 20), (30, 31)];
        let held: Vec<usize> = (0..40).filter(|pc| holds(&ranges, *pc)).collect();
        assert_eq!(held, (10..20).chain([30]).collect::<Vec<_>>());
        assert!(!holds(&[], 5));
    }
}
