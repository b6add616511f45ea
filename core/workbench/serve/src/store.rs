//! The store of `serve`: an in-memory index of the files in its directory, and retention. The files are in `directory`, queries
//! in `queries`, HTTP in `api`. Methods may read and decode files: called from blocking threads only.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spanprof_profile::ProfilesData;
use spanprof_read::query::{Detail, Filter, SpanTotals};

use crate::files::directory::{self, DirectoryFile, WindowDirectory};
use crate::files::file_names::{HOURS, LEVELS};
use crate::files::index_log::IndexLog;
use crate::files::locks::lock;
use crate::files::received::ReceivedProfiles;
use crate::files::replacement::{self, Replacement};
use crate::files::rollup_facts::RollupFacts;
use crate::files::window::{LabelValues, StoredWindow};
use crate::query::left_out::LeftOut;
use crate::query::parts::Query;
use crate::query::queries::{Queries, QueryResult, StoreView};
use crate::query::stack_selection::StackSelection;
use crate::rollup::buckets::{buckets, end_ms, last_received_ms, levels_within, start_ms};
use crate::rollup::stored::{Rollups, StoredRollup};

/// Files read at once at start, so that requests get processors too.
const INDEX_THREADS: usize = 2;

/// Limits of the stored requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of all files; the oldest beyond this limit are removed.
    pub max_bytes: u64,
    /// Time since arrival after which a request is removed.
    pub max_age: Duration,
    /// Time since arrival after which the requests of an hour are merged into one file.
    pub keep_windows: Duration,
}

/// Counters of the store, for `/api/stats`.
#[derive(Debug, Default)]
pub(crate) struct StoreCounters {
    pub removed_by_size: AtomicU64,
    pub removed_by_age: AtomicU64,
    pub unreadable_files: AtomicU64,
    /// Windows that an hour replaced.
    pub replaced: AtomicU64,
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
    pub(crate) queries: Queries,
    rollups: Arc<Rollups>,
    pub received: ReceivedProfiles,
    pub counters: StoreCounters,
}

