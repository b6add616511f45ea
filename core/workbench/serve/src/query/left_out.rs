//! The windows that a response lacks, and its members that say so. Pure.

use serde_json::{Map, Value};

use crate::files::window::StoredWindow;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub windows: usize,
    /// First start and last end of the windows, Unix nanoseconds.
    pub range: Option<(u64, u64)>,
}

impl LeftOut {
    pub(crate) fn add(&mut self, window: &StoredWindow) {
        *self = self.and(Self { windows: 1, range: Some((window.from_unix_nano, window.to_unix_nano)) });
    }

    pub(crate) fn and(self, other: Self) -> Self {
        let ranges = self.range.into_iter().chain(other.range);
        let range = ranges.reduce(|(from, to), next| (from.min(next.0), to.max(next.1)));
        Self { windows: self.windows + other.windows, range }
    }

    /// Times are milliseconds, which the numbers of a page represent exactly.
    pub(crate) fn add_to(self, members: &mut Map<String, Value>) {
        members.insert("windows_left_out".to_owned(), self.windows.into());
        if let Some((from, to)) = self.range {
            members.insert("left_out_from_ms".to_owned(), (from / 1_000_000).into());
            members.insert("left_out_to_ms".to_owned(), (to / 1_000_000).into());
        }
    }

    /// The members of a response, with these windows.
    pub(crate) fn with(self, mut answer: Value) -> Value {
        answer.as_object_mut().into_iter().for_each(|members| self.add_to(members));
        answer
    }
}
