//! Queries of the store: merge the samples of the matching windows within a deadline, complete interrupted merges in the
//! background, and cache what was merged. Called by `api` and `comparison`, from blocking threads only.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use spanprof_profile::{transform, ProfilesData};
use spanprof_read::query::{self, Filter, TypeSummary};
use tokio::sync::Notify;

use super::locks::lock;
use super::slices::{self, memory_bytes, MergedWindows, Slices};
use super::spans::Spans;
use super::window::{self, StoredWindow};
use crate::detail::Detail;

/// Memory of the cache of decoded windows.
const DECODED_CACHE_BYTES: usize = 48 << 20;
/// Cached results, so that the table and the flame graph of one view share a merge.
const CACHED_RESULTS: usize = 4;
/// Windows merged at once: bounds memory, without a merge of the large result for each window.
const MERGE_BATCH: usize = 24;
/// Samples of one result, about 250 MB; only results with labels and links reach it.
const MAX_RESULT_SAMPLES: usize = 1_500_000;
/// A query responds after this time with the windows merged so far; [`Queries::complete`] merges the rest.
const QUERY_DEADLINE: Duration = Duration::from_secs(2);
/// A comparison stops after this time. It needs each single window, so there is nothing to complete in the background.
const VISIT_DEADLINE: Duration = Duration::from_secs(10);

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
    /// First start and last end of the windows left out, Unix nanoseconds.
    pub left_out_range: Option<(u64, u64)>,
    /// Whether files of earlier runs were still being indexed, so that their windows may be missing.
    pub is_indexing: bool,
}

impl QueryResult {
    /// The members of a response, with what the result lacks. Times are milliseconds, which JavaScript numbers represent exactly.
    pub(crate) fn with_completeness(&self, mut members: Map<String, Value>) -> Value {
        members.insert("windows".to_owned(), self.windows.into());
        members.insert("windows_left_out".to_owned(), self.windows_left_out.into());
        if let Some((from, to)) = self.left_out_range {
            members.insert("left_out_from_ms".to_owned(), (from / 1_000_000).into());
            members.insert("left_out_to_ms".to_owned(), (to / 1_000_000).into());
        }
        if self.is_indexing {
            members.insert("indexing".to_owned(), true.into());
        }
        Value::Object(members)
    }
}

/// A query whose deadline passed before all windows were merged.
#[derive(Clone, Debug)]
struct UnfinishedQuery {
    filter: Filter,
    detail: Detail,
}

impl UnfinishedQuery {
    /// Whether both read the same windows, except at the ends of their time ranges, which move with relative times.
    fn is_same_view(&self, other: &UnfinishedQuery) -> bool {
        self.detail == other.detail && slices::timeless(&self.filter) == slices::timeless(&other.filter)
    }
}

#[derive(Debug)]
struct CachedResult {
    generation: u64,
    filter: Filter,
    detail: Detail,
    result: Arc<QueryResult>,
}

/// Caches of queries, and the query to complete.
#[derive(Debug)]
pub(crate) struct Queries {
    decoded: Mutex<VecDeque<(PathBuf, Arc<ProfilesData>)>>,
    results: Mutex<VecDeque<CachedResult>>,
    slices: Slices,
    /// The last query that its deadline interrupted.
    unfinished: Mutex<Option<UnfinishedQuery>>,
    unfinished_added: Notify,
    pub(super) deadline: Duration,
}

impl Default for Queries {
    fn default() -> Self {
        Queries {
            decoded: Mutex::default(),
            results: Mutex::default(),
            slices: Slices::default(),
            unfinished: Mutex::default(),
            unfinished_added: Notify::new(),
            deadline: QUERY_DEADLINE,
        }
    }
}

/// What a query sees of the store.
#[derive(Debug)]
pub(crate) struct StoreView {
    /// Incremented when the windows change.
    pub generation: u64,
    /// Whether files of earlier runs are still being indexed.
    pub is_indexing: bool,
    /// Oldest first.
    pub windows: Vec<Arc<StoredWindow>>,
}

