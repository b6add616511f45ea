//! Tests of the store: partial results, roll-ups and the index.

use spanprof_profile::encode::gzip;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::{Attribute, Profile, ResourceProfiles, Sample, ValueType};

use spanprof_read::query::StackFilter;

use super::*;
use tempfile::TempDir;

pub(super) fn window(start_s: u64, total: i64) -> ProfilesData {
    let profile = Profile {
        sample_type: ValueType::new("wall", "nanoseconds"),
        time_unix_nano: start_s * 1_000_000_000,
        duration_nano: 10_000_000_000,
        samples: vec![Sample { values: vec![total], ..Sample::default() }],
        ..Profile::default()
    };
    let resource = vec![Attribute::string("service.name", "shop")];
    let resources = vec![ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() }];
    ProfilesData { resources, ..ProfilesData::default() }
}

fn store_of(home: &TempDir, windows: u64) -> Store {
    let retention = Retention { max_bytes: u64::MAX, max_age: Duration::MAX, keep_windows: Duration::MAX };
    let store = Store::new(WindowDirectory::open(home.path()).unwrap(), retention);
    for nth in 0..windows {
        let data = window(1_700_000_000 + 10 * nth, 1);
        store.keep(&gzip(&otlp::encode(&data, Revision::One)), &data).unwrap();
    }
    store.index(|line| panic!("{line}"));
    store
}

fn with_deadline(deadline: Duration, mut store: Store) -> Store {
    store.queries.deadline = deadline;
    store
}

fn total(result: &QueryResult) -> i64 {
    result.data.profiles().flat_map(|(_, profile)| &profile.samples).map(Sample::total).sum()
}

#[test]
fn a_partial_result_is_completed_by_the_next_query() {
    let home = tempfile::tempdir().unwrap();
    let store = with_deadline(Duration::ZERO, store_of(&home, 5));
    let partial = store.query(&Filter::default(), Detail::Stacks);
    assert_eq!((total(&partial), partial.left_out.windows), (0, 5));
    assert_eq!(partial.left_out.range, Some((1_700_000_000_000_000_000, 1_700_000_050_000_000_000)));
    store.complete_queries();
    let complete = store.query(&Filter::default(), Detail::Stacks);
    assert_eq!((total(&complete), complete.left_out.windows, complete.left_out.range), (5, 0, None));
}

#[test]
fn a_repeated_query_continues_from_the_windows_merged_so_far() {
    let home = tempfile::tempdir().unwrap();
    let store = store_of(&home, 5);
    store.query(&Filter::default(), Detail::Stacks);
    // An arrival outdates the result but not the merge of the earlier windows.
    let later = |from| Filter { from_unix_nano: Some(from), ..Filter::default() };
    let store = with_deadline(Duration::ZERO, store);
    let repeated = store.query(&later(1), Detail::Stacks);
    assert_eq!((total(&repeated), repeated.left_out.windows), (5, 0));
}

/// A window of one sample and span, stored at `received_ms`, at which it ended.
fn place(home: &TempDir, received_ms: u64, label: u64) {
    place_late(home, received_ms, received_ms, label);
}

/// A window that ended at `end_ms` and was stored at `received_ms`.
pub(super) fn place_late(home: &TempDir, received_ms: u64, end_ms: u64, label: u64) {
    let mut data = window(end_ms / 1000 - 10, 1);
    let label = data.dictionary.attribute("request", spanprof_profile::Value::Int(label as i64), "");
    let sample = &mut data.resources[0].profiles[0].samples[0];
    sample.attributes = data.dictionary.attribute_set(&[label]);
    sample.link =
        data.dictionary.link(spanprof_profile::Link { trace_id: [1; 16], span_id: received_ms.to_be_bytes() });
    let name = format!("{received_ms:013}-1-000000.otlp.pb.gz");
    std::fs::write(home.path().join(name), gzip(&otlp::encode(&data, Revision::One))).unwrap();
}

