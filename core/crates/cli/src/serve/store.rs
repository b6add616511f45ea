//! The store of `serve`: an in-memory index of the files in its directory, and retention. The files are in `directory`, queries
//! in `queries`, HTTP in `api`. Methods may read and decode files: called from blocking threads only.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spanprof_profile::ProfilesData;
use spanprof_read::query::Filter;

use super::directory::{DirectoryFile, WindowDirectory};
use super::index_log::IndexLog;
use super::locks::lock;
use super::queries::{Queries, QueryResult, StoreView};
use super::received::ReceivedProfiles;
use super::window::{self, LabelValues, StoredWindow};
use crate::detail::Detail;

/// Files read at once at start, so that requests get processors too.
const INDEX_THREADS: usize = 2;

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

/// The stored windows.
#[derive(Debug)]
pub(crate) struct Store {
    directory: WindowDirectory,
    retention: Retention,
    log: IndexLog,
    windows: Mutex<Vec<Arc<StoredWindow>>>,
    /// The labels of all windows, for [`StoredWindow::share_labels`].
    labels: Mutex<HashSet<Arc<LabelValues>>>,
    /// Incremented when the windows change.
    generation: AtomicU64,
    indexing: AtomicBool,
    stopping: AtomicBool,
    queries: Queries,
    pub received: ReceivedProfiles,
    pub counters: StoreCounters,
}

