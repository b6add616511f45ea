//! The sampler of one isolate: follows the core's heap profile, and submits the difference between two of V8's profiles. All
//! functions run on the isolate's thread, unless documented otherwise.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use spanprof_profiler::binding::{log, sample_event};

use spanprof_profiler::LogLevel;
use spanprof_signal::heap::{SelectedObject, HEAP};
use spanprof_signal::{Context, RawFrame};

use super::array_buffers;
use super::functions::{self, AllocatingFunction};
use super::node_api::{self, text, HandleScope};
use super::profile::{AllocationProfile, CallSite, HeapProfiler, SampleLayout, SampledObject};
use crate::positions::names::{CodeName, ANONYMOUS};
use crate::runtime::code::code_metadata;
use crate::runtime::v8;
use crate::runtime::walk::js_thread;

/// Frames of call sites kept between two reads.
const MAX_SITES: usize = 65_536;

/// Number of starts of the core's heap profile.
static RUN: AtomicU64 = AtomicU64::new(0);
/// Number of isolates with a sampler so far, for the keys of their objects.
static SESSIONS: AtomicU64 = AtomicU64::new(0);
static READS: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);
static LONGEST_READ_NS: AtomicU64 = AtomicU64::new(0);
static READ_NS: AtomicU64 = AtomicU64::new(0);

/// V8's functions, and the layout that the self-test found.
#[derive(Clone, Copy)]
struct Sampler {
    profiler: HeapProfiler,
    layout: SampleLayout,
}

static SAMPLER: OnceLock<Sampler> = OnceLock::new();

/// A run of V8's sampler.
struct SamplerRun {
    isolate: usize,
    /// The value of `RUN` at its start.
    run: u64,
    number: u64,
    /// V8's mean interval, bytes.
    interval: u64,
    depth: usize,
    /// The samples of the last read, by id.
    known: Vec<SampledObject>,
    /// Frames by call site.
    sites: HashMap<u32, RawFrame>,
    /// Reused memory.
    current: Vec<SampledObject>,
    frames: Vec<RawFrame>,
}

