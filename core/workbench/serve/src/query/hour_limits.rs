//! What hours that replaced their windows lack for a query, and the members of a response that say so. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use spanprof_read::query::{Detail, Filter};

use crate::files::file_names::{HOURS, LEVELS_MS};
use crate::files::window::{self, StoredWindow};

/// What a query asked for that hours do not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct HourLimits {
    /// Whether an hour exceeds the time range, so that the result does too.
    exceed_range: bool,
    /// Labels of the filter or the group that hours lack: none of their samples passes, or has a group.
    omitted_labels: BTreeSet<String>,
}

impl HourLimits {
    pub(crate) fn of(windows: &[Arc<StoredWindow>], filter: &Filter, detail: &Detail) -> Self {
        let group = match detail {
            Detail::OneLabel(key) => Some(key),
            _ => None,
        };
        let mut limits = HourLimits::default();
        for hour in windows.iter().filter(|window| window.is_rollup && window.may_hold(filter)) {
            limits.exceed_range |= !window::is_whole(std::slice::from_ref(hour), filter);
            let keys = filter.labels.iter().map(|label| &label.key).chain(group);
            limits.omitted_labels.extend(keys.filter(|key| hour.omitted_labels.contains(*key)).cloned());
        }
        limits
    }

    /// Adds `resolution_ms` and `omitted_labels`, if there is something to say.
    pub(crate) fn add_to(&self, members: &mut Map<String, Value>) {
        if self.exceed_range {
            members.insert("resolution_ms".to_owned(), LEVELS_MS[HOURS].into());
        }
        if !self.omitted_labels.is_empty() {
            members.insert("omitted_labels".to_owned(), self.omitted_labels.iter().cloned().collect());
        }
    }
}
