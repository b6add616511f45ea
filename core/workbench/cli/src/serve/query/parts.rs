//! A cache of the parts of query results: the merged samples of one window or of the windows of an hour, so that a repeated
//! query reads new files only. Called by `queries` for results without labels and links of single
//! samples.
//!
//! Invariant: a part is found only for exactly the windows that it merges, by [`digest`], so that neither an arrival nor
//! retention invalidates it.

use std::sync::Arc;

use spanprof_profile::ProfilesData;
use spanprof_read::query::{Filter, TypeSummary};

use super::byte_cache::ByteCache;
use crate::serve::files::rollup_facts::SampleCounts;
use crate::serve::files::window::{digest, StoredWindow};

/// Memory for parts. An hour of one service and type takes about a megabyte.
const CACHE_BYTES: usize = 48 << 20;

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

/// The filter without its time range.
pub(crate) fn timeless(filter: &Filter) -> Filter {
    Filter { from_unix_nano: None, to_unix_nano: None, ..filter.clone() }
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
    /// The part of these windows with the selection `key`.
    pub(crate) fn find(&self, windows: &[Arc<StoredWindow>], key: &str) -> Option<Arc<MergedWindows>> {
        self.0.find(&(digest(windows), key.to_owned()))
    }

    pub(crate) fn insert(&self, windows: &[Arc<StoredWindow>], key: &str, part: &Arc<MergedWindows>) {
        self.0.insert((digest(windows), key.to_owned()), part.clone(), part.memory_bytes() + 256);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::files::directory::DirectoryFile;

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
        let parts = PartCache::default();
        parts.insert(&windows[..5], "cart", &Arc::default());
        assert!(parts.find(&windows[..5], "cart").is_some());
        assert!(parts.find(&windows[..4], "cart").is_none());
        assert!(parts.find(&windows[1..6], "cart").is_none());
        assert!(parts.find(&windows[..5], "").is_none());
    }
}
