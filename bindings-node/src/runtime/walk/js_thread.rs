//! The JavaScript threads of the process: a fixed table that the handler searches by kernel thread id. A thread writes its own
//! entry outside handlers and reads it inside its handler; entries are never freed.

use std::sync::atomic::{compiler_fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::turn_stacks::{ObservedWaits, TurnStacks, MAX_RUNNING_STACKS};

pub const MAX_THREADS: usize = 512;

/// Thread id of an entry under construction.
pub const CLAIMED: u32 = u32::MAX;

/// Regions of machine code: V8 reserves one for JavaScript and one for each WebAssembly module, at any address. Memory between
/// two regions, such as a library, is not code of V8.
const MAX_REGIONS: usize = 16;
/// Code within this distance of a region extends it.
const REGION_GAP_BYTES: usize = 8 << 20;

#[repr(C)]
struct Region {
    low: AtomicUsize,
    high: AtomicUsize,
}

/// One JavaScript thread. The fields that each tick reads come first, in as few cache lines as possible: at 100 ticks per
/// second all of them miss the cache.
#[repr(C, align(64))]
pub struct JsThread {
    pub thread_id: AtomicU32,
    /// Collections in progress, which nest.
    pub active_collections: AtomicU32,
    pub isolate: AtomicUsize,
    /// Set while V8 lists the isolate's code: frames of V8 cannot be classified yet.
    pub is_listing: AtomicBool,
    pub stack_high: AtomicUsize,
    /// Start of the isolate's remapped builtins; 0 when it runs the program's embedded builtins.
    pub remapped_builtins: AtomicUsize,
    /// Offset in the isolate of the continuation-preserved embedder data; 0 when the handler does not read it.
    pub continuation_offset: AtomicUsize,
    /// Global handle of the AsyncLocalStorage, which is the key in that data.
    pub storage: AtomicUsize,
    /// Count of moved or removed code in this isolate.
    pub code_moves: AtomicU64,
    /// Incremented when addresses change their meaning. Code that a collection moves keeps its old address until the collection
    /// ends.
    pub address_epoch: AtomicU64,
    /// Stacks of the event loop's current turn; set once, then kept with the entry.
    turn_stacks: AtomicPtr<TurnStacks<MAX_RUNNING_STACKS>>,
    /// Context id for threads whose storage the handler does not read: the bits of a double.
    pub current: AtomicU64,
    /// The context at the start of the outermost collection.
    pub collection_context: AtomicU64,
    /// Machine code of this isolate; used regions first.
    code: [Region; MAX_REGIONS],
    /// Waits that the wall sampler observed; set once, then kept with the entry.
    waits: AtomicPtr<ObservedWaits>,
    /// libuv handle of `event_loop`.
    pub loop_handle: AtomicUsize,
    /// Monotonic time at which the current turn of the event loop entered JavaScript; 0 while it waits for events.
    pub turn_began_ns: AtomicU64,
    /// `code_moves` at the start of a collection.
    pub moves_at_collection: AtomicU64,
    /// Start of the outermost collection, monotonic; 0 for none.
    pub collection_started_ns: AtomicU64,
    /// The last request of the heap profile that this thread has served.
    pub heap_request_served: AtomicU64,
    /// The thread waits in a call of the profiler and serves no request.
    pub is_in_profiler: AtomicBool,
}

static THREADS: [JsThread; MAX_THREADS] = [const {
    JsThread {
        thread_id: AtomicU32::new(0),
        isolate: AtomicUsize::new(0),
        is_listing: AtomicBool::new(false),
        stack_high: AtomicUsize::new(0),
        remapped_builtins: AtomicUsize::new(0),
        code: [const { Region { low: AtomicUsize::new(usize::MAX), high: AtomicUsize::new(0) } }; MAX_REGIONS],
        current: AtomicU64::new(0),
        continuation_offset: AtomicUsize::new(0),
        storage: AtomicUsize::new(0),
        code_moves: AtomicU64::new(0),
        address_epoch: AtomicU64::new(0),
        turn_stacks: AtomicPtr::new(std::ptr::null_mut()),
        waits: AtomicPtr::new(std::ptr::null_mut()),
        loop_handle: AtomicUsize::new(0),
        turn_began_ns: AtomicU64::new(0),
        active_collections: AtomicU32::new(0),
        collection_context: AtomicU64::new(0),
        moves_at_collection: AtomicU64::new(0),
        collection_started_ns: AtomicU64::new(0),
        heap_request_served: AtomicU64::new(0),
        is_in_profiler: AtomicBool::new(false),
    }
}; MAX_THREADS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Entries used at least once.
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

/// The calling thread's entry.
pub fn current() -> Option<&'static JsThread> {
    by_thread_id(spanprof_os::thread_id())
}

/// Claims a free entry, which the handler does not see yet. Outside handlers only. Without [`JsThread::set_turn_stacks`] and
/// [`JsThread::set_waits`], the thread observes no stacks.
pub fn claim() -> Option<&'static JsThread> {
    let (index, thread) = THREADS.iter().enumerate().find(|(_, thread)| {
        thread.thread_id.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })?;
    for region in &thread.code {
        region.high.store(0, Ordering::Relaxed);
        region.low.store(usize::MAX, Ordering::Relaxed);
    }
    for word in [&thread.remapped_builtins, &thread.continuation_offset, &thread.storage] {
        word.store(0, Ordering::Relaxed);
    }
    thread.loop_handle.store(0, Ordering::Relaxed);
    thread.turn_began_ns.store(0, Ordering::Relaxed);
    if let Some(waits) = thread.waits() {
        waits.reset();
    }
    thread.current.store(0, Ordering::Relaxed);
    thread.active_collections.store(0, Ordering::Relaxed);
    USED.fetch_max(index + 1, Ordering::AcqRel);
    Some(thread)
}

