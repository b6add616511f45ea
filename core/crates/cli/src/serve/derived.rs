//! Trees and tables of the last query results. A zoom, a search or another page of rows computes none again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use super::locks::lock;
use super::queries::QueryResult;

/// Cached values of one kind.
const CACHED_VALUES: usize = 4;
/// Memory of the cached values of one kind, except for the newest: a tree of a million stacks takes some 200 MB.
const CACHE_BYTES: usize = 128 << 20;

/// A value that is computed from a result.
struct DerivedValue<T> {
    /// Weak: the store decides how long a result is kept.
    result: Weak<QueryResult>,
    type_name: Option<String>,
    view: String,
    value: Arc<T>,
    bytes: usize,
}

/// A cache of values, last used first.
pub(crate) struct DerivedCache<T> {
    values: Mutex<VecDeque<DerivedValue<T>>>,
    memory_bytes: fn(&T) -> usize,
}

impl<T> DerivedCache<T> {
    pub(crate) fn new(memory_bytes: fn(&T) -> usize) -> Self {
        Self { values: Mutex::default(), memory_bytes }
    }

    /// The value of a result, a type and a view of its stacks; computed by `derive` unless it is cached.
    pub(crate) fn get(
        &self,
        result: &Arc<QueryResult>,
        type_name: Option<&str>,
        view: &str,
        derive: impl FnOnce() -> T,
    ) -> Arc<T> {
        let is_same = |value: &DerivedValue<T>| {
            std::ptr::eq(value.result.as_ptr(), Arc::as_ptr(result))
                && value.type_name.as_deref() == type_name
                && value.view == view
        };
        let cached = {
            let mut values = lock(&self.values);
            let at = values.iter().position(is_same);
            at.and_then(|at| values.remove(at))
        };
        let newest = cached.unwrap_or_else(|| {
            let value = Arc::new(derive());
            let bytes = (self.memory_bytes)(&value);
            let type_name = type_name.map(str::to_owned);
            let view = view.to_owned();
            DerivedValue { result: Arc::downgrade(result), type_name, view, value, bytes }
        });
        let value = newest.value.clone();
        let mut values = lock(&self.values);
        values.push_front(newest);
        let (mut count, mut total) = (0, 0);
        values.retain(|value| {
            count += 1;
            total += value.bytes;
            count == 1 || (count <= CACHED_VALUES && total <= CACHE_BYTES && value.result.strong_count() > 0)
        });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> Arc<QueryResult> {
        Arc::new(QueryResult {
            data: Arc::default(),
            summaries: Vec::new(),
            samples: Default::default(),
            windows: 0,
            left_out: Default::default(),
            is_too_large: false,
            is_indexing: false,
            has_missing_files: false,
            hours: Default::default(),
        })
    }

    #[test]
    fn a_value_is_computed_once_per_result_type_and_view() {
        let cache = DerivedCache::new(|_: &u32| 1);
        let [one, other] = [result(), result()];
        let get = |result: &Arc<QueryResult>, type_name, view, new| *cache.get(result, type_name, view, || new);
        assert_eq!([get(&one, Some("cpu"), "", 1), get(&one, Some("cpu"), "", 9)], [1, 1]);
        assert_eq!([get(&one, Some("cpu"), "native", 2), get(&one, None, "", 3), get(&other, None, "", 4)], [2, 3, 4]);
        assert_eq!([get(&one, Some("cpu"), "", 9), get(&other, None, "", 9)], [1, 4]);
        // A fifth replaces the one that was not used longest.
        assert_eq!([get(&other, None, "native", 5), get(&one, Some("cpu"), "native", 6)], [5, 6]);
    }

    #[test]
    fn values_of_dropped_results_and_beyond_the_memory_limit_are_removed() {
        let cache = DerivedCache::new(|bytes: &usize| *bytes);
        let [one, other] = [result(), result()];
        cache.get(&one, None, "", || CACHE_BYTES + 1);
        assert_eq!(*cache.get(&one, None, "", || 0), CACHE_BYTES + 1, "the newest is always kept");
        cache.get(&other, None, "", || 1);
        assert_eq!(*cache.get(&one, None, "", || 2), 2);
        drop(other);
        cache.get(&one, None, "native", || 3);
        assert_eq!(cache.values.lock().unwrap().len(), 2);
    }
}