pub(super) const HOUR_MS: u64 = 3_600_000;
/// A full hour, within the age limit of fine levels at [`NOW_MS`].
pub(super) const START_MS: u64 = 1_699_999_200_000;
pub(super) const NOW_MS: u64 = START_MS + 3 * HOUR_MS;

pub(super) fn opened(home: &TempDir) -> Store {
    let retention =
        Retention { max_bytes: u64::MAX, max_age: Duration::from_secs(u64::MAX / 1000), keep_windows: Duration::MAX };
    let store = Store::new(WindowDirectory::open(home.path()).unwrap(), retention);
    store.index(|line| panic!("{line}"));
    store
}

/// Two hours of one window in 20 s; each has another value of the label.
pub(super) fn two_hours(home: &TempDir) -> Store {
    (0..360).for_each(|nth| place(home, START_MS + nth * 20_000 + 15_000, nth));
    opened(home)
}

/// Total, windows and samples of a query.
pub(super) fn answer(store: &Store, filter: &Filter) -> (i64, usize, usize) {
    let result = store.query(filter, Detail::Stacks);
    (total(&result), result.windows, result.samples_of("wall"))
}

#[test]
fn a_query_by_rollups_returns_what_it_returns_by_windows() {
    let home = tempfile::tempdir().unwrap();
    let by_windows = two_hours(&home);
    let label = spanprof_read::query::LabelMatcher::parse("request=7").unwrap();
    let after = |minutes: u64| Some((START_MS + minutes * 60_000 + 5_000) * 1_000_000);
    let filters = [
        Filter::default(),
        Filter { from_unix_nano: after(0), ..Filter::default() },
        Filter { from_unix_nano: after(17), to_unix_nano: after(95), ..Filter::default() },
        Filter { service: Some("shop".to_owned()), type_name: Some("wall".to_owned()), ..Filter::default() },
        Filter { service: Some("cart".to_owned()), ..Filter::default() },
        Filter { labels: vec![label], ..Filter::default() },
        Filter { span_id: Some((START_MS + 15_000).to_be_bytes()), ..Filter::default() },
    ];
    let mut expected = filters.each_ref().map(|filter| answer(&by_windows, filter));
    assert_eq!([expected[0], expected[5]], [(360, 360, 360), (1, 1, 1)]);
    // The windows of a ten-minute roll-up, one of which has the label.
    expected[5].1 = 30;
    by_windows.build_rollups(NOW_MS);
    assert_eq!(by_windows.rollups().0, 2 + 12 + 120);
    drop(by_windows);
    let by_rollups = opened(&home);
    assert_eq!(by_rollups.rollups().0, 2 + 12 + 120, "files of earlier runs");
    assert_eq!(filters.each_ref().map(|filter| answer(&by_rollups, filter)), expected);
}

/// Writes a window every 20 seconds for two hours, which begins at a second.
fn write_two_hours(home: &TempDir, window_at: impl Fn(u64) -> ProfilesData) {
    for nth in 0..360 {
        let received_ms = START_MS + nth * 20_000 + 15_000;
        let name = format!("{received_ms}-1-{nth:06}.otlp.pb.gz");
        let data = window_at(received_ms / 1000 - 10);
        std::fs::write(home.path().join(name), gzip(&otlp::encode(&data, Revision::One))).unwrap();
    }
}

#[test]
fn rollups_count_the_samples_of_a_type_that_several_services_have_once() {
    let home = tempfile::tempdir().unwrap();
    write_two_hours(&home, |second| {
        let mut data = window(second, 1);
        let mut cart = window(second, 2).resources.remove(0);
        cart.resource = vec![Attribute::string("service.name", "cart")];
        data.resources.push(cart);
        data
    });
    let store = opened(&home);
    let shop = Filter { service: Some("shop".to_owned()), ..Filter::default() };
    let expected = [&Filter::default(), &shop].map(|filter| answer(&store, filter));
    assert_eq!(expected, [(1080, 360, 720), (360, 360, 360)]);
    store.build_rollups(NOW_MS);
    drop(store);
    let by_rollups = opened(&home);
    assert_eq!([&Filter::default(), &shop].map(|filter| answer(&by_rollups, filter)), expected);
}