impl JsThread {
    /// Frees the entry. Runs on the thread itself: a handler between any two of these stores finds either the isolate or no
    /// entry.
    pub fn release(&self) {
        self.thread_id.store(CLAIMED, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        self.isolate.store(0, Ordering::Relaxed);
        self.thread_id.store(0, Ordering::Release);
    }

    /// Waits that the wall sampler observed.
    pub fn waits(&self) -> Option<&'static ObservedWaits> {
        // SAFETY: only references of static lifetime are stored there.
        unsafe { self.waits.load(Ordering::Acquire).as_ref() }
    }

    /// Stacks of the event loop's current turn.
    pub fn turn_stacks(&self) -> Option<&'static TurnStacks<MAX_RUNNING_STACKS>> {
        // SAFETY: only references of static lifetime are stored there.
        unsafe { self.turn_stacks.load(Ordering::Acquire).as_ref() }
    }

    /// Sets where the handler records the stacks of a turn. They stay with the entry.
    pub fn set_turn_stacks(&self, turn_stacks: &'static TurnStacks<MAX_RUNNING_STACKS>) {
        self.turn_stacks.store(std::ptr::from_ref(turn_stacks).cast_mut(), Ordering::Release);
    }

    /// Sets where the handler records waits. They stay with the entry.
    pub fn set_waits(&self, waits: &'static ObservedWaits) {
        self.waits.store(std::ptr::from_ref(waits).cast_mut(), Ordering::Release);
    }

    /// Adds machine code to the regions. When all regions are in use, its frames count as native.
    pub fn add_code(&self, start: usize, len: usize) {
        let end = start.saturating_add(len);
        for Region { low, high } in &self.code {
            let region_low =
                low.compare_exchange(usize::MAX, start, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|low| low);
            let is_near = || {
                start <= high.load(Ordering::Relaxed).saturating_add(REGION_GAP_BYTES)
                    && region_low <= end.saturating_add(REGION_GAP_BYTES)
            };
            if region_low == usize::MAX || is_near() {
                low.fetch_min(start, Ordering::Relaxed);
                high.fetch_max(end, Ordering::Relaxed);
                return;
            }
        }
    }

    /// First addresses and ends of its regions of machine code.
    #[cfg(feature = "record-stacks")]
    pub fn code_regions(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let regions = self.code.iter().map(|Region { low, high }| [low, high].map(|word| word.load(Ordering::Relaxed)));
        regions.take_while(|[low, _]| *low != usize::MAX).map(|[low, high]| (low, high))
    }

    pub fn has_code(&self, pc: usize) -> bool {
        let regions = self.code.iter().map(|region| (region.low.load(Ordering::Relaxed), &region.high));
        let mut used = regions.take_while(|(low, _)| *low != usize::MAX);
        used.any(|(low, high)| pc >= low && pc < high.load(Ordering::Relaxed))
    }
}

/// V8's embedded builtins in the program's image. Most isolates run a remapped copy of them, whose addresses are translated to
/// the program's, so that one name and one range serve all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedBuiltins {
    pub start: usize,
    pub len: usize,
}

impl EmbeddedBuiltins {
    pub fn contains(self, pc: usize) -> bool {
        pc.wrapping_sub(self.start) < self.len
    }

