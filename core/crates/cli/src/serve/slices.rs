//! A cache of merged consecutive windows: the first query of a day reads each file, and later queries merge some sixty
//! slices and the windows at both ends. Pure except for its lock. Called by `store` for results without labels and links of
//! single samples.
//!
//! A day of one service (500 windows of 300 samples) takes 1.0 to 1.2 s of CPU time the first time, and 0.02 to 0.1 s after the
//! next window. Three services at once, with 60,000 spans, exceed the 32 MiB of slices and take as long each time.
//!
//! Invariant: a slice is found only for exactly the windows that it merges, so that neither an arrival nor retention
//! invalidates it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use spanprof_profile::ProfilesData;
use spanprof_read::query::{Filter, TypeSummary};

use super::spans::Spans;
use super::window::StoredWindow;

/// Memory for slices. A day of one service and type takes some megabytes.
const CACHE_BYTES: usize = 32 << 20;
/// Slices per query, at most; rounding of the width to a power of two halves their number at most.
const SLICES_PER_QUERY: u64 = 64;
/// Shorter slices contain too few windows to benefit.
const MIN_SLICE_MS: u64 = 60_000;

/// The merged samples of several windows.
#[derive(Debug, Default)]
pub(crate) struct MergedWindows {
    pub data: ProfilesData,
    /// Summaries of the samples of each window that passed the filter.
    pub summaries: Vec<TypeSummary>,
    pub spans: Spans,
    pub windows: usize,
}

impl MergedWindows {
    /// Approximate memory, to bound a cache.
    fn memory_bytes(&self) -> usize {
        memory_bytes(&self.data)
            + self.spans.memory_bytes()
            + self.summaries.len() * (std::mem::size_of::<TypeSummary>() + 48)
    }
}

/// Approximate memory of decoded windows, to bound a cache.
pub(crate) fn memory_bytes(data: &ProfilesData) -> usize {
    data.dictionary.memory_bytes() + data.sample_count() * (std::mem::size_of::<spanprof_profile::Sample>() + 32)
}

#[derive(Debug)]
struct Slice {
    /// Without its time range, which includes every window.
    filter: Filter,
    windows: Vec<Arc<StoredWindow>>,
    part: Arc<MergedWindows>,
    bytes: usize,
}

/// The cached slices, last used first.
#[derive(Debug, Default)]
pub(crate) struct Slices(Mutex<VecDeque<Slice>>);

/// Splits windows, sorted by arrival in either direction, into slices with borders at fixed times.
pub(crate) fn cut(windows: &[Arc<StoredWindow>]) -> impl Iterator<Item = &[Arc<StoredWindow>]> {
    let ends = [windows.first(), windows.last()].map(|window| window.map_or(0, |window| window.received_unix_ms));
    let width = (ends[0].abs_diff(ends[1]) / SLICES_PER_QUERY).max(MIN_SLICE_MS).next_power_of_two();
    windows.chunk_by(move |left, right| left.received_unix_ms / width == right.received_unix_ms / width)
}

/// Whether the filter's time range includes all of these windows, and there are at least two.
pub(crate) fn is_whole(windows: &[Arc<StoredWindow>], filter: &Filter) -> bool {
    windows.len() > 1
        && windows.iter().all(|window| {
            filter.from_unix_nano.is_none_or(|from| window.from_unix_nano >= from)
                && filter.to_unix_nano.is_none_or(|to| window.to_unix_nano <= to)
        })
}

impl Slices {
    pub(crate) fn find(&self, windows: &[Arc<StoredWindow>], filter: &Filter) -> Option<Arc<MergedWindows>> {
        let filter = timeless(filter);
        let mut slices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = slices.iter().position(|slice| {
            slice.windows.len() == windows.len()
                && slice.windows.iter().zip(windows).all(|(left, right)| Arc::ptr_eq(left, right))
                && slice.filter == filter
        })?;
        let slice = slices.remove(at)?;
        let part = slice.part.clone();
        slices.push_front(slice);
        Some(part)
    }

    pub(crate) fn insert(&self, windows: &[Arc<StoredWindow>], filter: &Filter, part: &Arc<MergedWindows>) {
        let bytes = part.memory_bytes() + std::mem::size_of_val(windows);
        let slice = Slice { filter: timeless(filter), windows: windows.to_vec(), part: part.clone(), bytes };
        let mut slices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slices.push_front(slice);
        let mut total = 0;
        slices.retain(|slice| {
            total += slice.bytes;
            total <= CACHE_BYTES
        });
    }
}

/// The filter without its time range.
pub(crate) fn timeless(filter: &Filter) -> Filter {
    Filter { from_unix_nano: None, to_unix_nano: None, ..filter.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::directory::DirectoryFile;

    fn window(received_unix_ms: u64) -> Arc<StoredWindow> {
        let mut window = StoredWindow::new(
            &ProfilesData::default(),
            DirectoryFile { path: "w".into(), bytes: 1, modified_unix_nano: 0, received_unix_ms, is_owned: true },
        );
        window.from_unix_nano = (received_unix_ms - 10_000) * 1_000_000;
        window.to_unix_nano = received_unix_ms * 1_000_000;
        Arc::new(window)
    }

    fn day() -> Vec<Arc<StoredWindow>> {
        (0..8640).rev().map(|nth| window(1_700_000_000_000 + nth * 10_000)).collect()
    }

    #[test]
    fn a_day_becomes_few_slices_with_fixed_borders() {
        let mut windows = day();
        let before: Vec<Vec<Arc<StoredWindow>>> = cut(&windows).map(<[_]>::to_vec).collect();
        assert!((32..=66).contains(&before.len()), "{}", before.len());
        assert_eq!(before.iter().map(Vec::len).sum::<usize>(), windows.len());
        windows.insert(0, window(1_700_000_000_000 + 8640 * 10_000));
        let same = cut(&windows)
            .zip(&before)
            .filter(|(now, then)| now.iter().map(Arc::as_ptr).eq(then.iter().map(Arc::as_ptr)))
            .count();
        assert!(same + 1 >= before.len(), "{same} of {}", before.len());
    }

    #[test]
    fn a_slice_is_found_for_its_windows_and_filter_only() {
        let windows = day();
        let slices = Slices::default();
        let cart = Filter { service: Some("cart".to_owned()), ..Filter::default() };
        slices.insert(&windows[..5], &cart, &Arc::default());
        assert!(slices.find(&windows[..5], &cart).is_some());
        let timed = Filter { from_unix_nano: Some(1), ..cart.clone() };
        assert!(slices.find(&windows[..5], &timed).is_some());
        assert!(slices.find(&windows[..4], &cart).is_none());
        assert!(slices.find(&windows[1..6], &cart).is_none());
        assert!(slices.find(&windows[..5], &Filter::default()).is_none());
    }

    #[test]
    fn a_slice_that_exceeds_the_time_range_is_not_whole() {
        let windows = day();
        let from = |window: &Arc<StoredWindow>, more| Filter {
            from_unix_nano: Some(window.from_unix_nano + more),
            ..Filter::default()
        };
        assert!(is_whole(&windows[..5], &from(&windows[4], 0)));
        assert!(!is_whole(&windows[..5], &from(&windows[4], 1)));
        assert!(!is_whole(&windows[..1], &Filter::default()));
    }
}
