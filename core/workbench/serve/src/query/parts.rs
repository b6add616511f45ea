//! Parts of query results: the merged samples of one window or of those of a bucket, and their cache, so that a repeated query
//! reads new files only.
//!
//! Invariant: a part is found only for exactly the windows that it merges, by [`digest`], so that neither an arrival nor
//! retention invalidates it.

use std::sync::Arc;

use spanprof_profile::ProfilesData;
use spanprof_read::query::{Detail, Filter, TypeSummary};

use super::byte_cache::ByteCache;
use super::stack_selection::StackSelection;
use crate::files::rollup_facts::SampleCounts;
use crate::files::window::{digest, StoredWindow};

/// Memory for parts. An hour of one service and type takes about a megabyte.
const CACHE_BYTES: usize = 48 << 20;

/// A selection of samples, and the detail of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub filter: Filter,
    pub detail: Detail,
    /// Levels of roll-ups that may be used: a timeline needs windows that are shorter than its steps.
    pub levels: usize,
    /// With filters, the result has summaries of the samples whose stacks pass, and no samples.
    pub stacks: StackSelection,
}

impl Query {
    /// Whether parts are cached: samples with labels and links are too many.
    pub(crate) fn has_cached_parts(&self) -> bool {
        self.detail == Detail::Stacks || self.stacks.has_filters()
    }

    /// Identity of what is selected within windows.
    fn part_key(&self) -> String {
        format!("{:?}{:?}{}", self.detail, timeless(&self.filter), self.stacks.key)
    }

    /// Whether both read the same windows, except at the ends of their time ranges, which move with relative times.
    pub(crate) fn is_same_view(&self, other: &Query) -> bool {
        (&self.detail, self.levels, &self.stacks) == (&other.detail, other.levels, &other.stacks)
            && timeless(&self.filter) == timeless(&other.filter)
    }
}

/// The filter without its time range.
fn timeless(filter: &Filter) -> Filter {
    Filter { from_unix_nano: None, to_unix_nano: None, ..filter.clone() }
}

/// The merged samples of several windows.
#[derive(Debug, Default)]
pub(crate) struct MergedWindows {
    pub data: Arc<ProfilesData>,
    /// Whether equal samples are merged already, so that alone they need no merge.
    pub is_merged: bool,
    /// Summaries of the samples of each file that passed the filter.
    pub summaries: Vec<TypeSummary>,
    /// Number of observations that passed the filter.
    pub samples: SampleCounts,
    pub windows: usize,
}

impl MergedWindows {
    /// Approximate memory, to bound a cache.
    fn memory_bytes(&self) -> usize {
        memory_bytes(&self.data) + self.summaries.len() * (std::mem::size_of::<TypeSummary>() + 48)
    }
}

/// Approximate memory of decoded windows, to bound a cache.
pub(crate) fn memory_bytes(data: &ProfilesData) -> usize {
    data.dictionary.memory_bytes() + data.sample_count() * (std::mem::size_of::<spanprof_profile::Sample>() + 32)
}

/// The cached parts, by the digest of their windows and the identity of what is selected in them.
#[derive(Debug)]
pub(crate) struct PartCache(ByteCache<(u64, String), MergedWindows>);

impl Default for PartCache {
    fn default() -> Self {
        Self(ByteCache::new(CACHE_BYTES, usize::MAX))
    }
}

impl PartCache {
    /// The part of these windows; `None` also if the query has too many samples for a cache.
    pub(crate) fn find(&self, windows: &[Arc<StoredWindow>], query: &Query) -> Option<Arc<MergedWindows>> {
        query.has_cached_parts().then(|| self.0.find(&(digest(windows), query.part_key())))?
    }

    pub(crate) fn insert(&self, windows: &[Arc<StoredWindow>], query: &Query, part: &Arc<MergedWindows>) {
        if query.has_cached_parts() {
            self.0.insert((digest(windows), query.part_key()), part.clone(), part.memory_bytes() + 256);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::directory::DirectoryFile;

    fn window(received_unix_ms: u64) -> Arc<StoredWindow> {
        let file = DirectoryFile {
            path: received_unix_ms.to_string().into(),
            bytes: 1,
            modified_unix_nano: 0,
            received_unix_ms,
            is_owned: true,
            is_rollup: false,
        };
        let mut window = StoredWindow::new(&ProfilesData::default(), file);
        window.from_unix_nano = (received_unix_ms - 10_000) * 1_000_000;
        window.to_unix_nano = received_unix_ms * 1_000_000;
        Arc::new(window)
    }

    fn minute() -> Vec<Arc<StoredWindow>> {
        (0..6).rev().map(|nth| window(1_700_000_000_000 + nth * 10_000)).collect()
    }

    #[test]
    fn a_part_is_found_for_its_windows_and_selection_only() {
        let windows = minute();
        let query = |service: &str, detail| {
            let filter = Filter { service: Some(service.to_owned()), ..Filter::default() };
            Query { filter, detail, levels: 0, stacks: StackSelection::default() }
        };
        let cart = query("cart", Detail::Stacks);
        let parts = PartCache::default();
        parts.insert(&windows[..5], &cart, &Arc::default());
        assert!(parts.find(&windows[..5], &cart).is_some());
        assert!(parts.find(&windows[..4], &cart).is_none());
        assert!(parts.find(&windows[1..6], &cart).is_none());
        assert!(parts.find(&windows[..5], &query("shop", Detail::Stacks)).is_none());
        let everything = query("cart", Detail::Everything);
        parts.insert(&windows[..5], &everything, &Arc::default());
        assert!(parts.find(&windows[..5], &everything).is_none(), "too many samples");
    }
}
