//! Which stacks a query selects: the parameters `native`, `focus` and `ignore`, which `stack_view` parses. Pure.

use spanprof_profile::ProfilesData;
use spanprof_read::query::{self, StackFilter};

/// Which stacks are selected. Equal if the parameters are.
#[derive(Clone, Debug, Default)]
pub(crate) struct StackSelection {
    /// Whether stacks have the native frames below builtins of the runtime.
    pub has_native: bool,
    /// All of them apply.
    pub filters: Vec<StackFilter>,
    /// The parameters: the identity of the selection, for caches.
    pub key: String,
}

impl PartialEq for StackSelection {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for StackSelection {}

impl StackSelection {
    /// Whether stacks are left out.
    pub(crate) fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Removes the stacks that do not pass.
    pub(crate) fn filter(&self, data: &mut ProfilesData) {
        self.filters.iter().for_each(|filter| filter.apply(data));
    }

    /// Removes the stacks that do not pass from what is shown: without `has_native`, they lack the native frames below builtins of the runtime.
    pub(crate) fn filter_shown(&self, data: &mut ProfilesData) {
        if !self.has_native && query::has_builtins(data) {
            query::fold_builtins(data);
        }
        self.filter(data);
    }
}
