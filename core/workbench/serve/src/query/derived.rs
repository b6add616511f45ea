//! Trees and tables of the last query results. A zoom, a search or another page of rows computes none again.

use std::sync::{Arc, Weak};

use super::byte_cache::ByteCache;
use super::queries::QueryResult;

/// Cached values of one kind, and their memory: a tree of a million stacks takes some 200 MB.
const CACHED_VALUES: usize = 4;
const CACHE_BYTES: usize = 128 << 20;

/// Address of a result, type and view.
type DerivedKey = (usize, Option<String>, String);

/// A cache of values.
pub(crate) struct DerivedCache<T> {
    /// The reference keeps the address of the result, and not the result: the store decides how long that is kept.
    values: ByteCache<DerivedKey, (Weak<QueryResult>, Arc<T>)>,
    memory_bytes: fn(&T) -> usize,
}

impl<T> DerivedCache<T> {
    pub(crate) fn new(memory_bytes: fn(&T) -> usize) -> Self {
        Self { values: ByteCache::new(CACHE_BYTES, CACHED_VALUES), memory_bytes }
    }

    /// The value of a result, a type and a view of its stacks; computed by `derive` unless it is cached.
    pub(crate) fn get(
        &self,
        result: &Arc<QueryResult>,
        type_name: Option<&str>,
        view: &str,
        derive: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = (Arc::as_ptr(result) as usize, type_name.map(str::to_owned), view.to_owned());
        if let Some(cached) = self.values.find(&key) {
            return cached.1.clone();
        }
        let value = Arc::new(derive());
        self.values.retain(|(result, _)| result.strong_count() > 0);
        self.values.insert(key, Arc::new((Arc::downgrade(result), value.clone())), (self.memory_bytes)(&value));
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
    }
}
