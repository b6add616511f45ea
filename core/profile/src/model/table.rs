//! Three deduplicating tables: of copyable entries, of sequences, of text. Each stores its entries in one growing buffer and
//! a hash table of indices beside it, so that an entry is stored once. Index 0 always exists: the zero value.
//!
//! Invariant: a full table (2^32 entries) returns 0 for a new entry, and an unassigned index reads as the zero value.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::LocationId;

/// Distinct entries of fixed size.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    entries: Vec<T>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Default + Eq + Hash> Table<T> {
    pub fn new() -> Self {
        let mut table = Self { entries: Vec::new(), index: HashTable::new(), hasher: DefaultHashBuilder::default() };
        table.intern(T::default());
        table
    }

    pub fn intern(&mut self, entry: T) -> u32 {
        let Self { entries, index, hasher } = self;
        let hash = hasher.hash_one(entry);
        if let Some(&found) = index.find(hash, |&at| entries[at as usize] == entry) {
            return found;
        }
        let Ok(new) = u32::try_from(entries.len()) else { return 0 };
        entries.push(entry);
        index.insert_unique(hash, new, |&at| hasher.hash_one(entries[at as usize]));
        new
    }

    /// Replaces entries in place. An entry that becomes equal to another one reads as the zero value from now on, and the result
    /// has the index of the other one.
    pub fn replace(&mut self, changes: &[(u32, T)]) -> HashMap<u32, u32> {
        let Self { entries, index, hasher } = self;
        // All are removed first: a new entry may be equal to one that is replaced later.
        for (at, _) in changes {
            let hash = hasher.hash_one(entries[*at as usize]);
            if let Ok(found) = index.find_entry(hash, |other| other == at) {
                found.remove();
            }
        }
        let mut moved = HashMap::new();
        for &(at, new) in changes {
            let hash = hasher.hash_one(new);
            if let Some(&other) = index.find(hash, |&other| entries[other as usize] == new) {
                moved.insert(at, other);
                entries[at as usize] = T::default();
            } else {
                entries[at as usize] = new;
                index.insert_unique(hash, at, |&at| hasher.hash_one(entries[at as usize]));
            }
        }
        moved
    }

    pub fn get(&self, at: usize) -> T {
        self.entries.get(at).copied().unwrap_or_default()
    }

    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.index.clear();
        self.intern(T::default());
    }

    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<T>() + self.index.allocation_size()
    }
}

/// Distinct sequences of items, concatenated in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct SequenceTable<T> {
    items: Vec<T>,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Eq + Hash> SequenceTable<T> {
    pub fn new() -> Self {
        let mut table = Self {
            items: Vec::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        table.intern(&[]);
        table
    }

    pub fn intern(&mut self, sequence: &[T]) -> u32 {
        let Self { items, ends, index, hasher } = self;
        let hash = hasher.hash_one(sequence);
        if let Some(&found) = index.find(hash, |&at| slice_at(items, ends, at as usize) == sequence) {
            return found;
        }
        let Ok(new) = u32::try_from(ends.len()) else { return 0 };
        items.extend_from_slice(sequence);
        ends.push(items.len());
        index.insert_unique(hash, new, |&at| hasher.hash_one(slice_at(items, ends, at as usize)));
        new
    }

    /// Sequences are hashed again each time the index grows.
    pub fn reserve(&mut self, count: usize) {
        let Self { items, ends, index, hasher } = self;
        ends.reserve(count);
        index.reserve(count, |&at| hasher.hash_one(slice_at(items, ends, at as usize)));
    }

    pub fn get(&self, at: usize) -> &[T] {
        slice_at(&self.items, &self.ends, at)
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.ends.clear();
        self.index.clear();
        self.intern(&[]);
    }

    pub fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>()
            + self.ends.capacity() * size_of::<usize>()
            + self.index.allocation_size()
    }
}

