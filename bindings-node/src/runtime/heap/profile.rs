//! V8's sampling heap profiler, called by mangled names: start, stop, and the profile that it returns. A profile is a tree of
//! call sites, and the list of the sampled objects that are live.
//!
//! # Changes in V8
//! Upstream: `include/v8-profiler.h` (`HeapProfiler`, `AllocationProfile`), the same in V8 10.2 to 14.6 (Node.js 18 to 26), except
//! that the size of `AllocationProfile::Sample` may grow (nodejs/node#62649). [`SampleLayout`] is therefore measured at start.
//!
//! | structure | fields, by offset |
//! |---|---|
//! | `AllocationProfile::Node` | name 0, script name 8, script id 16, start 20, line 24, column 28, id 32, children 40, allocations 64 |
//! | `AllocationProfile::Sample` | node id 0, size 8, count 16, sample id 24 |
//! | virtual functions of `AllocationProfile` | root 0, samples 1, destructors 2 and 3 (`DELETING_DESTRUCTOR`) |

use std::collections::HashSet;
use std::ffi::c_int;

use crate::runtime::v8::lookup;

/// One virtual function of a profile.
type ProfileFunction = unsafe extern "C" fn(*mut RawProfile) -> *const usize;

/// An `AllocationProfile`: its table of virtual functions.
#[repr(C)]
struct RawProfile {
    functions: *const [ProfileFunction; 4],
}

const ROOT: usize = 0;
const SAMPLES: usize = 1;
const DELETING_DESTRUCTOR: usize = 3;

/// `kSamplingNoFlags`: no collection before the profile is read, and collected objects leave it.
const NO_FLAGS: c_int = 0;

/// More nodes are not read; the tree of a program has hundreds.
const MAX_NODES: usize = 1 << 20;

/// V8's functions.
#[derive(Clone, Copy)]
pub struct HeapProfiler {
    heap_profiler: unsafe extern "C" fn(usize) -> usize,
    start: unsafe extern "C" fn(usize, u64, c_int, c_int) -> bool,
    stop: unsafe extern "C" fn(usize),
    profile: unsafe extern "C" fn(usize) -> *mut RawProfile,
}

impl HeapProfiler {
    /// The functions of this Node.js; `None` when one is missing.
    pub fn find() -> Option<Self> {
        let heap_profiler: Option<_> = lookup::function!(c"_ZN2v87Isolate15GetHeapProfilerEv");
        let start: Option<_> =
            lookup::function!(c"_ZN2v812HeapProfiler25StartSamplingHeapProfilerEmiNS0_13SamplingFlagsE");
        let stop: Option<_> = lookup::function!(c"_ZN2v812HeapProfiler24StopSamplingHeapProfilerEv");
        let profile: Option<_> = lookup::function!(c"_ZN2v812HeapProfiler20GetAllocationProfileEv");
        Some(Self { heap_profiler: heap_profiler?, start: start?, stop: stop?, profile: profile? })
    }

    /// Starts sampling; false when a sampler is active in the isolate.
    ///
    /// # Safety
    /// On the isolate's thread.
    pub unsafe fn start(&self, isolate: usize, interval: u64, depth: usize) -> bool {
        let depth = c_int::try_from(depth).unwrap_or(c_int::MAX);
        // SAFETY: guaranteed by the caller; the signatures are those of V8's public header.
        unsafe { (self.start)((self.heap_profiler)(isolate), interval.max(1), depth, NO_FLAGS) }
    }

    /// Stops sampling.
    ///
    /// # Safety
    /// On the isolate's thread; the active sampler is the caller's.
    pub unsafe fn stop(&self, isolate: usize) {
        // SAFETY: guaranteed by the caller; the signatures are those of V8's public header.
        unsafe { (self.stop)((self.heap_profiler)(isolate)) };
    }

    /// The current profile; `None` when no sampler is active.
    ///
    /// # Safety
    /// On the isolate's thread with a handle scope open, which must outlive the profile.
    pub unsafe fn profile(&self, isolate: usize) -> Option<AllocationProfile> {
        // SAFETY: guaranteed by the caller; the signatures are those of V8's public header.
        let raw = unsafe { (self.profile)((self.heap_profiler)(isolate)) };
        (!raw.is_null()).then(|| AllocationProfile { raw })
    }
}

/// A profile, deleted when dropped.
pub struct AllocationProfile {
    raw: *mut RawProfile,
}

/// A call site: one node of the tree.
#[derive(Clone, Copy)]
pub struct CallSite(usize);

/// A live sampled object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledObject {
    /// Unique in a run of the sampler; later samples have larger ids.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    pub call_site: u32,
}

/// The size of one `Sample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayout {
    stride: usize,
}

impl Drop for AllocationProfile {
    fn drop(&mut self) {
        self.call(DELETING_DESTRUCTOR);
    }
}

