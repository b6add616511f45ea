//! A cache bounded by the bytes and the number of its values. The values that were not used longest are removed, never the newest
//! one: it may exceed the limit alone, and the page asks for it again. (`quick_cache` and `moka` refuse such a value.)

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::files::locks::lock;

#[derive(Debug)]
pub(crate) struct ByteCache<K, V> {
    max_bytes: usize,
    max_values: usize,
    state: Mutex<CacheState<K, V>>,
}

#[derive(Debug)]
struct CacheState<K, V> {
    values: HashMap<K, CachedValue<V>>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct CachedValue<V> {
    value: Arc<V>,
    bytes: usize,
    last_used: u64,
}

impl<K: Eq + Hash, V> ByteCache<K, V> {
    pub(crate) fn new(max_bytes: usize, max_values: usize) -> Self {
        let state = CacheState { values: HashMap::new(), bytes: 0, uses: 0 };
        Self { max_bytes, max_values, state: Mutex::new(state) }
    }

    pub(crate) fn find(&self, key: &K) -> Option<Arc<V>> {
        let mut state = lock(&self.state);
        state.uses += 1;
        let last_used = state.uses;
        let cached = state.values.get_mut(key)?;
        cached.last_used = last_used;
        Some(cached.value.clone())
    }

    pub(crate) fn insert(&self, key: K, value: Arc<V>, bytes: usize) {
        let mut state = lock(&self.state);
        state.uses += 1;
        let last_used = state.uses;
        state.bytes += bytes;
        if let Some(replaced) = state.values.insert(key, CachedValue { value, bytes, last_used }) {
            state.bytes -= replaced.bytes;
        }
        if state.bytes > self.max_bytes || state.values.len() > self.max_values {
            self.evict(&mut state);
        }
    }

    /// Removes values until a quarter of the bytes is free, so that few insertions evict.
    fn evict(&self, state: &mut CacheState<K, V>) {
        let mut ages: Vec<_> = state.values.values().map(|cached| (cached.last_used, cached.bytes)).collect();
        ages.sort_unstable_by_key(|(last_used, _)| std::cmp::Reverse(*last_used));
        let limit = if state.bytes > self.max_bytes { self.max_bytes / 4 * 3 } else { self.max_bytes };
        let (mut kept_bytes, mut oldest) = (0, state.uses);
        for (nth, (last_used, bytes)) in ages.into_iter().enumerate() {
            kept_bytes += bytes;
            if nth > 0 && (kept_bytes > limit || nth >= self.max_values) {
                break;
            }
            oldest = last_used;
        }
        state.values.retain(|_, cached| cached.last_used >= oldest);
        state.bytes = state.values.values().map(|cached| cached.bytes).sum();
    }

    /// Removes the values for which `is_valid` is false.
    pub(crate) fn retain(&self, is_valid: impl Fn(&V) -> bool) {
        let mut state = lock(&self.state);
        state.values.retain(|_, cached| is_valid(&cached.value));
        state.bytes = state.values.values().map(|cached| cached.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(cache: &ByteCache<u32, ()>) -> Vec<u32> {
        let mut keys: Vec<u32> = lock(&cache.state).values.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn the_values_that_were_not_used_longest_are_removed() {
        let cache = ByteCache::new(100, 4);
        for key in 1..=4 {
            cache.insert(key, Arc::new(()), 25);
            assert!(cache.find(&1).is_some());
        }
        cache.insert(5, Arc::new(()), 25);
        assert_eq!(keys(&cache), [1, 4, 5], "three quarters");
        cache.insert(6, Arc::new(()), 101);
        assert_eq!(keys(&cache), [6], "the newest is always kept");
        let counted = ByteCache::new(100, 2);
        (1..=3).for_each(|key| counted.insert(key, Arc::new(()), 1));
        assert_eq!(keys(&counted), [2, 3]);
    }
}
