//! The merge of a query: the newest windows first, by the largest parts that exist. Called by `queries`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spanprof_profile::ProfilesData;
use spanprof_read::query::Detail;

use super::batched_merge::BatchedMerge;
use super::byte_cache::ByteCache;
use super::left_out::LeftOut;
use super::parts::{memory_bytes, MergedWindows, PartCache, Query};
use super::passing::{passing, passing_rollup};
use crate::files::directory;
use crate::files::rollup_facts::RollupFacts;
use crate::files::window::{is_whole, StoredWindow};
use crate::rollup::buckets::{buckets, end_ms};
use crate::rollup::merged::Rollup;
use crate::rollup::stored::Rollups;

/// Memory of the cache of decoded windows.
const DECODED_CACHE_BYTES: usize = 32 << 20;
/// Samples of one result, about 250 MB; only results with labels and links reach it.
const MAX_RESULT_SAMPLES: usize = 1_500_000;

/// Where merges find windows and their parts.
#[derive(Debug)]
pub(crate) struct PartSources {
    decoded: ByteCache<PathBuf, ProfilesData>,
    parts: PartCache,
    pub rollups: Arc<Rollups>,
    pub max_samples: usize,
}

impl PartSources {
    pub(crate) fn new(rollups: Arc<Rollups>) -> Self {
        PartSources {
            decoded: ByteCache::new(DECODED_CACHE_BYTES, usize::MAX),
            parts: PartCache::default(),
            rollups,
            max_samples: MAX_RESULT_SAMPLES,
        }
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

/// One merge.
pub(crate) struct MergeRun<'q> {
    pub sources: &'q PartSources,
    pub query: &'q Query,
    pub is_interrupted: &'q dyn Fn() -> bool,
    /// End of the newest window.
    pub newest_unix_ms: u64,
    pub left_out: LeftOut,
    pub was_interrupted: bool,
    pub has_missing_files: bool,
}

impl MergeRun<'_> {
    /// Adds the samples of `windows`: of each bucket of the highest level its part, or, without one, its buckets of the next
    /// level.
    pub(crate) fn add(&mut self, windows: &[Arc<StoredWindow>], levels: usize, sum: &mut BatchedMerge) {
        let Some(level) = levels.checked_sub(1) else {
            return windows.iter().for_each(|window| self.add_window(window, sum));
        };
        let query = self.query;
        for bucket in
            buckets(windows, level).filter(|bucket| bucket.iter().any(|window| window.may_hold(&query.filter)))
        {
            match self.bucket_part(bucket, level, sum) {
                Some(part) => sum.add(part),
                None => self.add(bucket, level, sum),
            }
        }
    }

    /// The samples of a bucket as one part: from the cache, else of its roll-up, else merged to be cached if no later window
    /// belongs to the bucket. `None` if its windows are to be added one by one.
    fn bucket_part(
        &mut self,
        bucket: &[Arc<StoredWindow>],
        level: usize,
        sum: &BatchedMerge,
    ) -> Option<Arc<MergedWindows>> {
        let Self { sources, query, .. } = *self;
        if !query.detail.is_in_rollups() || !is_whole(bucket, &query.filter) {
            return None;
        }
        if let Some(part) = sources.parts.find(bucket, query) {
            return Some(part);
        }
        let left_out = self.left_out.windows;
        let part = match self.rollup_part(bucket, level, sum) {
            Some(part) => part,
            // Within a part, smaller ones are not cached.
            None if sum.is_part() || !query.has_cached_parts() || end_ms(bucket, level) > self.newest_unix_ms => {
                return None
            }
            None => {
                let mut part = BatchedMerge::of_part(sum.total_samples());
                self.add(bucket, level, &mut part);
                part.finish()
            }
        };
        let part = Arc::new(part);
        if self.left_out.windows == left_out {
            sources.parts.insert(bucket, query, &part);
        }
        Some(part)
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
        let rollup = self.sources.rollups.find(windows, level).filter(|_| self.may_read(sum))?;
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

    fn add_window(&mut self, window: &Arc<StoredWindow>, sum: &mut BatchedMerge) {
        let Self { sources, query, .. } = *self;
        if !window.may_hold(&query.filter) {
            return;
        }
        let windows = std::slice::from_ref(window);
        let is_cacheable = !sum.is_part() && is_whole(windows, &query.filter);
        if let Some(part) = is_cacheable.then(|| sources.parts.find(windows, query)).flatten() {
            return sum.add(part);
        }
        if !self.may_read(sum) {
            return self.left_out.add(window);
        }
        // Removed by retention: nothing to add. Replaced: the store asks again.
        let Ok(data) = sources.decoded(&window.path) else {
            self.has_missing_files = true;
            return;
        };
        let part = Arc::new(match RollupFacts::read(&window.path) {
            Some(facts) => passing_rollup(query, data, &facts),
            None => passing(query, data),
        });
        if is_cacheable {
            sources.parts.insert(windows, query, &part);
        }
        sum.add(part);
    }

    /// Whether neither the deadline has passed nor the result is too large.
    fn may_read(&mut self, sum: &BatchedMerge) -> bool {
        let is_too_large = sum.total_samples() > self.sources.max_samples;
        self.was_interrupted = self.was_interrupted || (!is_too_large && (self.is_interrupted)());
        !is_too_large && !self.was_interrupted
    }
}
