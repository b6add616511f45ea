//! Merges the parts of a query result in batches. Called by `merge`.

use std::sync::Arc;

use spanprof_profile::transform;

use super::parts::MergedWindows;
use crate::files::rollup_facts;

/// Windows merged at once: bounds memory, without a merge of the large result for each window.
const MERGE_BATCH: usize = 24;

/// Merges windows in batches of [`MERGE_BATCH`].
#[derive(Default)]
pub(crate) struct BatchedMerge {
    merged: MergedWindows,
    batch: Vec<Arc<MergedWindows>>,
    samples: usize,
    /// Samples of the result to which this one will be added.
    samples_before: usize,
    is_part: bool,
}

impl BatchedMerge {
    /// The merge of one part of a result that has `samples` already.
    pub fn of_part(samples: usize) -> Self {
        Self { samples_before: samples, is_part: true, ..Self::default() }
    }

    pub fn is_part(&self) -> bool {
        self.is_part
    }

    pub fn total_samples(&self) -> usize {
        self.samples_before + self.samples
    }

    pub fn add(&mut self, part: Arc<MergedWindows>) {
        // An empty gauge replaces an older one.
        if part.data.resources.is_empty() && part.summaries.is_empty() {
            return;
        }
        self.merged.windows += part.windows;
        self.merged.summaries.extend_from_slice(&part.summaries);
        rollup_facts::add_counts(&mut self.merged.samples, &part.samples);
        self.samples += part.data.sample_count();
        self.batch.push(part);
        if self.batch.len() == MERGE_BATCH {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let merged = &self.merged.data;
        self.merged.data = match &self.batch[..] {
            // Interning a million stacks again takes a second.
            [part] if part.is_merged && merged.resources.is_empty() => part.data.clone(),
            batch => Arc::new(transform::merge(std::iter::once(&**merged).chain(batch.iter().map(|part| &*part.data)))),
        };
        self.merged.is_merged = true;
        self.samples = self.merged.data.sample_count();
        self.batch.clear();
    }

    pub fn finish(mut self) -> MergedWindows {
        if !self.batch.is_empty() {
            self.merge();
        }
        self.merged
    }
}
