//! Queries of the store: merge the samples of the matching windows within a deadline, complete interrupted merges in the
//! background, and cache what was merged. Called by `api` and `comparison`, from blocking threads only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use spanprof_profile::{transform, ProfilesData};
use spanprof_read::query::{self, Filter, TypeSummary};
use tokio::sync::Notify;

use super::batched_merge::BatchedMerge;
use super::byte_cache::ByteCache;
use super::hour_limits::HourLimits;
use super::label_groups;
use super::left_out::LeftOut;
use super::parts::{self, memory_bytes, MergedWindows, PartCache};
use super::stack_selection::StackSelection;
use crate::detail::{self, Detail};
use crate::serve::files::directory;
use crate::serve::files::file_names::LEVELS;
use crate::serve::files::locks::lock;
use crate::serve::files::rollup_facts::{self, RollupFacts, SampleCounts};
use crate::serve::files::window::{is_whole, StoredWindow};
use crate::serve::rollup::buckets::{buckets, end_ms, levels_within};
use crate::serve::rollup::merged::Rollup;
use crate::serve::rollup::stored::Rollups;

/// Memory of the cache of decoded windows.
const DECODED_CACHE_BYTES: usize = 32 << 20;
/// Cached results, so that the table and the flame graph of one view share a merge.
const CACHED_RESULTS: usize = 4;
/// Memory of the cached results, except for the newest.
const RESULT_CACHE_BYTES: usize = 128 << 20;
/// Samples of one result, about 250 MB; only results with labels and links reach it.
const MAX_RESULT_SAMPLES: usize = 1_500_000;
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

/// A selection of samples, and the detail of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Query {
    filter: Filter,
    detail: Detail,
    /// Levels of roll-ups that may be used: a timeline needs windows that are shorter than its steps.
    levels: usize,
    /// With filters, the result has summaries of the samples whose stacks pass, and no samples.
    stacks: StackSelection,
}

impl Query {
    /// Whether parts are cached: samples with labels and links are too many.
    fn has_cached_parts(&self) -> bool {
        self.detail == Detail::Stacks || self.stacks.has_filters()
    }

    /// Identity for the cache of results.
    fn result_key(&self, view: &StoreView) -> (u64, String) {
        (view.generation, format!("{self:?}"))
    }

    /// Identity of what is selected within windows, for the cache of parts.
    fn part_key(&self) -> String {
        format!("{:?}{:?}{}", self.detail, parts::timeless(&self.filter), self.stacks.key)
    }

    /// Whether both read the same windows, except at the ends of their time ranges, which move with relative times.
    fn is_same_view(&self, other: &Query) -> bool {
        (&self.detail, self.levels, &self.stacks) == (&other.detail, other.levels, &other.stacks)
            && parts::timeless(&self.filter) == parts::timeless(&other.filter)
    }
}

/// Caches of queries, and the query to complete.
#[derive(Debug)]
pub(crate) struct Queries {
    decoded: ByteCache<PathBuf, ProfilesData>,
    /// By the generation of the windows and the query.
    results: ByteCache<(u64, String), QueryResult>,
    parts: PartCache,
    pub(crate) rollups: Arc<Rollups>,
    /// The last query that its deadline interrupted.
    unfinished: Mutex<Option<Query>>,
    unfinished_added: Notify,
    pub(crate) deadline: Duration,
    pub(crate) max_samples: usize,
    pub(crate) visit_deadline: Duration,
}