#[test]
fn rollups_count_observations() {
    let home = tempfile::tempdir().unwrap();
    write_two_hours(&home, |second| {
        let mut data = window(second, 7);
        let profile = &mut data.resources[0].profiles[0];
        profile.period_type = std::mem::replace(&mut profile.sample_type, ValueType::new("samples", "count"));
        profile.period = 10;
        data
    });
    let expected = (360 * 7, 360, 360 * 7);
    let store = opened(&home);
    assert_eq!(answer(&store, &Filter::default()), expected);
    store.build_rollups(NOW_MS);
    drop(store);
    assert_eq!(answer(&opened(&home), &Filter::default()), expected);
}

#[test]
fn a_query_reads_the_largest_rollups_instead_of_their_windows() {
    let home = tempfile::tempdir().unwrap();
    let store = two_hours(&home);
    store.build_rollups(NOW_MS);
    // Neither windows nor smaller roll-ups are readable.
    for directory in [home.path().to_owned(), home.path().join("rollups")] {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            if entry.path().is_file() && !entry.path().to_string_lossy().contains("-1h-") {
                std::fs::write(entry.path(), "").unwrap();
            }
        }
    }
    assert_eq!(total(&store.query(&Filter::default(), Detail::Stacks)), 360);
    let steps = store.query_in_steps(&Filter::default(), 600_000, Detail::Stacks, &StackSelection::default());
    assert_eq!(total(&steps), 0, "a timeline reads windows that are shorter than its steps");
}

#[test]
fn a_timeline_of_selected_stacks_reads_minutes_and_continues_after_its_deadline() {
    let home = tempfile::tempdir().unwrap();
    let store = with_deadline(Duration::MAX, two_hours(&home));
    store.build_rollups(NOW_MS);
    let stacks = |key: &str, filter| StackSelection { has_native: false, filters: vec![filter], key: key.to_owned() };
    let absent = || regex_lite::Regex::new("absent").ok();
    let all = stacks("all", StackFilter { focus: None, ignore: absent() });
    let totals = |store: &Store, from| {
        let filter = Filter { from_unix_nano: Some(from), ..Filter::default() };
        let result = store.query_in_steps(&filter, 60_000, Detail::Stacks, &all);
        assert_eq!(result.data.sample_count(), 0, "summaries only");
        let total: i64 = result.summaries.iter().map(|summary| summary.total).sum();
        (total, result.summaries.len(), result.windows, result.left_out.windows)
    };
    assert_eq!(totals(&store, 0), (360, 120, 360, 0));
    let store = with_deadline(Duration::ZERO, store);
    assert_eq!(totals(&store, 1), (360, 120, 360, 0), "from the cache");
    let none = stacks("none", StackFilter { focus: absent(), ignore: None });
    let left_out = |store: &Store| {
        let result = store.query_in_steps(&Filter::default(), 60_000, Detail::Stacks, &none);
        (result.summaries.iter().map(|summary| summary.total).sum::<i64>(), result.left_out.windows)
    };
    assert_eq!(left_out(&store), (0, 360));
    store.complete_queries();
    assert_eq!(left_out(&store), (0, 0));
}

#[test]
fn a_late_window_and_a_removed_one_outdate_their_rollups_until_these_are_built_again() {
    let home = tempfile::tempdir().unwrap();
    let store = two_hours(&home);
    store.build_rollups(NOW_MS);
    drop(store);
    place(&home, START_MS + 16_000, 1);
    std::fs::remove_file(home.path().join(format!("{:013}-1-000000.otlp.pb.gz", START_MS + HOUR_MS + 15_000))).unwrap();
    std::fs::remove_file(home.path().join(format!("{:013}-1-000000.otlp.pb.gz", START_MS + HOUR_MS + 35_000))).unwrap();
    let store = opened(&home);
    assert_eq!(answer(&store, &Filter::default()).0, 359);
    store.build_rollups(NOW_MS);
    assert_eq!(store.rollups().0, 2 + 12 + 120);
    drop(store);
    assert_eq!(answer(&opened(&home), &Filter::default()), (359, 359, 359));
}

