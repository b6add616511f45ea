//! What the index of the store has for a filter: windows, and their summaries.

use std::sync::Arc;

use spanprof_read::query::{Filter, TypeSummary};

use crate::serve::files::window::StoredWindow;
use crate::serve::state::server_state::ServerState;

/// The windows that may have samples of the filter, oldest first.
pub(crate) fn windows(state: &ServerState, filter: &Filter) -> Vec<Arc<StoredWindow>> {
    state.store.windows().into_iter().filter(|window| window.may_hold(filter)).collect()
}

/// Summaries of the windows that have the filter's service and type.
pub(crate) fn summaries<'a>(
    windows: &'a [Arc<StoredWindow>],
    filter: &'a Filter,
) -> impl Iterator<Item = &'a TypeSummary> + 'a {
    windows
        .iter()
        .flat_map(|window| &window.services)
        .filter(|service| filter.service.as_ref().is_none_or(|name| *name == service.name))
        .flat_map(|service| &service.types)
        .filter(|summary| filter.type_name.as_ref().is_none_or(|name| *name == summary.type_name))
}
