//! Queries of the store: merge the samples of the matching windows within a deadline, complete interrupted merges in the
//! background, and cache the results. Called by `store`, from blocking threads only.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use spanprof_profile::ProfilesData;
use spanprof_read::query::TypeSummary;
use tokio::sync::Notify;

use super::batched_merge::BatchedMerge;
use super::byte_cache::ByteCache;
use super::hour_limits::HourLimits;
use super::left_out::LeftOut;
use super::merge::{MergeRun, PartSources};
use super::parts::{memory_bytes, MergedWindows, Query};
use crate::files::locks::lock;
use crate::files::rollup_facts::SampleCounts;
use crate::files::window::StoredWindow;
use crate::rollup::stored::Rollups;

/// Cached results, so that the table and the flame graph of one view share a merge.
const CACHED_RESULTS: usize = 4;
/// Memory of the cached results, except for the newest.
const RESULT_CACHE_BYTES: usize = 128 << 20;
/// A query responds after this time with the windows merged so far; [`Queries::complete`] merges the rest.
const QUERY_DEADLINE: Duration = Duration::from_secs(2);
/// A visit (`visits`) stops after this time.
const VISIT_DEADLINE: Duration = Duration::from_secs(10);

/// Result of a query: merged samples, and the number of their windows.
#[derive(Debug)]
pub(crate) struct QueryResult {
    pub data: Arc<ProfilesData>,
    /// Summaries of the samples of each window that passed the filter, for a timeline; by value of the label that is kept.
    pub summaries: Vec<TypeSummary>,
    /// Number of observations that passed the filter.
    pub samples: SampleCounts,
    pub windows: usize,
    /// Matching windows that were not read: the deadline had passed, or the result was too large.
    pub left_out: LeftOut,
    /// Whether the result was too large, so that no later query reads them either.
    pub is_too_large: bool,
    /// Whether files of earlier runs were still being indexed, so that their windows may be missing.
    pub is_indexing: bool,
    /// Whether files could not be read: retention removed their windows, or an hour replaced them.
    pub has_missing_files: bool,
    /// What the hours among the windows lack for this query.
    pub hours: HourLimits,
}

impl QueryResult {
    /// Number of observations of one type.
    pub(crate) fn samples_of(&self, type_name: &str) -> usize {
        self.samples.iter().filter(|((_, name), _)| name == type_name).map(|(_, count)| count).sum()
    }

    /// The members of a response, with what the result lacks.
    pub(crate) fn with_completeness(&self, mut members: Map<String, Value>) -> Value {
        members.insert("windows".to_owned(), self.windows.into());
        self.left_out.add_to(&mut members);
        if self.is_too_large {
            members.insert("too_large".to_owned(), true.into());
        }
        self.hours.add_to(&mut members);
        if self.is_indexing {
            members.insert("indexing".to_owned(), true.into());
        }
        Value::Object(members)
    }
}

/// Identity of a result.
fn result_key(view: &StoreView, query: &Query) -> (u64, String) {
    (view.generation, format!("{query:?}"))
}

/// Caches of queries, and the query to complete.
#[derive(Debug)]
pub(crate) struct Queries {
    pub sources: PartSources,
    /// By the generation of the windows and the query.
    results: ByteCache<(u64, String), QueryResult>,
    /// The last query that its deadline interrupted.
    unfinished: Mutex<Option<Query>>,
    unfinished_added: Notify,
    pub(crate) deadline: Duration,
    pub(crate) visit_deadline: Duration,
}

/// What a query sees of the store.
#[derive(Debug)]
pub(crate) struct StoreView {
    /// Incremented when the windows change.
    pub generation: u64,
    /// Whether files of earlier runs are still being indexed.
    pub is_indexing: bool,
    /// Sorted by [`StoredWindow::ended_unix_ms`], oldest first.
    pub windows: Vec<Arc<StoredWindow>>,
}

impl Queries {
    pub(crate) fn new(rollups: Arc<Rollups>) -> Self {
        Queries {
            sources: PartSources::new(rollups),
            results: ByteCache::new(RESULT_CACHE_BYTES, CACHED_RESULTS),
            unfinished: Mutex::default(),
            unfinished_added: Notify::new(),
            deadline: QUERY_DEADLINE,
            visit_deadline: VISIT_DEADLINE,
        }
    }

    /// Merges the samples that pass, newest windows first until the deadline. Windows left out because of the deadline are merged
    /// by [`Queries::complete`], so that a later query returns them too.
    pub(crate) fn answer(&self, view: &StoreView, query: &Query) -> Arc<QueryResult> {
        if let Some(cached) = self.results.find(&result_key(view, query)) {
            return cached;
        }
        let started = Instant::now();
        let (result, is_interrupted) = self.merge(view, query, || started.elapsed() >= self.deadline);
        if is_interrupted {
            *lock(&self.unfinished) = Some(query.clone());
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
            let (_, is_interrupted) = self.merge(&view(), &query, is_replaced);
            if is_stopping() {
                return;
            }
            if !is_interrupted {
                lock(&self.unfinished).take_if(|last| last.is_same_view(&query));
            }
        }
    }

    /// The merged samples of the matching windows, newest first until `is_interrupted`; whether windows are left out for that
    /// reason. Other results are cached: they would be the same the next time. `levels`: of roll-ups that may be used.
    fn merge(&self, view: &StoreView, query: &Query, is_interrupted: impl Fn() -> bool) -> (Arc<QueryResult>, bool) {
        let (owned, others): (Vec<_>, Vec<_>) = view.windows.iter().rev().cloned().partition(|window| window.is_owned);
        let mut run = MergeRun {
            sources: &self.sources,
            query,
            is_interrupted: &is_interrupted,
            newest_unix_ms: view.windows.last().map_or(0, |window| window.ended_unix_ms),
            left_out: LeftOut::default(),
            was_interrupted: false,
            has_missing_files: false,
        };
        let mut sum = BatchedMerge::default();
        for windows in [&owned, &others] {
            run.add(windows, query.levels, &mut sum);
        }
        let MergeRun { left_out, was_interrupted, has_missing_files, .. } = run;
        let MergedWindows { data, summaries, samples, windows, .. } = sum.finish();
        let is_indexing = view.is_indexing;
        let result = Arc::new(QueryResult {
            data,
            summaries,
            samples,
            windows,
            left_out,
            is_too_large: left_out.windows > 0 && !was_interrupted,
            is_indexing,
            has_missing_files,
            hours: HourLimits::of(&view.windows, &query.filter, &query.detail),
        });
        if !was_interrupted {
            self.results.insert(result_key(view, query), result.clone(), memory_bytes(&result.data));
        }
        (result, was_interrupted)
    }
}