impl SequenceTable<LocationId> {
    /// Replaces or removes (`None`) items in place. A sequence that loses all its items becomes `[if_empty]`. The result has the
    /// new index of each sequence that became shorter or equal to another one; its old index must not be used any more.
    pub fn replace_items(
        &mut self,
        replaced: &HashMap<LocationId, Option<LocationId>>,
        if_empty: LocationId,
    ) -> HashMap<u32, u32> {
        let mut is_replaced = vec![false; replaced.keys().map(|item| item.index() + 1).max().unwrap_or(0)];
        replaced.keys().for_each(|item| is_replaced[item.index()] = true);
        let is_affected =
            |at: &u32| self.get(*at as usize).iter().any(|item| is_replaced.get(item.index()) == Some(&true));
        let affected: Vec<u32> = (0..self.len() as u32).filter(is_affected).collect();
        let Self { items, ends, index, hasher } = self;
        // As in `Table::replace`.
        for at in &affected {
            let hash = hasher.hash_one(slice_at(items, ends, *at as usize));
            if let Ok(found) = index.find_entry(hash, |other| other == at) {
                found.remove();
            }
        }
        let (mut moved, mut new) = (HashMap::new(), Vec::new());
        for at in affected {
            let Self { items, ends, index, hasher } = self;
            let old = slice_at(items, ends, at as usize);
            let (old_len, end) = (old.len(), ends[at as usize]);
            new.clear();
            new.extend(old.iter().filter_map(|item| replaced.get(item).copied().unwrap_or(Some(*item))));
            if new.is_empty() {
                new.push(if_empty);
            }
            let hash = hasher.hash_one(&*new);
            let is_known = index.find(hash, |&other| slice_at(items, ends, other as usize) == new).is_some();
            if is_known || new.len() != old_len {
                moved.insert(at, self.intern(&new));
                continue;
            }
            items[end - old_len..end].copy_from_slice(&new);
            index.insert_unique(hash, at, |&at| hasher.hash_one(slice_at(items, ends, at as usize)));
        }
        moved
    }
}

fn slice_at<'a, T>(items: &'a [T], ends: &[usize], at: usize) -> &'a [T] {
    let Some(&end) = ends.get(at) else { return &[] };
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &items[start..end]
}

/// Distinct strings, concatenated in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct TextTable {
    text: String,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl TextTable {
    pub fn new() -> Self {
        let mut table = Self {
            text: String::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        table.intern("");
        table
    }

    pub fn intern(&mut self, string: &str) -> u32 {
        let Self { text, ends, index, hasher } = self;
        let hash = hasher.hash_one(string);
        if let Some(&found) = index.find(hash, |&at| text_at(text, ends, at as usize) == string) {
            return found;
        }
        let Ok(new) = u32::try_from(ends.len()) else { return 0 };
        text.push_str(string);
        ends.push(text.len());
        index.insert_unique(hash, new, |&at| hasher.hash_one(text_at(text, ends, at as usize)));
        new
    }

    pub fn find(&self, string: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(string);
        self.index.find(hash, |&at| text_at(&self.text, &self.ends, at as usize) == string).copied()
    }

    /// Replaces strings by the empty one. `erased` is sorted.
    pub fn erase(&mut self, erased: &[u32]) {
        let Self { text, ends, index, hasher } = self;
        for id in erased {
            let hash = hasher.hash_one(text_at(text, ends, *id as usize));
            if let Ok(entry) = index.find_entry(hash, |at| at == id) {
                entry.remove();
            }
        }
        let mut kept = String::with_capacity(text.len());
        let (mut start, mut removed, mut next) = (0, 0, erased.iter().peekable());
        let mut previous_end = 0;
        for (at, end) in ends.iter_mut().enumerate() {
            if next.next_if(|id| **id as usize == at).is_some() {
                kept.push_str(&text[start..previous_end]);
                removed += *end - previous_end;
                start = *end;
            }
            previous_end = *end;
            *end -= removed;
        }
        kept.push_str(&text[start..previous_end]);
        *text = kept;
    }

    pub fn get(&self, at: usize) -> &str {
        text_at(&self.text, &self.ends, at)
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.index.clear();
        self.intern("");
    }

    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.index.allocation_size()
    }
}