impl AllocationProfile {
    fn call(&self, function: usize) -> usize {
        // SAFETY: the profile is live until it is dropped, and its first word points to its virtual functions (Itanium C++ ABI).
        unsafe { ((&(*(*self.raw).functions))[function])(self.raw) as usize }
    }

    /// The root of the tree, which is no call site of the program.
    pub fn root(&self) -> CallSite {
        CallSite(self.call(ROOT))
    }

    /// Appends the live sampled objects.
    pub fn samples(&self, layout: SampleLayout, out: &mut Vec<SampledObject>) {
        let (begin, end) = vector(self.call(SAMPLES));
        let count = end.saturating_sub(begin) / layout.stride;
        // SAFETY: `layout` has the size of an element, and the list belongs to the profile.
        out.extend((0..count).map(|index| unsafe { sample_at(begin + index * layout.stride) }));
    }

    /// The layout with which the list fits the tree: each sample is at a node of the tree, and ids are unique. `None` when no
    /// layout or several fit. The profile must have at least two samples.
    pub fn find_layout(&self) -> Option<SampleLayout> {
        let (begin, end) = vector(self.call(SAMPLES));
        let mut sites = HashSet::new();
        self.visit(&mut |path| sites.extend(path.last().map(CallSite::id)));
        let fits = |layout: &SampleLayout| {
            let bytes = end.saturating_sub(begin);
            if bytes < 2 * layout.stride || !bytes.is_multiple_of(layout.stride) {
                return false;
            }
            let mut samples = Vec::new();
            self.samples(*layout, &mut samples);
            let ids: HashSet<u64> = samples.iter().map(|sample| sample.id).collect();
            let is_plausible =
                |sample: &SampledObject| sites.contains(&sample.call_site) && (1..1 << 40).contains(&sample.size);
            ids.len() == samples.len()
                && !ids.contains(&0)
                && ids.iter().all(|id| *id < 1 << 40)
                && samples.iter().all(is_plausible)
        };
        let mut fitting = [32, 40, 48].map(|stride| SampleLayout { stride }).into_iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// Calls `visit` with the path to each call site, root side first.
    pub fn visit(&self, visit: &mut dyn FnMut(&[CallSite])) {
        let mut path = Vec::new();
        let mut open: Vec<(CallSite, usize)> = self.root().children().map(|child| (child, 1)).collect();
        let mut visited = 0;
        while let Some((site, depth)) = open.pop() {
            visited += 1;
            if visited > MAX_NODES {
                return;
            }
            path.truncate(depth - 1);
            path.push(site);
            visit(&path);
            open.extend(site.children().map(|child| (child, depth + 1)));
        }
    }
}

/// Begin and end of a `std::vector`.
fn vector(address: usize) -> (usize, usize) {
    // SAFETY: a vector of libstdc++ or libc++ starts with these two words; the profile that it belongs to is live.
    unsafe { (*(address as *const usize), *((address + 8) as *const usize)) }
}

/// # Safety
/// `address` is that of a `Sample`.
unsafe fn sample_at(address: usize) -> SampledObject {
    // SAFETY: guaranteed by the caller; a `Sample` has these fields at these offsets (table of this module).
    unsafe {
        SampledObject {
            id: *((address + 24) as *const u64),
            size: *((address + 8) as *const u64),
            call_site: *(address as *const u32),
        }
    }
}

impl CallSite {
    fn number(&self, offset: usize) -> u32 {
        // SAFETY: a node of a live profile has a 32-bit field at each `offset` that is passed (table of this module).
        unsafe { *((self.0 + offset) as *const u32) }
    }

    fn word(&self, offset: usize) -> usize {
        // SAFETY: a node of a live profile has a word at each `offset` that is passed (table of this module).
        unsafe { *((self.0 + offset) as *const usize) }
    }

    fn children(&self) -> impl Iterator<Item = CallSite> {
        let (begin, end) = vector(self.0 + 40);
        // SAFETY: the vector's elements are pointers to nodes of the same profile.
        (begin..end).step_by(8).map(|at| CallSite(unsafe { *(at as *const usize) }))
    }

    /// Its id, unique in a run of the sampler.
    pub fn id(&self) -> u32 {
        self.number(32)
    }

    /// The function's name, as a handle (`napi_value`).
    pub fn name(&self) -> usize {
        self.word(0)
    }

    /// The name of its script, as a handle; the handle's object may be undefined.
    pub fn script_name(&self) -> usize {
        self.word(8)
    }

    /// V8's id of the script; 0 for none.
    pub fn script_id(&self) -> i32 {
        self.number(16) as i32
    }

    /// Line and column of the function's start, from 1; 0 when unknown.
    pub fn start(&self) -> (u32, u32) {
        (self.number(24), self.number(28))
    }
}
