//! Which loaded object (the program or a library) had its code at an address when a sample was taken. The objects are listed
//! again when the dynamic linker's counters of loads and unloads have changed since the last drain. Used by the drain thread.
//!
//! Samples of a library that was unloaded may still be in the ring. Each object therefore has the range of ring positions at
//! which its code can have run. Where the ranges of two objects at one address overlap, it is not known which of them ran. More
//! unloads than missing objects mean that others came and went meanwhile: the youngest libraries may then be reloaded ones.
//!
//! Limits:
//! - In a forked child, and before the first drain, nothing is listed: names are those of the code that is loaded when they are
//!   resolved. A thread of the program may have held the linker's lock at the fork.
//! - A library that is replaced by one with an identical first page, which has the build id, keeps its names.

use std::ffi::{c_int, c_void, CStr, OsStr};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::fork_exclusion::iterate_loaded_objects;
use spanprof_signal::{fork_generation, guarded};

/// Listings that other threads may invalidate by a load or an unload before the next drain tries again.
const MAX_LISTINGS: usize = 3;

/// The first page contains the headers and, in usual layouts, the build id.
pub(super) const FIRST_PAGE_BYTES: usize = 4096;

/// A loaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedObject {
    /// Address of its first byte.
    pub base: u64,
    pub path: PathBuf,
    /// Hash of its first page in memory, which identifies a library; 0 for the program.
    pub first_page: u64,
}

/// The dynamic linker's counters (`dlpi_adds`, `dlpi_subs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderCounts {
    loads: u64,
    unloads: u64,
}

/// The counters now; `None` in a forked child. Takes some 10 ns, and the linker's lock for that time.
pub fn loader_counts() -> Option<LoaderCounts> {
    unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _size: usize, counts: *mut c_void) -> c_int {
        // SAFETY: the linker passes its description of an object, and our argument.
        unsafe { *counts.cast::<LoaderCounts>() = LoaderCounts::of(&*info) };
        1
    }
    let mut counts = LoaderCounts::default();
    if fork_generation() != 0 {
        return None;
    }
    // SAFETY: `take` uses its argument as what it is.
    unsafe { iterate_loaded_objects(take, &mut counts) };
    Some(counts)
}

/// Whether code may be unloaded while its name is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeState {
    /// Of the program, which is never unloaded.
    Program,
    /// Of a loaded library, or of no object.
    Loaded,
    /// Of a library that is no longer loaded.
    Unloaded,
    /// Of one of several objects that had this address.
    Doubtful,
}

/// An object as the linker lists it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectIdentity {
    pub addresses: Range<u64>,
    pub path: PathBuf,
    /// Hash of its first page in memory; 0 for the program.
    pub first_page: u64,
    pub is_program: bool,
}

/// An object, and the ring positions of samples that its code can have.
struct ObjectLifetime {
    addresses: Range<u64>,
    /// `None`: unknown, and another one than those in the list.
    object: Option<Arc<ObjectIdentity>>,
    positions: Range<u64>,
}

impl ObjectLifetime {
    fn is_loaded(&self) -> bool {
        self.positions.end == u64::MAX
    }

    /// Whether it lies between two segments of the other one. On arm64 the dynamic linker's are 64 KiB apart, and the kernel maps its own
    /// library (vDSO) there.
    fn is_within(&self, other: &Self) -> bool {
        let (inner, outer) = (&self.addresses, &other.addresses);
        self.is_loaded() && other.is_loaded() && outer.start < inner.start && inner.end < outer.end
    }
}

/// The objects of this process.
struct ObjectHistory {
    counts: Option<LoaderCounts>,
    /// Loaded ones in the order of loading, then those of which the ring may have samples.
    lifetimes: Vec<ObjectLifetime>,
    /// The ring's head before the last comparison of the counters.
    head: u64,
}

static HISTORY: Mutex<ObjectHistory> = Mutex::new(ObjectHistory { counts: None, lifetimes: Vec::new(), head: 0 });