#[test]
fn fine_rollups_are_removed_after_a_day_and_hours_stay() {
    let home = tempfile::tempdir().unwrap();
    let store = two_hours(&home);
    store.build_rollups(NOW_MS);
    store.build_rollups(NOW_MS + 24 * HOUR_MS);
    assert_eq!(store.rollups().0, 2);
    assert_eq!(std::fs::read_dir(home.path().join("rollups")).unwrap().count(), 2 * 3, "with the files beside them");
}

#[test]
fn a_removed_window_takes_its_rollups_with_it() {
    let home = tempfile::tempdir().unwrap();
    let store = two_hours(&home);
    store.build_rollups(NOW_MS);
    let store = Store { retention: Retention { max_age: Duration::from_secs(3600), ..store.retention }, ..store };
    store.retain(START_MS + 2 * HOUR_MS + 5_000);
    assert_eq!((store.windows().len(), store.rollups().0), (180, 1 + 6 + 60));
    assert_eq!(answer(&store, &Filter::default()).0, 180);
}

#[test]
fn an_unfinished_query_of_another_view_replaces_the_earlier_one() {
    let home = tempfile::tempdir().unwrap();
    let store = with_deadline(Duration::ZERO, store_of(&home, 2));
    let shop = Filter { service: Some("shop".to_owned()), ..Filter::default() };
    store.query(&Filter::default(), Detail::Everything);
    store.query(&shop, Detail::Everything);
    store.complete_queries();
    assert_eq!(store.query(&shop, Detail::Everything).left_out.windows, 0);
    assert_eq!(store.query(&Filter::default(), Detail::Everything).left_out.windows, 2);
}

#[test]
fn a_result_says_that_files_are_still_being_indexed_until_they_are() {
    let home = tempfile::tempdir().unwrap();
    let retention = Retention { max_bytes: u64::MAX, max_age: Duration::MAX, keep_windows: Duration::MAX };
    let store = Store::new(WindowDirectory::open(home.path()).unwrap(), retention);
    assert!(store.query(&Filter::default(), Detail::Stacks).is_indexing);
    store.index(|line| panic!("{line}"));
    assert!(!store.query(&Filter::default(), Detail::Stacks).is_indexing);
}

/// Two hours of one window in 100 s; each has another value of the label.
fn few_windows(home: &TempDir) -> Store {
    (0..72).for_each(|nth| place(home, START_MS + nth * 100_000 + 15_000, nth * 10));
    opened(home)
}

/// The store after windows older than `hours` were replaced.
fn replaced(store: Store, hours: u64) -> Store {
    let keep_windows = Duration::from_secs(3600 * hours);
    let store = Store { retention: Retention { keep_windows, ..store.retention }, ..store };
    store.build_rollups(NOW_MS);
    store
}

pub(super) fn file_names(home: &TempDir) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name.ends_with(".otlp.pb.gz"));
    names.sort();
    names
}

#[test]
fn hours_replace_old_windows_and_queries_return_the_same_totals_before_and_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let store = few_windows(&home);
    let shop = Filter { service: Some("shop".to_owned()), ..Filter::default() };
    let late = Filter { from_unix_nano: Some((START_MS + HOUR_MS + 1_800_000) * 1_000_000), ..Filter::default() };
    let filters = [Filter::default(), shop, late];
    let expected = filters.each_ref().map(|filter| answer(&store, filter));
    let timeline = |store: &Store| -> i64 {
        let windows = store.windows();
        windows.iter().flat_map(|window| &window.services).flat_map(|service| &service.types).map(|it| it.total).sum()
    };
    // The first hour ended two hours before, the second one hour before.
    let store = replaced(store, 2);
    assert_eq!((store.windows().len(), store.counters.replaced.load(Ordering::Relaxed)), (37, 36));
    assert_eq!(filters.each_ref().map(|filter| answer(&store, filter)), expected);
    assert_eq!(store.rollups().0, 1 + 6 + 36, "those of the other hour");
    drop(store);
    for index in ["kept", "removed"] {
        let store = opened(&home);
        assert_eq!(filters.each_ref().map(|filter| answer(&store, filter)), expected, "index {index}");
        let hour = store.windows()[0].clone();
        assert_eq!((hour.is_rollup, hour.services[0].types.len(), timeline(&store)), (true, 36, 72));
        std::fs::remove_file(home.path().join(".index")).unwrap();
    }
    assert_eq!(file_names(&home).len(), 37);
}

