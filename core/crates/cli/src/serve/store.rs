//! The store of `serve`: an in-memory index of the files in its directory, retention, and queries. The files are in
//! `directory`, HTTP in `api`. Methods may read and decode files: called from blocking threads only.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spanprof_profile::transform;
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{self, Filter, TypeSummary};

use super::directory::{self, WindowDirectory};
use super::received::ReceivedProfiles;
use super::slices::{self, memory_bytes, MergedWindows, Slices};
use super::spans::Spans;
use super::window::StoredWindow;
use crate::detail::Detail;

/// Memory of the cache of decoded windows.
const DECODED_CACHE_BYTES: usize = 48 << 20;
/// Cached results, so that the table and the flame graph of one view share a merge.
const CACHED_RESULTS: usize = 4;
/// Windows merged at once: bounds memory, without a merge of the large result for each window.
const MERGE_BATCH: usize = 24;
/// Samples of one result, about 250 MB; only results with labels and links reach it.
const MAX_RESULT_SAMPLES: usize = 1_500_000;
/// A query stops at this deadline and reports the number of windows left out.
const QUERY_DEADLINE: Duration = Duration::from_secs(10);

/// Limits of the stored requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of all files; the oldest beyond this limit are removed.
    pub max_bytes: u64,
    /// Time since arrival after which a request is removed.
    pub max_age: Duration,
}

/// Counters of the store, for `/api/stats`.
#[derive(Debug, Default)]
pub(crate) struct StoreCounters {
    pub removed_by_size: AtomicU64,
    pub removed_by_age: AtomicU64,
    pub unreadable_files: AtomicU64,
}

/// Result of a query: merged samples, and the number of their windows.
#[derive(Debug)]
pub(crate) struct QueryResult {
    pub data: ProfilesData,
    /// Summaries of the samples of each window that passed the filter, for a timeline.
    pub summaries: Vec<TypeSummary>,
    pub spans: Spans,
    pub windows: usize,
    /// Matching windows that were not read: the deadline had passed, or the result was too large.
    pub windows_left_out: usize,
}

#[derive(Debug)]
struct CachedResult {
    generation: u64,
    filter: Filter,
    detail: Detail,
    result: Arc<QueryResult>,
}

/// The stored windows.
#[derive(Debug)]
pub(crate) struct Store {
    directory: WindowDirectory,
    retention: Retention,
    windows: Mutex<Vec<Arc<StoredWindow>>>,
    /// Incremented when the windows change.
    generation: AtomicU64,
    indexing: AtomicBool,
    stopping: AtomicBool,
    decoded: Mutex<VecDeque<(PathBuf, Arc<ProfilesData>)>>,
    results: Mutex<VecDeque<CachedResult>>,
    slices: Slices,
    pub received: ReceivedProfiles,
    pub counters: StoreCounters,
}