impl Store {
    pub(crate) fn new(directory: WindowDirectory, retention: Retention) -> Self {
        Store {
            log: IndexLog::of(directory.path()),
            directory,
            retention,
            windows: Mutex::default(),
            labels: Mutex::default(),
            generation: AtomicU64::new(0),
            indexing: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            queries: Queries::default(),
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

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Ends [`Store::index`] and [`Store::complete_queries`] early.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Restores the index from its log, and reads the files without an entry, newest first; unreadable files are reported through
    /// `report` and skipped.
    pub(crate) fn index(&self, mut report: impl FnMut(String) + Send) {
        match self.directory.list() {
            Ok(files) => {
                let mut logged = self.log.load();
                let (known, unknown): (Vec<_>, Vec<_>) = files
                    .into_iter()
                    .map(|file| match logged.remove(&file.path) {
                        Some(window) if window.is_of(&file) => (file, Some(window)),
                        _ => (file, None),
                    })
                    .partition(|(_, window)| window.is_some());
                self.insert(known.into_iter().filter_map(|(_, window)| window));
                self.read_files(unknown.into_iter().map(|(file, _)| file), &mut report);
            }
            Err(error) => report(format!("cannot list {}: {error}", self.directory.path().display())),
        }
        self.indexing.store(false, Ordering::Relaxed);
        // Cached results say that files are being indexed.
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.retain(unix_ms());
    }

    /// Reads files without an entry on [`INDEX_THREADS`] threads.
    fn read_files(&self, files: impl Iterator<Item = DirectoryFile> + Send, report: impl FnMut(String) + Send) {
        let (files, report) = (Mutex::new(files), Mutex::new(report));
        let work = || loop {
            let Some(file) = lock(&files).next().filter(|_| !self.is_stopping()) else { break };
            // Received since the start, hence indexed already.
            if self.has(&file) {
                continue;
            }
            match window::read(&file.path) {
                Ok(data) => {
                    let window = StoredWindow::new(&data, file);
                    self.log.append(&window);
                    self.insert([window]);
                }
                Err(reason) => {
                    self.counters.unreadable_files.fetch_add(1, Ordering::Relaxed);
                    lock(&report)(format!("skipped {}: {reason}", file.path.display()));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..INDEX_THREADS {
                scope.spawn(work);
            }
            work();
        });
    }

    fn has(&self, file: &DirectoryFile) -> bool {
        let windows = lock(&self.windows);
        let from = windows.partition_point(|window| window.received_unix_ms < file.received_unix_ms);
        let mut equal = windows[from..].iter().take_while(|window| window.received_unix_ms == file.received_unix_ms);
        equal.any(|window| window.path == file.path)
    }

    /// Stores one received request. `data` is decoded from `gzipped`.
    pub(crate) fn keep(&self, gzipped: &[u8], data: &ProfilesData) -> std::io::Result<()> {
        let received_unix_ms = unix_ms();
        let window = StoredWindow::new(data, self.directory.write(gzipped, received_unix_ms)?);
        self.log.append(&window);
        self.insert([window]);
        self.retain(received_unix_ms);
        Ok(())
    }

    /// All windows, oldest first.
    pub(crate) fn windows(&self) -> Vec<Arc<StoredWindow>> {
        lock(&self.windows).clone()
    }

    fn insert(&self, new: impl IntoIterator<Item = StoredWindow>) {
        let mut labels = lock(&self.labels);
        let mut windows = lock(&self.windows);
        for mut window in new {
            self.received.add(&window.identities);
            window.share_labels(&mut labels);
            windows.push(Arc::new(window));
        }
        // Stable and fast for sorted parts.
        windows.sort_by_key(|window| window.received_unix_ms);
        // Labels that no window has any more.
        if labels.len() > 2 * windows.len() {
            labels.retain(|labels| Arc::strong_count(labels) > 1);
        }
        drop(windows);
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
        let is_sparse = !self.is_indexing() && self.log.is_sparse(windows.len());
        drop(windows);
        if is_sparse {
            self.log.compact(&self.windows());
        }
        if !removed.is_empty() {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        for window in removed {
            self.received.remove(&window.identities);
            let _ = std::fs::remove_file(&window.path);
        }
    }

    fn view(&self) -> StoreView {
        // The generation first: a window that arrives in between belongs to the next one.
        let generation = self.generation.load(Ordering::Relaxed);
        StoreView { generation, is_indexing: self.is_indexing(), windows: self.windows() }
    }

    /// As [`Queries::query`].
    pub(crate) fn query(&self, filter: &Filter, detail: Detail) -> Arc<QueryResult> {
        self.queries.query(&self.view(), filter, detail)
    }

    /// Resolves when [`Store::complete_queries`] has work.
    pub(crate) async fn has_unfinished_query(&self) {
        self.queries.has_unfinished().await;
    }

    /// As [`Queries::complete`].
    pub(crate) fn complete_queries(&self) {
        self.queries.complete(|| self.view(), || self.is_stopping());
    }

    /// As [`Queries::for_each_window`].
    pub(crate) fn for_each_window(&self, filter: &Filter, visit: impl FnMut(&ProfilesData)) -> usize {
        self.queries.for_each_window(&self.view(), filter, visit)
    }
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use spanprof_profile::encode::otlp::{self, Revision};
    use spanprof_profile::{Attribute, Profile, ResourceProfiles, Sample, ValueType};

    use super::*;
    use crate::gzip::gzip;
    use crate::temp_directory_testing::TempDirectory;

    fn window(start_s: u64, total: i64) -> ProfilesData {
        let profile = Profile {
            sample_type: ValueType::new("wall", "nanoseconds"),
            time_unix_nano: start_s * 1_000_000_000,
            duration_nano: 10_000_000_000,
            samples: vec![Sample { values: vec![total], ..Sample::default() }],
            ..Profile::default()
        };
        let resource = vec![Attribute::string("service.name", "shop")];
        let resources = vec![ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() }];
        ProfilesData { resources, ..ProfilesData::default() }
    }

    fn store_of(home: &TempDirectory, windows: u64) -> Store {
        let retention = Retention { max_bytes: u64::MAX, max_age: Duration::MAX };
        let store = Store::new(WindowDirectory::open(home.path()).unwrap(), retention);
        for nth in 0..windows {
            let data = window(1_700_000_000 + 10 * nth, 1);
            store.keep(&gzip(&otlp::encode(&data, Revision::One)), &data).unwrap();
        }
        store.index(|line| panic!("{line}"));
        store
    }

    fn with_deadline(deadline: Duration, mut store: Store) -> Store {
        store.queries.deadline = deadline;
        store
    }

    fn total(result: &QueryResult) -> i64 {
        result.data.profiles().flat_map(|(_, profile)| &profile.samples).map(Sample::total).sum()
    }

    #[test]
    fn a_partial_result_is_completed_by_the_next_query() {
        let home = TempDirectory::new("partial");
        let store = with_deadline(Duration::ZERO, store_of(&home, 5));
        let partial = store.query(&Filter::default(), Detail::Stacks);
        assert_eq!((total(&partial), partial.windows_left_out), (0, 5));
        assert_eq!(partial.left_out_range, Some((1_700_000_000_000_000_000, 1_700_000_050_000_000_000)));
        store.complete_queries();
        let complete = store.query(&Filter::default(), Detail::Stacks);
        assert_eq!((total(&complete), complete.windows_left_out, complete.left_out_range), (5, 0, None));
    }

    #[test]
    fn a_repeated_query_continues_from_the_windows_merged_so_far() {
        let home = TempDirectory::new("continued");
        let store = store_of(&home, 5);
        store.query(&Filter::default(), Detail::Stacks);
        // An arrival outdates the result but not the merge of the earlier windows.
        let later = |from| Filter { from_unix_nano: Some(from), ..Filter::default() };
        let store = with_deadline(Duration::ZERO, store);
        let repeated = store.query(&later(1), Detail::Stacks);
        assert_eq!((total(&repeated), repeated.windows_left_out), (5, 0));
    }

    #[test]
    fn an_unfinished_query_of_another_view_replaces_the_earlier_one() {
        let home = TempDirectory::new("replaced");
        let store = with_deadline(Duration::ZERO, store_of(&home, 2));
        let shop = Filter { service: Some("shop".to_owned()), ..Filter::default() };
        store.query(&Filter::default(), Detail::Everything);
        store.query(&shop, Detail::Everything);
        store.complete_queries();
        assert_eq!(store.query(&shop, Detail::Everything).windows_left_out, 0);
        assert_eq!(store.query(&Filter::default(), Detail::Everything).windows_left_out, 2);
    }

    #[test]
    fn a_result_says_that_files_are_still_being_indexed_until_they_are() {
        let home = TempDirectory::new("indexing");
        let retention = Retention { max_bytes: u64::MAX, max_age: Duration::MAX };
        let store = Store::new(WindowDirectory::open(home.path()).unwrap(), retention);
        assert!(store.query(&Filter::default(), Detail::Stacks).is_indexing);
        store.index(|line| panic!("{line}"));
        assert!(!store.query(&Filter::default(), Detail::Stacks).is_indexing);
    }
}