impl Queries {
    /// Merges the samples that pass `filter`, newest windows first until the deadline. Windows left out because of the deadline
    /// are merged by [`Queries::complete`], so that a later query returns them too.
    pub(crate) fn query(&self, view: &StoreView, filter: &Filter, detail: Detail) -> Arc<QueryResult> {
        let generation = view.generation;
        let is_same = |of: &&CachedResult| of.generation == generation && of.filter == *filter && of.detail == detail;
        if let Some(cached) = lock(&self.results).iter().find(is_same) {
            return cached.result.clone();
        }
        let started = Instant::now();
        let (result, is_interrupted) = self.merge(view, filter, detail, || started.elapsed() >= self.deadline);
        if is_interrupted {
            *lock(&self.unfinished) = Some(UnfinishedQuery { filter: filter.clone(), detail });
            self.unfinished_added.notify_one();
        }
        result
    }

    /// Resolves when [`Queries::complete`] has work.
    pub(crate) async fn has_unfinished(&self) {
        self.unfinished_added.notified().await;
    }

    /// Merges all windows of the last query that its deadline interrupted. A newer unfinished query of another view replaces it.
    pub(crate) fn complete(&self, view: impl Fn() -> StoreView, is_stopping: impl Fn() -> bool) {
        loop {
            let Some(query) = lock(&self.unfinished).clone() else { return };
            let is_replaced = || {
                let last = lock(&self.unfinished);
                is_stopping() || !last.as_ref().is_some_and(|last| last.is_same_view(&query))
            };
            let (_, is_interrupted) = self.merge(&view(), &query.filter, query.detail, is_replaced);
            if is_stopping() {
                return;
            }
            if !is_interrupted {
                lock(&self.unfinished).take_if(|last| last.is_same_view(&query));
            }
        }
    }

    /// The merged samples of the matching windows, newest first until `is_interrupted`; whether windows are left out for that
    /// reason. Other results are cached: they would be the same the next time.
    fn merge(
        &self,
        view: &StoreView,
        filter: &Filter,
        detail: Detail,
        is_interrupted: impl Fn() -> bool,
    ) -> (Arc<QueryResult>, bool) {
        let &StoreView { generation, is_indexing, .. } = view;
        let mut sum = BatchedMerge::default();
        let mut left_out: Vec<&StoredWindow> = Vec::new();
        let mut was_interrupted = false;
        let windows: Vec<_> = view.windows.iter().rev().filter(|window| window.may_hold(filter)).cloned().collect();
        for slice in slices::cut(&windows) {
            let is_cacheable = detail == Detail::Stacks && slices::is_whole(slice, filter);
            if let Some(part) = is_cacheable.then(|| self.slices.find(slice, filter)).flatten() {
                sum.add(part);
                continue;
            }
            let mut part = BatchedMerge::default();
            let left_out_before = left_out.len();
            for window in slice {
                let is_too_large = sum.samples + part.samples > MAX_RESULT_SAMPLES;
                was_interrupted = was_interrupted || (!is_too_large && is_interrupted());
                if is_too_large || was_interrupted {
                    left_out.push(window);
                    continue;
                }
                // Removed by retention or replaced meanwhile: nothing to add.
                let Ok(data) = self.decoded(&window.path) else { continue };
                part.add(Arc::new(passing(filter, detail, &data)));
            }
            let part = Arc::new(part.finish());
            if is_cacheable && left_out.len() == left_out_before {
                self.slices.insert(slice, filter, &part);
            }
            sum.add(part);
        }
        let MergedWindows { data, summaries, spans, windows } = sum.finish();
        let left_out_range = left_out
            .iter()
            .map(|window| (window.from_unix_nano, window.to_unix_nano))
            .reduce(|(from, to), next| (from.min(next.0), to.max(next.1)));
        let windows_left_out = left_out.len();
        let result =
            Arc::new(QueryResult { data, summaries, spans, windows, windows_left_out, left_out_range, is_indexing });
        if !was_interrupted {
            let mut results = lock(&self.results);
            results.truncate(CACHED_RESULTS - 1);
            results.push_front(CachedResult { generation, filter: filter.clone(), detail, result: result.clone() });
        }
        (result, was_interrupted)
    }

    /// Visits the windows that may hold samples of the filter, newest first until the deadline; returns how many were left out.
    pub(crate) fn for_each_window(
        &self,
        view: &StoreView,
        filter: &Filter,
        mut visit: impl FnMut(&ProfilesData),
    ) -> usize {
        let started = Instant::now();
        let mut left_out = 0;
        for window in view.windows.iter().rev().filter(|window| window.may_hold(filter)) {
            if started.elapsed() > VISIT_DEADLINE {
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
        let data = Arc::new(window::read(path)?);
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
