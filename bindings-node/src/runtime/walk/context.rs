//! The context id of the interrupted JavaScript thread: the number that the package's AsyncLocalStorage has in V8's
//! continuation-preserved embedder data, which is a JavaScript map (`AsyncContextFrame`). Each word is read through a guarded
//! load, so that a map under modification yields no context instead of a crash. During a collection the id is that of the
//! collection's start.
//!
//! # Changes in V8
//! Upstream: `src/objects/js-collection.h` (`JSMap`), `src/objects/ordered-hash-table.h` (`OrderedHashMap`),
//! `src/objects/heap-number.h`; in Node.js `lib/internal/async_context_frame.js`.
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 10.2 (18), 11.3 (20) | no embedder data: a hook of JavaScript sets the id | `id` |
//! | 12.4 (22) | a map in the embedder data with `--experimental-async-context-frame` | `stored` |
//! | 13.6 (24), 14.6 (26) | always; the same fields | `stored` |

use std::sync::atomic::Ordering;

use spanprof_signal::{Context, Memory, ProcessMemory};

use super::js_thread::JsThread;

/// JSMap: map, properties, elements, table.
const TABLE: usize = 24;
/// OrderedHashMap: map, length, elements, deleted, buckets, then the buckets and (key, value, chain) triples.
const ELEMENTS: usize = 16;
const DELETED: usize = 24;
const BUCKETS: usize = 32;
const BODY: usize = 40;
const MAX_ENTRIES: u64 = 256;
/// HeapNumber: map, value.
const NUMBER: usize = 8;
const MAX_ID: f64 = 9_007_199_254_740_992.0;

/// The context of a thread, for the handler.
pub fn read(thread: &JsThread) -> Context {
    match id(thread) {
        0 => Context::None,
        id => Context::Id(id),
    }
}

pub fn id(thread: &JsThread) -> u64 {
    if thread.active_collections.load(Ordering::Relaxed) != 0 {
        return thread.collection_context.load(Ordering::Relaxed);
    }
    let offset = thread.continuation_offset.load(Ordering::Relaxed);
    if offset == 0 {
        return f64::from_bits(thread.current.load(Ordering::Relaxed)) as u64;
    }
    let map_slot = thread.isolate.load(Ordering::Relaxed).wrapping_add(offset);
    stored(&ProcessMemory, map_slot, thread.storage.load(Ordering::Relaxed)).unwrap_or(0)
}

/// The number stored under the handle's object in the map at `map_slot`.
pub fn stored(memory: &impl Memory, map_slot: usize, handle: usize) -> Option<u64> {
    let key = memory.word(handle)? as u64;
    let table = field(memory, memory.word(map_slot)? as u64, TABLE)?;
    let count = |at: usize| field(memory, table, at).filter(|word| word & 0xffff_ffff == 0).map(|word| word >> 32);
    let (elements, deleted, buckets) = (count(ELEMENTS)?, count(DELETED)?, count(BUCKETS)?);
    if key & 3 != 1 || elements > MAX_ENTRIES || deleted > MAX_ENTRIES || buckets > MAX_ENTRIES {
        return None;
    }
    for entry in 0..(elements + deleted) as usize {
        let offset = BODY + buckets as usize * 8 + entry * 24;
        if field(memory, table, offset)? == key {
            return number(memory, field(memory, table, offset + 8)?);
        }
    }
    None
}

/// A field of a tagged heap object.
fn field(memory: &impl Memory, object: u64, offset: usize) -> Option<u64> {
    let address = (object & 3 == 1).then(|| (object as usize).wrapping_sub(1).wrapping_add(offset))?;
    memory.word(address).map(|word| word as u64)
}

/// The value of a Smi or HeapNumber.
fn number(memory: &impl Memory, value: u64) -> Option<u64> {
    if value & 1 == 0 {
        let smi = (value as i64) >> 32;
        return u64::try_from(smi).ok();
    }
    let number = f64::from_bits(field(memory, value, NUMBER)?);
    let whole = (0.0..MAX_ID).contains(&number) && number.trunc() == number;
    whole.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(words: &[u64]) -> u64 {
        words.as_ptr() as u64 + 1
    }

    fn read_with(key: u64, value: u64) -> Option<u64> {
        let other = [0u64; 4];
        let table = [0, 0, 2 << 32, 0, 2 << 32, 0, 0, tagged(&other), 5 << 32, 0, key, value, 0];
        let map = [0, 0, 0, tagged(&table)];
        let map_slot = [tagged(&map)];
        let handle = [key];
        stored(&ProcessMemory, map_slot.as_ptr() as usize, handle.as_ptr() as usize)
    }

    #[test]
    fn the_number_of_the_storage_is_found_among_other_keys() {
        let storage = [0u64; 4];
        assert_eq!(read_with(tagged(&storage), 1026 << 32), Some(1026));
        let number = [0, 4_294_967_297f64.to_bits()];
        assert_eq!(read_with(tagged(&storage), tagged(&number)), Some(4_294_967_297));
    }

    #[test]
    fn a_value_that_is_not_a_whole_number_gives_no_context() {
        let storage = [0u64; 4];
        let fraction = [0, 1.5f64.to_bits()];
        assert_eq!(read_with(tagged(&storage), tagged(&fraction)), None);
        assert_eq!(read_with(tagged(&storage), (-4i64 << 32) as u64), None);
        assert_eq!(read_with(6, 1 << 32), None, "a key that is not a heap object");
        assert_eq!(stored(&ProcessMemory, 16, 16), None);
    }
}