    /// Translates `pc` from the remapped builtins at `remapped` to the program's image; 0 for an isolate without them.
    pub fn canonical_address(self, pc: usize, remapped: usize) -> usize {
        let offset = pc.wrapping_sub(remapped);
        if remapped != 0 && offset < self.len {
            self.start.wrapping_add(offset)
        } else {
            pc
        }
    }
}

/// Ranges of builtins that the walk distinguishes; the same for every isolate of the process. Sorted, no overlaps.
#[derive(Clone, Copy, Default)]
pub struct BuiltinRanges<'a> {
    /// The interpreter's entry trampolines: a frame that returns there is interpreted.
    pub interpreter: &'a [(usize, usize)],
    /// Entries into JavaScript, bytecode handlers, calls out of it: no frames of the program.
    pub hidden: &'a [(usize, usize)],
    /// All embedded builtins.
    pub builtins: EmbeddedBuiltins,
    /// First addresses of all builtins.
    pub starts: &'a [usize],
    /// Offsets from V8's root register of the program counter and the frame pointer that its code stores when it calls a C
    /// function.
    pub fast_call: Option<[isize; 2]>,
}

impl BuiltinRanges<'_> {
    /// First address of the builtin that contains `pc`, a canonical address.
    pub fn start_of(&self, pc: usize) -> Option<usize> {
        let index = self.starts.partition_point(|start| *start <= pc).checked_sub(1)?;
        self.builtins.contains(pc).then(|| self.starts.get(index).copied()).flatten()
    }
}

static BUILTIN_RANGES: AtomicPtr<BuiltinRanges<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// Publishes the ranges to the handler.
pub fn publish(builtin_ranges: &'static BuiltinRanges<'static>) {
    BUILTIN_RANGES.store(std::ptr::from_ref(builtin_ranges).cast_mut(), Ordering::Release);
}

pub fn builtin_ranges() -> Option<&'static BuiltinRanges<'static>> {
    // SAFETY: only references of static lifetime are stored there.
    unsafe { BUILTIN_RANGES.load(Ordering::Acquire).as_ref() }
}

/// Whether one of the sorted ranges contains `pc`.
pub fn contains(ranges: &[(usize, usize)], pc: usize) -> bool {
    let after = ranges.partition_point(|range| range.0 <= pc);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| pc < range.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_remapped_builtins_is_translated_to_the_programs_image() {
        let builtins = EmbeddedBuiltins { start: 1000, len: 100 };
        let canonical = |pc| builtins.canonical_address(pc, 7000);
        assert_eq!(
            [canonical(7000), canonical(7099), canonical(7100), canonical(6999), canonical(1005)],
            [1000, 1099, 7100, 6999, 1005]
        );
        assert_eq!(builtins.canonical_address(50, 0), 50, "an isolate without remapped builtins");
    }

    #[test]
    fn memory_between_two_code_regions_is_not_code() {
        let thread = claim().unwrap();
        let (first, second) = (1 << 40, 1 << 46);
        for (start, len) in [(first, 64), (second, 64), (first + 4096, 64), (second - 4096, 64)] {
            thread.add_code(start, len);
        }
        let contained = [first, first + 4159, second - 4096, second + 63].map(|pc| thread.has_code(pc));
        assert_eq!(contained, [true; 4]);
        let outside = [first - 1, first + 4160, 1 << 43, second - 4097, second + 64].map(|pc| thread.has_code(pc));
        assert_eq!(outside, [false; 5]);
        for region in 0..2 * MAX_REGIONS {
            thread.add_code((region + 1) << 32, 64);
        }
        assert!(thread.has_code(first) && !thread.has_code((2 * MAX_REGIONS) << 32));
        thread.release();
    }

    #[test]
    fn a_released_entry_is_free_and_has_no_isolate() {
        let thread = claim().unwrap();
        thread.isolate.store(4096, Ordering::Relaxed);
        thread.thread_id.store(77, Ordering::Release);
        assert!(by_thread_id(77).is_some() && by_isolate(4096).is_some());
        thread.release();
        assert!(by_thread_id(77).is_none() && by_isolate(4096).is_none());
        assert_eq!((thread.thread_id.load(Ordering::Relaxed), thread.isolate.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_range_contains_its_first_address_and_not_its_end() {
        let ranges = [(10, 20), (30, 31)];
        let contained: Vec<usize> = (0..40).filter(|pc| contains(&ranges, *pc)).collect();
        assert_eq!(contained, (10..20).chain([30]).collect::<Vec<_>>());
        assert!(!contains(&[], 5));
    }
}
