//! Visits of the samples of a time range, part by part: roll-ups where they have what is asked for, else windows. For answers
//! that need more than the sum of the range: sums of spans, findings, comparisons. Called by `requests` and `comparison`
//! through `store`.

use std::sync::Arc;
use std::time::Instant;

use spanprof_profile::ProfilesData;
use spanprof_read::query::{Filter, SpanTotals};

use super::left_out::LeftOut;
use super::queries::{Queries, StoreView};
use crate::files::file_names::LEVELS;
use crate::files::span_file;
use crate::files::window::{is_whole, StoredWindow};
use crate::rollup::buckets::{buckets, levels_within};
use crate::rollup::merged::Rollup;
use crate::rollup::stored::StoredRollup;

/// Parts of a time range that are enough to tell a trend from chance.
const PARTS: u64 = 24;

/// What a visit does with the parts.
trait PartVisitor {
    /// Takes the samples of a roll-up, if it has all that is asked for.
    fn rollup(&mut self, rollup: &StoredRollup) -> bool;
    fn window(&mut self, window: &StoredWindow);
}

impl Queries {
    /// Visits the windows that may hold samples of the filter, newest first until the deadline; returns which were left out.
    pub(crate) fn for_each_window(
        &self,
        view: &StoreView,
        filter: &Filter,
        visit: impl FnMut(ProfilesData),
    ) -> LeftOut {
        self.visit(view, filter, 0, &mut SampleVisit { queries: self, filter, visit })
    }

    /// As [`Queries::for_each_window`], with roll-ups instead of windows where the time range has enough of them. They lack most
    /// links of spans.
    pub(crate) fn for_each_part(&self, view: &StoreView, filter: &Filter, visit: impl FnMut(ProfilesData)) -> LeftOut {
        let is_rolled_up = filter.trace_id.is_none() && filter.span_id.is_none();
        let levels = if is_rolled_up { levels_within(range_ms(view, filter) / PARTS) } else { 0 };
        self.visit(view, filter, levels, &mut SampleVisit { queries: self, filter, visit })
    }

    /// The sums of the spans, and the windows left out.
    pub(crate) fn span_totals(&self, view: &StoreView, filter: &Filter) -> (SpanTotals, LeftOut) {
        let is_stored = filter.labels.is_empty() && filter.trace_id.is_none() && filter.span_id.is_none();
        let mut sums = SpanSumVisit { queries: self, filter, is_stored, totals: SpanTotals::new(None) };
        let left_out = self.visit(view, filter, if is_stored { LEVELS } else { 0 }, &mut sums);
        (sums.totals, left_out)
    }

    fn visit(&self, view: &StoreView, filter: &Filter, levels: usize, visitor: &mut impl PartVisitor) -> LeftOut {
        let (owned, others): (Vec<_>, Vec<_>) = view.windows.iter().rev().cloned().partition(|window| window.is_owned);
        let mut run =
            VisitRun { queries: self, filter, visitor, started: Instant::now(), left_out: LeftOut::default() };
        run.visit(&owned, levels);
        run.visit(&others, 0);
        run.left_out
    }
}

fn range_ms(view: &StoreView, filter: &Filter) -> u64 {
    let windows = || view.windows.iter().filter(|window| window.may_hold(filter));
    let from = windows().map(|window| window.from_unix_nano).min().unwrap_or(0);
    let to = windows().map(|window| window.to_unix_nano).max().unwrap_or(from);
    to.saturating_sub(from) / 1_000_000
}

struct VisitRun<'q, V> {
    queries: &'q Queries,
    filter: &'q Filter,
    visitor: &'q mut V,
    started: Instant,
    left_out: LeftOut,
}

impl<V: PartVisitor> VisitRun<'_, V> {
    fn visit(&mut self, windows: &[Arc<StoredWindow>], levels: usize) {
        let Some(level) = levels.checked_sub(1) else {
            for window in windows.iter().filter(|window| window.may_hold(self.filter)) {
                if self.is_late() {
                    self.left_out.add(window);
                } else {
                    self.visitor.window(window);
                }
            }
            return;
        };
        for bucket in buckets(windows, level) {
            if !bucket.iter().any(|window| window.may_hold(self.filter)) {
                continue;
            }
            let is_usable = !self.is_late() && is_whole(bucket, self.filter);
            let rollup = is_usable.then(|| self.queries.sources.rollups.find(bucket, level)).flatten();
            if !rollup.is_some_and(|rollup| self.visitor.rollup(&rollup)) {
                self.visit(bucket, level);
            }
        }
    }

    fn is_late(&self) -> bool {
        self.started.elapsed() >= self.queries.visit_deadline
    }
}

/// Visits samples.
struct SampleVisit<'q, F> {
    queries: &'q Queries,
    filter: &'q Filter,
    visit: F,
}

impl<F: FnMut(ProfilesData)> PartVisitor for SampleVisit<'_, F> {
    fn rollup(&mut self, rollup: &StoredRollup) -> bool {
        let keys: Vec<&str> = self.filter.labels.iter().map(|label| label.key.as_str()).collect();
        let rollup = rollup.read(&keys);
        let Some(Rollup { mut data, .. }) = rollup else { return false };
        self.filter.retain(&mut data);
        (self.visit)(data);
        true
    }

    fn window(&mut self, window: &StoredWindow) {
        // Removed by retention: nothing to add.
        if let Ok(data) = self.queries.sources.decoded(&window.path) {
            let resources = self.filter.select(&data);
            (self.visit)(ProfilesData { dictionary: data.dictionary.clone(), resources });
        }
    }
}

/// Adds up the sums of spans.
struct SpanSumVisit<'q> {
    queries: &'q Queries,
    filter: &'q Filter,
    /// Whether the filter selects whole spans, so that stored sums are those of the filter.
    is_stored: bool,
    totals: SpanTotals,
}

impl SpanSumVisit<'_> {
    fn add_stored(&mut self, path: &std::path::Path) -> bool {
        let Filter { service, type_name, .. } = self.filter;
        let parts = span_file::read(path);
        parts.map(|parts| self.totals.add_parts(&parts, service.as_deref(), type_name.as_deref())).is_some()
    }
}

impl PartVisitor for SpanSumVisit<'_> {
    fn rollup(&mut self, rollup: &StoredRollup) -> bool {
        self.add_stored(&rollup.path)
    }

    fn window(&mut self, window: &StoredWindow) {
        if window.is_rollup && self.is_stored && self.add_stored(&window.path) {
            return;
        }
        if let Ok(data) = self.queries.sources.decoded(&window.path) {
            self.totals.add(&self.filter.apply(&data));
        }
    }
}
