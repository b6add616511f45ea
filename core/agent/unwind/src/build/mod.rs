//! Builds the tables of loaded objects on demand, on the drain thread: first of objects that the caller names, then of those that a
//! walk entered. Objects that came and went are noticed by the dynamic linker's counters. In a forked child these are not read
//! (see [`spanprof_os::loader_counts`]): there the mappings are listed again after walks met unknown code.

mod image;
mod rows;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spanprof_os::{LoaderCounts, PerProcess};

use crate::end::WalkEnd;
use crate::rule::RuleNumbers;
use crate::snapshot::{Image, ObjectCode, Snapshot, TableState};
use crate::table::UnwindTable;
use crate::SNAPSHOT;

/// Limit for all tables together.
const MAX_TABLE_BYTES: usize = 16 << 20;
/// Time between two listings in a process without the linker's counters; doubles up to the second one.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(64);

/// The tables of the process, for `stats()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwindTableStats {
    /// Tables that were needed and built.
    pub tables: usize,
    /// Their memory.
    pub bytes: usize,
    /// Files whose table was left out: no unwind information, or beyond the limit.
    pub left_out: usize,
}

struct Builder {
    numbers: RuleNumbers,
    objects: Vec<(Image, TableState)>,
    /// The linker's counters before the last listing.
    counts: Option<LoaderCounts>,
    /// When the mappings may be listed again without the counters, and the interval until then.
    next_listing: Option<(Instant, Duration)>,
    /// Walks that had met unknown code before the last listing.
    unknown_code: u64,
    /// Snapshots that walks may still use.
    replaced: Vec<ReplacedSnapshot>,
}

/// A snapshot that is no longer current.
struct ReplacedSnapshot(*mut Snapshot);

// SAFETY: the only owner of a boxed snapshot, which is `Send` itself.
unsafe impl Send for ReplacedSnapshot {}

static BUILDER: PerProcess<Mutex<Builder>> = PerProcess::empty();

/// Lists objects that were loaded, and builds the tables of the program and the C library, of those that walks asked for, and of
/// those that contain the code addresses `first`. Waits for another thread that does so. Called by the drain thread at each wakeup;
/// takes 10 ns when nothing changed, 15 to 20 ms per MB of unwind information that is read. Ends early once `is_canceled` is true: walks
/// ask again for tables that were not built.
pub fn refresh(first: &[u64], is_canceled: &dyn Fn() -> bool) {
    BUILDER.with(|builder| builder.lock().unwrap_or_else(PoisonError::into_inner).refresh(first, is_canceled));
}

/// Code of the objects that are in most stacks: the program, the C library, and the kernel's library that reads clocks.
fn first_code() -> [u64; 3] {
    // SAFETY: getauxval reads the auxiliary vector; returns 0 for missing entries.
    let [program, kernel] = [libc::AT_ENTRY, libc::AT_SYSINFO_EHDR].map(|entry| unsafe { libc::getauxval(entry) });
    [program, libc::getauxval as *const () as u64, kernel]
}

/// Reset in a forked child, as the times of threads are.
pub(crate) static BUILD_CPU_NS: AtomicU64 = AtomicU64::new(0);

/// CPU time in which tables were built since the process began, nanoseconds.
pub fn build_cpu_ns() -> u64 {
    BUILD_CPU_NS.load(Ordering::Relaxed)
}

/// The tables of this process.
pub fn stats() -> UnwindTableStats {
    let mut stats = UnwindTableStats::default();
    let Some(snapshot) = SNAPSHOT.borrow() else { return stats };
    for object in snapshot.get().objects() {
        match &object.state {
            TableState::Built(table) => {
                stats.tables += 1;
                stats.bytes += table.bytes();
            }
            TableState::LeftOut => stats.left_out += 1,
            TableState::Missing => {}
        }
    }
    stats
}

impl Default for Builder {
    /// With the tables of the snapshot, which a forked child has from its parent.
    fn default() -> Self {
        let inherited = |object: &ObjectCode| (object.image.clone(), object.state.clone());
        let objects = SNAPSHOT.borrow().map(|snapshot| snapshot.get().objects().iter().map(inherited).collect());
        Self {
            numbers: RuleNumbers::default(),
            objects: objects.unwrap_or_default(),
            counts: None,
            next_listing: None,
            unknown_code: 0,
            replaced: Vec::new(),
        }
    }
}

