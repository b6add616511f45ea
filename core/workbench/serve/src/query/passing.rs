//! The samples of one file that pass a query. Pure.

use std::sync::Arc;

use spanprof_profile::{transform, ProfilesData};
use spanprof_read::query::{self, reduce_to_stacks, Detail};

use super::label_groups;
use super::parts::{MergedWindows, Query};
use crate::files::rollup_facts::{self, RollupFacts};

/// The samples of one window that pass the filter. Memory that no cache has is used again.
pub(crate) fn passing(Query { filter, detail, stacks, .. }: &Query, data: Arc<ProfilesData>) -> MergedWindows {
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
        reduce_to_stacks(&mut selected.resources);
        let dictionary = shared.as_ref().map_or(&selected.dictionary, |data| &data.dictionary);
        // A copy of the entries of few samples is small.
        let is_copied = shared.is_some() || selected.sample_count() < dictionary.lens().stacks / 2;
        // Stacks are interned once, by the merge.
        part.data = Arc::new(if is_copied {
            transform::merge_profiles([(dictionary, &selected.resources[..])])
        } else {
            transform::merge_owned(selected)
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
pub(crate) fn passing_rollup(query: &Query, data: Arc<ProfilesData>, facts: &RollupFacts) -> MergedWindows {
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