thread_local! {
    static SAMPLER_RUN: RefCell<Option<SamplerRun>> = const { RefCell::new(None) };
    /// The run in which this thread found another sampler.
    static REFUSED_RUN: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's environment begins.
pub fn begin(env: usize) {
    node_api::set_environment(env);
}

/// The calling thread's environment ends: its objects too.
pub fn end() {
    follow_core();
    stop();
    node_api::set_environment(0);
}

/// Prepares a start of the core's heap profile, on any thread. Tests the structures of V8 in the first call, which therefore
/// must come from a JavaScript thread.
///
/// # Errors
/// The reason why this process has no heap profile.
pub fn install() -> Result<(), String> {
    let profiler = HeapProfiler::find().ok_or("this Node.js does not export v8::HeapProfiler")?;
    if v8::published().is_none_or(|v8| !v8.has_gc_callbacks()) {
        return Err("this Node.js does not report its collections".to_owned());
    }
    RUN.fetch_add(1, Ordering::AcqRel);
    // Samplers of an earlier run do not count as another's.
    stop();
    if let Some(isolate) = current_isolate() {
        let layout = HandleScope::with(|| self_test(profiler, isolate)).ok_or("Node-API has no handle scope")??;
        let _ = SAMPLER.set(Sampler { profiler, layout });
        array_buffers::install(isolate);
    }
    match SAMPLER.get() {
        Some(_) => Ok(()),
        None => Err("it must be started on a JavaScript thread".to_owned()),
    }
}

fn current_isolate() -> Option<usize> {
    js_thread::current().filter(|_| node_api::has_environment()).map(|thread| thread.isolate.load(Ordering::Relaxed))
}

/// Samples every allocation of some strings and finds the layout of the samples.
fn self_test(profiler: HeapProfiler, isolate: usize) -> Result<SampleLayout, String> {
    const ANOTHER: &str = "another heap profiler of V8 is active (--heap-prof, the inspector, or another package)";
    // SAFETY: on the isolate's thread, with a handle scope open; the sampler is stopped below only if it was started here.
    unsafe {
        if !profiler.start(isolate, 1, 16) {
            return Err(ANOTHER.to_owned());
        }
        for _ in 0..8 {
            node_api::create_string();
        }
        let layout = profiler.profile(isolate).and_then(|profile| profile.find_layout());
        profiler.stop(isolate);
        layout.ok_or_else(|| "the samples of V8's heap profiler have an unknown layout".to_owned())
    }
}

/// Starts, stops or restarts this isolate's sampler as the core's heap profile requires, and submits the samples so far.
pub fn follow_core() {
    read();
    let is_current = SAMPLER_RUN.with(|cell| {
        let cell = cell.try_borrow();
        // Inside a read: nothing may change.
        let Ok(run) = cell else { return true };
        run.as_ref()
            .is_some_and(|run| run.run == RUN.load(Ordering::Acquire) && run.interval <= HEAP.configured_interval())
    });
    if HEAP.is_running() {
        current_isolate().into_iter().for_each(array_buffers::install);
    }
    match HEAP.is_running() {
        true if is_current => {}
        true => start(),
        false => stop(),
    }
}

fn start() {
    stop();
    let run = RUN.load(Ordering::Acquire);
    let (Some(sampler), Some(isolate)) = (SAMPLER.get(), current_isolate()) else { return };
    if REFUSED_RUN.get() == run {
        return;
    }
    let (interval, depth) = (HEAP.configured_interval(), HEAP.max_stack_depth());
    // SAFETY: on the isolate's thread.
    if !unsafe { sampler.profiler.start(isolate, interval, depth) } {
        REFUSED_RUN.set(run);
        return log(
            LogLevel::Warning,
            "spanprof: a thread has no heap profile: another heap profiler of V8 is active in it",
        );
    }
    let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
    SAMPLER_RUN.set(Some(SamplerRun {
        isolate,
        run,
        number,
        interval,
        depth,
        known: Vec::new(),
        sites: HashMap::new(),
        current: Vec::new(),
        frames: Vec::new(),
    }));
}

/// Ends this isolate's sampler; its objects are unknown from here on.
fn stop() {
    let Ok(Some(run)) = SAMPLER_RUN.with(|cell| cell.try_borrow_mut().map(|mut cell| cell.take())) else { return };
    // Else the core's last window still shows them.
    if HEAP.is_running() {
        run.forget_objects();
    }
    if let Some(sampler) = SAMPLER.get() {
        // SAFETY: on the isolate's thread. The run was started here; `read` ends it when V8 has stopped its sampler.
        unsafe { sampler.profiler.stop(run.isolate) };
    }
}

/// V8 is about to collect: samples of objects that it collects disappear.
pub fn before_collection() {
    spanprof_profiler::binding::ffi_guard((), read);
}

/// Reads V8's profile and submits what changed. Nothing inside another read, where V8 may collect.
fn read() {
    // V8 may collect while the thread ends.
    let lost = SAMPLER_RUN.try_with(|cell| {
        let Ok(mut cell) = cell.try_borrow_mut() else { return false };
        let (Some(run), Some(sampler)) = (cell.as_mut(), SAMPLER.get()) else { return false };
        let begun_ns = cpu_ns();
        let is_active = HandleScope::with(|| {
            // SAFETY: on the isolate's thread, inside a handle scope that outlives the profile.
            let profile = unsafe { sampler.profiler.profile(run.isolate) };
            profile.is_some_and(|profile| run.compare(&profile, sampler.layout))
        });
        let took_ns = cpu_ns().saturating_sub(begun_ns);
        READS.fetch_add(1, Ordering::Relaxed);
        READ_NS.fetch_add(took_ns, Ordering::Relaxed);
        LONGEST_READ_NS.fetch_max(took_ns, Ordering::Relaxed);
        if is_active != Some(false) {
            return false;
        }
        // Another tool stopped this sampler, or replaced it by its own, which must stay.
        run.forget_objects();
        REFUSED_RUN.set(run.run);
        *cell = None;
        true
    });
    if lost == Ok(true) {
        log(LogLevel::Warning, "spanprof: another heap profiler of V8 ended the heap profile of a thread");
    }
}

/// CPU time of this thread: elapsed time contains preemption.
fn cpu_ns() -> u64 {
    spanprof_os::thread_cpu_ns(spanprof_os::thread_id()).unwrap_or(0)
}

impl SamplerRun {
    /// The key of an object in the live set: unique in the process.
    fn key(&self, object: &SampledObject) -> usize {
        const NUMBER_SHIFT: u32 = 44;
        ((self.number as usize + 1) << NUMBER_SHIFT) | ((object.id as usize) << 4) & ((1 << NUMBER_SHIFT) - 1)
    }

    /// Submits the differences from the last read; false when the profile is another sampler's.
    fn compare(&mut self, profile: &AllocationProfile, layout: SampleLayout) -> bool {
        let mut current = std::mem::take(&mut self.current);
        current.clear();
        profile.samples(layout, &mut current);
        current.sort_unstable_by_key(|sample| sample.id);
        let last_known = self.known.last().map_or(0, |sample| sample.id);
        let (survivors, new) = current.split_at(current.partition_point(|sample| sample.id <= last_known));
        // A sample never comes back.
        let mut remaining = self.known.iter();
        let is_own = survivors.iter().all(|survivor| {
            remaining.by_ref().find(|sample| sample.id >= survivor.id).is_some_and(|sample| sample == survivor)
        });
        if !is_own {
            self.current = current;
            return false;
        }
        let mut survivors = survivors.iter().peekable();
        for sample in &self.known {
            if survivors.next_if(|survivor| survivor.id == sample.id).is_none() {
                HEAP.freed(self.key(sample));
            }
        }
        if !new.is_empty() {
            let mut by_site = new.to_vec();
            by_site.sort_unstable_by_key(|sample| sample.call_site);
            profile.visit(&mut |path| self.submit_new(path, &by_site));
        }
        self.current = std::mem::replace(&mut self.known, current);
        true
    }

    /// Submits the new samples of the last call site in `path`.
    fn submit_new(&mut self, path: &[CallSite], new: &[SampledObject]) {
        let Some(site) = path.last().map(CallSite::id) else { return };
        let first = new.partition_point(|sample| sample.call_site < site);
        let of_site = new[first..].iter().take_while(|sample| sample.call_site == site);
        if of_site.clone().next().is_none() {
            return;
        }
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        frames.extend(path.iter().rev().map(|site| self.frame(site)));
        for sample in of_site {
            self.submit(sample, &frames);
        }
        self.frames = frames;
    }

    fn submit(&self, sample: &SampledObject, frames: &[RawFrame]) {
        // The core lengthens its interval while there are too many samples. V8's remains: the sample is kept with the
        // probability with which it would have been selected at the longer interval.
        let interval = HEAP.interval().max(self.interval);
        let probability = |interval: u64| -(-(sample.size as f64) / interval as f64).exp_m1();
        const ONE: u64 = 1 << 40;
        let kept = (probability(interval) / probability(self.interval) * ONE as f64) as u64;
        if interval > self.interval && sample_event(kept, ONE).is_none() {
            return;
        }
        HEAP.record_selected(&SelectedObject {
            address: Some(self.key(sample)),
            size: sample.size,
            interval,
            live_interval: interval,
            context: Context::None,
            frames,
            truncated: frames.len() >= self.depth,
        });
    }

    fn frame(&mut self, site: &CallSite) -> RawFrame {
        if let Some(frame) = self.sites.get(&site.id()) {
            return *frame;
        }
        if self.sites.len() >= MAX_SITES {
            // Call sites whose objects were collected.
            self.sites.clear();
        }
        let (function, file) = (text(site.name()), text(site.script_name()));
        let (start_line, start_column) = site.start();
        let is_script = site.script_id() != 0;
        let function = if function.is_empty() { ANONYMOUS.into() } else { function.into() };
        let name = CodeName { function, file: file.into(), start_line, start_column, is_script };
        let script = code_metadata::known_script(site.script_id());
        let frame = functions::frame_of(AllocatingFunction { name: name.into(), script });
        self.sites.insert(site.id(), frame);
        frame
    }

    fn forget_objects(&self) {
        for object in &self.known {
            HEAP.freed(self.key(object));
        }
    }
}

/// Counts threads that did not submit their samples in time. On any thread.
pub fn count_late(threads: usize) {
    LATE.fetch_add(threads as u64, Ordering::Relaxed);
}

/// For `stats()`, on any thread.
pub fn statistics(out: &mut Vec<(&'static str, String)>) {
    let value = |counter: &AtomicU64, divisor: u64| (counter.load(Ordering::Relaxed) / divisor).to_string();
    out.push(("node.heap_reads", value(&READS, 1)));
    out.push(("node.heap_reads_late", value(&LATE, 1)));
    out.push(("node.heap_read_us", value(&READ_NS, 1000)));
    out.push(("node.heap_read_longest_us", value(&LONGEST_READ_NS, 1000)));
    array_buffers::statistics(out);
}