impl Builder {
    fn refresh(&mut self, first: &[u64], is_canceled: &dyn Fn() -> bool) {
        let is_listed = self.list_if_changed();
        let wanted = self.wanted(first);
        for object in wanted.iter().take_while(|_| !is_canceled()) {
            self.build(*object, is_canceled);
        }
        if is_listed || !wanted.is_empty() {
            self.publish();
        }
        if SNAPSHOT.is_unused() {
            for snapshot in self.replaced.drain(..) {
                // SAFETY: created by `Box::into_raw` in `publish`, replaced, and used by no walk.
                drop(unsafe { Box::from_raw(snapshot.0) });
            }
        }
    }

    fn list_if_changed(&mut self) -> bool {
        let counts = spanprof_os::loader_counts();
        let is_due = match counts {
            Some(_) => self.counts != counts,
            None => self.is_listing_due(),
        };
        if is_due {
            self.counts = counts;
            let mut before = std::mem::take(&mut self.objects);
            let state_of = |image: &Image, before: &mut Vec<(Image, TableState)>| {
                let same = before.iter().position(|(known, _)| known == image);
                same.map_or(TableState::Missing, |position| before.swap_remove(position).1)
            };
            let images = image::images().into_iter();
            self.objects = images.map(|image| (image.clone(), state_of(&image, &mut before))).collect();
        }
        is_due
    }

    fn is_listing_due(&mut self) -> bool {
        let unknown_code = WalkEnd::OutsideFiles.counted();
        let now = Instant::now();
        let interval = match self.next_listing {
            None => FIRST_INTERVAL,
            Some((due, interval)) if now >= due && unknown_code != self.unknown_code => {
                (interval * 2).min(MAX_INTERVAL)
            }
            Some(_) => return false,
        };
        self.unknown_code = unknown_code;
        self.next_listing = Some((now + interval, interval));
        true
    }

    /// Positions of the objects whose table is missing and needed.
    fn wanted(&self, first: &[u64]) -> Vec<usize> {
        let by_walks = wanted_code();
        let is_wanted = |image: &Image| {
            by_walks.contains(&image.code.start)
                || first.iter().chain(&first_code()).any(|address| image.code.contains(address))
        };
        let missing = self.objects.iter().enumerate().filter(|(_, (_, state))| matches!(state, TableState::Missing));
        missing.filter(|(_, (image, _))| is_wanted(image)).map(|(position, _)| position).collect()
    }

    fn build(&mut self, position: usize, is_canceled: &dyn Fn() -> bool) {
        let bytes: usize = self.objects.iter().map(|(_, state)| state.bytes()).sum();
        let Some((image, state)) = self.objects.get_mut(position) else { return };
        let numbers = &mut self.numbers;
        let begin_ns = spanprof_os::current_thread_cpu_ns();
        // No input is known to make the parser panic.
        let table = catch_unwind(AssertUnwindSafe(|| table_of(image, numbers, is_canceled))).ok().flatten();
        *state = match table.filter(|table| bytes + table.bytes() <= MAX_TABLE_BYTES) {
            Some(table) => TableState::Built(Arc::new(table)),
            None if is_canceled() => TableState::Missing,
            None => TableState::LeftOut,
        };
        let cpu_ns = spanprof_os::current_thread_cpu_ns().saturating_sub(begin_ns);
        BUILD_CPU_NS.fetch_add(cpu_ns, Ordering::Relaxed);
        // `start()` builds the first ones on the program's thread.
        spanprof_os::count_own_work(cpu_ns);
    }

    fn publish(&mut self) {
        let object = |(image, state): &(Image, TableState)| ObjectCode::new(image.clone(), state.clone());
        let snapshot = Box::into_raw(Box::new(Snapshot::new(self.objects.iter().map(object).collect())));
        // SAFETY: leaked here; the result is freed by `refresh` after `is_unused`.
        let replaced = unsafe { SNAPSHOT.replace(snapshot) };
        if !replaced.is_null() {
            self.replaced.push(ReplacedSnapshot(replaced));
        }
    }
}

/// The first code of each object whose table a walk missed.
fn wanted_code() -> Vec<u64> {
    let Some(snapshot) = SNAPSHOT.borrow() else { return Vec::new() };
    let objects = snapshot.get().objects().iter();
    objects.filter(|object| object.is_wanted.load(Ordering::Relaxed)).map(|object| object.image.code.start).collect()
}

fn table_of(image: &Image, numbers: &mut RuleNumbers, is_canceled: &dyn Fn() -> bool) -> Option<UnwindTable> {
    rows::table(&image.unwind_information()?, &image.code, numbers, is_canceled)
}

/// The table of a section that is no loaded file's.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn foreign_table(
    bytes: Vec<u8>,
    address: u64,
    code: &std::ops::Range<u64>,
    numbers: &mut RuleNumbers,
) -> Option<UnwindTable> {
    rows::table(&image::UnwindInformation { bytes, address }, code, numbers, &|| false)
}
