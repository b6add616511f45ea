//! Tests of windows that arrive long after their profiles ended: a day that is loaded at once, and senders that were offline.

use spanprof_profile::encode::gzip;
use spanprof_profile::encode::otlp::{self, Revision};

use super::tests::{answer, file_names, opened, place_late, two_hours, window, HOUR_MS, NOW_MS, START_MS};
use super::*;
use tempfile::TempDir;

/// Two hours of one window in 20 s, which were stored within a second.
fn loaded(home: &TempDir) -> Store {
    (0..360).for_each(|nth| place_late(home, NOW_MS + nth, START_MS + nth * 20_000 + 15_000, nth));
    opened(home)
}

#[test]
fn rollups_of_windows_that_were_loaded_at_once_are_those_of_the_hours_of_their_profiles() {
    let home = tempfile::tempdir().unwrap();
    let store = loaded(&home);
    store.build_rollups(NOW_MS + 3_000);
    // The windows cannot be read any more.
    file_names(&home).iter().for_each(|name| std::fs::write(home.path().join(name), "").unwrap());
    for start_ms in [START_MS, START_MS + HOUR_MS] {
        let nanos = |ms: u64| Some(ms * 1_000_000);
        let hour =
            Filter { from_unix_nano: nanos(start_ms), to_unix_nano: nanos(start_ms + HOUR_MS), ..Filter::default() };
        assert_eq!(answer(&store, &hour), (180, 180, 180));
    }
}

#[test]
fn loaded_windows_are_kept_for_as_long_after_their_arrival_as_others() {
    let home = tempfile::tempdir().unwrap();
    let hours = |count: u64| Duration::from_secs(3600 * count);
    let retention = Retention { max_bytes: u64::MAX, max_age: hours(4), keep_windows: hours(2) };
    let store = Store { retention, ..loaded(&home) };
    store.build_rollups(NOW_MS + HOUR_MS);
    assert_eq!(store.windows().len(), 360);
    store.build_rollups(NOW_MS + 3 * HOUR_MS);
    assert_eq!((store.windows().len(), answer(&store, &Filter::default())), (2, (360, 360, 360)));
    drop(store);
    let store = Store { retention, ..opened(&home) };
    for (age_ms, count) in [(4 * HOUR_MS, 2), (4 * HOUR_MS + 1_000, 0)] {
        store.retain(NOW_MS + age_ms);
        assert_eq!(store.windows().len(), count);
    }
}

#[test]
fn an_hour_that_a_late_window_outdates_is_built_again_after_a_tenth_of_its_length() {
    let home = tempfile::tempdir().unwrap();
    let store = two_hours(&home);
    let rolled_up = |now_ms| -> Vec<bool> {
        store.build_rollups(now_ms);
        let windows = by_end(store.windows());
        buckets(&windows, HOURS).map(|hour| store.rollups.find(hour, HOURS).is_some()).collect()
    };
    let built_ms = unix_ms() + 60_000;
    assert_eq!(rolled_up(built_ms), [true, true]);
    let late = window(START_MS / 1000 + 60, 1);
    store.keep(&gzip(&otlp::encode(&late, Revision::One)), &late).unwrap();
    assert_eq!(rolled_up(built_ms + HOUR_MS / 10 - 1), [false, true]);
    assert_eq!(rolled_up(built_ms + HOUR_MS / 10), [true, true]);
}
