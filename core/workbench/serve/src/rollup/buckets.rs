//! Buckets: the windows whose profiles ended in one minute, ten minutes or hour, which one roll-up merges. Pure.

use std::sync::Arc;

use crate::files::file_names::LEVELS_MS;
use crate::files::window::StoredWindow;

/// Number of levels whose roll-ups are at most this long.
pub(crate) fn levels_within(width_ms: u64) -> usize {
    LEVELS_MS.iter().filter(|level| **level <= width_ms).count()
}

/// Splits windows, sorted by [`StoredWindow::ended_unix_ms`] in either direction, at the borders of a level.
pub(crate) fn buckets(windows: &[Arc<StoredWindow>], level: usize) -> impl Iterator<Item = &[Arc<StoredWindow>]> {
    windows.chunk_by(move |left, right| start_ms(left, level) == start_ms(right, level))
}

/// Start of the bucket of a window.
pub(crate) fn start_ms(window: &StoredWindow, level: usize) -> u64 {
    window.ended_unix_ms / LEVELS_MS[level] * LEVELS_MS[level]
}

/// End of the bucket of these windows.
pub(crate) fn end_ms(windows: &[Arc<StoredWindow>], level: usize) -> u64 {
    windows.first().map_or(0, |window| start_ms(window, level) + LEVELS_MS[level])
}

/// Arrival of the last of these windows.
pub(crate) fn last_received_ms(windows: &[Arc<StoredWindow>]) -> u64 {
    windows.iter().map(|window| window.received_unix_ms).max().unwrap_or(0)
}