impl Queries {
    pub(crate) fn new(rollups: Arc<Rollups>) -> Self {
        Queries {
            decoded: ByteCache::new(DECODED_CACHE_BYTES, usize::MAX),
            results: ByteCache::new(RESULT_CACHE_BYTES, CACHED_RESULTS),
            parts: PartCache::default(),
            rollups,
            unfinished: Mutex::default(),
            unfinished_added: Notify::new(),
            deadline: QUERY_DEADLINE,
            max_samples: MAX_RESULT_SAMPLES,
            visit_deadline: VISIT_DEADLINE,
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
        self.answer(view, Query { filter: filter.clone(), detail, levels: LEVELS, stacks: StackSelection::default() })
    }

    /// As [`Queries::query`], with summaries of windows of at most `width_ms`, or of single ones. If `stacks` has filters, the result
    /// is the summaries of the samples that pass, without the samples.
    pub(crate) fn query_in_steps(
        &self,
        view: &StoreView,
        filter: &Filter,
        width_ms: u64,
        detail: Detail,
        stacks: StackSelection,
    ) -> Arc<QueryResult> {
        let levels = levels_within(width_ms);
        // Other parameters would only divide the caches.
        let stacks = if stacks.has_filters() { stacks } else { StackSelection::default() };
        self.answer(view, Query { filter: filter.clone(), detail, levels, stacks })
    }

    fn answer(&self, view: &StoreView, query: Query) -> Arc<QueryResult> {
        if let Some(cached) = self.results.find(&query.result_key(view)) {
            return cached;
        }
        let started = Instant::now();
        let (result, is_interrupted) = self.merge(view, &query, || started.elapsed() >= self.deadline);
        if is_interrupted {
            *lock(&self.unfinished) = Some(query);
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
            queries: self,
            query,
            is_interrupted: &is_interrupted,
            newest_unix_ms: view.windows.last().map_or(0, |window| window.received_unix_ms),
            left_out: LeftOut::default(),
            was_interrupted: false,
            has_missing_files: false,
        };
        let mut sum = BatchedMerge::default();
        for windows in [&owned, &others] {
            run.add(windows, query.levels, true, &mut sum);
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
            self.results.insert(query.result_key(view), result.clone(), memory_bytes(&result.data));
        }
        (result, was_interrupted)
    }

    pub(crate) fn decoded(&self, path: &Path) -> Result<Arc<ProfilesData>, String> {
        let path = path.to_owned();
        if let Some(cached) = self.decoded.find(&path) {
            return Ok(cached);
        }
        let data = Arc::new(directory::read_profiles(&path)?);
        self.decoded.insert(path, data.clone(), memory_bytes(&data));
        Ok(data)
    }
}

/// One merge of [`Queries::merge`].
struct MergeRun<'q> {
    queries: &'q Queries,
    query: &'q Query,
    is_interrupted: &'q dyn Fn() -> bool,
    /// Arrival of the newest window.
    newest_unix_ms: u64,
    left_out: LeftOut,
    was_interrupted: bool,
    has_missing_files: bool,
}

impl MergeRun<'_> {
    /// Adds the samples of `windows` to `sum`, by cached parts and by roll-ups of the lowest `levels` levels where they are of
    /// exactly these windows. Caches parts as large as possible if `is_cached`.
    fn add(&mut self, windows: &[Arc<StoredWindow>], levels: usize, is_cached: bool, sum: &mut BatchedMerge) {
        let Query { filter, detail, .. } = self.query;
        let Some(level) = levels.checked_sub(1) else {
            return windows.iter().for_each(|window| self.add_window(window, is_cached, sum));
        };
        for bucket in buckets(windows, level) {
            if !bucket.iter().any(|window| window.may_hold(filter)) {
                continue;
            }
            if !detail.is_in_rollups() || !is_whole(bucket, filter) {
                self.add(bucket, level, is_cached, sum);
                continue;
            }
            let has_cached_parts = self.query.has_cached_parts();
            let is_cached = is_cached && has_cached_parts;
            let cached = has_cached_parts.then(|| self.queries.parts.find(bucket, &self.query.part_key())).flatten();
            let part = cached.or_else(|| {
                let part = Arc::new(self.rollup_part(bucket, level, sum)?);
                if has_cached_parts {
                    self.queries.parts.insert(bucket, &self.query.part_key(), &part);
                }
                Some(part)
            });
            if let Some(part) = part {
                sum.add(part);
            } else if is_cached && end_ms(bucket, level) <= self.newest_unix_ms {
                let mut own = BatchedMerge::after(sum.total_samples());
                let left_out = self.left_out.windows;
                self.add(bucket, level, false, &mut own);
                let part = Arc::new(own.finish());
                if self.left_out.windows == left_out {
                    self.queries.parts.insert(bucket, &self.query.part_key(), &part);
                }
                sum.add(part);
            } else {
                self.add(bucket, level, is_cached, sum);
            }
        }
    }

    /// The samples of the roll-up of these windows; `None` if there is none that has what the filter needs.
    fn rollup_part(
        &mut self,
        windows: &[Arc<StoredWindow>],
        level: usize,
        sum: &BatchedMerge,
    ) -> Option<MergedWindows> {
        let Query { filter, detail, .. } = self.query;
        if filter.trace_id.is_some() || filter.span_id.is_some() {
            return None;
        }
        let rollup = self.queries.rollups.find(windows, level).filter(|_| self.may_read(sum))?;
        let mut keys: Vec<&str> = filter.labels.iter().map(|label| label.key.as_str()).collect();
        if let Detail::OneLabel(key) = detail {
            keys.push(key);
        }
        let Rollup { data, facts, .. } = rollup.read(&keys)?;
        let mut part = passing_rollup(self.query, Arc::new(data), &facts);
        if part.windows > 0 {
            part.windows = windows.iter().filter(|window| window.may_hold(filter)).count();
        }
        Some(part)
    }

    fn add_window(&mut self, window: &Arc<StoredWindow>, is_cached: bool, sum: &mut BatchedMerge) {
        let filter = &self.query.filter;
        if !window.may_hold(filter) {
            return;
        }
        let own = std::slice::from_ref(window);
        let is_cacheable = is_cached && self.query.has_cached_parts() && is_whole(own, filter);
        if let Some(part) = is_cacheable.then(|| self.queries.parts.find(own, &self.query.part_key())).flatten() {
            return sum.add(part);
        }
        if !self.may_read(sum) {
            return self.left_out.add(window);
        }
        // Removed by retention: nothing to add. Replaced: the store asks again.
        let Ok(data) = self.queries.decoded(&window.path) else {
            self.has_missing_files = true;
            return;
        };
        let part = Arc::new(match RollupFacts::read(&window.path) {
            Some(facts) => passing_rollup(self.query, data, &facts),
            None => passing(self.query, data),
        });
        if is_cacheable {
            self.queries.parts.insert(own, &self.query.part_key(), &part);
        }
        sum.add(part);
    }

    /// Whether neither the deadline has passed nor the result is too large.
    fn may_read(&mut self, sum: &BatchedMerge) -> bool {
        let is_too_large = sum.total_samples() > self.queries.max_samples;
        self.was_interrupted = self.was_interrupted || (!is_too_large && (self.is_interrupted)());
        !is_too_large && !self.was_interrupted
    }
}

