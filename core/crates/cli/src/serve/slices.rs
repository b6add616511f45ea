//! Merged stretches of windows, kept between queries: a question about a day reads each file once, and later questions add
//! up some sixty slices and the windows at both ends. Pure but for its lock. Called by `store` for answers without labels
//! and links of single samples.
//! Law: a slice answers only for exactly the windows it was made of, so neither an arrival nor retention can make it wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use spanprof_profile::query::{Filter, TypeSummary};
use spanprof_profile::ProfilesData;

use super::spans::Spans;
use super::window::Window;

/// Memory for slices. A day of one service and type takes some megabytes.
const KEPT_BYTES: usize = 32 << 20;
/// Slices a question is cut into, at most; fewer than twice as few.
const SLICES_OF_A_QUESTION: u64 = 64;
/// Shorter ones would hold too few windows to be worth it.
const SHORTEST_MS: u64 = 60_000;

/// What some windows add up to.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub data: ProfilesData,
    /// Of each window what passed.
    pub summaries: Vec<TypeSummary>,
    pub spans: Spans,
    pub windows: usize,
}

impl Part {
    /// Memory it holds, near enough to bound a cache.
    fn memory_bytes(&self) -> usize {
        super::store::memory_bytes(&self.data)
            + self.spans.memory_bytes()
            + self.summaries.len() * (std::mem::size_of::<TypeSummary>() + 48)
    }
}

#[derive(Debug)]
struct Slice {
    /// Without its times: every window lies inside them.
    filter: Filter,
    windows: Vec<Arc<Window>>,
    part: Arc<Part>,
    bytes: usize,
}

/// The slices kept, last used first.
#[derive(Debug, Default)]
pub(crate) struct Slices(Mutex<VecDeque<Slice>>);

/// Cuts windows, in the order of their arrival or its reverse, into slices whose borders do not move while time goes on.
pub(crate) fn cut(windows: &[Arc<Window>]) -> impl Iterator<Item = &[Arc<Window>]> {
    let ends = [windows.first(), windows.last()].map(|window| window.map_or(0, |window| window.received_unix_ms));
    let width = (ends[0].abs_diff(ends[1]) / SLICES_OF_A_QUESTION).max(SHORTEST_MS).next_power_of_two();
    windows.chunk_by(move |left, right| left.received_unix_ms / width == right.received_unix_ms / width)
}

/// Whether a slice of these windows is worth keeping and the filter's times leave it whole.
pub(crate) fn is_whole(windows: &[Arc<Window>], filter: &Filter) -> bool {
    windows.len() > 1
        && windows.iter().all(|window| {
            filter.from_unix_nano.is_none_or(|from| window.from_unix_nano >= from)
                && filter.to_unix_nano.is_none_or(|to| window.to_unix_nano <= to)
        })
}

impl Slices {
    pub(crate) fn find(&self, windows: &[Arc<Window>], filter: &Filter) -> Option<Arc<Part>> {
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

    pub(crate) fn keep(&self, windows: &[Arc<Window>], filter: &Filter, part: &Arc<Part>) {
        let bytes = part.memory_bytes() + std::mem::size_of_val(windows);
        let slice = Slice { filter: timeless(filter), windows: windows.to_vec(), part: part.clone(), bytes };
        let mut slices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slices.push_front(slice);
        let mut held = 0;
        slices.retain(|slice| {
            held += slice.bytes;
            held <= KEPT_BYTES
        });
    }
}

fn timeless(filter: &Filter) -> Filter {
    Filter { from_unix_nano: None, to_unix_nano: None, ..filter.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(received_unix_ms: u64) -> Arc<Window> {
        let mut window = Window::new(&ProfilesData::default(), "w".into(), 1, received_unix_ms, true);
        window.from_unix_nano = (received_unix_ms - 10_000) * 1_000_000;
        window.to_unix_nano = received_unix_ms * 1_000_000;
        Arc::new(window)
    }

    fn day() -> Vec<Arc<Window>> {
        (0..8640).rev().map(|nth| window(1_700_000_000_000 + nth * 10_000)).collect()
    }

    #[test]
    fn a_day_becomes_few_slices_whose_borders_stay_when_windows_arrive() {
        let mut windows = day();
        let before: Vec<Vec<Arc<Window>>> = cut(&windows).map(<[_]>::to_vec).collect();
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
    fn a_slice_answers_for_its_windows_and_filter_only() {
        let windows = day();
        let slices = Slices::default();
        let cart = Filter { service: Some("cart".to_owned()), ..Filter::default() };
        slices.keep(&windows[..5], &cart, &Arc::default());
        assert!(slices.find(&windows[..5], &cart).is_some());
        let timed = Filter { from_unix_nano: Some(1), ..cart.clone() };
        assert!(slices.find(&windows[..5], &timed).is_some());
        assert!(slices.find(&windows[..4], &cart).is_none());
        assert!(slices.find(&windows[1..6], &cart).is_none());
        assert!(slices.find(&windows[..5], &Filter::default()).is_none());
    }

    #[test]
    fn a_slice_that_the_times_cut_is_not_whole() {
        let windows = day();
        let from = |window: &Arc<Window>, more| Filter {
            from_unix_nano: Some(window.from_unix_nano + more),
            ..Filter::default()
        };
        assert!(is_whole(&windows[..5], &from(&windows[4], 0)));
        assert!(!is_whole(&windows[..5], &from(&windows[4], 1)));
        assert!(!is_whole(&windows[..1], &Filter::default()));
    }
}