fn text_at<'a>(text: &'a str, ends: &[usize], at: usize) -> &'a str {
    let Some(&end) = ends.get(at) else { return "" };
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_entries_share_an_index_and_zero_is_the_default() {
        let mut table = Table::<u64>::new();
        assert_eq!(table.intern(0), 0);
        assert_eq!(table.intern(7), 1);
        assert_eq!(table.intern(9), 2);
        assert_eq!(table.intern(7), 1);
        assert_eq!(table.entries(), [0, 7, 9]);
        assert_eq!(table.get(99), 0);
    }

    #[test]
    fn sequences_are_unchanged_when_the_table_grows() {
        let mut table = SequenceTable::<u32>::new();
        let ids: Vec<u32> =
            (0..500u32).map(|n| table.intern(&(0..n % 50).map(|i| i * n).collect::<Vec<_>>())).collect();
        for n in 0..500u32 {
            let expected: Vec<u32> = (0..n % 50).map(|i| i * n).collect();
            assert_eq!(table.get(ids[n as usize] as usize), expected);
            assert_eq!(table.intern(&expected), ids[n as usize]);
        }
        assert_eq!(table.get(usize::MAX), &[] as &[u32]);
    }

    #[test]
    fn replaced_entries_keep_their_index_or_have_that_of_an_equal_one() {
        let mut table = Table::<u64>::new();
        let ids: Vec<u32> = (1..=5).map(|entry| table.intern(entry)).collect();
        // 1 and 2 are exchanged; 3 becomes 4, which becomes 9; 5 becomes the zero value.
        let moved = table.replace(&[(ids[0], 2), (ids[1], 1), (ids[2], 4), (ids[3], 9), (ids[4], 0)]);
        assert_eq!(table.entries(), [0, 2, 1, 4, 9, 0]);
        assert_eq!(moved.into_iter().collect::<Vec<_>>(), [(ids[4], 0)]);
        let moved = table.replace(&[(ids[0], 9), (ids[1], 9)]);
        assert_eq!((moved.get(&ids[0]), moved.get(&ids[1])), (Some(&ids[3]), Some(&ids[3])));
        assert_eq!([0, 4, 9, 1, 2].map(|entry| table.intern(entry)), [0, ids[2], ids[3], 6, 7]);
    }

    #[test]
    fn sequences_with_replaced_items_stay_distinct_and_can_be_found() {
        let mut table = SequenceTable::<LocationId>::new();
        let stack = |items: &[u32]| items.iter().map(|item| LocationId(*item)).collect::<Vec<_>>();
        let ids = [&[1, 2][..], &[3, 2], &[4, 5], &[5], &[2, 4], &[2]].map(|items| table.intern(&stack(items)));
        let new = [(1, Some(3)), (4, None), (5, None), (9, Some(1))];
        let new = new.map(|(item, new)| (LocationId(item), new.map(LocationId))).into_iter().collect();
        let moved = table.replace_items(&new, LocationId(8));
        let now = ids.map(|id| moved.get(&id).copied().unwrap_or(id));
        let expected = [&[3, 2][..], &[3, 2], &[8], &[8], &[2], &[2]].map(stack);
        assert_eq!(now.map(|id| table.get(id as usize).to_vec()), expected);
        assert_eq!(expected.map(|items| table.intern(&items)), now);
        assert_eq!((now[0], now[3], now[4]), (ids[1], now[2], ids[5]));
        assert_eq!(table.intern(&stack(&[1, 2])), table.len() as u32 - 1, "the old sequence is not found");
    }

    #[test]
    fn erased_strings_are_empty_and_can_be_interned_again() {
        let mut table = TextTable::new();
        let ids: Vec<u32> = ["one", "two", "three", "four"].iter().map(|text| table.intern(text)).collect();
        table.erase(&[ids[0], ids[2]]);
        let texts: Vec<_> = ids.iter().map(|id| table.get(*id as usize)).collect();
        assert_eq!(texts, ["", "two", "", "four"]);
        assert_eq!((table.find("three"), table.find("four")), (None, Some(ids[3])));
        assert_eq!(table.text_bytes(), "twofour".len());
        assert_eq!(table.intern("three"), 5);
        table.erase(&[5]);
        table.erase(&[]);
        assert_eq!((table.get(5), table.get(ids[1] as usize)), ("", "two"));
    }

    #[test]
    fn text_of_every_length_is_found_before_and_interned_again_after_clear() {
        let mut table = TextTable::new();
        let all: Vec<String> = (0..if cfg!(miri) { 40 } else { 300 }).map(|n| "é".repeat(n)).collect();
        for _ in 0..2 {
            let ids: Vec<u32> = all.iter().map(|text| table.intern(text)).collect();
            assert_eq!(ids[0], 0);
            assert_eq!(table.len(), all.len());
            for (text, id) in all.iter().zip(&ids) {
                assert_eq!(table.get(*id as usize), text);
                assert_eq!(table.find(text), Some(*id));
            }
            table.clear();
            assert_eq!(table.len(), 1);
            assert_eq!(table.find("é"), None);
        }
    }
}