impl Store {
    pub(crate) fn new(directory: WindowDirectory, retention: Retention) -> Self {
        Store {
            directory,
            retention,
            windows: Mutex::default(),
            generation: AtomicU64::new(0),
            indexing: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            decoded: Mutex::default(),
            results: Mutex::default(),
            slices: Slices::default(),
            received: ReceivedProfiles::default(),
            counters: StoreCounters::default(),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether the files of earlier runs are still being read.
    pub(crate) fn is_indexing(&self) -> bool {
        self.indexing.load(Ordering::Relaxed)
    }

    /// Ends [`Store::index`] early.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Reads the directory, newest file first; unreadable files are reported through `report` and skipped.
    pub(crate) fn index(&self, mut report: impl FnMut(String)) {
        match self.directory.list() {
            Ok(files) => {
                for file in files {
                    if self.stopping.load(Ordering::Relaxed) {
                        break;
                    }
                    // Received since the start, hence indexed already.
                    if self.windows().iter().any(|window| window.path == file.path) {
                        continue;
                    }
                    match read_window(&file.path) {
                        Ok(data) => {
                            let directory::DirectoryFile { path, bytes, received_unix_ms, is_owned } = file;
                            self.insert(StoredWindow::new(&data, path, bytes, received_unix_ms, is_owned));
                        }
                        Err(reason) => {
                            self.counters.unreadable_files.fetch_add(1, Ordering::Relaxed);
                            report(format!("skipped {}: {reason}", file.path.display()));
                        }
                    }
                }
            }
            Err(error) => report(format!("cannot list {}: {error}", self.directory.path().display())),
        }
        self.indexing.store(false, Ordering::Relaxed);
        self.retain(unix_ms());
    }

    /// Stores one received request. `data` is decoded from `gzipped`.
    pub(crate) fn keep(&self, gzipped: &[u8], data: &ProfilesData) -> std::io::Result<()> {
        let received_unix_ms = unix_ms();
        let path = self.directory.write(gzipped, received_unix_ms)?;
        self.insert(StoredWindow::new(data, path, gzipped.len() as u64, received_unix_ms, true));
        self.retain(received_unix_ms);
        Ok(())
    }

    /// All windows, oldest first.
    pub(crate) fn windows(&self) -> Vec<Arc<StoredWindow>> {
        lock(&self.windows).clone()
    }

    fn insert(&self, window: StoredWindow) {
        self.received.add(&window.identities);
        let mut windows = lock(&self.windows);
        let at = windows.partition_point(|other| other.received_unix_ms <= window.received_unix_ms);
        windows.insert(at, Arc::new(window));
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes windows older than the maximum age, and the oldest until the size is within its limit. The newest is kept.
    pub(crate) fn retain(&self, now_unix_ms: u64) {
        let max_age_ms = u64::try_from(self.retention.max_age.as_millis()).unwrap_or(u64::MAX);
        let mut windows = lock(&self.windows);
        let newest = windows.last().map(|window| window.path.clone());
        let mut bytes: u64 = windows.iter().filter(|window| window.is_owned).map(|window| window.bytes).sum();
        let mut removed = Vec::new();
        windows.retain(|window| {
            let is_old = window.received_unix_ms.saturating_add(max_age_ms) < now_unix_ms;
            let is_too_much = bytes > self.retention.max_bytes && Some(&window.path) != newest.as_ref();
            if !window.is_owned || !(is_old || is_too_much) {
                return true;
            }
            bytes -= window.bytes;
            let counter = if is_old { &self.counters.removed_by_age } else { &self.counters.removed_by_size };
            counter.fetch_add(1, Ordering::Relaxed);
            removed.push(window.clone());
            false
        });
        drop(windows);
        if !removed.is_empty() {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        for window in removed {
            self.received.remove(&window.identities);
            let _ = std::fs::remove_file(&window.path);
        }
    }

    /// Merges the samples that pass `filter`, newest windows first until the deadline.
    pub(crate) fn query(&self, filter: &Filter, detail: Detail) -> Arc<QueryResult> {
        let generation = self.generation.load(Ordering::Relaxed);
        let is_same = |of: &&CachedResult| of.generation == generation && of.filter == *filter && of.detail == detail;
        if let Some(cached) = lock(&self.results).iter().find(is_same) {
            return cached.result.clone();
        }
        let started = Instant::now();
        let mut sum = BatchedMerge::default();
        let mut windows_left_out = 0;
        let windows: Vec<_> = self.windows().into_iter().rev().filter(|window| window.may_hold(filter)).collect();
        for slice in slices::cut(&windows) {
            let is_cacheable = detail == Detail::Stacks && slices::is_whole(slice, filter);
            if let Some(part) = is_cacheable.then(|| self.slices.find(slice, filter)).flatten() {
                sum.add(part);
                continue;
            }
            let mut part = BatchedMerge::default();
            let mut skipped = 0;
            for window in slice {
                if started.elapsed() > QUERY_DEADLINE || sum.samples + part.samples > MAX_RESULT_SAMPLES {
                    skipped += 1;
                    continue;
                }
                // Removed by retention or replaced meanwhile: nothing to add.
                let Ok(data) = self.decoded(&window.path) else { continue };
                part.add(Arc::new(passing(filter, detail, &data)));
            }
            let part = Arc::new(part.finish());
            if is_cacheable && skipped == 0 {
                self.slices.insert(slice, filter, &part);
            }
            windows_left_out += skipped;
            sum.add(part);
        }
        let MergedWindows { data, summaries, spans, windows } = sum.finish();
        let result = Arc::new(QueryResult { data, summaries, spans, windows, windows_left_out });
        let mut results = lock(&self.results);
        results.truncate(CACHED_RESULTS - 1);
        results.push_front(CachedResult { generation, filter: filter.clone(), detail, result: result.clone() });
        result
    }

    /// Visits the windows that may hold samples of the filter, newest first until the deadline; returns how many were left out.
    pub(crate) fn for_each_window(&self, filter: &Filter, mut visit: impl FnMut(&ProfilesData)) -> usize {
        let started = Instant::now();
        let mut left_out = 0;
        for window in self.windows().iter().rev().filter(|window| window.may_hold(filter)) {
            if started.elapsed() > QUERY_DEADLINE {
                left_out += 1;
            } else if let Ok(data) = self.decoded(&window.path) {
                visit(&data);
            }
        }
        left_out
    }

    fn decoded(&self, path: &Path) -> Result<Arc<ProfilesData>, String> {
        {
            let mut decoded = lock(&self.decoded);
            if let Some(at) = decoded.iter().position(|(of, _)| of == path) {
                if let Some(entry) = decoded.remove(at) {
                    let data = entry.1.clone();
                    decoded.push_front(entry);
                    return Ok(data);
                }
            }
        }
        let data = Arc::new(read_window(path)?);
        let mut decoded = lock(&self.decoded);
        decoded.push_front((path.to_owned(), data.clone()));
        let mut total = 0;
        decoded.retain(|(_, data)| {
            total += memory_bytes(data);
            total <= DECODED_CACHE_BYTES
        });
        Ok(data)
    }
}

/// Merges windows in batches of [`MERGE_BATCH`].
#[derive(Default)]
struct BatchedMerge {
    merged: MergedWindows,
    batch: Vec<Arc<MergedWindows>>,
    samples: usize,
}

impl BatchedMerge {
    fn add(&mut self, part: Arc<MergedWindows>) {
        // An empty gauge replaces an older one.
        if part.data.resources.is_empty() {
            return;
        }
        self.merged.windows += part.windows;
        self.merged.summaries.extend_from_slice(&part.summaries);
        self.merged.spans.merge(&part.spans);
        self.samples += part.data.sample_count();
        self.batch.push(part);
        if self.batch.len() == MERGE_BATCH {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let merged = &self.merged.data;
        self.merged.data = transform::merge(std::iter::once(merged).chain(self.batch.iter().map(|part| &part.data)));
        self.samples = self.merged.data.sample_count();
        self.batch.clear();
    }

    fn finish(mut self) -> MergedWindows {
        if !self.batch.is_empty() {
            self.merge();
        }
        self.merged
    }
}

/// The samples of one window that pass the filter.
fn passing(filter: &Filter, detail: Detail, data: &ProfilesData) -> MergedWindows {
    let mut data = filter.apply(data);
    let mut spans = Spans::default();
    spans.add(&data);
    let (summaries, windows) = (query::types(&data), usize::from(data.sample_count() > 0));
    detail.reduce(&mut data);
    MergedWindows { data, summaries, spans, windows }
}

/// Requests were accepted within stricter limits; other files are the user's.
fn read_window(path: &Path) -> Result<ProfilesData, String> {
    let bytes = directory::read(path).map_err(|error| error.to_string())?;
    decode::any(&bytes, &DecodeLimits::of_files()).map(|(_, data)| data).map_err(|error| error.to_string())
}

/// Ignores poisoning: every change under these locks is a push, a removal or a swap, so that values stay consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