#[test]
fn an_hour_says_what_it_lacks_for_a_query() {
    let home = tempfile::tempdir().unwrap();
    (0..101).for_each(|nth| place(&home, START_MS + nth * 20_000 + 15_000, nth));
    let store = replaced(opened(&home), 1);
    assert_eq!(store.windows().len(), 1);
    let members = |filter: &Filter| store.query(filter, Detail::Stacks).with_completeness(Default::default());
    let whole = members(&Filter::default());
    assert_eq!(
        (whole.get("resolution_ms"), whole.get("omitted_labels"), whole["windows"].as_u64()),
        (None, None, Some(101))
    );
    let from = Some((START_MS + 1_800_000) * 1_000_000);
    assert_eq!(members(&Filter { from_unix_nano: from, ..Filter::default() })["resolution_ms"], 3_600_000);
    let label = spanprof_read::query::LabelMatcher::parse("request=70").unwrap();
    assert_eq!(members(&Filter { labels: vec![label], ..Filter::default() })["omitted_labels"][0], "request");
    let grouped = store.query(&Filter::default(), Detail::OneLabel("request".to_owned()));
    assert_eq!(grouped.with_completeness(Default::default())["omitted_labels"][0], "request");
    // One of the 200 heaviest spans.
    let span = Filter { span_id: Some((START_MS + 15_000).to_be_bytes()), ..Filter::default() };
    assert_eq!(answer(&store, &span).0, 1);
}

#[test]
fn a_window_that_arrives_late_is_merged_into_the_hour_that_replaced_its_windows() {
    let home = tempfile::tempdir().unwrap();
    drop(replaced(few_windows(&home), 2));
    place(&home, START_MS + 16_000, 1);
    let store = replaced(opened(&home), 2);
    assert_eq!((store.windows().len(), answer(&store, &Filter::default())), (37, (73, 73, 73)));
    drop(store);
    assert_eq!(answer(&opened(&home), &Filter::default()), (73, 73, 73));
    assert_eq!(file_names(&home).len(), 37);
}

#[test]
fn a_server_that_was_killed_during_a_replacement_has_each_sample_once_after_its_next_start() {
    let home = tempfile::tempdir().unwrap();
    let store = few_windows(&home);
    store.build_rollups(NOW_MS);
    let names = file_names(&home);
    let hour = std::fs::read_dir(home.path().join("rollups")).unwrap().flatten().map(|entry| entry.file_name());
    let hour = hour
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .find(|name| name.starts_with(&format!("{START_MS}-1h-")) && name.ends_with(".otlp.pb.gz"));
    let hour = hour.unwrap();
    drop(store);
    let record = [&[hour.clone()][..], &names[..36]].concat().join("\n");
    std::fs::write(home.path().join(format!(".replace-{START_MS}")), record).unwrap();
    std::fs::rename(home.path().join("rollups").join(&hour), home.path().join(&hour)).unwrap();
    names[..20].iter().for_each(|name| std::fs::remove_file(home.path().join(name)).unwrap());
    let store = opened(&home);
    assert_eq!((store.windows().len(), answer(&store, &Filter::default()).0), (37, 72));
}

#[test]
fn an_hour_is_not_replaced_while_one_of_its_windows_cannot_be_read() {
    let home = tempfile::tempdir().unwrap();
    let store = few_windows(&home);
    let damaged = home.path().join(&file_names(&home)[7]);
    let bytes = std::fs::read(&damaged).unwrap();
    std::fs::write(&damaged, "damaged").unwrap();
    let store = replaced(store, 2);
    assert_eq!(store.windows().len(), 72);
    std::fs::write(&damaged, bytes).unwrap();
    let store = replaced(store, 2);
    assert_eq!((store.windows().len(), answer(&store, &Filter::default()).0), (37, 72));
}