/// `None` in a forked child, where a thread of the parent may have held the lock at the fork.
fn with_history<R>(body: impl FnOnce(&mut ObjectHistory) -> R) -> Option<R> {
    (fork_generation() == 0).then(|| body(&mut HISTORY.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Forgets the ring positions of an earlier profiler.
pub fn forget_objects() {
    with_history(|history| (history.counts, history.lifetimes) = (None, Vec::new()));
}

/// Whether [`refresh_objects`] notices loads and unloads.
pub fn are_objects_listed() -> bool {
    fork_generation() == 0
}

/// Lists the objects again if some were loaded or unloaded; true if so. `tail` is the position of the ring's oldest sample, and
/// `next_position` reads that of the next one.
pub fn refresh_objects(tail: u64, next_position: &dyn Fn() -> u64) -> bool {
    let head = next_position();
    let Some(counts) = loader_counts() else { return false };
    let refreshed = with_history(|history| {
        let has_changed = history.counts != Some(counts);
        if has_changed {
            let Some((counts, objects)) = history.list() else { return false };
            history.lifetimes.retain(|lifetime| lifetime.positions.end > tail);
            history.note(counts, objects, next_position(), linker_address());
        }
        history.head = head;
        has_changed
    });
    refreshed == Some(true)
}

/// The state of the code at `pc` when the sample at `position` was taken.
pub(super) fn state_at(pc: u64, position: u64) -> CodeState {
    with_history(|history| history.find(pc, position).0).unwrap_or(CodeState::Loaded)
}

/// The library or program whose code was at `pc`, and whether it is still loaded. The outer `None`: nothing is listed.
pub(super) fn object_at(pc: u64, position: u64) -> Option<Option<(Arc<ObjectIdentity>, bool)>> {
    with_history(|history| {
        history.counts?;
        let (state, object) = history.find(pc, position);
        Some(object.map(|object| (object, state != CodeState::Unloaded)))
    })?
}

impl ObjectHistory {
    fn find(&self, pc: u64, position: u64) -> (CodeState, Option<Arc<ObjectIdentity>>) {
        let ran =
            |lifetime: &&ObjectLifetime| lifetime.addresses.contains(&pc) && lifetime.positions.contains(&position);
        let lifetimes = || self.lifetimes.iter().filter(ran);
        let mut innermost = lifetimes().filter(|lifetime| !lifetimes().any(|other| other.is_within(lifetime)));
        match (innermost.next(), innermost.next()) {
            (None, _) => (CodeState::Loaded, None),
            (Some(ObjectLifetime { object: Some(object), .. }), None) if object.is_program => {
                (CodeState::Program, Some(object.clone()))
            }
            (Some(one @ ObjectLifetime { object: Some(object), .. }), None) => {
                (if one.is_loaded() { CodeState::Loaded } else { CodeState::Unloaded }, Some(object.clone()))
            }
            _ => (CodeState::Doubtful, None),
        }
    }

    /// Compares the objects that are loaded now with those of the last listing. `now`: a head of the ring after the listing.
    fn note(&mut self, counts: LoaderCounts, objects: Vec<ObjectIdentity>, now: u64, interpreter: u64) {
        let before = self.counts.replace(counts);
        let since = before.map_or(0, |_| self.head);
        let (known, mut ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.lifetimes).into_iter().partition(ObjectLifetime::is_loaded);
        // Objects that the program was linked with precede the dynamic linker, and are never unloaded.
        let first_unloadable =
            objects.iter().position(|object| object.addresses.start == interpreter).map_or(1, |at| at + 1);
        let mut kept = Vec::new();
        for (index, object) in objects.into_iter().enumerate() {
            let same = known.iter().find(|lifetime| lifetime.object.as_deref() == Some(&object));
            let addresses = object.addresses.clone();
            if same.is_some() && index >= first_unloadable {
                kept.push(addresses.clone());
            }
            let positions = same.map_or(since, |lifetime| lifetime.positions.start)..u64::MAX;
            self.lifetimes.push(ObjectLifetime { addresses, object: Some(Arc::new(object)), positions });
        }
        let is_missing =
            |lifetime: &ObjectLifetime| self.lifetimes.iter().all(|loaded| loaded.object != lifetime.object);
        let missing: Vec<_> = known.into_iter().filter(is_missing).collect();
        let unloads = before.map_or(0, |before| counts.unloads.wrapping_sub(before.unloads));
        let unseen = usize::try_from(unloads).unwrap_or(usize::MAX).saturating_sub(missing.len());
        if unseen > 0 {
            // The linker appends: an object that was loaded again is behind those that stayed.
            let reloaded = kept.into_iter().rev().take(unseen);
            let addresses = missing.iter().map(|lifetime| lifetime.addresses.clone()).chain(reloaded);
            ended.extend(addresses.map(|addresses| ObjectLifetime { addresses, object: None, positions: since..now }));
        }
        ended.extend(
            missing.into_iter().map(|lifetime| ObjectLifetime { positions: lifetime.positions.start..now, ..lifetime }),
        );
        self.lifetimes.append(&mut ended);
    }

    /// The loaded objects; `None` if other threads load and unload all the time.
    fn list(&self) -> Option<(LoaderCounts, Vec<ObjectIdentity>)> {
        let mut listing = LinkerReport::default();
        for _ in 0..MAX_LISTINGS {
            if !listing.read() {
                continue;
            }
            let unloads = |counts: LoaderCounts| counts.unloads;
            let has_unloaded = self.counts.map(unloads) != Some(listing.counts.unloads);
            let objects = (0..listing.objects.len()).map(|index| {
                let (addresses, path) = listing.object(index);
                let is_same = |known: &&Arc<ObjectIdentity>| known.addresses == addresses && known.path == path;
                let loaded = self.lifetimes.iter().filter(|lifetime| lifetime.is_loaded() && !has_unloaded);
                let known = loaded.filter_map(|lifetime| lifetime.object.as_ref()).find(is_same);
                let read = || if index == 0 { 0 } else { first_page_hash(addresses.start).unwrap_or(u64::MAX) };
                let first_page = known.map_or_else(read, |known| known.first_page);
                ObjectIdentity { addresses, path, first_page, is_program: index == 0 }
            });
            let objects = objects.collect();
            // The pages that were read are those of the objects in the list.
            if loader_counts() == Some(listing.counts) {
                return Some((listing.counts, objects));
            }
        }
        None
    }
}

/// Load address of the dynamic linker; 0 in a static program.
pub(super) fn linker_address() -> u64 {
    // SAFETY: getauxval reads the auxiliary vector; returns 0 for missing entries.
    unsafe { libc::getauxval(libc::AT_BASE) }
}

/// What the linker reports, copied within its callback, which must not allocate: an allocator may use the linker.
#[derive(Default)]
struct LinkerReport {
    counts: LoaderCounts,
    objects: Vec<(Range<u64>, Range<usize>)>,
    names: Vec<u8>,
    object_count: usize,
    name_bytes: usize,
}

impl LinkerReport {
    /// False if the memory was too small; there is enough the next time.
    fn read(&mut self) -> bool {
        unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _size: usize, listing: *mut c_void) -> c_int {
            // SAFETY: the linker passes its description of an object that stays loaded during the call, and our argument.
            let (info, listing) = unsafe { (&*info, &mut *listing.cast::<LinkerReport>()) };
            listing.add(info);
            0
        }
        self.objects.clear();
        self.names.clear();
        self.objects.reserve(self.object_count.max(64));
        self.names.reserve(self.name_bytes.max(4096));
        (self.object_count, self.name_bytes) = (0, 0);
        // SAFETY: `take` uses its argument as what it is.
        unsafe { iterate_loaded_objects(take, self) };
        self.objects.len() == self.object_count
    }

    fn add(&mut self, info: &libc::dl_phdr_info) {
        self.counts = LoaderCounts::of(info);
        // SAFETY: the linker's own array of this object, which is loaded during this call.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
        // SAFETY: null, or a NUL-terminated name of the linker, valid during this call.
        let name = unsafe { info.dlpi_name.as_ref().map_or(&[][..], |name| CStr::from_ptr(name).to_bytes()) };
        self.object_count += 1;
        self.name_bytes += name.len();
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let (start, end) = loaded.fold((u64::MAX, 0), |(start, end), header| {
            (start.min(header.p_vaddr & !4095), end.max(header.p_vaddr + header.p_memsz))
        });
        let has_space =
            self.objects.len() < self.objects.capacity() && self.names.len() + name.len() <= self.names.capacity();
        if has_space {
            let at = self.names.len();
            self.names.extend_from_slice(name);
            let addresses = info.dlpi_addr.wrapping_add(start)..info.dlpi_addr.wrapping_add(end);
            self.objects.push((addresses, at..self.names.len()));
        }
    }

    /// The linker stores no name of the program.
    fn object(&self, index: usize) -> (Range<u64>, PathBuf) {
        let (addresses, name) = self.objects.get(index).cloned().unwrap_or_default();
        let name = self.names.get(name).unwrap_or_default();
        let path = match index {
            0 => std::fs::read_link("/proc/self/exe").unwrap_or_default(),
            _ => PathBuf::from(OsStr::from_bytes(name)),
        };
        (addresses, path)
    }
}

impl LoaderCounts {
    fn of(info: &libc::dl_phdr_info) -> Self {
        Self { loads: info.dlpi_adds, unloads: info.dlpi_subs }
    }
}

/// Identifies the library that is loaded at `base`.
pub(super) fn first_page_hash(base: u64) -> Option<u64> {
    let mut bytes = [0; FIRST_PAGE_BYTES];
    // SAFETY: the destination is a local array of this length; the guarded source may be any address.
    unsafe { guarded::copy(bytes.as_mut_ptr(), base as usize, bytes.len()) }.then(|| hash_of(&bytes))
}

pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::loaded_object::native_object;

    /// A history after listings at these heads of the ring: unloads so far, and the first page of each object. The program,
    /// the dynamic linker and libraries, all libraries at one address.
    fn history(listings: &[(u64, u64, &[u64])]) -> ObjectHistory {
        let mut history = ObjectHistory { counts: None, lifetimes: Vec::new(), head: 0 };
        for (head, unloads, first_pages) in listings {
            let listed = |(index, first_page): (usize, &u64)| ObjectIdentity {
                addresses: [0..10, 10..20, 20..30][index.min(2)].clone(),
                path: PathBuf::new(),
                first_page: *first_page,
                is_program: index == 0,
            };
            let objects = [0, 1].iter().chain(*first_pages).enumerate().map(listed).collect();
            // The head moves by 5 during the listing.
            history.note(LoaderCounts { loads: 0, unloads: *unloads }, objects, head + 5, 10);
            history.head = *head;
        }
        history
    }

    fn ran(history: &ObjectHistory, position: u64) -> (CodeState, u64) {
        let (state, object) = history.find(25, position);
        (state, object.map_or(0, |object| object.first_page))
    }

    #[test]
    fn a_sample_belongs_to_the_library_that_was_loaded_when_it_was_taken() {
        let unloaded = history(&[(100, 0, &[7]), (200, 1, &[])]);
        assert_eq!(ran(&unloaded, 204), (CodeState::Unloaded, 7));
        assert_eq!(ran(&unloaded, 205), (CodeState::Loaded, 0), "no object");
        let replaced = history(&[(100, 0, &[7]), (200, 1, &[]), (300, 1, &[8])]);
        assert_eq!([ran(&replaced, 150), ran(&replaced, 300)], [(CodeState::Unloaded, 7), (CodeState::Loaded, 8)]);
        assert_eq!(replaced.find(5, 300).0, CodeState::Program);
    }

    #[test]
    fn the_library_of_the_kernel_may_lie_between_two_segments_of_the_dynamic_linker() {
        let mut history = ObjectHistory { counts: None, lifetimes: Vec::new(), head: 0 };
        let object = |addresses, first_page| ObjectIdentity {
            addresses,
            path: PathBuf::new(),
            first_page,
            is_program: first_page == 0,
        };
        let objects = vec![object(0..10, 0), object(23..26, 1), object(20..30, 2)];
        history.note(LoaderCounts::default(), objects, 5, 20);
        assert_eq!(ran(&history, 7), (CodeState::Loaded, 1));
        assert_eq!(history.find(27, 7).1.map(|object| object.first_page), Some(2));
    }

    #[test]
    fn libraries_that_replaced_each_other_between_two_drains_are_not_guessed() {
        let replaced = history(&[(100, 0, &[7]), (200, 1, &[8])]);
        let states = [99, 100, 204, 205].map(|position| ran(&replaced, position));
        let doubtful = (CodeState::Doubtful, 0);
        assert_eq!(states, [(CodeState::Unloaded, 7), doubtful, doubtful, (CodeState::Loaded, 8)]);
    }

    #[test]
    fn a_library_may_have_been_away_if_more_were_unloaded_than_are_missing() {
        let reloaded = history(&[(100, 0, &[7]), (200, 2, &[7])]);
        assert_eq!([99, 150, 205].map(|position| ran(&reloaded, position).0), {
            use CodeState::{Doubtful, Loaded};
            [Loaded, Doubtful, Loaded]
        });
        assert_eq!(reloaded.find(15, 150).0, CodeState::Loaded, "the program was linked with it");
        let gone = history(&[(100, 0, &[7]), (200, 2, &[])]);
        assert_eq!([ran(&gone, 99), ran(&gone, 150)], [(CodeState::Unloaded, 7), (CodeState::Doubtful, 0)]);
    }

    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program has no libraries")]
    fn the_objects_are_those_that_the_linker_reports() {
        let listed = ObjectHistory { counts: None, lifetimes: Vec::new(), head: 0 }.list().expect("a listing").1;
        assert!(listed[0].is_program && listed[0].path == std::env::current_exe().unwrap());
        let pc = libc::getenv as *const () as u64;
        let by_linker = native_object(pc, 0).expect("libc is loaded").object(pc);
        let libc = listed.iter().find(|object| object.addresses.contains(&pc)).expect("libc is listed");
        let identity = (by_linker.base, &by_linker.path, by_linker.first_page);
        assert_eq!(identity, (libc.addresses.start, &libc.path, libc.first_page));
    }
}