/// The samples of one window that pass the filter. Memory that no cache has is used again.
fn passing(Query { filter, detail, stacks, .. }: &Query, data: Arc<ProfilesData>) -> MergedWindows {
    let mut part = MergedWindows::default();
    if *detail == Detail::Stacks && !stacks.has_filters() {
        let (mut selected, shared) = match Arc::try_unwrap(data) {
            Ok(mut data) => {
                filter.retain(&mut data);
                (data, None)
            }
            Err(data) => (ProfilesData { resources: filter.select(&data), ..ProfilesData::default() }, Some(data)),
        };
        part.samples = rollup_facts::counts(&selected.resources);
        part.summaries = query::types_of(&selected.resources);
        detail::reduce_to_stacks(&mut selected.resources);
        let dictionary = shared.as_ref().map_or(&selected.dictionary, |data| &data.dictionary);
        // A copy of the entries of few samples is small.
        let is_copied = shared.is_some() || selected.sample_count() < dictionary.lens().stacks / 2;
        // Stacks are interned once, by the merge.
        part.data = Arc::new(match is_copied {
            true => transform::merge_profiles([(dictionary, &selected.resources[..])]),
            false => transform::merge_owned(selected),
        });
        part.is_merged = true;
    } else {
        let mut selected = filter.apply(&data);
        part.samples = rollup_facts::counts(&selected.resources);
        detail.reduce(&mut selected);
        if stacks.has_filters() {
            stacks.filter_shown(&mut selected);
        }
        part.summaries = match detail {
            Detail::OneLabel(_) => label_groups::summaries_by_value(&selected),
            _ => query::types(&selected),
        };
        if stacks.has_filters() {
            part.windows = usize::from(selected.sample_count() > 0);
            return part;
        }
        part.data = Arc::new(selected);
    }
    part.windows = usize::from(part.data.sample_count() > 0);
    part
}

/// The samples of a roll-up that pass the filter, with the counts of its windows. With a filter that selects a part of the
/// samples, their number is an estimate.
fn passing_rollup(query: &Query, data: Arc<ProfilesData>, facts: &RollupFacts) -> MergedWindows {
    let read = rollup_facts::counts(&data.resources);
    let mut part = passing(query, data);
    for (key, count) in &mut part.samples {
        if let (Some(read @ 1..), Some(all)) = (read.get(key), facts.counts.get(key)) {
            *count = (*count as u128 * *all as u128 / *read as u128) as usize;
        }
    }
    facts.widen_gauges(&mut part.summaries, query.filter.service.as_deref());
    part.windows *= facts.windows;
    part
}