impl Store {
    pub(crate) fn new(directory: WindowDirectory, retention: Retention) -> Self {
        let rollups = Arc::new(Rollups::of(directory.path()));
        Store {
            log: IndexLog::of(directory.path()),
            directory,
            retention,
            windows: Mutex::default(),
            labels: Mutex::default(),
            generation: AtomicU64::new(0),
            indexing: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            queries: Queries::new(rollups.clone()),
            rollups,
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
        replacement::resume_all(self.directory.path(), self.rollups.directory()).into_iter().for_each(&mut report);
        self.rollups.load();
        match self.directory.list() {
            Ok(files) => {
                let mut entries = self.log.load();
                let (logged, others): (Vec<_>, Vec<_>) = files
                    .into_iter()
                    .map(|file| match entries.remove(&file.path) {
                        Some(window) if window.is_of(&file) => (file, Some(window)),
                        _ => (file, None),
                    })
                    .partition(|(_, window)| window.is_some());
                self.insert(logged.into_iter().filter_map(|(_, window)| window));
                self.read_files(others.into_iter().map(|(file, _)| file), &mut report);
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
            let path = file.path.clone();
            match StoredWindow::read(file) {
                Ok(window) => {
                    self.log.append(&window);
                    self.insert([window]);
                }
                Err(reason) => {
                    self.counters.unreadable_files.fetch_add(1, Ordering::Relaxed);
                    lock(&report)(format!("skipped {}: {reason}", path.display()));
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

    /// All windows, by arrival, oldest first.
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
        let max_age_ms = milliseconds(self.retention.max_age);
        let mut windows = lock(&self.windows);
        let newest = windows.last().map(|window| window.path.clone());
        let mut bytes: u64 = windows.iter().filter(|window| window.is_owned).map(|window| window.bytes).sum();
        bytes += self.rollups.size().1;
        let (mut removed, mut rollups) = (Vec::new(), Vec::new());
        windows.retain(|window| {
            let is_old = window.received_unix_ms.saturating_add(max_age_ms) < now_unix_ms;
            let is_too_much = bytes > self.retention.max_bytes && Some(&window.path) != newest.as_ref();
            if !window.is_owned || !(is_old || is_too_much) {
                return true;
            }
            let of_window = self.rollups.take_containing(window);
            bytes = bytes.saturating_sub(window.bytes + of_window.iter().map(|rollup| rollup.bytes).sum::<u64>());
            let counter = if is_old { &self.counters.removed_by_age } else { &self.counters.removed_by_size };
            counter.fetch_add(1, Ordering::Relaxed);
            removed.push(window.clone());
            rollups.extend(of_window);
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
        // Without the lock, for which queries and requests wait.
        rollups.iter().for_each(|rollup| rollup.remove_files());
        for window in removed {
            self.received.remove(&window.identities);
            window.remove_files();
        }
    }

    /// Replaces the windows of each hour by its roll-up, if it ended, and its last window arrived, before the time for which
    /// windows are kept.
    fn replace_old_windows(&self, windows: &[Arc<StoredWindow>], now_unix_ms: u64) {
        let keep_ms = milliseconds(self.retention.keep_windows);
        for bucket in buckets(windows, HOURS) {
            let complete_ms = end_ms(bucket, HOURS).max(last_received_ms(bucket));
            let is_kept = complete_ms.saturating_add(keep_ms) > now_unix_ms;
            let is_replaced = matches!(bucket, [hour] if hour.is_rollup);
            if is_kept || is_replaced || self.is_stopping() {
                continue;
            }
            // Without space or permission the windows stay.
            if let Some(rollup) = self.rollups.find(bucket, HOURS) {
                let _ = self.replace(bucket, &rollup);
            }
        }
    }

    fn replace(&self, windows: &[Arc<StoredWindow>], rollup: &StoredRollup) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        let data = directory::read_profiles(&rollup.path)?;
        let facts = RollupFacts::read(&rollup.path).unwrap_or_else(|| RollupFacts::of_window(&data));
        let names = windows.iter().map(|window| window.name().into_owned()).collect();
        // The age of the hour is that of its last window.
        directory::set_modified(&rollup.path, last_received_ms(windows)).map_err(failed)?;
        let replacement = Replacement::new(self.directory.path(), self.rollups.directory(), rollup.name, names);
        replacement.commit().map_err(failed)?;
        let path = replacement.move_rollup().map_err(failed)?;
        let file = DirectoryFile::of_rollup(path, rollup.bytes).map_err(failed)?;
        let mut new = StoredWindow::of_rollup(&data, facts, file);
        // Senders that repeat a request of a replaced window are still recognized.
        new.identities = windows.iter().flat_map(|window| window.identities.iter().copied()).collect();
        self.log.append(&new);
        new.share_labels(&mut lock(&self.labels));
        let replaced: HashSet<&Path> = windows.iter().map(|window| window.path.as_path()).collect();
        let mut all = lock(&self.windows);
        all.retain(|window| !replaced.contains(window.path.as_path()));
        all.push(Arc::new(new));
        all.sort_by_key(|window| window.received_unix_ms);
        let fine = windows.iter().flat_map(|window| self.rollups.take_containing(window)).collect::<Vec<_>>();
        drop(all);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.counters.replaced.fetch_add(windows.len() as u64, Ordering::Relaxed);
        fine.iter().filter(|other| other.name != rollup.name).for_each(|other| other.remove_files());
        replacement.remove_windows().map_err(failed)
    }

    fn view(&self) -> StoreView {
        // The generation first: a window that arrives in between belongs to the next one.
        let generation = self.generation.load(Ordering::Relaxed);
        StoreView { generation, is_indexing: self.is_indexing(), windows: by_end(self.windows()) }
    }

    /// Builds the roll-ups that complete minutes lack, and removes those that are not needed any more.
    pub(crate) fn build_rollups(&self, now_unix_ms: u64) {
        if self.is_indexing() {
            return;
        }
        let mut windows = self.windows();
        windows.retain(|window| window.is_owned);
        let oldest = windows.first().cloned();
        let mut windows = by_end(windows);
        windows.reverse();
        self.rollups.retain(&windows, now_unix_ms);
        // While retention removes the oldest windows, the roll-ups of their hour would be built again and again.
        let removed = [&self.counters.removed_by_size, &self.counters.removed_by_age];
        if removed.iter().any(|counter| counter.load(Ordering::Relaxed) > 0) {
            let hour = oldest.map_or(0, |window| start_ms(&window, HOURS));
            windows.retain(|window| start_ms(window, HOURS) != hour);
        }
        self.rollups.build(&windows, now_unix_ms, &|| self.is_stopping());
        self.replace_old_windows(&windows, now_unix_ms);
    }

    /// Number and bytes of the roll-ups.
    pub(crate) fn rollups(&self) -> (usize, u64) {
        self.rollups.size()
    }

    /// The merged samples that pass, with summaries of windows of at most `width_ms`, or of single ones. If `stacks` has filters,
    /// the result is the summaries of the samples that pass, without the samples.
    pub(crate) fn query_in_steps(
        &self,
        filter: &Filter,
        width_ms: u64,
        detail: Detail,
        stacks: &StackSelection,
    ) -> Arc<QueryResult> {
        // Other parameters would only divide the caches.
        let stacks = if stacks.has_filters() { stacks.clone() } else { StackSelection::default() };
        self.answer(&Query { filter: filter.clone(), detail, levels: levels_within(width_ms), stacks })
    }

    /// The merged samples that pass.
    pub(crate) fn query(&self, filter: &Filter, detail: Detail) -> Arc<QueryResult> {
        self.answer(&Query { filter: filter.clone(), detail, levels: LEVELS, stacks: StackSelection::default() })
    }

    /// The result of a query; asks again if windows were replaced before they were read.
    fn answer(&self, query: &Query) -> Arc<QueryResult> {
        let view = self.view();
        let result = self.queries.answer(&view, query);
        let is_outdated = result.has_missing_files && self.generation.load(Ordering::Relaxed) != view.generation;
        if is_outdated {
            self.queries.answer(&self.view(), query)
        } else {
            result
        }
    }

    /// Resolves when [`Store::complete_queries`] has work.
    pub(crate) async fn has_unfinished_query(&self) {
        self.queries.has_unfinished().await;
    }

    /// As [`Queries::complete`].
    pub(crate) fn complete_queries(&self) {
        self.queries.complete(|| self.view(), || self.is_stopping());
    }

    /// As [`Queries::for_each_part`].
    pub(crate) fn for_each_part(&self, filter: &Filter, visit: impl FnMut(ProfilesData)) -> LeftOut {
        self.queries.for_each_part(&self.view(), filter, visit)
    }

    /// As [`Queries::span_totals`].
    pub(crate) fn span_totals(&self, filter: &Filter) -> (SpanTotals, LeftOut) {
        self.queries.span_totals(&self.view(), filter)
    }

    /// Number of the windows that may hold samples of the filter.
    pub(crate) fn count_windows(&self, filter: &Filter) -> usize {
        lock(&self.windows).iter().filter(|window| window.may_hold(filter)).count()
    }

    /// As [`Queries::for_each_window`].
    pub(crate) fn for_each_window(&self, filter: &Filter, visit: impl FnMut(ProfilesData)) -> LeftOut {
        self.queries.for_each_window(&self.view(), filter, visit)
    }
}

/// Sorts windows by [`StoredWindow::ended_unix_ms`]; those of live services are almost sorted.
fn by_end(mut windows: Vec<Arc<StoredWindow>>) -> Vec<Arc<StoredWindow>> {
    windows.sort_by_key(|window| window.ended_unix_ms);
    windows
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
#[path = "store_loading_tests.rs"]
mod loading_tests;
#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
