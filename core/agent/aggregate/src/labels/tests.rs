//! Tests of the rules of the label tables, on separate small tables.

use super::*;
use std::sync::atomic::{AtomicU32, AtomicU64};

fn words(count: usize) -> &'static [AtomicU64] {
    Vec::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

fn halves(count: usize) -> &'static [AtomicU32] {
    Vec::leak((0..count).map(|_| AtomicU32::new(0)).collect())
}

fn small_tables() -> LabelTables {
    LabelTables::new(
        Arena::new(words(1 << 16)),
        Index::new(words(64), halves(16)),
        Index::new(words(4096), halves(2048)),
        Index::new(words(4096), halves(2048)),
        halves(16),
        words(64),
    )
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn equal_labels_in_any_order_get_the_same_id() {
    let tables = small_tables();
    let first = tables.extend(LabelSetId::EMPTY, &[("route", "/cart"), ("method", "GET")]);
    let second = tables.extend(LabelSetId::EMPTY, &[("method", "GET"), ("route", "/cart")]);
    assert_eq!(first, second);
    assert_ne!(first, LabelSetId::EMPTY);
    assert_eq!(tables.labels_of(first), owned(&[("method", "GET"), ("route", "/cart")]));
    assert_eq!(tables.extend(LabelSetId::EMPTY, &[]), LabelSetId::EMPTY);
}

#[test]
fn an_inner_value_replaces_the_outer_one_of_the_same_key() {
    let tables = small_tables();
    let outer = tables.extend(LabelSetId::EMPTY, &[("route", "/"), ("user", "a")]);
    let inner = tables.extend(outer, &[("user", "b"), ("step", "2")]);
    assert_eq!(tables.labels_of(inner), owned(&[("route", "/"), ("step", "2"), ("user", "b")]));
    let prepared = tables.extend(LabelSetId::EMPTY, &[("step", "2"), ("user", "b")]);
    assert_eq!(tables.merge(outer, prepared), inner);
    assert_eq!(tables.merge(outer, prepared), inner, "the cached merge is the same");
    assert_eq!(tables.merge(outer, LabelSetId::EMPTY), outer);
    assert_eq!(tables.merge(LabelSetId::EMPTY, outer), outer);
}

#[test]
fn a_long_value_is_cut_between_characters_and_counted() {
    let tables = small_tables();
    tables.set_limits(100, 9);
    let set = tables.extend(LabelSetId::EMPTY, &[("k", "12345678ü")]);
    assert_eq!(tables.labels_of(set), owned(&[("k", "12345678")]));
    assert_eq!(tables.losses().values_truncated, 1);
}

#[test]
fn values_of_a_key_with_unbounded_cardinality_become_other_and_other_keys_are_unaffected() {
    let tables = small_tables();
    tables.set_limits(100, 1024);
    for request in 0..1000 {
        let request = request.to_string();
        let set = tables.extend(LabelSetId::EMPTY, &[("request", request.as_str()), ("route", "/cart")]);
        let labels = tables.labels_of(set);
        assert!(labels.contains(&("route".to_owned(), "/cart".to_owned())), "{labels:?}");
    }
    let last = tables.extend(LabelSetId::EMPTY, &[("request", "999"), ("route", "/cart")]);
    assert_eq!(tables.labels_of(last), owned(&[("request", "other"), ("route", "/cart")]));
    assert_eq!(tables.losses().values_replaced, 951, "50 values fit, 950 did not, and one was interned again");
}

#[test]
fn beyond_the_cap_of_sets_all_values_become_other_and_no_memory_grows() {
    let tables = small_tables();
    tables.set_limits(64, 1024);
    for a in 0..30 {
        for b in 0..30 {
            let (a, b) = (a.to_string(), b.to_string());
            tables.extend(LabelSetId::EMPTY, &[("a", a.as_str()), ("b", b.as_str())]);
        }
    }
    let used = tables.used_bytes();
    let set = tables.extend(LabelSetId::EMPTY, &[("a", "29"), ("b", "28")]);
    assert_eq!(tables.labels_of(set), owned(&[("a", "other"), ("b", "other")]));
    assert_eq!(tables.used_bytes(), used);
    assert_eq!(tables.set_count(), 65);
}

#[test]
fn keys_beyond_their_cap_and_empty_keys_are_left_out_and_counted() {
    let tables = small_tables();
    for key in 0..20 {
        tables.extend(LabelSetId::EMPTY, &[(key.to_string().as_str(), "v")]);
    }
    assert_eq!(tables.losses().labels_dropped, 4, "the small index has a capacity of 16 keys");
    assert_eq!(tables.extend(LabelSetId::EMPTY, &[("", "v")]), LabelSetId::EMPTY);
    assert_eq!(tables.losses().labels_dropped, 5);
}

#[test]
fn a_map_of_hundreds_of_labels_does_not_exhaust_the_keys_of_the_process() {
    let (keys, labels, sets) = (Index::new(words(512), halves(128)), Index::new(words(512), halves(256)), 256);
    let sets = Index::new(words(1024), halves(sets));
    let tables = LabelTables::new(Arena::new(words(1 << 14)), keys, labels, sets, halves(128), words(64));
    let names: Vec<_> = (0..300).map(|n| format!("key {n}")).collect();
    let pairs: Vec<_> = names.iter().map(|key| (key.as_str(), "value")).collect();
    let many = tables.extend(LabelSetId::EMPTY, &pairs);
    assert_eq!(tables.labels_of(many).len(), MAX_LABELS_PER_SET);
    assert_eq!(tables.losses().labels_dropped, 300 - MAX_LABELS_PER_SET as u64);
    let other = tables.extend(LabelSetId::EMPTY, &[("another request's key", "1")]);
    assert_eq!(tables.labels_of(other), owned(&[("another request's key", "1")]));
    assert_eq!(tables.labels_of(tables.extend(many, &[("key 0", "2")]))[0].1, "2", "a known key is still replaced");
}

#[test]
fn hostile_text_is_stored_unchanged() {
    let tables = small_tables();
    let pairs = [("__proto__", "a,b=c;d\n\0\u{202e}"), ("k=1", "\u{1F600}"), ("empty", "")];
    let set = tables.extend(LabelSetId::EMPTY, &pairs);
    let mut expected = owned(&pairs);
    expected.sort();
    assert_eq!(tables.labels_of(set), expected);
}

#[test]
fn a_full_arena_returns_other_or_no_label_and_never_a_wrong_one() {
    let tables = LabelTables::new(
        Arena::new(words(64)),
        Index::new(words(64), halves(16)),
        Index::new(words(256), halves(128)),
        Index::new(words(256), halves(128)),
        halves(16),
        words(64),
    );
    for n in 0..200 {
        let value = format!("value number {n}");
        let set = tables.extend(LabelSetId::EMPTY, &[("k", value.as_str())]);
        let labels = tables.labels_of(set);
        assert!(
            labels.is_empty() || labels == owned(&[("k", value.as_str())]) || labels == owned(&[("k", "other")]),
            "{labels:?}"
        );
    }
}

#[test]
fn threads_that_intern_the_same_labels_concurrently_get_the_same_ids() {
    let tables: &'static LabelTables = Box::leak(Box::new(small_tables()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                (0..200)
                    .map(|n| {
                        let value = (n % 40).to_string();
                        tables.extend(LabelSetId::EMPTY, &[("k", value.as_str()), ("route", "/")])
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(tables.set_count(), 40);
}

#[test]
fn a_writer_lock_held_at_fork_does_not_block_the_child() {
    let tables = small_tables();
    // A thread of the parent holds the lock at the fork; the child has no thread that releases it.
    std::mem::forget(tables.writer_lock_for_test());
    tables.after_fork_in_child();
    let set = tables.extend(LabelSetId::EMPTY, &[("k", "v")]);
    assert_eq!(tables.labels_of(set), owned(&[("k", "v")]));
}