#[test]
fn replaced_windows_are_removed_with_their_hour_and_their_profiles_are_still_recognized() {
    let home = tempfile::tempdir().unwrap();
    let store = replaced(few_windows(&home), 1);
    let identities = store.windows()[0].identities.clone();
    let store = Store { retention: Retention { max_age: Duration::from_secs(3600), ..store.retention }, ..store };
    assert_eq!(identities.len(), 0, "profiles without an id");
    store.retain(START_MS + 2 * HOUR_MS + 5_000);
    assert_eq!((store.windows().len(), answer(&store, &Filter::default()).0), (1, 36));
    let facts = std::fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(facts.filter(|name| name.to_string_lossy().ends_with(".facts.gz")).count(), 1);
}

#[test]
fn sums_of_spans_are_those_of_the_windows_by_rollups_and_by_hours() {
    use spanprof_read::query::{SpanGrouping, SpanTable};
    let home = tempfile::tempdir().unwrap();
    let store = few_windows(&home);
    let after = |minutes: u64| Some((START_MS + minutes * 60_000 + 5_000) * 1_000_000);
    let filters = [
        Filter::default(),
        Filter { from_unix_nano: after(17), to_unix_nano: after(95), ..Filter::default() },
        Filter { service: Some("shop".to_owned()), type_name: Some("wall".to_owned()), ..Filter::default() },
        Filter { service: Some("cart".to_owned()), ..Filter::default() },
    ];
    let tables = |store: &Store| -> Vec<SpanTable> {
        let table = |filter: &Filter| store.span_totals(filter).0.table(SpanGrouping::Span, |row| row.weight("wall"));
        filters.iter().map(table).collect()
    };
    let expected = tables(&store);
    assert_eq!((expected[0].rows.len(), expected[1].rows.len(), expected[3].rows.len()), (72, 46, 0));
    store.build_rollups(NOW_MS);
    // Samples are not read any more, except for the ends of the second range.
    for path in std::fs::read_dir(home.path().join("rollups")).unwrap().map(|entry| entry.unwrap().path()) {
        if path.to_string_lossy().ends_with(".otlp.pb.gz") {
            std::fs::write(path, "").unwrap();
        }
    }
    assert_eq!(tables(&store), expected);
    drop(store);
    std::fs::remove_dir_all(home.path().join("rollups")).unwrap();
    let store = replaced(opened(&home), 1);
    let by_hours = tables(&store);
    assert_eq!([&by_hours[0], &by_hours[2], &by_hours[3]], [&expected[0], &expected[2], &expected[3]]);
    assert_eq!(by_hours[1].rows.len(), 72, "all of the hours that the range cuts");
}

#[test]
fn a_visit_of_a_long_range_reads_rollups_and_one_of_a_single_span_reads_windows() {
    let home = tempfile::tempdir().unwrap();
    let store = few_windows(&home);
    store.build_rollups(NOW_MS);
    let visit = |filter: &Filter| {
        let (mut parts, mut weight) = (0, 0);
        let left_out = store.for_each_part(filter, |data| {
            parts += 1;
            weight += data.profiles().flat_map(|(_, profile)| &profile.samples).map(Sample::total).sum::<i64>();
        });
        (parts, weight, left_out.windows)
    };
    let span = Filter { span_id: Some((START_MS + 15_000).to_be_bytes()), ..Filter::default() };
    assert_eq!(
        [visit(&Filter::default()), visit(&span)].map(|(_, weight, left_out)| (weight, left_out)),
        [(72, 0), (1, 0)]
    );
    file_names(&home).iter().for_each(|name| std::fs::write(home.path().join(name), "").unwrap());
    assert_eq!(visit(&Filter::default()), (72, 72, 0), "by minutes, of which each has one window");
}
